"""The environments `null` and `bwrap` in the shape that Harbor asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evsys.errors import RolloutError
from evsys_rollouts_harbor.api import BaseEnvironment, EnvironmentCapabilities, ExecResult
from evsys_rollouts_harbor.bubblewrap import WORKDIR, BwrapEnvironment
from evsys_rollouts_harbor.images import Image, read_image
from evsys_rollouts_harbor.live import live_rollout

__all__ = ["Bubblewrap", "Nowhere"]


class Nowhere(BaseEnvironment):  # type: ignore[misc]  # Harbor has no types
    """Nothing can be executed here; what Harbor does to its folders in any environment is done by no one."""

    @staticmethod
    def type() -> str:
        """Its type in Harbor."""
        return "null"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """It has no network to speak of, and its log folders are those of the trial."""
        return EnvironmentCapabilities(disable_internet=True, mounted=True)

    def is_path_mounted(self, environment_path: Any, host_path: Path) -> bool:
        """Nothing is to be moved from here to the host, or back."""
        return True

    def _validate_definition(self) -> None:
        """Nothing is needed."""

    async def start(self, force_build: bool) -> None:
        """Nothing to start."""

    async def stop(self, delete: bool) -> None:
        """Nothing to stop."""

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """There is nowhere to put it."""

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """There is nowhere to put it."""

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """There is nothing to take.

        Raises:
            RolloutError: always.
        """
        raise _nowhere()

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """There is nothing to take."""

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Refuse.

        Raises:
            RolloutError: always.
        """
        raise _nowhere()


def _nowhere() -> RolloutError:
    return RolloutError(
        "nothing can be executed in environment 'null'", hint="name one, such as environment: {kind: bwrap}"
    )


class Bubblewrap(BaseEnvironment):  # type: ignore[misc]  # Harbor has no types
    """A bubblewrap sandbox; its own params come as `settings`."""

    def __init__(self, *args: Any, settings: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self._settings = dict(settings or {})
        self._image = Image()
        super().__init__(*args, **kwargs)
        if self._network_disabled:
            self._settings["network"] = False
        self._sandbox = BwrapEnvironment(**self._settings)
        live_rollout(Path(self.trial_paths.trial_dir)).sandbox = self._sandbox

    @staticmethod
    def type() -> str:
        """Its type in Harbor."""
        return "bwrap"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """It can do without a network. Its log folders are copied, not mounted: what an agent leaves there isn't trusted."""
        return EnvironmentCapabilities(disable_internet=True)

    @property
    def workdir(self) -> str:
        """The default folder of commands."""
        return self.task_env_config.workdir or self._image.workdir or WORKDIR

    def _validate_definition(self) -> None:
        self._image = read_image(
            Path(self.environment_dir),
            docker_image=self.task_env_config.docker_image,
            ignore=self._settings.get("image") == "ignore",
        )

    async def start(self, force_build: bool) -> None:
        """Make the sandbox, with what the task's environment folder puts there."""
        await self._sandbox.start()
        await self._sandbox.exec(f'mkdir -p "{self.workdir}"', cwd="/")
        for source, target in self._image.copies:
            await self._sandbox.put(source, target)
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        """End everything inside and remove its files."""
        await self._sandbox.stop()

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file in."""
        await self._sandbox.put(Path(source_path), target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy a folder in."""
        await self._sandbox.put(Path(source_dir), target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out."""
        await self._sandbox.get(source_path, Path(target_path))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy a folder out."""
        await self._sandbox.get(source_dir, Path(target_dir))

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a shell command.

        Raises:
            RolloutError: it should be run as someone else: a sandbox has one user.
            RuntimeError: its time was over.
        """
        someone = self._resolve_user(user)
        if someone not in {None, "root", 0, "0"}:
            raise RolloutError(f"environment 'bwrap' has one user, and {someone!r} isn't it")
        try:
            done = await self._sandbox.exec(
                command,
                cwd=cwd or self.workdir,
                env={**self._image.env, **(self._merge_env(env) or {})},
                timeout_seconds=timeout_sec,
            )
        except TimeoutError as exc:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from exc
        return ExecResult(stdout=done.stdout, stderr=done.stderr, return_code=done.return_code)

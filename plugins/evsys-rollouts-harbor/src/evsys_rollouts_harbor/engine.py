"""The rollout engine `harbor`: each rollout is a trial of Harbor's. Harbor is imported when the first one is asked for."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from evsys import option, structure
from evsys.errors import ConfigError, PluginLoadError, RolloutError
from evsys.types import HarborTask, Policy, Rollout, RolloutLimits
from evsys_runtime import jobs_of, scheduled
from evsys_runtime.config import placeholders
from evsys_runtime.evaluation.agents import HarnessAgent

if TYPE_CHECKING:
    from evsys_rollouts_harbor.trials import Trials

__all__ = ["HarborEngine"]

_VERSIONS = ((0, 25), (0, 26))
_INSTALL = "install it with: pip install 'evsys-sdk[harbor]'"


class HarborEngine:
    """Runs agents of evsys and of Harbor, in any environment of Harbor's, on chat tasks and on folders of native
    tasks.

    Agents of evsys, model clients and verifiers run on the event loop of the caller, as with the engine `direct`;
    all that is Harbor's runs in a thread of its own.
    """

    name: ClassVar[str] = "harbor"

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `harbor`."""

        max_retries: int = option(
            2, "how often a rollout is tried again that failed for a reason that may pass", ge=0
        )
        retry_wait_seconds: float = option(
            1.0, "wait before the first of these; doubled each time, up to a minute", ge=0
        )
        retry_on: list[str] = option(
            attrs.Factory(list),
            "more names of exceptions after which a rollout of a Harbor agent is tried again",
        )
        timeout_seconds: float | None = option(
            None, "time limit of an agent; by default that of the caller", gt=0
        )
        kept_folders: int = option(
            20, "most trial folders that an evaluation keeps, and as many again of failed rollouts", ge=0
        )

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)
        self.trials_ended = 0
        _require_harbor()

    def check_work(self, tasks: Sequence[HarborTask], environment: Any, harness: bool) -> None:
        """Say what of a benchmark entry can't be run.

        Raises:
            RolloutError: no such environment, or one that can't run these tasks; a task that Harbor refuses.
            ConfigError: params that the environment doesn't take.
        """
        kind, params = _spec(environment, tasks)
        folders = [task for task in tasks if task.path is not None]
        if kind == "null" and folders:
            raise RolloutError(
                "environment 'null' can't run tasks that are folders", hint="name one, such as bwrap"
            )
        if kind == "bwrap":
            from evsys_rollouts_harbor.bubblewrap import BwrapEnvironment

            resolved = attrs.asdict(structure(BwrapEnvironment.Config, placeholders.resolve(params)))
            BwrapEnvironment(**resolved)
        from evsys_rollouts_harbor.checks import check_environment, check_task

        check_environment(kind, placeholders.resolve(params))
        for task in folders:
            check_task(task, kind, params)

    def rollout_seconds(self, allowed: float) -> float:
        """The longest time of one rollout with its retries."""
        return (self.config.timeout_seconds or allowed) * (1 + self.config.max_retries)

    def run(
        self, tasks: Sequence[HarborTask], policy: Policy, limits: RolloutLimits
    ) -> AsyncGenerator[Rollout]:
        """Yield every rollout once: as they finish, or with `limits.wave` wave after wave in the order of the tasks.

        Closing the generator ends what runs, sandboxes included. Fewer run at once than `limits.n_concurrent` where the process
        may not have as many files open.
        """
        return self._stream(tasks, policy, limits)

    async def _stream(
        self, tasks: Sequence[HarborTask], policy: Policy, limits: RolloutLimits
    ) -> AsyncGenerator[Rollout]:
        if not tasks or not policy.num_samples:
            return
        trials = self._trials(tasks, policy, limits)
        try:
            await trials.open()
            jobs = jobs_of(tasks, policy.num_samples)
            async with aclosing(scheduled(jobs, trials.width, trials.rollout, wave=limits.wave)) as stream:
                async for rollout in stream:
                    yield rollout
        finally:
            await trials.close()

    def _trials(self, tasks: Sequence[HarborTask], policy: Policy, limits: RolloutLimits) -> Trials:
        from evsys_rollouts_harbor.folders import Folders, concurrency_limit
        from evsys_rollouts_harbor.trials import Retries, Trials

        kind, params = _spec(policy.environment, tasks)
        harness = policy.agent if isinstance(policy.agent, HarnessAgent) else None
        named = [params, harness.params if harness is not None else {}]
        wanted = min(limits.n_concurrent, max(1, len(tasks) * policy.num_samples))
        return Trials(
            policy=policy,
            limits=limits,
            folders=Folders(
                limits=limits,
                most=self.config.kept_folders,
                sandboxed=kind != "null",
                secrets=_values(named),
            ),
            width=concurrency_limit(wanted, sandboxed=kind != "null"),
            timeout_seconds=self.config.timeout_seconds or limits.timeout_seconds,
            retries=Retries(
                most=self.config.max_retries,
                wait_seconds=self.config.retry_wait_seconds,
                more=frozenset(self.config.retry_on),
            ),
            environment=(kind, placeholders.resolve(params)),
            harness=harness and HarnessAgent(harness.import_path, placeholders.resolve(harness.params)),
            counted=self._count,
        )

    def _count(self) -> None:
        self.trials_ended += 1


def _require_harbor() -> None:
    """See that Harbor is there, in a version known to work; nothing of it is imported."""
    try:
        installed = version("harbor")
    except PackageNotFoundError:
        raise PluginLoadError(
            "rollout_engine 'harbor' needs the package `harbor`", hint=_INSTALL, kind="rollout_engine"
        ) from None
    numbers = re.match(r"(\d+)\.(\d+)", installed)
    if numbers is None or (int(numbers[1]), int(numbers[2])) not in _VERSIONS:
        wanted = " or ".join(".".join(map(str, known)) for known in _VERSIONS)
        raise PluginLoadError(
            f"rollout_engine 'harbor' runs on harbor {wanted}, and {installed} is installed", hint=_INSTALL
        )


def _spec(environment: Any, tasks: Sequence[HarborTask]) -> tuple[str, Mapping[str, Any]]:
    """Kind and params of an environment; by default a sandbox for task folders, and nowhere for others."""
    if environment is None:
        return ("bwrap" if any(task.path is not None for task in tasks) else "null"), {}
    if isinstance(environment, str):
        return environment, {}
    kind, params = getattr(environment, "kind", None), getattr(environment, "params", {})
    if not isinstance(kind, str) or not isinstance(params, Mapping):
        message = f"an environment is a name, or has `kind` and `params`; this is {environment!r}"
        raise ConfigError(message)
    return kind, params


def _values(trees: Sequence[Any]) -> frozenset[str]:
    """The values of environment variables that params name, which no file may hold."""
    import os

    return frozenset(os.environ[name] for _, name in placeholders.find(list(trees)) if name in os.environ)

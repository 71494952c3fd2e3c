"""The plugin: what `backend: {kind: tinker}` builds. The official client is imported when a run is prepared, not before."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from evsys.errors import ConfigError, Problem
from evsys_backend_tinker.client_version import TOP_LOGPROBS_SINCE, installed_version, require_tinker
from evsys_backend_tinker.config import DUMMY_KEY, TinkerConfig

if TYPE_CHECKING:
    from evsys.protocols import Log, TrainingClient
    from evsys.types import Checkpoint, ModelSpec
    from evsys_backend_tinker.run import Run

__all__ = ["TinkerBackend"]

_HOSTED = "tinker.thinkingmachines.dev/services/tinker-prod"
_ALPHA = 32.0
_PARAMS = "$.algorithm.params"


class TinkerBackend:
    """Trains on a server that speaks the Tinker protocol, through the official client.

    `capabilities` of the class are those of every such server; an object adds what its provider and the installed client can.
    """

    Config = TinkerConfig
    capabilities: frozenset[str] = frozenset(
        {
            "concurrent_runs",
            "loss_fns:cispo",
            "loss_fns:cross_entropy",
            "loss_fns:importance_sampling",
            "loss_fns:ppo",
            "prompt_logprobs",
            "resume",
        }
    )
    honours: ClassVar[frozenset[str]] = frozenset(
        {
            "init_from_checkpoint",
            "load_checkpoint_path",
            "lora_alpha",
            "lora_rank",
            "renderer",
            "seed",
            "target_modules",
        }
    )

    def __init__(self, **fields: Any) -> None:
        """Configure it.

        Raises:
            PluginLoadError: the client isn't installed.
        """
        require_tinker()
        self.config = TinkerConfig(**fields)
        more = {f"loss_fns:{name}" for name in self.config.preset.own_losses}
        if self.config.preset.deterministic:
            more |= {"deterministic"}
        if self.config.preset.top_prompt_logprobs:
            more |= {"top_prompt_logprobs"}
        if (installed_version() or (0, 0)) >= TOP_LOGPROBS_SINCE:
            more |= {"top_logprobs"}
        self.capabilities = type(self).capabilities | more
        self._run: Run | None = None

    @property
    def base_url(self) -> str:
        """The server's address."""
        config = self.config
        found = config.base_url or config.preset.base_url
        if found is None:
            found = os.environ.get("TINKER_BASE_URL") or f"https://{_HOSTED}"
        return found.rstrip("/")

    @property
    def key(self) -> str | None:
        """The key; None leaves it to the client, which asks its own credentials.

        Raises:
            ConfigError: the variable for it is not set, or its value is not a valid key.
        """
        from evsys_runtime.serving.server import is_loopback

        config = self.config
        name = config.api_key_env or config.preset.api_key_env
        found = os.environ.get(name)
        place = "$.backend.params.api_key_env"
        if found:
            if not found.startswith(("tml-", "eyJ")):
                message = f"the key in {name} isn't one that the client takes: it starts with tml-"
                raise ConfigError(
                    [
                        Problem(
                            path=place, message=message, hint="a server of your own may ask for any such key"
                        )
                    ]
                )
            return found
        if config.api_key_env is not None:
            raise ConfigError([Problem(path=place, message=f"the environment variable {name} isn't set")])
        if not config.preset.needs_key or is_loopback(urlsplit(self.base_url).hostname or ""):
            return DUMMY_KEY
        return None

    def validate_model(self, model: ModelSpec) -> Iterable[Problem]:
        """The problems of a model known without asking the server."""
        from evsys_backend_tinker.targets import target_flags

        if (why := self.config.preset.unsupported) is not None:
            hint = "for another server that speaks the Tinker protocol, use provider: tinker and its base_url"
            yield Problem(path="$.backend.params.provider", message=why, hint=hint)
        lora = model.lora
        if lora.rank is None:
            message = "the Tinker protocol trains low-rank adapters only"
            yield Problem(path=f"{_PARAMS}.lora_rank", message=message, hint="set it to a number")
        if self.config.preset.own_lora:
            return
        if lora.alpha != _ALPHA:
            message = (
                f"the Tinker protocol has no lora_alpha: servers use {_ALPHA:g}, and this is {lora.alpha:g}"
            )
            yield Problem(path=f"{_PARAMS}.lora_alpha", message=message, hint="leave it out")
        try:
            target_flags(lora.targets)
        except ValueError as error:
            yield Problem(path=f"{_PARAMS}.target_modules", message=str(error))

    async def preflight(self, model: ModelSpec) -> None:
        """Ask the server, within five seconds, whether it can train `model`; nothing is made there.

        Raises:
            ConfigError: the address, the key or the model isn't right.
        """
        from evsys_backend_tinker.run import Run

        await Run(self.config, base_url=self.base_url, key=self.key).look(model)

    async def prepare(
        self,
        model: ModelSpec,
        run_dir: Path,
        seed: int,
        restore: Checkpoint | None = None,
        *,
        deterministic: bool = False,
        log: Log | None = None,
    ) -> TrainingClient:
        """Open a session and make the model, or load it from a state.

        A `deterministic` run has its sampling calls computed in the batches that they would have in process, where
        the server takes them.

        Raises:
            ConfigError: the address, the key, the model or the tokenizer isn't right.
            BackendError: the server failed.
        """
        from evsys_backend_tinker.run import Run

        for complaint in self.validate_model(model):
            raise ConfigError([complaint])
        run = Run(self.config, base_url=self.base_url, key=self.key, log=log)
        try:
            client = await run.start(
                model,
                seed,
                restore,
                self.capabilities,
                name=run_dir.name,
                deterministic=deterministic,
                resumes=restore is not None and restore.directory.is_relative_to(run_dir),
            )
        except BaseException as error:
            await run.end(error)
            raise
        self._run = run
        return client

    async def teardown(self, client: TrainingClient | None) -> None:
        """End the session and say how: well, or by the exception that is being handled. Safe to call twice."""
        import sys

        run, self._run = self._run, None
        if run is not None:
            await run.end(sys.exception())

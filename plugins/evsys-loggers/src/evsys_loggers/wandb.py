"""The callback and log store `wandb`: runs at Weights & Biases, or as files that `wandb sync` uploads later."""

from __future__ import annotations

import netrc
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

import attrs

from evsys import option
from evsys.errors import PluginLoadError
from evsys_loggers.config import LoggerConfig
from evsys_loggers.facts import RunFacts
from evsys_loggers.library_versions import require
from evsys_loggers.logger import RunLogger
from evsys_loggers.sink import Record, Sink
from evsys_loggers.store import LoggerStore

__all__ = ["WandbLogger", "WandbStore"]

_WELL = ("completed", "partial", "budget_stopped", "stopped")


class WandbLogger(RunLogger):
    """Writes each run to Weights & Biases.

    `offline` keeps it in files until `wandb sync`. Nothing is sent but what evsys logs: no command line, console, source code, git
    state or machine metrics, which may hold secrets.
    """

    name: ClassVar[str] = "wandb"

    @attrs.frozen(kw_only=True)
    class Config(LoggerConfig):
        """Parameters of `wandb`."""

        mode: Literal["offline", "online"] = option(
            "offline", "whether runs are kept in files for `wandb sync`, or sent at once"
        )
        entity: str | None = option(None, "user or team that the project belongs to", min_len=1)

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        require("wandb", logger=self.name)
        if self.config.mode == "online" and not _has_login():
            raise PluginLoadError(
                "callback 'wandb' should send runs immediately, but there is no key for Weights & Biases",
                hint="set WANDB_API_KEY, run `wandb login`, or set mode: offline",
                kind="callback",
            )

    def open(self, run: RunFacts) -> Sink:
        """Make the run, or continue with it: all attempts have one id."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        run.files.mkdir(parents=True, exist_ok=True)
        made = wandb.init(
            entity=self.config.entity,
            project=run.project,
            name=run.name,
            id=run.lasting_id(),
            group=run.experiment,
            job_type=run.arm,
            dir=str(run.files),
            config=dict(run.config),
            tags=list(run.tags),
            mode=self.config.mode,
            resume="allow" if self.config.mode == "online" else None,
            reinit="create_new",
            settings=wandb.Settings(
                silent=True,
                console="off",
                save_code=False,
                disable_code=True,
                disable_git=True,
                disable_job_creation=True,
                x_disable_meta=True,
                x_disable_stats=True,
                x_disable_machine_info=True,
            ),
        )
        made.define_metric("*", step_metric="step")
        return _WandbRun(made, run.attempt)


class WandbStore(LoggerStore):
    """Writes what the callback `wandb` writes, for all runs of an experiment."""

    name: ClassVar[str] = "wandb"
    logger: ClassVar[type[RunLogger]] = WandbLogger
    Config: ClassVar[type[LoggerConfig]] = WandbLogger.Config


class _WandbRun:
    """A `Sink` over a W&B run. `step` is a value of its own: W&B's steps only rise, and scores come later than their step."""

    def __init__(self, run: Any, attempt: int) -> None:
        self._run = run
        self._attempt = attempt

    def write(self, records: Sequence[Record]) -> None:
        for record in records:
            self._run.log({**record.named(), "step": record.step, "attempt": self._attempt})

    def close(self, status: str, facts: Mapping[str, str | float]) -> None:
        self._run.summary.update({f"evsys/{name}": value for name, value in facts.items()})
        self._run.finish(exit_code=0 if status in _WELL else 1)


def _has_login() -> bool:
    """True where W&B would find a key without asking for one."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    address = os.environ.get("WANDB_BASE_URL")
    host = (urlsplit(address).hostname if address else None) or "api.wandb.ai"
    named = os.environ.get("NETRC")
    for path in [Path(named)] if named else [Path.home() / ".netrc", Path.home() / "_netrc"]:
        try:
            if path.exists() and netrc.netrc(path).authenticators(host):
                return True
        except (OSError, netrc.NetrcParseError) as exc:
            raise PluginLoadError(f"callback 'wandb': {path} can't be read: {exc}", kind="callback") from exc
    return False

"""The run that a logger writes for, its names, and the facts about it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys.types import RunContext
from evsys_loggers.config import LoggerConfig
from evsys_record import slug
from evsys_record.files import read_json, write_json
from evsys_record.secrets import Redactor
from evsys_runtime.config.root import enclosing_project

__all__ = ["CONCLUSION", "RunFacts", "flat"]

CONCLUSION = "conclusion"
"""Takes the place of a run's id for the conclusion of an experiment."""


@attrs.frozen(kw_only=True)
class RunFacts:
    """One run as a service should know it. `folder` is the run's own, or the experiment's.

    `files` is where a logger may keep files: below the run's folder unless its `directory` says otherwise. `config` holds no
    secrets.
    """

    logger: str
    experiment: str
    run: str
    arm: str
    repeat: int
    attempt: int
    from_step: int
    folder: Path
    files: Path
    project: str
    name: str
    tags: tuple[str, ...]
    config: Mapping[str, Any]

    @classmethod
    def of_run(cls, logger: str, params: LoggerConfig, ctx: RunContext, redactor: Redactor) -> RunFacts:
        """The facts of an attempt at a run."""
        restored = ctx.checkpoints.restored
        return cls._from_run(
            logger,
            params,
            redactor,
            experiment=ctx.run_dir.parent.parent.name,
            run=ctx.run_id,
            arm=ctx.arm,
            repeat=ctx.repeat,
            attempt=ctx.attempt,
            from_step=0 if restored is None else restored.step,
            folder=ctx.run_dir,
            config=ctx.config,
        )

    @classmethod
    def of_record(
        cls, logger: str, params: LoggerConfig, record: Mapping[str, Any], redactor: Redactor
    ) -> RunFacts:
        """The facts of an attempt at a run, from the record of its start."""
        same = ("experiment", "run", "arm", "repeat", "attempt", "from_step", "config")
        facts = {name: record[name] for name in same}
        return cls._from_run(logger, params, redactor, folder=Path(record["directory"]), **facts)

    @classmethod
    def of_experiment(cls, logger: str, params: LoggerConfig, experiment: str, folder: Path) -> RunFacts:
        """The facts under which the conclusion of an experiment is logged, as if it were a run."""
        return cls._from_run(
            logger,
            params,
            Redactor.from_environment(),
            experiment=experiment,
            run=CONCLUSION,
            arm=CONCLUSION,
            repeat=0,
            attempt=1,
            from_step=0,
            folder=folder,
            config={},
        )

    @classmethod
    def _from_run(cls, logger: str, params: LoggerConfig, redactor: Redactor, **facts: Any) -> RunFacts:
        words = {key: facts[key] for key in ("experiment", "run", "arm", "repeat")}
        config = redactor.tree({**facts.pop("config"), "evsys": {**words, "folder": str(facts["folder"])}})
        if params.directory is None:
            files = facts["folder"] / "loggers"
        else:
            root = enclosing_project(facts["folder"]) or facts["folder"]
            files = root / params.directory
        return cls(
            logger=logger,
            files=files,
            project=redactor.text(params.project),
            name=redactor.text(params.name.format_map(words)),
            tags=tuple(map(redactor.text, params.tags)),
            config=config,
            **facts,
        )

    @property
    def ids(self) -> dict[str, str]:
        """The ids of the run in evsys, as text."""
        return {
            "evsys.experiment": self.experiment,
            "evsys.run": self.run,
            "evsys.arm": self.arm,
            "evsys.repeat": str(self.repeat),
            "evsys.attempt": str(self.attempt),
        }

    def remembered(self) -> dict[str, Any]:
        """The values that `remember` stored, in this attempt or an earlier one; empty if there are none."""
        return read_json(self._memory) if self._memory.exists() else {}

    def remember(self, **facts: Any) -> None:
        """Keep what finds the run at the service again."""
        self._memory.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._memory, facts)

    def lasting_id(self) -> str:
        """An id that no other run has and that all attempts at this one share."""
        known = self.remembered().get("id")
        if known is None:
            known = uuid.uuid4().hex[:16]
            self.remember(id=known)
        return str(known)

    @property
    def _memory(self) -> Path:
        """By project, since one file may log to two of them."""
        whose = f"-{CONCLUSION}" if self.run == CONCLUSION else ""
        return self.folder / "loggers" / f"{self.logger}-{slug(self.project)}{whose}.json"


def flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of a configuration by dotted path; a list is one of them, as JSON."""
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{path}.")
        elif isinstance(value, list | tuple):
            yield path, json.dumps(value, ensure_ascii=False, default=str)
        else:
            yield path, value

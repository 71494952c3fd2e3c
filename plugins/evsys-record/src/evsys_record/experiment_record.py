"""The record of an experiment: `<output_dir>/<yyyymmdd-hhmmss>-<slug>/` and the runs below it."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from evsys.errors import ConfigError, StoreError
from evsys.types import ExperimentResult
from evsys_record.encoding import now
from evsys_record.events import EventLog
from evsys_record.evidence_hashes import evidence_hashes
from evsys_record.files import (
    SPOOLED,
    make_directory,
    open_to_read,
    read_json,
    shared_file,
    storing,
    sweep,
    sync_directory,
    write_atomic,
    write_json,
)
from evsys_record.hashing import digest_bytes, file_digest
from evsys_record.jsonl import JsonlWriter, read_jsonl
from evsys_record.keep_rollouts import KeepRollouts
from evsys_record.leaks import leak, leaks_in
from evsys_record.lock import LEASE_SECONDS, ExperimentLock
from evsys_record.result_trees import result_tree
from evsys_record.run_record import RunRecord, hypothesis_text, paragraph
from evsys_record.secrets import Redactor
from evsys_record.slugs import slug

__all__ = ["PLOTS", "RUNNING", "ExperimentRecord", "running_or_crashed"]

RUNNING = "running"
"""The status of an experiment that hasn't ended; its lock shows whether a process is at it."""

PLOTS = "plots"
"""The folder of pictures alongside the conclusion."""

PROPOSALS = "proposals.jsonl"
"""The arms added to those of the file, in the order in which that was decided."""


class ExperimentRecord:
    """An experiment's folder. Its name is the experiment's id."""

    def __init__(self, directory: Path, redactor: Redactor | None = None) -> None:
        """Use `create` or `open`."""
        self.directory = directory
        self.lock = ExperimentLock(directory)
        self._redactor = redactor or Redactor.from_environment()

    @classmethod
    def create(
        cls,
        output_dir: Path,
        name: str,
        config_bytes: bytes,
        *,
        dry: bool = False,
        hypothesis: str | None = None,
        facts: Mapping[str, Any] | None = None,
        redactor: Redactor | None = None,
        moment: float | None = None,
    ) -> ExperimentRecord:
        """Make the folder of a new experiment. Two launches in one second get two folders.

        Args:
            output_dir: the folder of all experiments.
            name: the experiment's name; its slug goes into the folder's name.
            config_bytes: the user's file, kept byte for byte.
            dry: mark the record as a trial: no verdict, no history, never resumed.
            hypothesis: why this is run.
            facts: what experiment.json holds besides (provenance, seeds, arms, tags, ...).
            redactor: knows the secrets; by default those of the environment.
            moment: seconds since 1970, now by default. The folder's name is in UTC.

        Raises:
            ConfigError: a secret's value is in what is kept as it is: the config, the name, the hypothesis.
            StoreError: the folder can't be written.
        """
        redactor = redactor or Redactor.from_environment()
        texts = {
            "config": config_bytes.decode("utf-8", "replace"),
            "name": name,
            "hypothesis": hypothesis or "",
        }
        _refuse_secrets(texts, redactor)
        _keep_out_of_git(make_directory(output_dir))
        record = cls(_new_directory(output_dir, slug(name), moment), redactor)
        write_atomic(record.directory / "config.yaml", config_bytes)
        write_atomic(record.directory / "hypothesis.md", hypothesis_text(hypothesis, redactor))
        make_directory(record.directory / "runs")
        own = {
            "experiment_id": record.directory.name,
            "name": name,
            "status": RUNNING,
            "dry": dry,
            "created": now(),
            "finished": None,
            "config_hash": digest_bytes(config_bytes),
        }
        # Last, since a folder without this file isn't an experiment yet.
        write_json(record.directory / "experiment.json", redactor.tree({**(facts or {}), **own}))
        return record

    @classmethod
    def open(cls, directory: Path, redactor: Redactor | None = None) -> ExperimentRecord:
        """Open a record, for reading or to continue with it.

        Raises:
            StoreError: there is no experiment in this folder.
        """
        if not (directory / "experiment.json").is_file():
            raise StoreError(
                f"no experiment in {directory}",
                hint="give the folder that holds experiment.json",
                path=str(directory),
            )
        return cls(directory, redactor)

    @property
    def experiment_id(self) -> str:
        """The folder's name."""
        return self.directory.name

    @property
    def facts(self) -> dict[str, Any]:
        """The present contents of experiment.json."""
        return read_json(self.directory / "experiment.json")

    @property
    def config_bytes(self) -> bytes:
        """The user's file as it was."""
        path = self.directory / "config.yaml"
        with open_to_read(path) as stream, storing(path, "read"):
            return stream.read()

    @cached_property
    def events(self) -> EventLog:
        """Its events, to write to."""
        return EventLog(self.directory, scrub=self._redactor.line, guard=self.lock.refuse_if_lost)

    def note(self, **facts: Any) -> None:
        """Add facts to experiment.json, such as the arms with their identities.

        Raises:
            StoreError: it can't be written, or the lock was lost; so with everything else written here.
        """
        self.lock.refuse_if_lost()
        write_json(self.directory / "experiment.json", self._redactor.tree({**self.facts, **facts}))

    def reopen(self, **facts: Any) -> None:
        """Continue with an experiment that ended, or was cut off: it runs again. Call it with the lock held.

        What was concluded before stays, as `conclusion.<n>.json`, `.md` and `plots.<n>`. `facts` are added to experiment.json.
        """
        self.note(status=RUNNING, finished=None, **facts)
        number = next(n for n in count(1) if not (self.directory / f"conclusion.{n}.json").exists())
        earlier = {
            PLOTS: f"{PLOTS}.{number}",
            "conclusion.md": f"conclusion.{number}.md",
            "conclusion.json": f"conclusion.{number}.json",  # last: a text without numbers is not a conclusion
        }
        for name, aside in earlier.items():
            path = self.directory / name
            if path.exists() and not (self.directory / aside).is_dir():  # set aside when this was cut off
                with storing(path, "set aside"):
                    path.rename(self.directory / aside)
                    sync_directory(self.directory)

    def plots(self) -> list[str]:
        """The pictures of the conclusion, as paths from the experiment's folder."""
        return [f"{PLOTS}/{path.name}" for path in sorted((self.directory / PLOTS).glob("*.png"))]

    def write_resolved(self, tree: Any) -> None:
        """Write resolved.json: every arm as it runs, `${ENV}` unresolved.

        Args:
            tree: a mapping, or the list of arms, which is then kept under `arms`.
        """
        self.lock.refuse_if_lost()
        whole = tree if isinstance(tree, Mapping) else {"arms": tree}
        write_json(self.directory / "resolved.json", self._redactor.tree(whole))

    def propose(self, source: str, proposals: Sequence[Mapping[str, Any]]) -> None:
        """Append to proposals.jsonl, durably: arms that `source` adds to those of the file."""
        self.lock.refuse_if_lost()
        with JsonlWriter(self.directory / PROPOSALS, scrub=self._redactor.text, durable=True) as writer:
            for proposal in proposals:
                writer.write({"time": now(), "source": source, "proposal": proposal})

    def read_proposals(self) -> Iterator[dict[str, Any]]:
        """The lines of proposals.jsonl.

        Raises:
            StoreError: it can't be read.
        """
        return read_jsonl(self.directory / PROPOSALS, missing_ok=True)

    def write_result(
        self,
        result: ExperimentResult,
        conclusion: str | None = None,
        *,
        to_resume: Sequence[str] | None = None,
    ) -> None:
        """Write conclusion.json, conclusion.md if there is a text, and then the status, which makes it final.

        Args:
            result: how the experiment ended.
            conclusion: the text.
            to_resume: the runs that a resume continues with; None where that isn't known.
        """
        self.lock.refuse_if_lost()
        path = self.directory / "conclusion.json"
        write_json(path, self._redactor.tree(result_tree(result.conclusion)))
        if conclusion is not None:
            text = self._redactor.text(paragraph(conclusion))
            write_atomic(self.directory / "conclusion.md", text)
        kept = ("status", "seconds", "usage", "warnings", "exit_code", "failed")
        not_started = {
            arm.run_id: {"status": arm.status, "reason": arm.run and arm.run.stop_reason}
            for arm in result.arms
            if arm.run_dir is None
        }
        told = {name: getattr(result, name) for name in kept}
        left = None if to_resume is None else list(to_resume)
        # With its hash, an edit by hand is noticed by the one who reads the conclusion later.
        self.note(
            **told,
            not_started=not_started,
            to_resume=left,
            conclusion_hash=file_digest(path),
            evidence_hashes=evidence_hashes(self.directory),
            finished=max(now(), str(self.facts["created"])),  # a clock may be set back meanwhile
        )

    def read_result(self) -> dict[str, Any] | None:
        """The whole result as `evsys run --json` prints it, from the files; None before there is one."""
        facts, path = self.facts, self.directory / "conclusion.json"
        if facts["finished"] is None or not path.exists():
            return None
        kept = ("experiment_id", "name", "status", "dry", "seconds", "usage", "warnings", "exit_code")
        results = [result for run in self.runs() if (result := run.read_result()) is not None]
        return {
            "format": facts["format"],
            **{name: facts[name] for name in kept},
            "failed": facts.get("failed", []),
            "directory": str(self.directory),
            "conclusion": _without_format(read_json(path)),
            "arms": [_without_format(result) for result in results],
        }

    def run(
        self,
        run_id: str,
        *,
        hypothesis: str | None = None,
        facts: Mapping[str, Any] | None = None,
        keep_rollouts: KeepRollouts | None = None,
    ) -> RunRecord:
        """The record of a run, to write to; made when there is none.

        Args:
            run_id: `<arm>-s<repeat>`; its slug is the folder's name.
            hypothesis: text of a new run's hypothesis.md.
            facts: what a new run's run.json holds besides (arm, repeat, seed, identity, ...).
            keep_rollouts: which training rollouts are kept; all by default.
        """
        for name in _folder_names(run_id):
            record = RunRecord(
                self.directory / "runs" / name,
                keep_rollouts=keep_rollouts,
                redactor=self._redactor,
                guard=self.lock.refuse_if_lost,
            )
            if not record.exists:
                record.create(run_id, hypothesis=hypothesis, facts=facts)
                return record
            if record.run_id == run_id:
                return record
        raise StoreError(f"no folder is left for run {run_id!r}", path=str(self.directory))

    def find_run(self, run_id: str) -> RunRecord | None:
        """The record of a run, to read; None when there is none."""
        folders = [self.directory / "runs" / name for name in _folder_names(run_id)]
        records = [RunRecord(folder, redactor=self._redactor) for folder in folders]
        return next((record for record in records if record.exists and record.run_id == run_id), None)

    def runs(self) -> list[RunRecord]:
        """The runs that have a record: in the order of `arms` in experiment.json, then by folder."""
        found = sorted((self.directory / "runs").glob("*/run.json"))
        records = [RunRecord(path.parent, redactor=self._redactor) for path in found]
        order = {arm.get("run_id"): place for place, arm in enumerate(self.facts.get("arms", ()))}
        return sorted(records, key=lambda record: order.get(record.run_id, len(order)))

    def recover(self) -> None:
        """Tidy up what a killed process left, before continuing with the experiment. Call it with the lock held."""
        sweep(self.directory)
        for run in self.runs():
            sweep(run.directory)
            run.checkpoints.recover()
            for rows in (run.directory / "data").glob(SPOOLED):
                rows.unlink(missing_ok=True)


def running_or_crashed(folder: Path) -> str:
    """The real status of an experiment that its files call running."""
    if ExperimentLock(folder).holder() is not None:
        return RUNNING
    return "crashed" if _was_locked(folder) else RUNNING


def _was_locked(folder: Path) -> bool:
    """False for an experiment that has only just begun, and gets its lock in a moment."""
    if any((folder / name).exists() for name in (".lock", ".lease")):
        return True
    try:
        return time.time() - (folder / "experiment.json").stat().st_mtime > LEASE_SECONDS
    except OSError:
        return True


def _new_directory(output_dir: Path, name: str, moment: float | None) -> Path:
    """A folder that this call made: `mkdir` fails for a second caller. A deleted experiment's name isn't given
    again if it took a look.
    """
    ledger = shared_file(output_dir, "looks.jsonl")
    taken = ledger.read_bytes() if ledger.is_file() else b""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(moment if moment is not None else time.time()))
    directory = output_dir / f"{stamp}-{name}"
    number = 1
    with storing(output_dir, "create a record in"):
        while True:
            with contextlib.suppress(FileExistsError):
                if f'"{directory.name}"'.encode() not in taken:
                    directory.mkdir()
                    return directory
            number += 1
            directory = output_dir / f"{stamp}-{name}-{number}"


def _folder_names(run_id: str) -> Sequence[str]:
    """Names to try: the slug, then with a mark, for ids that differ only in what a slug drops."""
    mark = hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return slug(run_id), f"{slug(run_id, max_length=55)}-{mark}"


def _keep_out_of_git(output_dir: Path) -> None:
    """The record is not part of the project's sources, unless its owner says so."""
    for folder in (output_dir, *output_dir.parents):
        if folder.name == ".evsys":
            path = folder / ".gitignore"
            if not path.exists():
                write_atomic(path, "# Written by evsys; yours to change.\n*\n")
            return


def _refuse_secrets(texts: Mapping[str, str], redactor: Redactor) -> None:
    problems = [
        leak(name, source=source, line=line, column=column)
        for source, text in texts.items()
        for name, line, column in leaks_in(text, redactor)
    ]
    if problems:
        raise ConfigError(problems)


def _without_format(tree: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tree.items() if name != "format"}

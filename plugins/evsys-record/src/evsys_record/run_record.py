"""The record of one run: its folder, its attempts, and everything appended while it continues."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from evsys.errors import StoreError
from evsys.types import ArmResult, EvaluationResult, Rollout
from evsys_record.attempts import Attempt, Record, is_superseded, read_live
from evsys_record.checkpoints import CheckpointFiles
from evsys_record.encoding import as_tree, encode_record, now
from evsys_record.files import make_directory, read_json, storing, sweep, write_atomic, write_json
from evsys_record.jsonl import JsonlWriter
from evsys_record.keep_rollouts import KeepRollouts
from evsys_record.result_files import read_run_result
from evsys_record.result_trees import result_tree
from evsys_record.rollouts import rollout_tree
from evsys_record.secrets import Redactor
from evsys_record.text import visible

__all__ = ["PHASES", "RunRecord"]

EVALUATIONS = "evaluations.jsonl"
"""Every scoring that ended, whole: what a later attempt takes up instead of scoring again."""

PHASES = ("training", "validation", "test")
"""The folders of metrics and rollouts. `validation` holds scorings of `val` entries, `test` those of `test` entries."""


class StoredRows(Protocol):
    """Rows in a cache: its id for them, their file, and the hash of that."""

    @property
    def id(self) -> str: ...
    @property
    def path(self) -> Path: ...
    @property
    def content_hash(self) -> str: ...


class RunRecord:
    """`runs/<run>/`: implements `evsys.protocols.Recorder`.

    One process writes, after `start_attempt`; its threads may write at once. Any number of processes may read. `appended`
    counts the lines that this object wrote, those of the log left out.
    """

    def __init__(
        self,
        directory: Path,
        *,
        keep_rollouts: KeepRollouts | None = None,
        redactor: Redactor | None = None,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        """Describe the record in a folder; `create` makes it, nothing is read yet. `guard` raises where nothing may be written."""
        self.directory = directory
        self.keep_rollouts = keep_rollouts or KeepRollouts()
        self.log_path = directory / "run.log.jsonl"
        self._redactor = redactor or Redactor.from_environment()
        self._writers: dict[str, JsonlWriter] = {}
        self._lock = Lock()
        self._sequence = 0
        self._attempt: int | None = None
        self.appended = 0
        self._sealed = False
        self._guard = guard

    def create(
        self, run_id: str, *, hypothesis: str | None = None, facts: Mapping[str, Any] | None = None
    ) -> None:
        """Make the folder of a new run. `facts` (arm, repeat, seed, identity, ...) go into run.json."""
        make_directory(self.directory)
        write_atomic(self.directory / "hypothesis.md", hypothesis_text(hypothesis, self._redactor))
        self._write_facts({**(facts or {}), "run_id": run_id, "created": now(), "attempts": []})

    # --- what is known of the run ---

    @property
    def exists(self) -> bool:
        """True once `create` is done."""
        return (self.directory / "run.json").exists()

    @property
    def facts(self) -> dict[str, Any]:
        """The present contents of run.json."""
        hint = f"remove {self.directory}, then `evsys resume` starts this run over"
        return read_json(self.directory / "run.json", hint=hint)

    @property
    def run_id(self) -> str:
        """The run's id, which may hold characters that its folder's name can't."""
        return str(self.facts["run_id"])

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Every attempt so far, oldest first."""
        return tuple(Attempt(**attempt) for attempt in self.facts["attempts"])

    @property
    def attempt(self) -> int:
        """The attempt that this object writes for.

        Raises:
            StoreError: none was started.
        """
        if self._attempt is None:
            raise StoreError(f"no attempt was started at {self.directory}", hint="call start_attempt first")
        return self._attempt

    @cached_property
    def checkpoints(self) -> CheckpointFiles:
        """The run's checkpoint folders."""
        return CheckpointFiles(self.directory, self.next_sequence, self._sync_unsealed, self._redactor.known)

    def start_attempt(self, reason: str = "start", parent: int | None = None, from_step: int = 0) -> Attempt:
        """Begin to write, and tidy up what a killed attempt left. Nothing acknowledged is removed.

        Args:
            reason: `start`, `resume`, `branch`, ...
            parent: the attempt whose state this one continues; None starts over.
            from_step: optimiser steps behind that state.
        """
        known = self.attempts
        if parent is not None and parent not in {attempt.n for attempt in known}:
            raise StoreError(f"attempt {parent} of {self.run_id} doesn't exist", path=str(self.directory))
        sweep(self.directory)
        self.checkpoints.recover()
        number = max((attempt.n for attempt in known), default=0) + 1
        attempt = Attempt(n=number, parent=parent, from_step=from_step, reason=reason, started=now())
        self.note(attempts=[*known, attempt])
        with self._lock:
            self._attempt, self._sequence = number, 0
        return attempt

    def note(self, **facts: Any) -> None:
        """Add facts to run.json, such as the fingerprint of the data and the hashes of benchmarks and verifiers."""
        self._refuse_sealed()
        self._write_facts({**self.facts, **facts})

    def _write_facts(self, facts: Mapping[str, Any]) -> None:
        write_json(self.directory / "run.json", self._redactor.tree(facts))

    # --- Recorder ---

    def metrics(self, step: int, values: Mapping[str, float], *, phase: str = "training") -> None:
        """One line of `<phase>/metrics.jsonl`. A value that isn't finite is null there, and `not_finite` has its name."""
        # x - x is 0 for a finite number alone.
        odd = {name: str(float(value)) for name, value in values.items() if value - value != 0}
        facts = {"values": values, "not_finite": odd} if odd else {"values": values}
        self._append(_file(phase, "metrics"), step, facts)

    def rollout(self, step: int, rollout: Rollout, *, phase: str = "training", **facts: Any) -> None:
        """One line of `<phase>/rollouts.jsonl`, unless `keep_rollouts` leaves this training rollout out."""
        if phase == "training" and not self.keep_rollouts.keeps(step, rollout):
            return
        name = _file(phase, "rollouts")
        self._append(name, step, {"facts": facts, "rollout": self._rollout_tree(rollout)})

    def _rollout_tree(self, rollout: Rollout) -> dict[str, Any]:
        """Messages stay as they are; errors are redacted, since they may contain addresses and headers."""
        tree = rollout_tree(rollout)
        tree["metadata"] = self._redactor.tree(tree["metadata"])
        if rollout.error is not None:
            tree["error"] = self._redactor.text(rollout.error)
        if "reason" in tree["score"]:
            tree["score"]["reason"] = self._redactor.text(tree["score"]["reason"])
        return tree

    def evaluation(self, result: EvaluationResult) -> None:
        """One line of evaluations.jsonl: a scoring that ended, whole. Its metrics are to be on file before."""
        self._append(EVALUATIONS, result.step, {"evaluation": self._redactor.tree(as_tree(result))})

    def intent(self, step: int, batch_id: str, row_ids: Sequence[str]) -> None:
        """Journal: this step is about to be submitted."""
        facts = {"event": "intent", "batch_id": batch_id, "row_ids": row_ids}
        self._append("journal.jsonl", step, facts)

    def done(self, step: int, batch_id: str) -> None:
        """Journal: this step has been applied."""
        self._append("journal.jsonl", step, {"event": "done", "batch_id": batch_id})

    def _append(self, name: str, step: int, facts: Mapping[str, Any]) -> None:
        """One line: where in the run it belongs, then `facts`. They are encoded outside the lock."""
        try:
            text = encode_record(facts)
        except (TypeError, ValueError, RecursionError) as exc:
            raise StoreError(f"can't write to {self.directory / name}: {exc}") from exc
        attempt = self.attempt
        with self._lock:
            self._refuse_sealed()
            writer = self._writers.get(name)
            if writer is None:
                writer = JsonlWriter(self.directory / name, scrub=self._redactor.line)
                self._writers[name] = writer
            place = f'"attempt":{attempt},"step":{int(step)},"seq":{self._sequence},"time":"{now()}"'
            writer.write_text(f"{{{place},{text[1:]}")
            self._sequence += 1
            self.appended += 1

    def sync(self) -> None:
        """Make every line that this object wrote survive a power cut; milliseconds, so not for each step.

        Raises:
            StoreError: the disk is full, ...
        """
        with self._lock:
            writers = tuple(self._writers.values())
        for writer in writers:
            writer.sync()

    def _sync_unsealed(self) -> None:
        self._refuse_sealed()
        self.sync()

    def _refuse_sealed(self) -> None:
        self._guard()
        if self._sealed:
            raise StoreError(
                f"{self.directory} takes nothing more: its run was given up, and what still runs of it has to end",
                path=str(self.directory),
            )

    def next_sequence(self) -> int:
        with self._lock:
            self._sequence += 1
            return self._sequence - 1

    # --- what is read back ---

    def read_metrics(self, phase: str = "training") -> Iterator[Record]:
        """Live metrics: each step once, without interrupted and repeated work."""
        return read_live(self.directory / _file(phase, "metrics"), self.attempts, _metrics_key)

    def read_rollouts(self, phase: str = "training") -> Iterator[Record]:
        """Live rollouts; `rollouts.rollout_from_tree(record["rollout"])` makes one a `Rollout` again."""
        return read_live(self.directory / _file(phase, "rollouts"), self.attempts, _rollout_key)

    def read_evaluations(self) -> Iterator[Record]:
        """Live scorings; of one that was made again the last."""
        return read_live(self.directory / EVALUATIONS, self.attempts, _evaluation_key)

    def read_journal(self) -> Iterator[Record]:
        """The live journal."""
        return read_live(self.directory / "journal.jsonl", self.attempts, _journal_key)

    # --- results and data ---

    def write_result(self, result: ArmResult) -> None:
        """Write run_result.json, every field of it. The result of an earlier attempt is kept as
        `run_result.<attempt>.json`.
        """
        self._guard()
        self.sync()  # a result doesn't outlive what it came from
        path = self.directory / "run_result.json"
        known = read_json(path) if path.exists() else {}
        earlier = known.get("attempt", result.attempt)
        if earlier < result.attempt:
            write_json(path.with_name(f"run_result.{earlier}.json"), known)
        write_json(path, self._redactor.tree(result_tree(result)))

    def write_result_left_behind(self, result: ArmResult) -> None:
        """Write what an attempt came to that another one is going to replace: `run_result.<attempt>.json`."""
        self.sync()
        write_json(
            self.directory / f"run_result.{result.attempt}.json", self._redactor.tree(result_tree(result))
        )

    def read_result(self) -> dict[str, Any] | None:
        """The result of the newest attempt; None before it ends."""
        path = self.directory / "run_result.json"
        hint = f"remove it, then `evsys resume` makes it again; remove {self.directory} to start the run over"
        result = read_run_result(self.directory, hint=hint) if path.exists() else {}
        return result if result and not is_superseded(result, self.attempts) else None

    def write_conclusion(self, text: str) -> None:
        """Write conclusion.md."""
        self._guard()
        write_atomic(self.directory / "conclusion.md", self._redactor.text(paragraph(text)))

    def add_text(self, name: str, text: str) -> None:
        """Add a paragraph to a text file of the run, under the time it is now."""
        self._guard()
        path = self.directory / name
        with storing(path):
            known = path.read_text(encoding="utf-8") + "\n" if path.exists() else ""
        write_atomic(path, f"{known}{now()} {self._redactor.text(paragraph(text))}")

    def link_training_data(self, entry: StoredRows) -> None:
        """Keep the rows that this run trains on: a hard link to them.

        If links fail (another disk, a file system without them) a pointer file says where the rows are.
        """
        self._refuse_sealed()
        path = make_directory(self.directory / "data") / "training_data.jsonl"
        with storing(path):
            path.unlink(missing_ok=True)
        try:
            os.link(entry.path, path)
        except OSError:
            place = os.path.relpath(entry.path, path.parent)
            write_json(_pointer(path), {"id": entry.id, "path": place, "content_hash": entry.content_hash})

    def training_data(self) -> Path | None:
        """The file of rows that this run trains on; None before it is written."""
        path = self.directory / "data" / "training_data.jsonl"
        if path.exists():
            return path
        if not _pointer(path).exists():
            return None
        return (path.parent / str(read_json(_pointer(path))["path"])).resolve()

    def seal(self) -> None:
        """Give a run up that can't be ended: all that it would add (lines, facts, checkpoints) is refused with a `StoreError`.

        How it ended may still be written, and the log continues.
        """
        with self._lock:
            self._sealed = True
        self.close()

    def close(self) -> None:
        """Release the files. Safe to call twice; what is recorded later opens them again."""
        with self._lock:
            for writer in self._writers.values():
                writer.close()


def _file(phase: str, name: str) -> str:
    if phase not in PHASES:
        raise StoreError(f"unknown phase {phase!r}", hint=f"use one of {', '.join(PHASES)}")
    return f"{phase}/{name}.jsonl"


def _pointer(path: Path) -> Path:
    return path.with_suffix(".pointer.json")


def paragraph(text: str) -> str:
    """Text as a file has it: what a terminal that shows the file would obey is escaped."""
    return visible(text.rstrip()) + "\n"


def hypothesis_text(hypothesis: str | None, redactor: Redactor) -> str:
    """The contents of hypothesis.md."""
    return paragraph(redactor.text(hypothesis or "No hypothesis was stated."))


def _metrics_key(record: Record) -> Any:
    return record["step"], tuple(sorted(record["values"]))


def _rollout_key(record: Record) -> Any:
    facts, rollout = record["facts"], record["rollout"]
    return record["step"], facts.get("benchmark"), rollout["task_id"], rollout["sample_index"]


def _evaluation_key(record: Record) -> Any:
    scored = record["evaluation"]
    return scored["step"], scored["benchmark"], scored["model"]


def _journal_key(record: Record) -> Any:
    return record["step"], record["event"]

"""The ledger of looks: a file of the project that every look at a question is appended to, and that outlives the
folders of experiments.

Records in a folder outside the project have a ledger of their own besides the project's: each takes over the lines
that only the other has, so that another `output_dir` hides no look.

A look is reserved before an experiment concludes, so that two that conclude at once get a number each, and written
again with its result. The last line of each look counts. The reservation of a killed process counts as a look: no
one knows whether its result was seen.
Scores that someone saw without a look are on file as well, from the first one on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import attrs

from evsys.types.evidence import Look
from evsys_record.encoding import as_tree, now
from evsys_record.files import shared_file
from evsys_record.jsonl import JsonlWriter, read_jsonl
from evsys_record.lock import waiting_lock
from evsys_record.questions import AskedQuestion
from evsys_record.task_contents import TaskContents

__all__ = ["LedgerLine", "LookLedger", "ScoredLine", "ledger_path"]

type State = Literal["reserved", "concluded", "found"]


def ledger_path(experiments: Path) -> Path:
    """The path of the ledger of a folder of experiments: next to `.evsys/experiments`, and inside a folder
    elsewhere.
    """
    return shared_file(experiments, "looks.jsonl")


@attrs.frozen(kw_only=True)
class LedgerLine:
    """One look of an experiment: `number` of its series, and `look` what it came to, None if it tested nothing or hasn't ended.

    `reserved` it may be `concluded`; `found` are those of experiments on record that the ledger didn't have. `complete`: every planned run had a score.
    `runs` had scores, and `evidence` is the digest of all scores; None in older lines. `scores` has a digest for each
    compared run of what it scored on each task.
    """

    experiment_id: str
    time: str
    state: State
    question: AskedQuestion
    number: int | None = None
    look: Look | None = None
    complete: bool = True
    runs: int = 0
    evidence: str | None = None
    scores: tuple[str, ...] = ()

    def is_repeated_by(self, later: LedgerLine) -> bool:
        """Whether a later line of the experiment is the same look: it was cut off before its conclusion, and concluded again."""
        return self.number is not None and (later.number, later.question) == (self.number, self.question)


@attrs.frozen(kw_only=True)
class ScoredLine:
    """Scores that an experiment or an evaluation made of trained models without a look, so far: of so many `runs`, on these tasks."""

    experiment_id: str
    time: str
    simulated: bool
    runs: int
    contents: tuple[TaskContents, ...]


class LookLedger:
    """A ledger as it is on disk.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: list[LedgerLine] = []
        self._scored: dict[str, ScoredLine] = {}
        self._contents: dict[str, TaskContents] = {}
        self._twin: LookLedger | None = None
        self.rebuilt: str | None = None
        for tree in read_jsonl(self.path, missing_ok=True):
            self._take_in(tree)

    @property
    def lines(self) -> Sequence[LedgerLine]:
        """The looks that it has, the oldest first."""
        return self._lines

    @property
    def scored(self) -> Sequence[ScoredLine]:
        """Scores without a look: the last line of each experiment or evaluation."""
        return tuple(self._scored.values())

    @property
    def _everything(self) -> list[LedgerLine | ScoredLine]:
        return [*self._lines, *self._scored.values()]

    def looks(self) -> dict[str, list[tuple[LedgerLine, Look]]]:
        """The looks of each experiment, the oldest first, each with its line.

        Those of a completed experiment count, and what began behind them; of one that was never completed the last.
        """
        return {
            experiment: list(_numbered_looks(lines)) for experiment, lines in self._by_experiment().items()
        }

    def seen_without_a_look(self, question: AskedQuestion, *, apart_from: Collection[str]) -> int:
        """How many trained runs were scored on the tasks of a question by experiments and evaluations that took no look at any.

        Args:
            question: whose tasks are meant; simulated models are apart from real ones.
            apart_from: experiments that don't count.
        """
        by_experiment, looks = self._by_experiment(), self.looks()
        looked = {experiment for experiment, taken in looks.items() if taken} | {*apart_from}
        runs = dict[str, int]()
        for line in self._scored.values():
            if line.simulated == question.simulated and any(map(question.is_on, line.contents)):
                runs[line.experiment_id] = line.runs
        for experiment, lines in by_experiment.items():
            begun, last = runs.pop(experiment, 0), lines[-1]
            if last.question.simulated == question.simulated and last.question.has_tasks_of(question):
                runs[experiment] = max(begun, last.runs)  # what was cut off has no score on record
        return sum(count for experiment, count in runs.items() if experiment not in looked)

    def scored_before(self, scores: Iterable[str], *, apart_from: str) -> int:
        """How many runs scored the same on each task as a run of an earlier look, by their digests."""
        known = {each for line in self._lines if line.experiment_id != apart_from for each in line.scores}
        return sum(each in known for each in scores)

    def _by_experiment(self) -> dict[str, list[LedgerLine]]:
        """The lines that count of each experiment."""
        by_id: dict[str, list[LedgerLine]] = {}
        for line in self._lines:
            mine = by_id.setdefault(line.experiment_id, [])
            if mine and (mine[-1].state == "reserved" or mine[-1].is_repeated_by(line)):
                mine.pop()
            mine.append(line)
        return by_id

    @classmethod
    @contextmanager
    def locked(cls, path: Path, twin: Path | None = None) -> Iterator[LookLedger]:
        """A ledger that no one else changes meanwhile.

        Args:
            path: the file.
            twin: the ledger of the same project in another place, if there is one. Both get all lines.

        Raises:
            StoreError: another process has it for too long, or the folder isn't writable.
        """
        with ExitStack() as locks:
            for each in sorted({path, twin or path}):  # in one order, so that no two wait for each other
                locks.enter_context(waiting_lock(each.with_suffix(".lock")))
            ledger = cls(path)
            if twin is not None and twin != path:
                other = cls(twin)
                ledger.take_over(other)
                other.take_over(ledger)
                ledger._twin = other
            yield ledger

    def append(self, lines: Iterable[LedgerLine | ScoredLine]) -> None:
        """Append lines, each synced to the disk.

        Raises:
            StoreError: they can't be written.
        """
        lines = list(lines)
        with JsonlWriter(self.path, durable=True) as writer:
            for line in lines:
                tree = self._looked(line) if isinstance(line, LedgerLine) else self._seen(line)
                writer.write(tree)
                self._take_in(tree)
        if self._twin is not None:
            self._twin.append(lines)

    def _lacks(self, contents: TaskContents) -> bool:
        """Whether task contents are to be written: they are new, or an earlier version wrote them without signatures."""
        known = self._contents.get(contents.hash)
        return known is None or bool(contents.signatures and not known.signatures)

    def _looked(self, line: LedgerLine) -> dict[str, Any]:
        contents = line.question.contents
        question = as_tree(attrs.evolve(line.question, contents=None))
        tree = {**as_tree(line), "question": {**question, "contents": contents and contents.hash}}
        if contents is not None and self._lacks(contents):
            tree["contents"] = contents.as_json  # once; later lines name its hash
        return tree

    def _seen(self, line: ScoredLine) -> dict[str, Any]:
        new = [each.as_json for each in line.contents if self._lacks(each)]
        tree = {**as_tree(attrs.evolve(line, contents=())), "state": "scored"}
        return {**tree, "tasks": [each.hash for each in line.contents], "contents": new}

    def mark_rebuilt(self, experiments: int) -> None:
        """Put down that the ledger was missing although there were so many experiments, so looks of deleted ones aren't known.

        Raises:
            StoreError: it can't be written.
        """
        tree = {"rebuilt": now(), "experiments": experiments}
        with JsonlWriter(self.path, durable=True) as writer:
            writer.write(tree)
        self._take_in(tree)
        if self._twin is not None and self._twin.rebuilt is None:
            self._twin.mark_rebuilt(experiments)

    def take_over(self, other: LookLedger) -> None:
        """Append the lines that only another ledger has, and that it was rebuilt.

        Raises:
            StoreError: they can't be written.
        """
        known = set(map(_identity, self._everything))
        self.append([line for line in other._everything if _identity(line) not in known])
        if other.rebuilt is not None and self.rebuilt is None:
            self.mark_rebuilt(0)

    def _take_in(self, tree: Mapping[str, Any]) -> None:
        if "rebuilt" in tree:
            self.rebuilt = str(tree["rebuilt"])
            return
        new = tree.get("contents") or ()
        for each in [new] if isinstance(new, Mapping) else new:
            found = TaskContents.of_tree(each)
            self._contents[found.hash] = found
        if tree["state"] == "scored":
            contents = tuple(self._contents[key] for key in tree["tasks"] if key in self._contents)
            self._scored[tree["experiment_id"]] = ScoredLine(
                experiment_id=tree["experiment_id"],
                time=tree["time"],
                simulated=tree["simulated"],
                runs=tree["runs"],
                contents=contents,
            )
            return
        question, look = tree["question"], tree.get("look")
        self._lines.append(
            LedgerLine(
                experiment_id=tree["experiment_id"],
                time=tree["time"],
                state=tree["state"],
                question=AskedQuestion.of_tree(question, self._contents.get(question["contents"])),
                number=tree.get("number"),
                look=None if look is None else Look(**look),
                complete=tree["complete"],
                runs=tree.get("runs", 0),
                evidence=tree.get("evidence"),
                scores=tuple(tree.get("scores") or ()),
            )
        )


def _identity(line: LedgerLine | ScoredLine) -> tuple[object, ...]:
    state = line.state if isinstance(line, LedgerLine) else "scored"
    return line.experiment_id, line.time, state


def _numbered_looks(lines: Sequence[LedgerLine]) -> Iterator[tuple[LedgerLine, Look]]:
    last = lines[-1]
    complete = [
        line for line in lines if line.state != "reserved" and line.look is not None and line.complete
    ]
    counted = [
        *complete,
        *([last] if last not in complete and (last.state == "reserved" or not complete) else []),
    ]
    for line in counted:
        if line.state == "reserved":
            yield line, Look(experiment_id=line.experiment_id, verdict=None)
        elif line.look is not None:
            yield line, line.look

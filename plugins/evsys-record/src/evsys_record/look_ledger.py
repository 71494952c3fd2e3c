"""The ledger of looks: a file of the project that every look at a question is appended to, and that outlives the
folders of experiments.

A look is reserved before an experiment concludes, so that two that conclude at once get a number each, and written
again with its result. The last line of each look counts. The reservation of a killed process counts as a look: no
one knows whether its result was seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import attrs

from evsys.errors import StoreError
from evsys.types.evidence import Look
from evsys_record.encoding import as_tree, now
from evsys_record.files import make_directory, shared_file
from evsys_record.jsonl import JsonlWriter, read_jsonl
from evsys_record.lock import ExperimentLock
from evsys_record.questions import AskedQuestion
from evsys_record.task_contents import TaskContents

__all__ = ["LedgerLine", "LookLedger", "ledger_path"]

type State = Literal["reserved", "concluded", "found"]

_PATIENCE_SECONDS = 120.0
"""The ledger is locked for the time of one look-up; a process that waits longer than that gets an error that names
the holder.
"""

_PAUSE_SECONDS = 0.02


def ledger_path(experiments: Path) -> Path:
    """The path of the ledger of a folder of experiments: next to `.evsys/experiments`, and inside a folder
    elsewhere.
    """
    return shared_file(experiments, "looks.jsonl")


@attrs.frozen(kw_only=True)
class LedgerLine:
    """One look of an experiment: `number` of its series, and `look` what it came to, None if it tested nothing or hasn't ended.

    `reserved` it may be `concluded`; `found` are those of experiments on record that the ledger didn't have. `complete`: every planned run had a score.
    """

    experiment_id: str
    time: str
    state: State
    question: AskedQuestion
    number: int | None = None
    look: Look | None = None
    complete: bool = True

    def is_repeated_by(self, later: LedgerLine) -> bool:
        """Whether a later line of the experiment is the same look: it was cut off before its conclusion, and concluded again."""
        return self.number is not None and (later.number, later.question) == (self.number, self.question)


class LookLedger:
    """The ledger of a folder of experiments, as it is on disk.

    Args:
        experiments: the folder of all experiments.
    """

    def __init__(self, experiments: Path) -> None:
        self.path = ledger_path(experiments)
        self._lines: list[LedgerLine] = []
        self._contents: dict[str, TaskContents] = {}
        self.rebuilt: str | None = None
        for tree in read_jsonl(self.path, missing_ok=True):
            self._take_in(tree)

    @property
    def exists(self) -> bool:
        """Whether there is a file with lines; an emptied one is as good as none."""
        return self.path.exists() and self.path.stat().st_size > 0

    @property
    def lines(self) -> Sequence[LedgerLine]:
        """Its entries, the oldest first."""
        return self._lines

    def looks(self) -> dict[str, list[tuple[LedgerLine, Look]]]:
        """The looks of each experiment, the oldest first, each with its line.

        Those of a completed experiment count, and what began behind them; of one that was never completed the last.
        """
        by_id: dict[str, list[LedgerLine]] = {}
        for line in self._lines:
            mine = by_id.setdefault(line.experiment_id, [])
            if mine and (mine[-1].state == "reserved" or mine[-1].is_repeated_by(line)):
                mine.pop()
            mine.append(line)
        return {experiment: list(_numbered_looks(lines)) for experiment, lines in by_id.items()}

    @classmethod
    @contextmanager
    def locked(cls, experiments: Path) -> Iterator[LookLedger]:
        """The ledger of a folder of experiments, which no one else changes meanwhile.

        Raises:
            StoreError: another process has it for too long, or the folder isn't writable.
        """
        lock = ExperimentLock(make_directory(ledger_path(experiments).with_suffix(".lock")))
        end = time.monotonic() + _PATIENCE_SECONDS
        while not lock.held:
            try:
                lock.acquire()
            except StoreError as error:
                if "holder" not in error.facts or time.monotonic() > end:
                    raise
                time.sleep(_PAUSE_SECONDS)
        with lock:
            yield cls(experiments)

    def append(self, lines: Iterable[LedgerLine]) -> None:
        """Append looks, each synced to the disk.

        Raises:
            StoreError: they can't be written.
        """
        with JsonlWriter(self.path, durable=True) as writer:
            for line in lines:
                contents = line.question.contents
                question = as_tree(attrs.evolve(line.question, contents=None))
                tree = {**as_tree(line), "question": {**question, "contents": contents and contents.hash}}
                if contents is not None and contents.hash not in self._contents:
                    tree["contents"] = contents.as_json  # once; later lines name its hash
                writer.write(tree)
                self._take_in(tree)

    def mark_rebuilt(self, experiments: int) -> None:
        """Put down that the ledger was missing although there were so many experiments, so looks of deleted ones aren't known.

        Raises:
            StoreError: it can't be written.
        """
        tree = {"rebuilt": now(), "experiments": experiments}
        with JsonlWriter(self.path, durable=True) as writer:
            writer.write(tree)
        self._take_in(tree)

    def _take_in(self, tree: Mapping[str, Any]) -> None:
        if "rebuilt" in tree:
            self.rebuilt = str(tree["rebuilt"])
            return
        if tree.get("contents") is not None:
            found = TaskContents.of_tree(tree["contents"])
            self._contents[found.hash] = found
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
            )
        )


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

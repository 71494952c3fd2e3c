"""Experiments on record as a script, a notebook or a dashboard reads them: `open(path)` is the way in.

Everything here only reads, at any time, also while the experiment runs in another process. A file that can't be read, or
holds something else than this version writes, is a StoreError with its path.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import attrs

from evsys.errors import ConfigError, StoreError
from evsys.types import ArmResult, Conclusion, EvaluationResult, Rollout
from evsys_record.attempts import Attempt
from evsys_record.events import EVENTS, Event, event_of, read_events
from evsys_record.experiment_names import experiment_called, folder_called
from evsys_record.experiment_record import PLOTS, RUNNING, ExperimentRecord, running_or_crashed
from evsys_record.files import read_json
from evsys_record.index import Index
from evsys_record.jsonl import read_jsonl
from evsys_record.lock import ExperimentLock
from evsys_record.marks import marks_of, with_marks
from evsys_record.past_files import read_experiment
from evsys_record.result_trees import read_file_as
from evsys_record.rollouts import rollout_from_tree
from evsys_record.run_record import EVALUATIONS, RunRecord
from evsys_record.tail import Tail

__all__ = [
    "Experiment",
    "Experiments",
    "Following",
    "Line",
    "RecordedRollout",
    "Run",
    "find_experiment",
    "open_experiments",
]

FOLLOW_SECONDS = 0.5
"""How often `follow` looks for new lines."""

FOLLOWED = (
    EVENTS,
    "experiment.log.jsonl",
    "search.jsonl",
    "runs/*/run.log.jsonl",
    "runs/*/journal.jsonl",
    "runs/*/evaluations.jsonl",
    "runs/*/checkpoints.jsonl",
    "runs/*/*/metrics.jsonl",
    "runs/*/*/rollouts.jsonl",
)


def open_experiments(path: str | Path = ".") -> Experiments:
    """The experiments of a project, or of a folder that holds them.

    Args:
        path: a project, its `.evsys`, the folder of its experiments, or one experiment.

    Raises:
        StoreError: there is no such folder.
    """
    folder = Path(path).absolute()
    if not folder.is_dir():
        raise StoreError(f"no folder {folder}", hint="pass a project, or the folder of its experiments")
    if (folder / "experiment.json").is_file():
        return Experiments(folder.parent)
    if any(folder.glob("*/experiment.json")):
        return Experiments(folder)
    if folder.name == ".evsys":
        return Experiments(folder / "experiments")
    if (folder / ".evsys").is_dir():
        return Experiments(folder / ".evsys" / "experiments")
    return Experiments(folder)


def find_experiment(
    name: str, experiments: Path, *, tell: Callable[[str], None] = lambda _line: None
) -> Experiment:
    """One experiment as users name it: by a path to it, or by any name that `Experiments.experiment` takes.

    Args:
        name: what the user wrote.
        experiments: the folder of the experiments; a path needs none.
        tell: gets a line for each record that can't be read.

    Raises:
        ConfigError: there is none, or several.
    """
    place = folder_called(name)
    if place is not None:
        return Experiment(place[0])
    with Index(experiments, tell=tell) as index:
        index.refresh()
        return Experiment(experiments / experiment_called(name, index))


@attrs.frozen
class Experiments:
    """All experiments in one folder. `directory` need not exist yet."""

    directory: Path

    def __iter__(self) -> Iterator[Experiment]:
        return self.experiments()

    def experiments(self) -> Iterator[Experiment]:
        """Every experiment, newest first."""
        folders = (path.parent for path in self.directory.glob("*/experiment.json"))
        for folder in sorted(
            folders, key=lambda path: (path.name[:15], len(path.name), path.name), reverse=True
        ):
            yield Experiment(folder)

    def experiment(self, name: str) -> Experiment:
        """One experiment by its id or a unique prefix of it, its unique name, `last`, or `-N`.

        Raises:
            ConfigError: there is none, or several.
        """
        with self.index() as index:
            return Experiment(self.directory / experiment_called(name, index))

    def index(self) -> Index:
        """The index of these experiments, brought up to date; `evsys_record.history.ask` queries it. Close it, or use `with`."""
        index = Index(self.directory)
        index.refresh()
        return index


@attrs.frozen
class Experiment:
    """One experiment on record. Each property and method reads the files as they are now."""

    directory: Path

    @property
    def id(self) -> str:
        """The folder's name."""
        return self.directory.name

    @property
    def facts(self) -> Mapping[str, Any]:
        """The contents of experiment.json."""
        return self._record.facts

    @property
    def status(self) -> str:
        """How it ended; `running` while a process holds it, `crashed` if that process is gone."""
        status = str(self.facts["status"])
        if status != RUNNING:
            return status
        return running_or_crashed(self.directory)

    @property
    def ended(self) -> bool:
        """True once its process has let go of it: a status other than `running` is on record before the last event and the plots are."""
        return self.status != RUNNING and ExperimentLock(self.directory).holder() is None

    @property
    def config(self) -> str:
        """The experiment file, byte for byte as it was run."""
        return self._record.config_bytes.decode("utf-8")

    @property
    def plots(self) -> Path:
        """The folder of its pictures, which need not exist."""
        return self.directory / PLOTS

    @property
    def resolved(self) -> Mapping[str, Any] | None:
        """The file with every default filled in; None if the experiment ended before that was written."""
        path = self.directory / "resolved.json"
        return read_json(path) if path.exists() else None

    @property
    def conclusion(self) -> Conclusion | None:
        """The verdict and its numbers; None before the experiment concludes."""
        path = self.directory / "conclusion.json"
        finished = self.facts["finished"] is not None and path.exists()
        return read_file_as(Conclusion, read_json(path), path) if finished else None

    @property
    def verdict(self) -> str:
        """The verdict with its subject and marks, such as `SUPPORTED (this checkpoint, simulated)`; `none` without one."""
        past = read_experiment(self.directory).past
        return with_marks(past.verdict or "none", past.subject, marks_of(past))

    def runs(self) -> list[Run]:
        """The runs that have begun, in the order of the file."""
        return [Run(record.directory) for record in self._record.runs()]

    def run(self, run_id: str) -> Run:
        """One run by its id.

        Raises:
            ConfigError: it has no record.
        """
        found = self._record.find_run(run_id)
        if found is None:
            known = ", ".join(run.id for run in self.runs()) or "none yet"
            raise ConfigError(f"{self.id} has no run {run_id!r}", hint=f"runs on record: {known}")
        return Run(found.directory)

    def log(self) -> Iterator[Mapping[str, Any]]:
        """The events of the experiment's own log."""
        return read_jsonl(self.directory / "experiment.log.jsonl", missing_ok=True)

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """Yield the events with a number above `after`, in order.

        Raises:
            StoreError: the file can't be read.
        """
        return read_events(self.directory, after=after)

    def new_events(self) -> Callable[[], Iterator[Event]]:
        """A function that yields, at each call, the events since its last call; the file is read once."""
        tail: Tail | None = None

        def read() -> Iterator[Event]:
            nonlocal tail
            path = self.directory / EVENTS
            if tail is None and path.exists():
                tail = Tail(path)
            return iter(()) if tail is None else map(event_of, tail.read())

        return read

    def follow(
        self,
        cursor: str | None = None,
        *,
        from_start: bool = True,
        files: Sequence[str] = FOLLOWED,
        wait: Callable[[], object] = lambda: time.sleep(FOLLOW_SECONDS),
    ) -> Following:
        """Every line as it is written to any file of the experiment, until the experiment has ended and all lines are read.

        Lines of attempts that a later one replaced are included, in the order in which they are in their file; of different
        files in no particular order. Nothing is read twice: `Following.cursor` is where another call continues.

        Args:
            cursor: continue there; files that the cursor doesn't know are read from their start.
            from_start: without a cursor, also yield the lines that are there already.
            files: patterns of the files to read, of those in `FOLLOWED`; all of them by default.
            wait: called while there is nothing new; by default sleeps for `FOLLOW_SECONDS`.

        Raises:
            ConfigError: the cursor is not one of this experiment.
            StoreError: while iterating, if a line is malformed.
        """
        return Following(self, cursor=cursor, from_start=from_start, files=files, wait=wait)

    @property
    def _record(self) -> ExperimentRecord:
        return ExperimentRecord.open(self.directory)


class Following(Iterator["Line"]):
    """An iterator over the lines of an experiment as they are written; made by `Experiment.follow`."""

    def __init__(
        self,
        experiment: Experiment,
        *,
        cursor: str | None,
        from_start: bool,
        files: Sequence[str],
        wait: Callable[[], object],
    ) -> None:
        self._experiment = experiment
        self._files = files
        self._wait = wait
        self._tails: dict[str, Tail] = {}
        if cursor is not None:
            for name, offset in _offsets(cursor, experiment.id).items():
                self._tails[name] = Tail(experiment.directory / name, offset=offset)
        elif not from_start:
            self._find_files(offset=None)
        self._lines = self._follow()

    def __next__(self) -> Line:
        return next(self._lines)

    @property
    def cursor(self) -> str:
        """The end of the lines yielded so far, as text for `Experiment.follow`."""
        offsets = {name: tail.offset for name, tail in self._tails.items()}
        return json.dumps({"experiment": self._experiment.id, "offsets": offsets}, separators=(",", ":"))

    def _follow(self) -> Iterator[Line]:
        while True:
            ended = self._experiment.ended
            self._find_files(offset=0)
            idle = True
            for name, tail in self._tails.items():
                run = name.split("/")[1] if name.startswith("runs/") else None
                for values in tail.read():
                    idle = False
                    yield Line(file=name, run=run, values=values)
            if idle and ended:
                return
            if idle:
                self._wait()

    def _find_files(self, *, offset: int | None) -> None:
        directory = self._experiment.directory
        for pattern in self._files:
            for path in sorted(directory.glob(pattern)):
                name = path.relative_to(directory).as_posix()
                if name not in self._tails:
                    self._tails[name] = Tail(path, offset=offset)


def _offsets(cursor: str, experiment_id: str) -> dict[str, int]:
    try:
        tree = json.loads(cursor)
        offsets = {str(name): int(offset) for name, offset in tree["offsets"].items()}
        owner = tree["experiment"]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"invalid cursor {cursor!r}", hint="pass the text of Following.cursor") from error
    if owner != experiment_id or not all(map(_is_followed, offsets)):
        raise ConfigError(f"the cursor belongs to {owner}, not to {experiment_id}")
    return offsets


def _is_followed(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return ".." not in parts and any(
        len(parts) == pattern.count("/") + 1 and PurePosixPath(name).match(pattern) for pattern in FOLLOWED
    )


@attrs.frozen
class Run:
    """One run of an experiment: its live part, without interrupted and repeated work."""

    directory: Path

    @property
    def id(self) -> str:
        """`<arm>-s<repeat>`."""
        return self._record.run_id

    @property
    def facts(self) -> Mapping[str, Any]:
        """The contents of run.json."""
        return self._record.facts

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Every attempt so far, oldest first."""
        return self._record.attempts

    @property
    def result(self) -> ArmResult | None:
        """How the newest attempt ended; None until then."""
        tree = self._record.read_result()
        return None if tree is None else read_file_as(ArmResult, tree, self.directory / "run_result.json")

    def metrics(self, phase: str = "training") -> Iterator[tuple[int, Mapping[str, float | None]]]:
        """Each step with its values; a non-finite one is None.

        Args:
            phase: `training`, `validation` or `test`.
        """
        for line in self._record.read_metrics(phase):
            yield line["step"], line["values"]

    def rollouts(self, phase: str = "training") -> Iterator[RecordedRollout]:
        """The rollouts kept, one at a time.

        Args:
            phase: `training`, `validation` or `test`.
        """
        for line in self._record.read_rollouts(phase):
            benchmark = line["facts"].get("benchmark")
            yield RecordedRollout(
                step=line["step"],
                benchmark=benchmark,
                rollout=rollout_from_tree(line["rollout"]),
                time=line.get("time", ""),
            )

    def evaluations(self) -> Iterator[EvaluationResult]:
        """Every evaluation that ended; of one that was repeated, the last."""
        path = self.directory / EVALUATIONS
        for line in self._record.read_evaluations():
            yield read_file_as(EvaluationResult, line["evaluation"], path)

    def training_data(self) -> Iterator[Mapping[str, Any]]:
        """The rows it trains on, as they were materialised; none before that."""
        path = self._record.training_data()
        return iter(()) if path is None else read_jsonl(path)

    def log(self) -> Iterator[Mapping[str, Any]]:
        """The events of the run's log."""
        return read_jsonl(self.directory / "run.log.jsonl", missing_ok=True)

    @property
    def _record(self) -> RunRecord:
        return RunRecord(self.directory)


@attrs.frozen(kw_only=True)
class RecordedRollout:
    """A rollout with its place: the optimiser step it was sampled at, its benchmark entry (None in training), when it was recorded."""

    step: int
    benchmark: str | None
    rollout: Rollout
    time: str = ""


@attrs.frozen(kw_only=True)
class Line:
    """A line of one of an experiment's files. `file` is relative to the experiment, `run` the folder of its run, if any."""

    file: str
    run: str | None
    values: Mapping[str, Any]

"""The restart point of an attempt at a run, from the run's record alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import attrs

from evsys.errors import StoreError
from evsys.types import ArmResult, Checkpoint, EvaluationResult, RunResult, Usage
from evsys_record.attempts import Attempt, lineage
from evsys_record.checkpoints import CheckpointEntry
from evsys_record.encoding import as_tree
from evsys_record.files import read_json
from evsys_record.result_trees import read_as
from evsys_record.run_record import RunRecord
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.results import in_task_order
from evsys_runtime.experiment.budget.spending import usage_of_run
from evsys_runtime.training.checkpoints import restorable
from evsys_runtime.training.retreat import RetreatKind

__all__ = [
    "BRANCH",
    "LOST",
    "PASSED_OVER",
    "RETREATED",
    "RestartPoint",
    "is_final",
    "is_whole",
    "note_trained",
    "retreats_of",
    "take_up",
]

TRAINED = "trained"
"""The key of run.json for the result of training, as soon as it is over."""

BRANCH = "branch"
"""The key of run.json that says where a run branched off."""

PASSED_OVER = "passed_over"
"""The key of run.json for the faults of checkpoints that a branch couldn't begin from."""

RETREATED = "retreated"
"""The key of run.json for the number of rollbacks of the run that this one branched off from."""

ENDED = ("completed", "collapsed", "stopped")
"""Statuses of a training that would come to the same again."""

RETREATS = get_args(RetreatKind)
"""Reasons of attempts that went back behind a collapse."""

LOST = "it was cut off, and no checkpoint of its step exists to replay it from"


@attrs.frozen(kw_only=True)
class RestartPoint:
    """The state of a run to restart from.

    Attributes:
        attempt: the newest one, which the next continues from; None without one.
        ended: the result of a run that can't be made any more complete; it is kept as it is.
        trained: the result of training, once it is over.
        checkpoint: where training continues, or the trained weights; None starts over.
        snapshots: complete checkpoints by their step.
        scored: evaluations that needn't be repeated.
        branched: the step at which the run branched off from another experiment's; 0 if it didn't.
        retreats: how often it went back to an earlier checkpoint after a collapse, including the run that it
            branched off from.
        seconds: duration of the earlier attempts, as far as they recorded it.
        identity: of the run, to check whether it is still the same.
        paid: the usage of all attempts for evaluations and steps, including abandoned ones.
        odd: warnings.
    """

    attempt: int | None = None
    ended: ArmResult | None = None
    trained: RunResult | None = None
    checkpoint: CheckpointEntry | None = None
    snapshots: Mapping[int, CheckpointEntry] = attrs.field(factory=dict)
    scored: tuple[EvaluationResult, ...] = ()
    branched: int = 0
    retreats: int = 0
    seconds: float = 0.0
    identity: str | None = None
    paid: Usage = attrs.field(factory=Usage)
    odd: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        """Optimiser steps behind what the next attempt starts from."""
        return self.checkpoint.step if self.checkpoint is not None else 0

    @property
    def restored(self) -> Checkpoint | None:
        """The checkpoint, as backends and loops take it."""
        return None if self.checkpoint is None else restorable(self.checkpoint)

    def snapshot(self, step: int) -> Checkpoint:
        """The snapshot with the weights of an earlier step.

        Raises:
            StoreError: there isn't one.
        """
        entry = self.snapshots.get(step)
        if entry is None:
            raise StoreError(LOST)
        entry.verify()
        return restorable(entry)

    @property
    def counted(self) -> Iterator[Usage]:
        """The part of the paid usage that this attempt continues with."""
        yield from (e.usage + e.judged for e in self.scored)
        if self.trained is not None:
            yield Usage(trained_tokens=self.trained.usage.trained_tokens, cost_usd=0.0)
        elif self.checkpoint is not None:
            loop = self.checkpoint.manifest.get("loop", {})
            yield Usage(trained_tokens=int(loop.get("tokens", 0)), cost_usd=0.0)

    @property
    def next_attempt(self) -> Mapping[str, Any]:
        """How the next attempt begins. One that starts over keeps what was scored of the untrained weights."""
        if self.attempt is None:
            return {}
        return {"reason": "resume", "parent": self.attempt, "from_step": self.step}

    def missing_evaluation_steps(self, benchmarks: Iterable[BoundBenchmark], *, untrained: bool) -> list[int]:
        """The steps before `step` at which an entry was due and has no evaluation on record.

        `step` itself isn't among them: the training loop asks for its evaluation when it starts.

        Args:
            benchmarks: the entries.
            untrained: step 0 is among them.
        """
        there = {(e.step, e.benchmark) for e in self.scored if e.model is None}
        return [
            step
            for step in (0, *range(max(1, self.branched), self.step))
            if self.step
            and any(
                (step, b.name) not in there
                for b in benchmarks
                if (untrained if step == 0 else b.run_every is not None and step % b.run_every == 0)
            )
        ]


def note_trained(record: RunRecord, result: RunResult) -> None:
    """Put on record that training is over: nothing is trained again after this."""
    record.note(**{TRAINED: {"attempt": record.attempt, "result": as_tree(result)}})


def take_up(record: RunRecord, benchmarks: Sequence[BoundBenchmark]) -> RestartPoint:
    """Read what is there of a run, after `ExperimentRecord.recover`.

    Args:
        record: the run's.
        benchmarks: the entries that it is scored on.

    Raises:
        StoreError, ConfigError: the record can't be read, or isn't as this version writes it.
    """
    attempts, facts = record.attempts, record.facts
    if not attempts:
        return RestartPoint()
    result = _result(record, benchmarks)
    saved = sorted(record.checkpoints.complete(attempts), key=lambda entry: (entry.step, entry.attempt))
    if result is not None and _can_say_no_more(result, lambda: {entry.step for entry in saved}):
        return RestartPoint(attempt=attempts[-1].n, ended=result)
    damaged = [*facts.get(PASSED_OVER, ()), *(error.message for error in record.checkpoints.damaged())]
    odd = [f"a checkpoint is left out: {problem}" for problem in damaged]
    checkpoint = next((entry for entry in reversed(saved) if is_whole(entry, odd.append)), None)
    snapshots = {entry.step: entry for entry in saved if checkpoint and entry.step <= checkpoint.step}
    line = lineage(attempts)
    trained = _training_result(facts, line)
    if trained is not None and (checkpoint is None or checkpoint.step != trained.steps):
        trained = None  # the trained weights are gone, so they are made again
    branched = next(attempt.from_step for attempt in attempts if attempt.n == min(line))
    retreats = _retreats(attempts)
    before = facts.get(RETREATED, 0)
    odd += _retreat_notes(record, before, retreats)
    if checkpoint is not None:
        odd += _gaps(record, checkpoint, branched)
    try:
        paid = usage_of_run(record)
    except (StoreError, KeyError, TypeError, ValueError) as error:
        paid = Usage()
        odd.append(f"usage of interrupted work is unknown: {error}")
    found = RestartPoint(
        attempt=attempts[-1].n,
        branched=branched,
        retreats=before + len(retreats),
        trained=trained,
        checkpoint=checkpoint,
        snapshots=snapshots,
        seconds=_seconds(result, checkpoint),
        identity=facts.get("identity"),
        paid=paid,
        odd=tuple(odd),
    )
    return attrs.evolve(found, scored=tuple(_reusable_evaluations(record, found)))


def _retreat_notes(record: RunRecord, before: int, retreats: Sequence[Attempt]) -> Iterator[str]:
    """A note for each time that training collapsed and went back, `before` of them in the run branched off from."""
    if before:
        times = "once" if before == 1 else f"{before} times"
        yield (
            f"the run that this one branched off from had gone back {times}, so it continues as that one would have: with the "
            "lower learning rate, and with other samples"
        )
    for one in retreats:
        yield (
            f"training collapsed in attempt {one.parent} ({_cause(record, one.parent)}), and continued from step "
            f"{one.from_step} as attempt {one.n} ({one.reason})"
        )


def retreats_of(record: RunRecord) -> int:
    """How often a run went back behind a collapse, and the runs before it that it branched off from.

    Raises:
        StoreError: an attempt's parent is missing.
    """
    before: int = record.facts.get(RETREATED, 0)
    return before + len(_retreats(record.attempts))


def _cause(record: RunRecord, attempt: int | None) -> str:
    """Why an attempt collapsed, or the file that should have it."""
    name = f"run_result.{attempt}.json"
    try:
        ended = read_json(record.directory / name).get("run") or {}
    except StoreError:
        return f"{name} can't be read"
    return str(ended.get("stop_reason") or f"see {name}")


def _retreats(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts behind the newest one that went back. A fork's first is a branch as well, and has no parent."""
    line = lineage(attempts)
    return [one for one in attempts if one.n in line and one.parent is not None and one.reason in RETREATS]


def _result(record: RunRecord, benchmarks: Sequence[BoundBenchmark]) -> ArmResult | None:
    """The result of the newest attempt, in the form before it was written; None if it didn't end."""
    tree = record.read_result()
    if tree is None:
        return None
    result = read_as(ArmResult, tree)
    by_name = {benchmark.name: benchmark for benchmark in benchmarks}
    evaluations = tuple(
        in_task_order(e, by_name[e.benchmark]) if e.benchmark in by_name else e for e in result.evaluations
    )
    run = result.run and attrs.evolve(result.run, evaluations=evaluations)
    return attrs.evolve(result, run=run, evaluations=evaluations, run_dir=str(record.directory))


def is_whole(entry: CheckpointEntry, tell: Callable[[str], None] | None = None) -> bool:
    """True where a run can continue from a checkpoint; `tell` gets a line of one that it can't."""
    try:
        entry.verify()
        restorable(entry)
    except StoreError as error:
        if tell is not None:
            tell(f"a checkpoint is left out: {error.message}")
        return False
    return True


def _gaps(record: RunRecord, checkpoint: CheckpointEntry, branched: int) -> Iterator[str]:
    """Steps behind a checkpoint that have no line: a power cut or a disk took them."""
    if not checkpoint.manifest.get("loop", {}).get("metrics"):
        return  # not saved by the training loop, which alone records every step
    done = (line for line in record.read_journal() if line.get("event") == "done")
    for name, lines in (("training/metrics.jsonl", record.read_metrics()), ("journal.jsonl", done)):
        try:
            there = {line["step"] for line in lines}
        except (StoreError, KeyError) as error:
            told = error.message if isinstance(error, StoreError) else f"a line lacks {error}"
            yield f"{record.directory / name} can't be read to its end: {told}"
            continue
        lacking = [step for step in range(branched + 1, checkpoint.step + 1) if step not in there]
        if lacking:
            yield (
                f"{record.directory / name} lacks {len(lacking)} of the {checkpoint.step - branched} steps behind the "
                f"checkpoint that the run continues from, the first of them step {lacking[0]}: they were lost"
            )


def _training_result(facts: Mapping[str, Any], line: Mapping[int, int | None]) -> RunResult | None:
    """The result of training, unless it isn't over, or a later attempt went back behind it."""
    noted = facts.get(TRAINED)
    if noted is None or noted["attempt"] not in line:
        return None
    tree = noted["result"]
    odd = [name for name, value in tree["metrics"].items() if value is None]
    metrics = {name: value for name, value in tree["metrics"].items() if value is not None}
    warnings = [*tree["warnings"], *(f"metric {name!r} wasn't finite at the end" for name in odd)]
    result = read_as(RunResult, {**tree, "metrics": metrics, "warnings": warnings})
    bound = line[noted["attempt"]]
    return result if result.status in ENDED and (bound is None or result.steps <= bound) else None


def _seconds(result: ArmResult | None, checkpoint: CheckpointEntry | None) -> float:
    if result is not None:
        return result.seconds
    return float(checkpoint.manifest.get("loop", {}).get("seconds", 0.0)) if checkpoint is not None else 0.0


def is_final(result: ArmResult, record: RunRecord) -> bool:
    """True where an attempt more would come to nothing more.

    Raises:
        StoreError: the run's record can't be read.
    """
    return _can_say_no_more(
        result, lambda: {entry.step for entry in record.checkpoints.complete(record.attempts)}
    )


def _can_say_no_more(result: ArmResult, saved: Callable[[], Collection[int]]) -> bool:
    """True where training is over and what isn't scored can't be, for want of a checkpoint."""
    if result.status not in ENDED:
        return False
    lacking = {e.step for e in result.evaluations if not e.fully_scored}
    return not lacking or (0 not in lacking and lacking.isdisjoint(saved()))


def _reusable_evaluations(record: RunRecord, found: RestartPoint) -> Iterable[EvaluationResult]:
    """Scorings of this and earlier steps that need not be repeated."""
    for line in record.read_evaluations():
        tree = line["evaluation"]
        if tree["status"] == "completed" and tree["step"] <= found.step:
            scored = read_as(EvaluationResult, tree)
            if scored.fully_scored:
                yield scored

"""Which checkpoint of a run is the best: by what the experiment selects by, by the success metric, else by the reward."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from evsys.optional import declared
from evsys.types import Checkpoint, EvaluationResult, RunContext
from evsys_record.checkpoints import CheckpointFiles
from evsys_record.result_trees import read_as
from evsys_record.run_record import RunRecord
from evsys_record.scorings import value_of
from evsys_runtime.background import in_background
from evsys_runtime.config.plan import CheckpointSelection, SuccessMetric
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.metrics import BoundMetric, value_of_tasks
from evsys_runtime.evaluation.proof import selecting_tasks
from evsys_runtime.training.checkpoints import restorable

__all__ = ["BestCheckpoint"]

REWARD = "reward"
"""The metric of a step that counts where nothing is scored."""

LAST = CheckpointSelection()

WINDOW = 10
"""Steps that a mean of the reward is taken over: that of one step is mostly noise."""


@attrs.define(kw_only=True, eq=False)
class BestCheckpoint:
    """Follows one run, as a listener, and knows its best checkpoint so far.

    A backend whose client has `keep_state(state)` gets each new one, so that it keeps it, and at the beginning of
    an attempt the best one so far, so that it can drop that once there is a better one. Checkpoints saved for the
    selection alone are removed once they are neither the best nor the last.

    Attributes:
        entry: the benchmark entry whose scores count; None: the rewards count.
        metric: its metric.
        sign: -1 if less is better.
        tasks: the metric and the tasks of the entry that count; None for all.
        files: removes checkpoints; None removes none.
    """

    entry: str | None = None
    metric: str = ""
    sign: float = 1.0
    tasks: tuple[BoundMetric, frozenset[str]] | None = None
    files: CheckpointFiles | None = None
    _rewards: dict[int, float] = attrs.field(factory=dict)
    _scores: dict[int, float] = attrs.field(factory=dict)
    _saved: dict[int, Checkpoint] = attrs.field(factory=dict)
    _kept: int | None = None

    @classmethod
    def from_record(
        cls,
        record: RunRecord,
        success: SuccessMetric | None,
        benchmarks: Sequence[BoundBenchmark],
        selection: CheckpointSelection = LAST,
    ) -> BestCheckpoint:
        """It as an attempt finds it that continues with a run: from the live lines of the record. Blocking.

        Raises:
            StoreError: the record can't be read.
        """
        if selection.checkpoint == "best":
            found = cls.from_files(selection, benchmarks, record.checkpoints)
        else:
            found = cls(
                entry=None if success is None else _entry(success, benchmarks),
                metric="" if success is None else success.metric,
                sign=-1.0 if success is not None and success.direction == "min" else 1.0,
            )
        attempts = record.attempts
        if len(attempts) < 2:
            return found
        for line in record.read_metrics():
            found._step(line["step"], line["values"])
        for line in record.read_evaluations():
            found._add_evaluation(read_as(EvaluationResult, line["evaluation"]))
        for saved in record.checkpoints.complete(attempts):
            found._saved[saved.step] = restorable(saved)
        return found

    @classmethod
    def from_files(
        cls, selection: CheckpointSelection, benchmarks: Sequence[BoundBenchmark], files: CheckpointFiles
    ) -> BestCheckpoint:
        bound = next(one for one in benchmarks if one.name == selection.benchmark)
        metric = bound.metric(selection.metric)
        part = (metric, selecting_tasks(bound)) if selection.proof == "held_out_tasks" else None
        return cls(
            entry=bound.name,
            metric=metric.name,
            sign=-1.0 if (selection.direction or metric.direction) == "min" else 1.0,
            tasks=part,
            files=files,
        )

    # --- what it is told ------------------------------------------------------------------------------------------

    async def evsys_run_started(self, ctx: RunContext) -> None:
        """A hook: an attempt begins, maybe with what earlier ones have left."""
        await self._keep(ctx)

    def evsys_step_finished(self, step: int, metrics: Mapping[str, float]) -> None:
        """A hook: a step has its reward."""
        self._step(step, metrics)

    async def evsys_evaluation_finished(self, ctx: RunContext, evaluation: EvaluationResult) -> None:
        """A hook: weights are scored."""
        self._add_evaluation(evaluation)
        await self._keep(ctx)
        await self._remove_worse(ctx)

    async def evsys_checkpoint_saved(self, ctx: RunContext, checkpoint: Checkpoint) -> None:
        """A hook: there is another one."""
        self._saved[checkpoint.step] = checkpoint
        await self._keep(ctx)
        await self._remove_worse(ctx)

    # --- what it knows --------------------------------------------------------------------------------------------

    @property
    def best(self) -> Checkpoint | None:
        """The best checkpoint; None where nothing says how good any of them is."""
        return next((one for one in self.rank() if self._is_known(one.step)), None)

    @property
    def looks(self) -> dict[int, float]:
        """The scores of trained weights, by step, as the metric has them; those of removed checkpoints too."""
        return {step: self.sign * self._scores[step] for step in sorted(self._scores) if step > 0}

    @property
    def selected(self) -> Checkpoint | None:
        """The checkpoint with the best score; None without one. Of equals the later one is taken."""
        saved = self._scores.keys() & self._saved.keys()
        step = max(saved, key=lambda one: (self._scores[one], one), default=None)
        return None if step is None else self._saved[step]

    def rank(self, at_most: int | None = None) -> list[Checkpoint]:
        """The checkpoints of at most so many steps, the best first; those of which nothing is known come last, the latest first.

        Scores count where more than one checkpoint has one, else the rewards: what is scored at the end alone is compared with
        nothing. Of equals the later one is taken: it has learnt for longer.
        """
        steps = sorted(step for step in self._saved if at_most is None or step <= at_most)
        rewards = {step: value for step in steps if (value := self._reward(step)) is not None}
        scores = {step: self._scores[step] for step in steps if step in self._scores}
        if len(scores) == 1 and rewards:
            scores = {}
        scored = sorted(scores, key=scores.__getitem__)
        others = sorted((step for step in rewards if step not in scores), key=rewards.__getitem__)
        known = {*scored, *others}
        rest = [step for step in steps if step not in known]
        return [self._saved[step] for step in reversed([*rest, *others, *scored])]

    def place(self, directory: Path) -> str | None:
        """The path of the best checkpoint, relative to the run's folder."""
        best = self.best
        return None if best is None else self.place_of(best, directory)

    @staticmethod
    def place_of(checkpoint: Checkpoint, directory: Path) -> str:
        """The path of a checkpoint, relative to the run's folder."""
        inside = checkpoint.directory.is_relative_to(directory)
        return (checkpoint.directory.relative_to(directory) if inside else checkpoint.directory).as_posix()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _step(self, step: int, metrics: Mapping[str, float | None]) -> None:
        reward = metrics.get(REWARD)
        if reward is not None and math.isfinite(reward):
            self._rewards[step] = float(reward)

    def _add_evaluation(self, evaluation: EvaluationResult) -> None:
        if evaluation.benchmark != self.entry or evaluation.model is not None:
            return
        value = value_of(evaluation, self.metric)
        if value is not None and self.tasks is not None:
            metric, tasks = self.tasks
            value = value_of_tasks(metric, evaluation.task_rewards, tasks)
        if value is not None:
            self._scores[evaluation.step] = self.sign * value

    def _reward(self, step: int) -> float | None:
        values = [self._rewards[at] for at in range(step - WINDOW + 1, step + 1) if at in self._rewards]
        return math.fsum(values) / len(values) if values else None

    def _is_known(self, step: int) -> bool:
        return step in self._scores or self._reward(step) is not None

    async def _remove_worse(self, ctx: RunContext) -> None:
        """Remove what was saved for the selection alone, is scored, and can't be needed any more.

        A step whose scorings are still under way is needed if the run is killed before they end.
        """
        selected = self.selected
        if self.files is None or selected is None:
            return
        pending = {one["step"] for one in declared(ctx.evaluate, "pending", ())}
        kept = {selected.step, max(self._saved), *pending}
        for step in sorted(self._scores.keys() & self._saved.keys() - kept):
            if self._saved[step].loop.get("only_to_select"):
                await in_background(self.files.remove, self._saved.pop(step).directory)

    async def _keep(self, ctx: RunContext) -> None:
        best, keep = self.best, declared(ctx.clients.policy, "keep_state")
        if best is None or best.step == self._kept:
            return
        self._kept = best.step
        if keep is not None:
            await keep(best.state)


def _entry(success: SuccessMetric, benchmarks: Iterable[BoundBenchmark]) -> str | None:
    """The entry that says how good weights are on the way: the success metric's own, else another one with that metric."""
    usable = [
        one.name
        for one in benchmarks
        if one.split == "val" and success.metric in {metric.name for metric in one.metrics}
    ]
    if success.benchmark in usable:
        return success.benchmark
    return next(iter(usable), None)

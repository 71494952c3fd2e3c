"""The state of an experiment under way: its plan, its record, its listeners, and what its arms share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import attrs

from evsys import HookManager
from evsys.errors import EvsysError
from evsys.protocols import Launcher, Log, LogStore
from evsys.types import ArmResult
from evsys_record.experiment_record import ExperimentRecord
from evsys_runtime.config.confirm_entries import deciding_entry, is_scored
from evsys_runtime.config.harness import Harness, run_harness
from evsys_runtime.config.model import BenchmarkConfig
from evsys_runtime.config.plan import ArmConfig, CheckpointSelection, Plan
from evsys_runtime.data.dataset import MaterializedDataset
from evsys_runtime.data.workspace import Workspace
from evsys_runtime.evaluation.benchmarks import BoundBenchmark, with_harness
from evsys_runtime.evaluation.proof import proofs_of
from evsys_runtime.evaluation.shared_scores import SharedScores
from evsys_runtime.experiment.budget.budget import ArmBudget, ExperimentBudget
from evsys_runtime.experiment.lineage.restart_point import RestartPoint
from evsys_runtime.experiment.lineage.runs import EarlierRuns
from evsys_runtime.experiment.state.options import Options
from evsys_runtime.experiment.state.progress import Progress
from evsys_runtime.experiment.state.seeds import Seeds, seeds_of
from evsys_runtime.experiment.state.steering import Steering
from evsys_runtime.experiment.supervision.interrupts import interruption
from evsys_runtime.experiment.supervision.watchdog import Watchdog
from evsys_runtime.logging import LogSettings

__all__ = ["ArmSource", "Session", "bound_for", "run_id_of"]


class ArmSource(Protocol):
    """Decides on more arms while the experiment runs."""

    name: str

    def propose(self, session: Session, running: int) -> Sequence[Mapping[str, Any]]:
        """Propose additions, as plain values that `arms` makes arms of; empty if there is nothing to add now.

        It is asked while there is room for another arm and none is waiting. A later source is asked only if nothing
        runs and those before it add nothing.
        """
        ...

    def arms(self, plan: Plan, proposal: Mapping[str, Any]) -> Sequence[ArmConfig]:
        """The arms of a proposal, from it and the plan alone."""
        ...


def run_id_of(arm: ArmConfig) -> str:
    """`<arm>-s<repeat>`, of a stage `<arm>-s<repeat>.<index>-<stage>`."""
    return arm.run_id


def bound_for(
    plan: Plan, arm: ArmConfig, benchmarks: Sequence[BoundBenchmark], harness: Harness | None = None
) -> tuple[BoundBenchmark, ...]:
    """The entries that an arm is scored on, each in the run's harness unless the entry names its own.

    Args:
        plan: the plan of the arm.
        arm: the arm.
        benchmarks: the bound entries of the plan.
        harness: replaces the run's harness.
    """
    harness = harness or run_harness(plan.registry, arm.run)
    scored = _entries_of(plan, arm, benchmarks)
    return tuple(with_harness(bound, entry, harness, plan.registry) for entry, bound in scored)


def _entries_of(
    plan: Plan, arm: ArmConfig, benchmarks: Sequence[BoundBenchmark]
) -> list[tuple[BenchmarkConfig, BoundBenchmark]]:
    entries = zip(plan.experiment.metadata.benchmarks, benchmarks, strict=True)
    return [(entry, bound) for entry, bound in entries if is_scored(plan, arm, entry)]


@attrs.define(kw_only=True, eq=False)
class Session:
    """The state shared by the arms of one experiment. Nothing here is global: two sessions in one process don't
    meet.

    `plan` grows by the arms that `sources` add while the experiment runs. `ambient` has the listeners that plugins
    bring, `hooks` those of the experiment as a whole; a run has its own from `run_listeners`. `untrained` holds
    scores of starting weights by the facts that they depend on, so each is made once. `compared` does the same for
    API models, which the first arm to get there evaluates. `simulated` has the backends that only imitate a model.
    `runs_on_file` is the number of runs with scores that the ledger of looks has of it. `repeated` has the arms
    reported as repetitions of earlier runs, each with its earlier experiment. `audited` counts the differing
    checks of the audit of each experiment with reusable runs. `budget` has the limits, None without any; `budgets`
    has the part of each started arm, `unpaid` why runs that the budget doesn't pay for may only be reused.
    `watched` has the watchdog of each arm under way here, `launched` the arms under way in other processes. `earlier` knows the runs of other experiments.
    `restart_points` has those of earlier attempts, by run, if the experiment is resumed, and `datasets` are rows
    that were loaded already. `stopping` says why running arms are ended, if one of them failed and `fail_fast` is
    set; `down` why they have failed, if a service that they need stays down. `progress` is how far the runs have
    come, `launcher` runs arms in other processes, `steering` has the requests from outside. `unknown_weights` has the starting checkpoint of each arm whose
    training rows aren't on record.
    """

    plan: Plan
    options: Options
    record: ExperimentRecord
    ambient: HookManager
    hooks: HookManager
    log: Log
    log_settings: LogSettings
    benchmarks: tuple[BoundBenchmark, ...]
    workspace: Workspace
    earlier: EarlierRuns
    sources: tuple[ArmSource, ...] = ()
    untrained: SharedScores = attrs.field(factory=SharedScores)
    compared: SharedScores = attrs.field(factory=lambda: SharedScores(retry_failed=False))
    results: dict[str, ArmResult] = attrs.field(factory=dict)
    restart_points: Mapping[str, RestartPoint] = attrs.field(factory=dict)
    datasets: dict[str, MaterializedDataset] = attrs.field(factory=dict)
    simulated: set[str] = attrs.field(factory=set)
    unknown_weights: dict[str, str] = attrs.field(factory=dict)
    scores_outside_harness: bool = False
    runs_on_file: int = 0
    repeated: set[tuple[str, str]] = attrs.field(factory=set)
    audited: dict[str, int] = attrs.field(factory=dict)
    watched: dict[str, Watchdog] = attrs.field(factory=dict)
    launched: set[str] = attrs.field(factory=set)
    budgets: dict[str, ArmBudget] = attrs.field(factory=dict)
    unpaid: dict[str, str] = attrs.field(factory=dict)
    warnings: list[str] = attrs.field(factory=list)
    budget: ExperimentBudget | None = None
    log_store: LogStore | None = None
    launcher: Launcher | None = None
    stopping: str | None = None
    down: EvsysError | None = None
    progress: Progress = attrs.field(factory=Progress)
    steering: Steering = attrs.field(factory=Steering)

    def benchmarks_of(self, arm: ArmConfig) -> tuple[BoundBenchmark, ...]:
        """The entries that this arm is scored on, each in the harness that the run trains in unless the entry names its own.

        The proof of an entry that both selects and decides comes last.
        """
        selection = self.selection_of(arm)
        harness = Harness(agent=arm.run.agent) if self.scores_outside_harness else None
        scored = bound_for(self.plan, arm, self.benchmarks, harness)
        if arm.purpose == "confirm" and deciding_entry(self.plan) != selection.scored_again:
            return scored
        return (*scored, *proofs_of(selection, scored))

    @property
    def selection(self) -> CheckpointSelection:
        """Which checkpoint of a run counts here: in a dry run, and where a client of the caller's own serves it, the last."""
        if self.options.dry:
            return CheckpointSelection()
        if self.options.inference_factory is not None and self.plan.selection.checkpoint == "best":
            return CheckpointSelection(reason="an inference_factory serves the last one")
        return self.plan.selection

    def selection_of(self, arm: ArmConfig) -> CheckpointSelection:
        """Which checkpoint of this run counts: the last of one that trains nothing."""
        return CheckpointSelection() if arm.weights_of is not None else self.selection

    def scored_on(self, arm: ArmConfig) -> list[tuple[BenchmarkConfig, BoundBenchmark]]:
        """The entries that this arm is scored on, whoever acts, as the file has them and as they are bound."""
        return _entries_of(self.plan, arm, self.benchmarks)

    @property
    def concurrent_arms(self) -> int:
        """The most arms to run at once."""
        asked = self.steering.concurrent_arms or self.plan.experiment.max_concurrent_arms
        if self.launcher is not None:
            return asked or self.launcher.workers
        return self.steering.concurrent_arms or self.plan.concurrent_arms

    @property
    def why_ended(self) -> str:
        """Why an arm was cancelled, in words that follow "was"."""
        if self.down is not None:
            return f"ended, since {self.down.message}"
        return self.stopping or interruption().reason

    def seeds(self, arm: ArmConfig) -> Seeds:
        """The arm's seeds: `run.seed` takes the place of `base_seed`."""
        return seeds_of(self.plan, arm)

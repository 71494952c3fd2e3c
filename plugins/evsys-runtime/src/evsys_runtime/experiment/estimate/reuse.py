"""The runs of a plan that the experiment will take from the record."""

from __future__ import annotations

from collections.abc import Sequence

from evsys_record.index import Index
from evsys_runtime.config.asked_model import asked_model
from evsys_runtime.config.plan import Plan
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.proof import proofs_of
from evsys_runtime.experiment.estimate.training import Trainings
from evsys_runtime.experiment.reuse.made_with import made_with, why_never
from evsys_runtime.experiment.reuse.reusable import WantedRun, find_run
from evsys_runtime.experiment.stages.chain import Start
from evsys_runtime.experiment.state.identity import identity_of_arm
from evsys_runtime.experiment.state.roles import roles_of
from evsys_runtime.experiment.state.session import bound_for
from evsys_runtime.experiment.state.starting_weights import scores_untrained
from evsys_runtime.training.checkpoints import find_checkpoint

__all__ = ["reused_runs"]


def reused_runs(
    plan: Plan,
    benchmarks: Sequence[BoundBenchmark],
    index: Index,
    *,
    trainings: Trainings,
    warnings: list[str],
) -> dict[str, str]:
    """Map each run that will be taken from the record to the experiment that made it. Blocking.

    Args:
        plan: a valid plan.
        benchmarks: its entries, bound.
        index: of the experiments on record, as of now.
        trainings: reads the rows.
        warnings: receives a line for each run that looks the same and can't be reused.

    Raises:
        ConfigError, DataError, StoreError: rows or starting weights can't be read.
    """
    found: dict[str, str] = {}
    if not plan.experiment.reuse_arms or plan.search is not None:
        return found
    audited: dict[str, int] = {}
    for arm in plan.arms:
        scored = bound_for(plan, arm, benchmarks)
        scored = (*scored, *proofs_of(plan.selection, scored))
        if why_never(plan, arm, scored) is not None:
            continue
        algorithm = plan.resolver.built("algorithm", arm.run.algorithm)
        model = asked_model(arm.run.model, algorithm)
        start = Start(model=model, checkpoint=find_checkpoint(model, plan.project_root))
        identity = identity_of_arm(
            plan,
            arm,
            scored,
            data_hash=trainings.rows_of(arm, algorithm).fingerprint,
            weights=start.weights,
            roles=roles_of(arm, algorithm, plan.project_root),
        )
        wanted = WantedRun(
            run_id=arm.run_id,
            identity=identity,
            made_with=made_with(plan, arm, scored, plan.selection),
            benchmarks=scored,
            untrained=scores_untrained(plan, arm),
        )
        run = find_run(index, None, wanted, audited, warnings.append)
        if run is not None:
            found[arm.run_id] = run.source.experiment_id
    return found

"""The facts that the scores of an arm's untrained weights depend on: arms with equal ones share one score."""

from __future__ import annotations

from collections.abc import Iterable

from evsys import Registry
from evsys_record.hashing import digest
from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.experiment.state.seeds import Seeds
from evsys_runtime.experiment.state.session import Session

__all__ = ["scores_untrained", "untrained_key", "untrained_keys"]


def scores_untrained(plan: Plan, arm: ArmConfig) -> bool:
    """Whether the weights that an arm starts from are scored: something is compared with them, or the arm forgets.

    A later stage starts from what the one before ended with, which is scored there.
    """
    if arm.stage is not None and not arm.stage.first:
        return False
    return plan.experiment.metadata.baseline == BASE_MODEL or plan.experiment.continual is not None


def untrained_keys(session: Session, arm: ArmConfig) -> Iterable[str]:
    """The keys of the scores that an arm wants of its untrained weights; none where nothing is compared with them."""
    if not scores_untrained(session.plan, arm):
        return ()
    registry, seeds = session.plan.registry, session.seeds(arm)
    return [untrained_key(arm, benchmark, registry, seeds) for benchmark in session.benchmarks_of(arm)]


def untrained_key(arm: ArmConfig, benchmark: BoundBenchmark, registry: Registry, seeds: Seeds) -> str:
    """A key of the facts that the score of starting weights depends on: model, weights, backend, benchmark,
    sampling.

    The adapter isn't part of it: before the first step it changes nothing. The seed is part of it if samples are
    drawn, so that a repeat is compared with scores of its own sampling seeds.
    """
    drawn = benchmark.sampling.temperature > 0
    model = arm.run.model
    return digest(
        {
            "model": [model.name, model.renderer, model.init_from_checkpoint, model.load_checkpoint_path],
            "backend": [
                registry.find("backend", arm.run.backend.kind).qualified,
                dict(arm.run.backend.params),
            ],
            "benchmark": [benchmark.name, benchmark.benchmark_hash, benchmark.verifier_hash],
            "sampling": [repr(benchmark.sampling), benchmark.num_samples, benchmark.system_prompt],
            "environment": [repr(benchmark.environment), benchmark.max_turns],
            "seed": seeds(f"evaluation/{benchmark.name}", 0) if drawn else None,
            "agent": repr(benchmark.agent_spec),
        }
    )

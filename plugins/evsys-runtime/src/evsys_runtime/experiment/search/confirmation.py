"""The confirmation: the arm that wins among several is tried once more, beside the baseline, by runs that had no part in choosing it.

The best of many arms is partly lucky. Its fresh runs aren't, so they alone decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evsys.types import Comparison, Conclusion, Purpose
from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.config.confirm_entries import deciding_entry
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.config.reruns import anew, runs_of, scoring
from evsys_runtime.experiment.prior.prior import known_before
from evsys_runtime.experiment.prior.seed_audit import same_orders
from evsys_runtime.experiment.stages.chain import as_arms
from evsys_runtime.experiment.verdict.conclude import conclude
from evsys_runtime.experiment.verdict.confirmation import Confirming
from evsys_runtime.experiment.verdict.question import question_of

if TYPE_CHECKING:
    from evsys_runtime.evaluation.benchmarks import BoundBenchmark
    from evsys_runtime.experiment.state.session import Session

__all__ = ["Confirmation", "confirming_of", "planned_repeats"]


def planned_repeats(plan: Plan, purpose: Purpose) -> Counter[str]:
    """How many repeats of each arm a plan has for a purpose; an arm in stages counts once."""
    runs = (arm for arm in plan.arms if arm.purpose == purpose and (arm.stage is None or arm.stage.last))
    return Counter(arm.name for arm in runs)


class Confirmation:
    """An `ArmSource` that proposes once: when all arms are through and one of several wins."""

    name = "confirm"

    def propose(self, session: Session, running: int) -> Sequence[Mapping[str, Any]]:
        """The winner to confirm, with the numbers that made it one; empty where no arm wins, and nothing is spent."""
        plan, confirm = session.plan, session.plan.experiment.confirm
        confirmed = any(arm.purpose == "confirm" for arm in plan.arms)
        if running or confirm is None or confirmed or session.options.dry:
            return ()
        if any(result.status == "budget_stopped" for result in session.results.values()):
            return ()  # another one may win once there is more to spend
        conclusion = _so_far(session)
        winner = _winner(conclusion)
        if winner is None:
            return ()
        return [
            {
                "winner": winner.arm,
                "baseline": conclusion.baseline,
                "seeds": confirm.seeds,
                "benchmark": deciding_entry(plan),
                "chosen_by": conclusion.metric,
                "among": len(conclusion.comparisons),
                "score": winner.after,
                "effect": winner.effect,
                "p_corrected": winner.p_corrected,
            }
        ]

    def arms(self, plan: Plan, proposal: Mapping[str, Any]) -> Sequence[ArmConfig]:
        """Fresh repeats of the winner and of the baseline, seed by seed, so that both share their seeds.

        With no seeds they train nothing and score what each repeat had trained.
        """
        names = [proposal["winner"], proposal["baseline"]]
        trained = [name for name in names if name != BASE_MODEL]
        repeats = plan.experiment.n_repeats
        if proposal["seeds"] == 0:
            return [_once_more(plan, name, repeat) for repeat in range(repeats) for name in trained]
        seeds = range(repeats, repeats + proposal["seeds"])
        return [
            arm for repeat in seeds for name in trained for arm in anew(plan.arms, name, repeat, "confirm")
        ]


def _once_more(plan: Plan, name: str, repeat: int) -> ArmConfig:
    """A run that scores what an arm had trained at a repeat."""
    trained = runs_of(plan.arms, name, repeat)[-1]
    return scoring(trained, trained.run_id, repeat=plan.experiment.n_repeats + repeat, purpose="confirm")


def _so_far(session: Session) -> Conclusion:
    """What the arms that the experiment compares say, before anything is confirmed."""
    plan = session.plan
    results = [session.results[arm.run_id] for arm in plan.arms if arm.run_id in session.results]
    if same_orders(results):
        return conclude(None, results)
    arms, question = as_arms(plan, results), question_of(plan, session.benchmarks)
    known = known_before(session, [] if question is None else [question], arms)
    question = question and known.at_level(question)
    planned = planned_repeats(plan, "candidate")
    return conclude(question, arms, planned=planned, noise=known.noise, deviation=known.deviation)


def _winner(conclusion: Conclusion) -> Comparison | None:
    """The best of the arms that win; None where none does, or there was none to choose."""
    if conclusion.verdict != "CANDIDATE" or len(conclusion.comparisons) < 2:
        return None
    sign = 1.0 if conclusion.direction == "max" else -1.0
    won = [c for c in conclusion.comparisons if c.outcome == "win" and c.after is not None]
    return max(won, key=lambda c: sign * (c.after or 0.0), default=None)


def confirming_of(plan: Plan, benchmarks: Sequence[BoundBenchmark]) -> Confirming | None:
    """What a plan's confirmation asks; None where none was begun."""
    planned = planned_repeats(plan, "confirm")
    question = question_of(plan, tuple(benchmarks), entry=deciding_entry(plan)) if planned else None
    if question is None:
        return None
    winner = next(name for name in planned if name != question.baseline)
    seeds = plan.experiment.confirm.seeds if plan.experiment.confirm is not None else 0
    return Confirming(question=question, winner=winner, seeds=seeds, planned=planned)

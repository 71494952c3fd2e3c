"""The confirmation: the arm that wins among several is tried again, alongside the baseline, by runs that had no part in choosing it.

The best of many arms is partly lucky. Its fresh runs aren't, so they alone decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evsys.errors import RunError
from evsys.types import Comparison, Conclusion, Purpose, RunDeviation
from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.config.budgeting import known_steps
from evsys_runtime.config.confirm_entries import deciding_entry
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.config.reruns import rerun_arm, runs_of, scoring
from evsys_runtime.experiment.prior.prior import collect_prior
from evsys_runtime.experiment.prior.seed_audit import same_orders
from evsys_runtime.experiment.search.confirm_seeds import confirm_seeds
from evsys_runtime.experiment.stages.chain import merge_stages
from evsys_runtime.experiment.verdict.conclude import conclude
from evsys_runtime.experiment.verdict.confirmation import Confirming
from evsys_runtime.experiment.verdict.question import question_of

if TYPE_CHECKING:
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
        conclusion, deviation = _interim_conclusion(session)
        winner = _winner(conclusion)
        if winner is None:
            return ()
        seeds, reason = _seeds(session, winner, deviation)
        return [
            {
                "winner": winner.arm,
                "baseline": conclusion.baseline,
                "seeds": seeds,
                "seeds_reason": reason,
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
            return [_rerun_config(plan, name, repeat) for repeat in range(repeats) for name in trained]
        seeds = range(repeats, repeats + proposal["seeds"])
        return [
            arm
            for repeat in seeds
            for name in trained
            for arm in rerun_arm(plan.arms, name, repeat, "confirm")
        ]


def _rerun_config(plan: Plan, name: str, repeat: int) -> ArmConfig:
    """A run that scores what an arm had trained at a repeat."""
    trained = runs_of(plan.arms, name, repeat)[-1]
    return scoring(trained, trained.run_id, repeat=plan.experiment.n_repeats + repeat, purpose="confirm")


def _seeds(session: Session, winner: Comparison, deviation: RunDeviation | None) -> tuple[int, str | None]:
    """The number of seeds and why it is that many, None if the file says so."""
    plan, confirm = session.plan, session.plan.experiment.confirm
    if confirm is not None and confirm.seeds is not None:
        return confirm.seeds, None
    question = question_of(plan, session.benchmarks, entry=deciding_entry(plan))
    if question is None:
        raise RunError("a winner was chosen where nothing decides")
    benchmark = next(b for b in session.benchmarks if b.name == question.benchmark)
    sides = 1 if question.baseline == BASE_MODEL else 2
    steps = known_steps(runs_of(plan.arms, winner.arm, 0)[-1].run)

    def affordable(seeds: int) -> bool:
        return session.budget is None or session.budget.pays_for(seeds * sides, steps)

    return confirm_seeds(
        question, winner, deviation, sides=sides, tasks=len(benchmark.tasks), affordable=affordable
    )


def _interim_conclusion(session: Session) -> tuple[Conclusion, RunDeviation | None]:
    """The conclusion from the compared arms, before anything is confirmed, and the deviation between runs of
    similar recipes.
    """
    plan = session.plan
    results = [session.results[arm.run_id] for arm in plan.arms if arm.run_id in session.results]
    if same_orders(results):
        return conclude(None, results), None
    arms, question = merge_stages(plan, results), question_of(plan, session.benchmarks)
    known = collect_prior(session, [] if question is None else [question], arms)
    question = question and known.adjust_level(question)
    planned = planned_repeats(plan, "candidate")
    so_far = conclude(question, arms, planned=planned, noise=known.noise, deviation=known.deviation)
    return so_far, known.deviation


def _winner(conclusion: Conclusion) -> Comparison | None:
    """The best of the arms that win; None where none does, or there was none to choose."""
    if conclusion.verdict != "CANDIDATE" or len(conclusion.comparisons) < 2:
        return None
    sign = 1.0 if conclusion.direction == "max" else -1.0
    won = [c for c in conclusion.comparisons if c.outcome == "win" and c.after is not None]
    return max(won, key=lambda c: sign * (c.after or 0.0), default=None)


def confirming_of(session: Session) -> Confirming | None:
    """The question of an experiment's confirmation; None if none was begun.

    Raises:
        StoreError: its proposal can't be read.
    """
    plan, benchmarks = session.plan, session.benchmarks
    planned = planned_repeats(plan, "confirm")
    question = question_of(plan, tuple(benchmarks), entry=deciding_entry(plan)) if planned else None
    if question is None:
        return None
    winner = next(name for name in planned if name != question.baseline)
    lines = session.record.read_proposals()
    chosen = next(line["proposal"] for line in lines if line["source"] == Confirmation.name)
    return Confirming(
        question=question,
        winner=winner,
        seeds=chosen["seeds"],
        seeds_reason=chosen.get("seeds_reason"),
        planned=planned,
    )

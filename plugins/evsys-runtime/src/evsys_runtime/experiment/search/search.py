"""A search while an experiment runs: what it proposes, from what it proposes that, and what becomes of it.

All that it knows is on record: the proposals with the results of their runs, and the scores in training by which arms were stopped. So an
experiment cut off continues with the same search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evsys import Registry
from evsys.errors import ConfigError, PluginContractError, boundary
from evsys.protocols import Search
from evsys.types import ArmResult
from evsys_record import final_scoring
from evsys_record.hashing import digest
from evsys_record.scorings import value_of
from evsys_runtime.config.arm_tree import ArmTree
from evsys_runtime.config.budgeting import known_steps, runs_to_confirm
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.config.plan import ArmConfig, Plan, SuccessMetric
from evsys_runtime.config.search_plan import PlannedSearch
from evsys_runtime.experiment.insight.failure_regions import FailureRegions
from evsys_runtime.experiment.search.judged_scores import JudgedScore, judged_scores
from evsys_runtime.experiment.state.resolved_tree import resolved_runs

if TYPE_CHECKING:
    from evsys_runtime.experiment.state.session import Session

__all__ = ["Searching", "ended_without_budget", "history_of", "oriented_score"]

NAME = "search"
"""The source of its proposals."""

REFUSALS = 100
"""So many proposals in a row that can't be run end a search."""

UNPAID = "the budget pays for no further arm"
"""Why a search ended."""

DRY_ARMS = 2
"""Arms of a dry run."""

ENDLESS = 1_000_000_000

type Entry = dict[str, Any]
type Proposal = Mapping[str, Any]


class Searching:
    """An `ArmSource`: the search of a plan, asked whenever there is room for an arm.

    Args:
        planned: the plan's search.
        registry: builds it.
        seed: what its referee draws from.
    """

    name = NAME

    def __init__(self, planned: PlannedSearch, registry: Registry, seed: int) -> None:
        self.planned = planned
        self.search: Search = registry.build("search", planned.spec.kind, resolve(planned.spec.params))
        self._known_bad: FailureRegions | None = None
        self._referee: Search | None = None
        if planned.spec.referee:
            self._referee = registry.build("search", "random", {"arms": ENDLESS, "seed": seed})

    def propose(self, session: Session, running: int) -> Sequence[Mapping[str, Any]]:  # noqa: C901 - the ways in which a search ends
        """The next arms, behind those that can't be run; empty where the search or the budget has come to its end, or it waits."""
        there = _proposals(session)
        if session.options.dry and len(there) >= DRY_ARMS:
            return ()
        if any(arm.purpose == "confirm" for arm in session.plan.arms):  # the winner is chosen
            return ()
        made: list[Proposal] = []
        if any(result.status == "budget_stopped" for result in session.results.values()):
            if not running:
                self._record_end(session, made, UNPAID)
            return ()
        while not any("refused" not in one for one in made):
            if len(made) >= REFUSALS:
                self._record_end(session, made, f"{REFUSALS} proposals in a row couldn't be run")
                return made
            history = history_of(session, [*there, *made])
            asked = self._propose(history)
            if not asked:
                if not running:
                    self._record_end(session, made, "it has nothing more to propose")
                return made
            for values, by in asked:
                proposal = self._proposal(session, [*there, *made], history, values, by)
                if "refused" not in proposal and not self._affordable(session, proposal, made):
                    if not running and not made:
                        self._record_end(session, made, UNPAID)
                    return made
                made.append(proposal)
        return made

    def arms(self, plan: Plan, proposal: Mapping[str, Any]) -> Sequence[ArmConfig]:
        """The runs of a proposal: the arm at each repeat; none of a refused one."""
        if "refused" in proposal:
            return ()
        return self.planned.arms(self.planned.tree(proposal["values"]), proposal["name"])

    def number_of(self, session: Session, name: str) -> int | None:
        """The number of the proposal that an arm is; None where it isn't of this search."""
        return next((one["n"] for one in _proposals(session) if one.get("name") == name), None)

    def history(self, session: Session, repeat: int) -> list[Entry]:
        """The search's present history, with the scores in the training of one repeat."""
        return history_of(session, repeat=repeat)

    # --- one proposal ---------------------------------------------------------------------------------------------

    def _propose(self, history: Sequence[Entry]) -> list[tuple[Mapping[str, Any], str]]:
        """The present proposals, and their source. The referee takes its share of the places that the search wants
        to fill.
        """
        kind, space = self.planned.spec.kind, self.planned.space.axes
        with boundary("search", kind):
            asked = [_values(one, kind) for one in self.search.ask(history, space)]
        share, n = self.planned.spec.referee, len(history)
        if asked and self._referee is not None and math.floor((n + 1) * share) > math.floor(n * share):
            drawn = [_values(one, "random") for one in self._referee.ask(history, space)]
            if drawn:
                return [(drawn[0], "referee")]
        return [(values, kind) for values in asked]

    def _proposal(
        self,
        session: Session,
        there: Sequence[Proposal],
        history: Sequence[Entry],
        values: Mapping[str, Any],
        by: str,
    ) -> Proposal:
        """One on record: the values, the arm's name, whose it is, and what was known when it was made."""
        ended = sum(entry["status"] != "running" for entry in history)
        proposal: dict[str, Any] = {
            "n": len(there),
            "values": dict(values),
            "by": by,
            "from": {"arms": len(history), "ended": ended, "history": digest(history)},
        }
        try:
            arm = self.planned.tree(values)
            twin = next((one for one in there if one.get("digest") == arm.digest), None)
            if twin is not None:
                return {**proposal, "refused": f"the same arm as {twin['name']}", "twin": twin["n"]}
            name = _name(arm, there, len(there))
            run, *_ = self.planned.arms(arm, name)
        except ConfigError as error:
            session.log.warning("search.refused", n=len(there), reason=error.message)
            return {**proposal, "refused": error.message}
        bad = self._failure_regions(session, run)
        return {**proposal, "name": name, "digest": arm.digest, **({"known_bad": bad} if bad else {})}

    def _failure_regions(self, session: Session, arm: ArmConfig) -> list[str]:
        """The regions that an arm lies in where earlier experiments failed. It is run all the same: a search may know better."""
        if self._known_bad is None:
            record = session.record
            self._known_bad = FailureRegions.from_earlier(
                record.directory.parent, record.experiment_id, session.warnings.append
            )
        bad = self._known_bad.regions_of_run(resolved_runs(session.plan, [arm])[arm.label])
        if bad:
            session.log.warning("search.known_bad", arm=arm.name, regions=bad)
        return bad

    def _affordable(self, session: Session, proposal: Proposal, made: Sequence[Proposal]) -> bool:
        """Whether the budget pays for an arm alongside those that wait, and for the confirmation of a winner."""
        if session.budget is None:
            return True
        experiment = session.plan.experiment
        repeats = experiment.n_repeats
        steps = known_steps(self.arms(session.plan, proposal)[0].run)
        waiting = sum(repeats for one in made if "refused" not in one)
        confirming, scored = runs_to_confirm(experiment)
        return session.budget.pays_for(repeats + waiting + confirming, steps, scored=scored)

    def _record_end(self, session: Session, made: Sequence[Proposal], reason: str) -> None:
        """Say why there are no more arms, and count what was proposed: once, and again where there came more since."""
        there = [*_proposals(session), *made]
        twins = sum("twin" in one for one in there)
        refused = sum("refused" in one for one in there)
        counts = {
            "proposed": len(there),
            "duplicates": twins,
            "refused": refused - twins,
            "referee": sum(one["by"] == "referee" for one in there),
        }
        told = {"kind": self.planned.spec.kind, **counts, "ended": reason}
        if session.record.facts.get(NAME) == told:
            return
        session.record.note(**{NAME: told})
        session.log.info("search.ended", **counts, reason=reason)
        if all("refused" in one for one in there):
            last = f"; the last was refused: {there[-1]['refused']}" if there else ""
            session.warnings.append(f"no arm of the search was run, since {reason}{last}")


def ended_without_budget(session: Session) -> bool | None:
    """Whether it is for want of budget that a search came to its end without an arm; None where there are some, or no search."""
    if session.plan.search is None or any(arm.purpose == "candidate" for arm in session.plan.arms):
        return None
    return bool((session.record.facts.get(NAME) or {}).get("ended") == UNPAID)


def _values(asked: Any, kind: str) -> Mapping[str, Any]:
    if not isinstance(asked, Mapping):
        raise PluginContractError(
            f"search {kind!r} proposed {type(asked).__name__}, not a mapping of paths to values"
        )
    return {str(path).removeprefix("run."): value for path, value in asked.items()}


def _name(arm: ArmTree, there: Sequence[Proposal], n: int) -> str:
    """The arm's name, with its number where another arm has it: values that differ little may look the same."""
    names = {one.get("name") for one in there}
    return arm.name if arm.name not in names else f"{arm.name}-n{n}"


# --- what was tried ---------------------------------------------------------------------------------------------------


def _proposals(session: Session) -> list[Proposal]:
    return [line["proposal"] for line in session.record.read_proposals() if line["source"] == NAME]


def history_of(session: Session, proposals: Sequence[Proposal] | None = None, repeat: int = 0) -> list[Entry]:
    """The proposals and their results, as a search receives them.

    Args:
        session: the experiment.
        proposals: those on record, and any that are about to be.
        repeat: whose scores in training are given, if arms are repeated.
    """
    told: list[Entry] = []
    success = session.plan.success
    scores = (
        judged_scores(session.record, repeat) if session.plan.search and session.plan.search.stops else {}
    )
    for proposal in _proposals(session) if proposals is None else proposals:
        entry: Entry = {"n": proposal["n"], "values": dict(proposal["values"]), "by": proposal["by"]}
        if "refused" in proposal:
            twin = proposal.get("twin")
            score = None if twin is None else told[twin]["score"]
            entry |= {"status": "refused", "score": score, "steps": 0, "reason": proposal["refused"]}
        else:
            repeats = range(session.plan.experiment.n_repeats)
            results = [session.results.get(f"{proposal['name']}-s{number}") for number in repeats]
            entry |= _outcome(results, success)
        told.append({**entry, **_judging_scores(scores.get(proposal["n"], ()))})
    return told


def _judging_scores(scores: Sequence[JudgedScore]) -> Entry:
    """The scores by which an arm was judged in its training, and at which of them it was stopped."""
    stopped_at = next((one.step for one in scores if not one.keep), None)
    return {"scores": [[one.step, one.score] for one in scores], "stopped_at": stopped_at}


def _outcome(results: Sequence[ArmResult | None], success: SuccessMetric | None) -> Entry:
    """How an arm ended, all its repeats together."""
    known = [result for result in results if result is not None]
    steps = sum(result.run.steps for result in known if result.run is not None)
    if len(known) < len(results):
        return {"status": "running", "score": None, "steps": steps, "reason": None}
    odd = next((result for result in known if not _counts(result, success)), None)
    if odd is not None:
        why = odd.failure.message if odd.failure is not None else odd.run.stop_reason if odd.run else None
        return {"status": odd.status, "score": None, "steps": steps, "reason": why or odd.status}
    scores = [oriented_score(result, success) for result in known]
    finite = [score for score in scores if score is not None and math.isfinite(score)]
    stopped = next(
        (result.run.stop_reason for result in known if result.run and result.run.stop_reason), None
    )
    if len(finite) < len(scores):
        return {
            "status": "completed",
            "score": None,
            "steps": steps,
            "reason": "its score is not a number",
        }
    return {"status": "completed", "score": sum(finite) / len(finite), "steps": steps, "reason": stopped}


def _counts(result: ArmResult, success: SuccessMetric | None) -> bool:
    """Whether a run came to a score, as far as its end tells; one stopped on request may have none."""
    return result.status == "completed" or (
        result.status == "stopped" and oriented_score(result, success) is not None
    )


def oriented_score(result: ArmResult, success: SuccessMetric | None) -> float | None:
    """The success metric of what a run ended with, so that more is better; None where it has none."""
    value = None if success is None else value_of(final_scoring(result, success.benchmark), success.metric)
    if success is None or value is None:
        return None
    return success.oriented(value)

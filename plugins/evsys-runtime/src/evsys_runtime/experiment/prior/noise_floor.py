"""The noise floor of an experiment: of its own control runs, or of an earlier experiment with the same baseline and tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from evsys.errors import EvsysError
from evsys.types import ArmResult, Conclusion, NoiseFloor
from evsys_record.files import read_json
from evsys_record.hashing import digest
from evsys_record.result_trees import read_as
from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.experiment.lineage.experiments import Earlier, query_index
from evsys_runtime.experiment.state.seeds import Seeds
from evsys_runtime.experiment.state.starting_weights import untrained_key
from evsys_runtime.experiment.verdict.noise import noise_floor
from evsys_runtime.experiment.verdict.question import Question

if TYPE_CHECKING:
    from evsys_runtime.experiment.state.session import Session

__all__ = ["known_noise"]


def known_noise(
    session: Session, question: Question, results: Sequence[ArmResult], earlier: Earlier
) -> NoiseFloor | None:
    """The noise between equal runs of the baseline; None if unknown. Blocking.

    Args:
        session: of the experiment.
        question: of the experiment.
        results: its arms.
        earlier: the index of the experiments on record, used if its own runs aren't enough.
    """
    identity = _identity(session, question)
    own = noise_floor(question, results)
    if own is not None or identity is None:
        return own and attrs.evolve(own, identity=identity)
    query = (
        "SELECT e.folder FROM label l JOIN experiment e ON e.id = l.experiment WHERE l.kind = 'noise' AND l.value = ? "
        "AND NOT e.dry AND NOT e.retracted AND e.folder != ? ORDER BY e.moment DESC, e.folder DESC LIMIT 1"
    )
    known = (identity, session.record.experiment_id)
    index = earlier()
    found = query_index(index, query, known, session.warnings.append)
    if index is None or not found:
        return None
    (folder,) = found[0]
    try:
        tree = read_json(index.experiments / folder / "conclusion.json")
        noise = read_as(Conclusion, tree).noise_floor
    except EvsysError as error:
        session.warnings.append(f"the noise floor of {folder} can't be read: {error.message}")
        return None
    return noise and attrs.evolve(noise, experiment_id=folder)


def _identity(session: Session, question: Question) -> str | None:
    """A key that experiments share if their baselines are equal runs: recipe and rows, or starting weights, and how
    they are evaluated. None if no run of the baseline was begun.
    """
    arms = [arm for arm in session.plan.arms if arm.purpose == "candidate"]
    wanted = [arm for arm in arms if question.baseline in (BASE_MODEL, arm.name)]
    if not wanted:
        return None
    first = wanted[0]
    benchmark = next(b for b in session.benchmarks_of(first) if b.name == question.benchmark)
    scored: list[object] = [
        question.metric,
        untrained_key(first, benchmark, session.plan.registry, Seeds()),
    ]
    selection = session.selection
    scored += [] if selection.by is None else [selection.by, selection.proof]
    if question.baseline == BASE_MODEL:
        return digest([BASE_MODEL, *scored])
    made_of = [_recipe_of(session, arm) for arm in wanted if arm.repeat == first.repeat]
    return None if None in made_of else digest([*made_of, *scored])


def _recipe_of(session: Session, arm: ArmConfig) -> list[object] | None:
    """An arm's recipe, its rows and the versions of its plugins; None where it didn't come so far."""
    record = session.record.find_run(arm.run_id)
    facts = {} if record is None else record.facts
    if "data" not in facts:
        return None
    return [arm.digest, facts["data"]["fingerprint"], dict(facts.get("plugins") or {})]

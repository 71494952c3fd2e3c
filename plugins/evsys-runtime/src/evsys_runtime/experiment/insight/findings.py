"""The findings of all experiments, each once: the same recipe or question is one finding regardless of the number
of experiments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from evsys.types import Comparison
from evsys_record import PastExperiment
from evsys_record.marks import disqualifying, labels
from evsys_record.text import cut, list_names
from evsys_runtime.experiment.insight.answers import Answers
from evsys_runtime.experiment.insight.known_experiments import Known
from evsys_runtime.experiment.insight.results import BestRecipe, Finding, Retracted, Unfinished, WayToFail

__all__ = ["Findings", "Wording", "findings", "sentences", "winners_of"]

_LONGEST = 240
_MOST_ARMS = 8
_IN_WORDS = ("rests_on_retracted",)
"""Marks that a finding has in words of its own."""

_UNFINISHED = ("running", "crashed", "cancelled", "budget_stopped")


@attrs.frozen
class Wording[E: (BestRecipe, Finding, WayToFail, Retracted, Unfinished)]:
    """Something known, in few words and in all."""

    brief: E
    full: E


@attrs.frozen(kw_only=True)
class Findings:
    """All findings, the most useful first in each part. A question that a later experiment answered isn't open.

    `undecided` has the arms of each inconclusive experiment that no later one decided.
    """

    retracted: tuple[Wording[Retracted], ...]
    supported: tuple[Wording[Finding], ...]
    candidates: tuple[Wording[Finding], ...]
    open: tuple[Wording[Finding], ...]
    refuted: tuple[Wording[Finding], ...]
    unfinished: tuple[Wording[Unfinished], ...]
    undecided: Mapping[str, Sequence[Comparison]]


def findings(known: Known, *, usual: str | None) -> Findings:
    """Sort what experiments came to.

    Args:
        known: all of them.
        usual: the metric that goes without saying.
    """
    standing = [past for past in known.experiments if past.retracted is None and not past.edited]
    worked = list(_successes(known, [past for past in standing if winners_of(past)], standing, usual))
    asked = [
        past
        for past in standing
        if past.verdict == "INCONCLUSIVE" and any(each.effect is not None for each in past.comparisons)
    ]
    answers = Answers.from_experiments(known, standing)
    undecided = {past.experiment_id: answers.undecided_arms(past) for past in asked}
    return Findings(
        retracted=tuple(_retractions(known.experiments)),
        supported=tuple(found for verdict, found in worked if verdict == "SUPPORTED"),
        candidates=tuple(found for verdict, found in worked if verdict == "CANDIDATE"),
        open=tuple(_open(known, asked, undecided, usual)),
        refuted=tuple(_refutation(known, past, usual) for past in standing if past.verdict == "REFUTED"),
        unfinished=tuple(
            _unfinished_entries(past for past in standing if past.experiment_id not in undecided)
        ),
        undecided=undecided,
    )


def _unfinished_entries(experiments: Iterable[PastExperiment]) -> Iterator[Wording[Unfinished]]:
    for past in experiments:
        if past.status in _UNFINISHED and past.verdict in (None, "INCONCLUSIVE"):
            marks = tuple(mark.kind for mark in past.marks)
            yield _plain(Unfinished(experiment=past.experiment_id, status=past.status, marks=marks))


def _plain[E: (Retracted, Unfinished)](entry: E) -> Wording[E]:
    return Wording(entry, entry)


def winners_of(past: PastExperiment) -> list[Comparison]:
    """The arms that won, the best first; none if the verdict doesn't rest on them.

    A confirmed one is reported by its confirmation, since the runs that took part in the choice are biased; if it
    fell behind, it isn't a winner.
    """
    if past.verdict not in ("SUPPORTED", "CANDIDATE"):
        return []
    won = [each for each in past.comparisons if each.outcome == "win"]
    won.sort(key=lambda each: (each.arm != past.best_arm, -(each.effect or 0.0)))
    again = past.confirmed
    if again is None or again.effect is None:
        return won
    others = [each for each in won if each.arm != again.arm]
    return others if again.outcome in ("tie", "loss") else [again, *others]


def _retractions(experiments: Sequence[PastExperiment]) -> Iterator[Wording[Retracted]]:
    for past in experiments:
        if past.retracted is not None or past.edited:
            resting = [each.experiment_id for each in experiments if past.experiment_id in each.rests_on]
            reason = _shorten(past.retracted or "its conclusion.json was edited after the run wrote it")
            yield _plain(Retracted(experiment=past.experiment_id, reason=reason, resting=tuple(resting)))


def _successes(
    known: Known, winners: Sequence[PastExperiment], standing: Sequence[PastExperiment], usual: str | None
) -> Iterator[tuple[str | None, Wording[Finding]]]:
    """One of each recipe, with its verdict: where it was confirmed, else where it was tried last."""
    ranked = sorted(winners, key=lambda past: past.verdict != "SUPPORTED")
    groups: dict[object, list[PastExperiment]] = {}
    for past in ranked:
        groups.setdefault(known.recipe(past, winners_of(past)[0].arm), []).append(past)
    elsewhere = _other_outcomes(known, standing)
    for recipe, group in sorted(groups.items(), key=lambda item: _certainty(item[1][0])):
        past, (best, *others) = group[0], winners_of(group[0])
        basis = [*_grounds(past, best, usual), *known.series(past), *_also(group[1:], "also won in")]
        if others:
            basis.append(f"{list_names([each.arm for each in others], _MOST_ARMS)} also won")
        basis += [f"but {outcome} in {where}" for outcome, where in elsewhere.get(recipe, ())]
        said = [_shorten(past.hypothesis), past.settle and f"to settle: {past.settle}"]
        yield past.verdict, _finding(past, best, basis, said)


def _certainty(past: PastExperiment) -> tuple[bool, bool, bool, float]:
    """The most certain first: without a disqualifying mark, confirmed, about recipes, and far from no effect."""
    best = winners_of(past)[0]
    return (
        bool(disqualifying(past.marks)),
        past.verdict != "SUPPORTED",
        best.claim != "recipe",
        -(best.low if best.low is not None else best.effect or 0.0),
    )


def _other_outcomes(known: Known, standing: Sequence[PastExperiment]) -> dict[object, list[tuple[str, str]]]:
    """The experiments in which a recipe tied or lost."""
    found: dict[object, list[tuple[str, str]]] = {}
    for past in standing:
        for each in past.comparisons:
            if each.outcome in ("tie", "loss"):
                place = (f"a {each.outcome}", past.experiment_id)
                found.setdefault(known.recipe(past, each.arm), []).append(place)
    return found


def _open(
    known: Known,
    asked: Sequence[PastExperiment],
    undecided: Mapping[str, Sequence[Comparison]],
    usual: str | None,
) -> Iterator[Wording[Finding]]:
    """One of each question: where it was asked last, with the best of the arms that nothing decided since."""
    groups: dict[object, list[PastExperiment]] = {}
    for past in asked:
        if undecided[past.experiment_id]:
            groups.setdefault(known.question(past), []).append(past)
    for group in groups.values():
        past = group[0]
        arms = undecided[past.experiment_id]
        best = next((each for each in arms if each.arm == past.best_arm), arms[0])
        basis = [*_grounds(past, best, usual), *known.series(past), *_also(group[1:], "asked before in")]
        settles = past.settling is None or past.settling.arm in {each.arm for each in arms}
        settle = f"to settle: {past.settle}" if past.settle and settles else None
        said = [settle, _shorten(past.hypothesis)]
        yield _finding(past, best, basis, said)


def _refutation(known: Known, past: PastExperiment, usual: str | None) -> Wording[Finding]:
    scored = [each for each in past.comparisons if each.effect is not None]
    best = max(scored, key=lambda each: each.effect or 0.0, default=None)
    basis = [] if best is None else list(_grounds(past, best, usual))
    if len(scored) > 1:
        basis.append(f"the best of {len(scored)} arms")
    return _finding(past, best, [*basis, *known.series(past)], [_shorten(past.hypothesis)])


def _finding(
    past: PastExperiment, best: Comparison | None, basis: Sequence[str], said: Sequence[str | None]
) -> Wording[Finding]:
    doubts = [f"RESTS ON RETRACTED {', '.join(past.rests_on)}"] if past.rests_on else []
    marked = [mark for mark in past.marks if mark.kind not in _IN_WORDS]
    if marked:
        doubts.append(f"[{', '.join(labels(marked))}]")
    brief = Finding(
        name=past.experiment_id if best is None else f"{past.experiment_id}/{best.arm}",
        effect=None if best is None else (_short(best.effect), _short(best.low), _short(best.high)),
        says="; ".join([*doubts, *basis]),
        marks=tuple(mark.kind for mark in past.marks),
    )
    return Wording(brief, attrs.evolve(brief, says=sentences(brief.says, *said)))


def _grounds(past: PastExperiment, best: Comparison, usual: str | None) -> Iterator[str]:
    """The evidence behind a finding, in a few words."""
    size = f"{best.n_seeds}x{best.n_tasks}" if best.n_seeds and best.n_tasks else ""
    parts = []
    if best is past.confirmed:
        chosen = next((each.effect for each in past.comparisons if each.arm == best.arm), None)
        by = "" if chosen is None else f", {chosen:+.2g} by the runs that chose it"
        parts.append("confirmed" if best.outcome == "win" else f"retried: {best.outcome}{by}")
    parts.append(f"{best.claim or ''} {size}".strip())
    metric = "" if past.metric == usual else past.metric or ""
    against = "" if past.baseline in (None, "base_model") else f"against {past.baseline}"
    text = ", ".join(part for part in (*parts, metric, against) if part)
    if text:
        yield text


def _also(group: Sequence[PastExperiment], words: str) -> Iterator[str]:
    if group:
        yield f"{words} {', '.join(past.experiment_id for past in group)}"


def sentences(*parts: str | None) -> str:
    """Parts one after another, each ended by a full stop before the next, as it may be already."""
    said = [part for part in parts if part]
    return " ".join([*(part if part.endswith(".") else f"{part}." for part in said[:-1]), *said[-1:]])


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.2g}")


def _shorten(text: str | None) -> str:
    return cut(" ".join((text or "").split()), _LONGEST)

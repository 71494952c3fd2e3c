"""In which ways runs ended badly, and which values their arms share that those which completed don't have."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import attrs

from evsys_record.index import Index
from evsys_record.text import cut
from evsys_runtime.experiment.insight.arm_index import ArmsOnRecord
from evsys_runtime.experiment.insight.results import Condition, FailureClass, Region

__all__ = ["BAD", "CompletedArms", "failure_classes", "lies_in", "meets", "parse_number", "strip_names"]

BAD = ("failed", "stalled", "collapsed", "invalid")
"""How runs end badly; those that diverged may be complete."""

MOST_CONDITIONS = 3
"""Conditions of a region: more fit anything."""

MOST_MESSAGES = 3
"""Messages by which errors of one type at one boundary are distinguished; where there are more they are one class."""

FEWEST = 3
"""Failures that a region is known to be bad by, at least."""

CHANCE = 0.05
"""A region is known to be bad where a split like it comes by chance at most this often."""

_KIND_OF_ARM = ("algorithm.kind", "model.name")
_BACKEND = "backend.kind"
_NAMES_AND_NUMBERS = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|\S*[/\\]\S+|[-+]?\d[\w.+-]*|\b[0-9a-f]{8,}\b""")
_LONGEST_MESSAGE = 160

type Numbers = frozenset[int]


@attrs.frozen(kw_only=True)
class _Bad:
    """A run that ended badly; `numbers` are the values of its arm, None where its config isn't on record."""

    experiment: int
    folder: str
    arm: str
    status: str
    boundary: str | None
    error_type: str | None
    message: str
    numbers: Numbers | None

    @property
    def kind(self) -> tuple[str, str | None, str | None]:
        return self.status, self.boundary, self.error_type

    @property
    def said(self) -> str:
        """The error's message without its numbers and names."""
        return strip_names(self.message)


def strip_names(message: str) -> str:
    """A message without its numbers and names."""
    return _NAMES_AND_NUMBERS.sub("_", message)


def failure_classes(
    index: Index, on_record: ArmsOnRecord | None = None, *, without: str | None = None
) -> tuple[FailureClass, ...]:
    """The ways in which runs failed, stalled, collapsed or diverged; the most frequent first. Dry runs don't count.

    Args:
        index: of the experiments on record, as of now.
        on_record: the arms in it, where they were read before.
        without: an experiment that doesn't count, by its folder.
    """
    on_record = on_record or ArmsOnRecord.from_index(index)
    configs = {(experiment, arm): numbers for experiment, arm, numbers in on_record.arms}
    grouped = list(_group(run for run in _bad_runs(index, configs) if run.folder != without))
    if not grouped:
        return ()
    completed = CompletedArms(
        [
            (experiment, configs[experiment, arm])
            for experiment, arm in index.rows(
                "SELECT DISTINCT r.experiment, r.arm FROM run r JOIN experiment e ON e.id = r.experiment "
                "WHERE NOT e.dry AND r.state = 'completed' AND NOT r.diverged AND e.folder IS NOT ?",
                (without,),
            )
            if (experiment, arm) in configs
        ],
        on_record.leaves,
    )
    found = [_class(runs, completed) for runs in grouped]
    return tuple(sorted(found, key=lambda each: (-each.runs, each.experiments[0], each.name)))


def _bad_runs(index: Index, configs: Mapping[tuple[int, str], Numbers]) -> Iterator[_Bad]:
    """The newest first."""
    query = (
        "SELECT e.id, e.folder, r.arm, r.state, r.boundary, r.error_type, r.failure FROM run r "  # noqa: S608
        "JOIN experiment e ON e.id = r.experiment WHERE NOT e.dry AND "
        f"(r.state IN ({', '.join('?' * len(BAD))}) OR (r.state = 'completed' AND r.diverged)) "
        "ORDER BY e.moment DESC, e.folder DESC, r.run_id"
    )
    for experiment, folder, arm, state, boundary, error_type, failure in index.rows(query, BAD):
        message = (failure or "").strip().partition("\n")[0]
        yield _Bad(
            experiment=experiment,
            folder=folder,
            arm=arm or "",
            status="diverged" if state == "completed" else state,
            boundary=boundary,
            error_type=error_type,
            message=message or ("the loss rose and stayed up" if state == "completed" else ""),
            numbers=configs.get((experiment, arm)),
        )


def _group(runs: Iterator[_Bad]) -> Iterator[list[_Bad]]:
    kinds: dict[tuple[str, str | None, str | None], dict[str, list[_Bad]]] = {}
    for run in runs:
        kinds.setdefault(run.kind, {}).setdefault(run.said, []).append(run)
    for messages in kinds.values():
        if len(messages) > MOST_MESSAGES:
            yield [run for group in messages.values() for run in group]
        else:
            yield from messages.values()


def _class(runs: Sequence[_Bad], completed: CompletedArms) -> FailureClass:
    first = runs[0]
    message = first.message
    return FailureClass(
        status=first.status,
        boundary=first.boundary,
        error_type=first.error_type,
        message=cut(message, _LONGEST_MESSAGE),
        runs=len(runs),
        arms=len({(run.experiment, run.arm) for run in runs}),
        experiments=tuple(dict.fromkeys(run.folder for run in runs)),
        region=completed.region([(run.experiment, run.numbers) for run in runs if run.numbers is not None]),
    )


@attrs.define(eq=False)
class CompletedArms:
    """The arms that completed, each with the number of its experiment, to set those that failed against.

    `configs` are the distinct ones; `having` shows which of them have a value at a path.
    """

    arms: Sequence[tuple[int, Numbers]]
    leaves: Mapping[int, tuple[str, str]]
    configs: Sequence[Numbers] = attrs.field(init=False)
    having: Mapping[str, Mapping[str, Set[int]]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.configs = list(dict.fromkeys(numbers for _, numbers in self.arms))
        everywhere = frozenset.intersection(*self.configs) if self.configs else frozenset()
        all_of_them = frozenset(range(len(self.configs)))
        having: dict[str, dict[str, Set[int]]] = {}
        for number in everywhere:
            path, text = self.leaves[number]
            having[path] = {text: all_of_them}
        for place, numbers in enumerate(self.configs):
            for number in numbers - everywhere:
                path, text = self.leaves[number]
                found = having.setdefault(path, {}).setdefault(text, set())
                found.add(place)  # type: ignore[attr-defined]  # only those above are frozen
        self.having = having

    def region(self, failed: Sequence[tuple[int, Numbers]]) -> Region | None:
        """The fewest conditions that every failed arm meets and the fewest others; None where none leaves any of these out."""
        bad = dict.fromkeys(failed)
        if not bad or not self.arms:
            return None
        values = [
            dict(self.leaves[number] for number in numbers)
            for numbers in dict.fromkeys(numbers for _, numbers in bad)
        ]
        inside = set(range(len(self.configs)))
        candidates = [
            (condition, out)
            for condition in self._common_conditions(values)
            if (out := inside - self._meeting(condition))
        ]
        chosen: list[Condition] = []
        while inside and len(chosen) < MOST_CONDITIONS and candidates:
            condition, out = max(candidates, key=lambda each: len(each[1] & inside))
            if not out & inside:
                break
            chosen.append(condition)
            inside -= out
        if not chosen:
            return None
        regions = self._regions(values, len(chosen))
        chosen += self._distinguishing_conditions(values, {each.path for each in chosen})
        chance, enough = self._chance(bad, regions)
        return Region(
            conditions=tuple(sorted(chosen, key=lambda each: each.path)),
            failed=len(values),
            completed_inside=len(inside),
            completed_outside=len(self.configs) - len(inside),
            chance=1.0 if inside else chance,
            known_bad=not inside and enough and chance <= CHANCE,
        )

    def _regions(self, bad: Sequence[Mapping[str, str]], conditions: int) -> int:
        """An upper bound of how many regions of so many conditions, or fewer, there are to choose from, each with as many arms inside.

        Of a number there are two conditions, of any other key one for each value; with every further condition the edges of those before may
        lie at any of the arms.
        """
        texts: dict[str, set[str]] = {path: set(having) for path, having in self.having.items()}
        for config in bad:
            for path, text in config.items():
                texts.setdefault(path, set()).add(text)
        single = sum(
            2 if all(parse_number(text) is not None for text in found) else len(found)
            for found in texts.values()
            if len(found) > 1
        )
        arms = len(self.configs) + len(bad)
        return sum(math.comb(single, count) * arms ** (count - 1) for count in range(1, conditions + 1))

    def _distinguishing_conditions(
        self, bad: Sequence[Mapping[str, str]], chosen: Set[str]
    ) -> Iterator[Condition]:
        """Conditions of the failed arms that don't hold for others, of which nothing is known.

        The backend belongs to them even if no other was tried, since failures on a simulated one say nothing about
        the real one.
        """
        for path in (*_KIND_OF_ARM, _BACKEND):
            texts = {each.get(path) for each in bad}
            known = path == _BACKEND or len(self.having.get(path, ())) > 1
            if path not in chosen and len(texts) == 1 and known:
                yield from (Condition(path=path, relation="=", value=text) for text in texts if text)

    def _common_conditions(self, bad: Sequence[Mapping[str, str]]) -> Iterator[Condition]:
        """Conditions that hold for every failed arm: one value of a key, or a bound of a number."""
        for path in sorted(bad[0]):
            texts = {each.get(path, "") for each in bad}
            if "" in texts:
                continue
            numbers = sorted((value, text) for text in texts if (value := parse_number(text)) is not None)
            others = [
                value for text in self.having.get(path, ()) if (value := parse_number(text)) is not None
            ]
            below = len(numbers) == len(texts) and any(other < numbers[0][0] for other in others)
            above = len(numbers) == len(texts) and any(other > numbers[-1][0] for other in others)
            if len(texts) == 1 and below == above:
                yield Condition(path=path, relation="=", value=next(iter(texts)))
                continue
            if below:
                yield Condition(path=path, relation=">=", value=numbers[0][1])
            if above:
                yield Condition(path=path, relation="<=", value=numbers[-1][1])

    def _meeting(self, condition: Condition) -> set[int]:
        """The completed configs that meet a condition."""
        having = self.having.get(condition.path, {})
        return {place for text, places in having.items() if _fits(text, condition) for place in places}

    def _chance(self, bad: Mapping[tuple[int, Numbers], None], regions: int) -> tuple[float, bool]:
        """How often so many arms, of as many as there are, would be those of some region by chance; and whether
        there are enough of them.

        Arms of an experiment in which all failed, or all completed, have much in common that isn't in any key, such
        as a bad day of a server: together they count once.
        """
        mixed = {experiment for experiment, _ in bad} & {experiment for experiment, _ in self.arms}
        failed, completed = _count_experiments(bad, mixed), _count_experiments(self.arms, mixed)
        return min(1.0, regions / math.comb(failed + completed, failed)), failed >= FEWEST


def _count_experiments(arms: Iterable[tuple[int, Numbers]], mixed: Set[int]) -> int:
    """Experiments, and those in `mixed` by their different arms."""
    return len({(experiment, numbers if experiment in mixed else None) for experiment, numbers in arms})


def parse_number(text: str) -> float | None:
    """The number that a JSON text is; None for anything else."""
    return float(text) if text[:1] in "-0123456789" and text[:1] else None


def _fits(text: str | None, condition: Condition) -> bool:
    if text is None or condition.relation == "=":
        return text == condition.value
    value = parse_number(text)
    if value is None:
        return False
    edge = float(condition.value)
    return value >= edge if condition.relation == ">=" else value <= edge


def meets(config: Mapping[str, str], condition: Condition) -> bool:
    """Whether an arm, by its values as JSON texts, meets a condition."""
    return _fits(config.get(condition.path), condition)


def lies_in(config: Mapping[str, str], region: Region) -> bool:
    """Whether an arm, by its values as JSON texts, meets all conditions of a region."""
    return all(meets(config, condition) for condition in region.conditions)

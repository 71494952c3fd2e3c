"""The arms on record that are nearest to those of a config: by what differs, of all experiments, without opening a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from evsys.errors import ConfigError
from evsys_record import History, PastExperiment, Question
from evsys_record.differing import differences
from evsys_record.history import Around, around, find_experiments, past_experiment, runs_of
from evsys_record.index import Index
from evsys_record.index_tables import full_text
from evsys_record.past import NearArm
from evsys_runtime.experiment.insight.arm_index import ArmsOnRecord, distance

__all__ = ["similar_experiments"]

_PARTS: Mapping[str, frozenset[str]] = {
    "model": frozenset({"model.name"}),
    "data": frozenset(
        f"data.{key}" for key in ("path", "rows", "dataset_id", "dataset_name", "hf_dataset", "hf_split")
    ),
    "algorithm": frozenset({"algorithm.kind"}),
}
"""The parts that make two arms comparable, and their keys."""


@attrs.frozen(kw_only=True, eq=False)
class _Own:
    """An arm of the config: its values, and the numbers of those that some arm on record has as well.

    `weights` says of each number how far its value is from the arm's, `known` whether the arm has a value at its path. `parts` are the numbers of
    each part that makes arms comparable, None where the arm has a value there that isn't on record.
    """

    name: str
    leaves: Mapping[str, str]
    numbers: frozenset[int]
    weights: Mapping[int, float]
    known: Mapping[int, int]
    parts: Mapping[str, frozenset[int] | None]


@attrs.frozen(kw_only=True, order=True)
class _Match:
    """How far an arm on record is from one of the config; what is comparable comes first."""

    unlike: int
    distance: float
    same: tuple[str, ...] = attrs.field(order=False)
    arm: str = attrs.field(order=False)
    own: _Own = attrs.field(order=False)
    numbers: frozenset[int] = attrs.field(order=False)


def similar_experiments(
    planned: Mapping[str, Mapping[str, str]], index: Index, question: Question
) -> History:
    """The experiments with an arm like one of some, the nearest first, of equals the newest.

    Those that train the same model on the same data by the same algorithm come first; those that have none of these
    in common are left out.

    Args:
        planned: the arms by name, as `planned_leaves` has those of a plan. No rows are read: data are the same where configs name them alike.
        index: of the experiments on record, as of now.
        question: which experiments may be listed, and how many; its order doesn't count.

    Raises:
        ConfigError: there are no arms, since a search is yet to find them.
    """
    if not planned:
        raise ConfigError(
            "the arms of this file are found by a search, so there are none yet to look for others like them",
            hint="ask with a file of one run, such as the base_run",
        )
    on_record = ArmsOnRecord.from_index(index)
    owns = [_own(name, leaves, on_record) for name, leaves in planned.items()]
    parts = {
        part: frozenset(number for number, (path, _) in on_record.leaves.items() if path in keys)
        for part, keys in _PARTS.items()
    }
    nearest: dict[int, _Match] = {}
    known: dict[frozenset[int], _Match] = {}
    for experiment, arm, numbers in on_record.arms:
        if numbers not in known:
            known[numbers] = min(_distance(own, numbers, parts) for own in owns)
        found = known[numbers]
        if found.unlike < len(_PARTS) and (experiment not in nearest or found < nearest[experiment]):
            nearest[experiment] = attrs.evolve(found, arm=arm)
    listed = [
        (nearest[number], folder) for number, folder in find_experiments(index, question) if number in nearest
    ]
    listed.sort(key=lambda pair: pair[0])
    others = around(index)
    return History(
        records=str(index.experiments),
        index=str(index.path) if index.kept else None,
        full_text=full_text(),
        total=len(listed),
        near=tuple(
            _near_arm(index, folder, found, on_record, others) for found, folder in listed[: question.limit]
        ),
    )


def _own(name: str, leaves: Mapping[str, str], on_record: ArmsOnRecord) -> _Own:
    numbers = frozenset(
        number for number, (path, value) in on_record.leaves.items() if leaves.get(path) == value
    )
    parts = {
        part: frozenset(number for number in numbers if on_record.leaves[number][0] in keys)
        if sum(path in keys for path in leaves)
        == sum(on_record.leaves[number][0] in keys for number in numbers)
        else None
        for part, keys in _PARTS.items()
    }
    return _Own(
        name=name,
        leaves=leaves,
        numbers=numbers,
        weights={
            number: distance(leaves.get(path), value) for number, (path, value) in on_record.leaves.items()
        },
        known={number: int(path in leaves) for number, (path, _) in on_record.leaves.items()},
        parts=parts,
    )


def _distance(own: _Own, numbers: frozenset[int], parts: Mapping[str, frozenset[int]]) -> _Match:
    other = numbers - own.numbers
    replaced = sum(map(own.known.__getitem__, other))
    absent = len(own.leaves) - (len(numbers) - len(other)) - replaced
    same = tuple(part for part, of_part in parts.items() if own.parts[part] == numbers & of_part)
    return _Match(
        unlike=len(_PARTS) - len(same),
        distance=float(absent) + sum(map(own.weights.__getitem__, other)),
        same=same,
        arm="",
        own=own,
        numbers=numbers,
    )


def _near_arm(
    index: Index,
    folder: str,
    found: _Match,
    on_record: ArmsOnRecord,
    known: Around,
) -> NearArm:
    past = past_experiment(index, folder, known)
    assert past is not None
    runs = [run for run in runs_of(index, folder) if run.label == found.arm]
    scores = [run.score for run in runs if run.score is not None]
    return NearArm(
        experiment_id=folder,
        arm=found.arm,
        near_to=found.own.name,
        distance=round(found.distance, 4),
        same=found.same,
        differences=differences(found.own.leaves, on_record.config(found.numbers), text=str),
        runs=len(runs),
        status=", ".join(dict.fromkeys(run.status for run in runs)) or None,
        score=sum(scores) / len(scores) if scores else None,
        **_comparison_fields(past, found.arm),
        verdict=past.verdict,
        subject=past.subject,
        metric=past.metric,
        hypothesis=past.hypothesis,
        retracted=past.retracted,
        rests_on=past.rests_on,
        marks=past.marks,
    )


def _comparison_fields(past: PastExperiment, arm: str) -> dict[str, Any]:
    """How an arm did against the baseline; nothing where it wasn't compared."""
    found = next((each for each in past.comparisons if each.arm == arm), None)
    names = ("outcome", "effect", "low", "high")
    return {} if found is None else {name: getattr(found, name) for name in names}

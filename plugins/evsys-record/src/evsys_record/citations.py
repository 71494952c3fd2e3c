"""Experiments that rest on others, and so on retracted ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from evsys_record.index import Index
from evsys_record.retraction import retract

__all__ = ["Retracting", "resting_on_retracted", "retract_experiment"]


@attrs.frozen(kw_only=True)
class Retracting:
    """The output of `evsys retract --json`: the appended entry, and the experiments that cite this one, itself or
    through others.
    """

    experiment_id: str
    time: str
    reason: str
    withdrawn: bool
    resting: tuple[str, ...] = ()


def retract_experiment(
    index: Index, experiment_id: str, reason: str, *, withdrawn: bool = False
) -> Retracting:
    """Retract an experiment of an index.

    Raises:
        ConfigError, StoreError: as `retract`.
    """
    said = retract(index.experiments / experiment_id, reason, withdrawn=withdrawn)
    resting = sorted(_reachable(experiment_id, _citations(index)))
    return Retracting(
        experiment_id=experiment_id,
        time=said.time,
        reason=said.reason,
        withdrawn=withdrawn,
        resting=tuple(resting),
    )


def resting_on_retracted(index: Index) -> dict[str, tuple[str, ...]]:
    """Of each experiment the retracted ones that it cites, itself or through those that it cites.

    It cites its parent, those whose checkpoints it started from, and the one whose noise floor it used.
    """
    retracted = {
        folder for (folder,) in index.rows("SELECT folder FROM experiment WHERE retracted ORDER BY folder")
    }
    if not retracted:
        return {}
    citations = _citations(index)
    found: dict[str, set[str]] = {}
    for cited in retracted:
        for folder in _reachable(cited, citations):
            found.setdefault(folder, set()).add(cited)
    return {folder: tuple(sorted(cited)) for folder, cited in found.items()}


def _citations(index: Index) -> dict[str, list[str]]:
    """Of each experiment those that cite it themselves."""
    found: dict[str, list[str]] = {}
    query = "SELECT e.folder, l.value FROM label l JOIN experiment e ON e.id = l.experiment WHERE l.kind = 'cites'"
    for folder, cited in index.rows(query):
        found.setdefault(cited, []).append(folder)
    return found


def _reachable(cited: str, citations: Mapping[str, Sequence[str]]) -> set[str]:
    reached, waiting = set[str](), [cited]
    while waiting:
        more = [each for each in citations.get(waiting.pop(), ()) if each not in reached and each != cited]
        reached.update(more)
        waiting += more
    return reached

"""Conclusions that were overturned later: who took them back and why, and which experiments rest on them.

A retraction is a line that is appended to `retractions.jsonl` in the folder of the experiment that it is about. Nothing that was
concluded is changed by it, and the newest line counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import ConfigError

if TYPE_CHECKING:
    from evsys_record.index import Index

__all__ = [
    "RETRACTIONS",
    "Retracting",
    "Retraction",
    "resting_on_retracted",
    "retract",
    "retract_experiment",
    "retraction_of",
]

RETRACTIONS = "retractions.jsonl"


@attrs.frozen(kw_only=True)
class Retraction:
    """That the conclusion of an experiment doesn't hold, and why; `withdrawn` where it holds after all."""

    time: str
    reason: str
    withdrawn: bool = False


@attrs.frozen(kw_only=True)
class Retracting:
    """What `evsys retract --json` prints: what was appended, and the experiments that cite this one, itself or through others."""

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
    resting = sorted(_reached(experiment_id, _citations(index)))
    return Retracting(
        experiment_id=experiment_id,
        time=said.time,
        reason=said.reason,
        withdrawn=withdrawn,
        resting=tuple(resting),
    )


def retract(directory: Path, reason: str, *, withdrawn: bool = False) -> Retraction:
    """Append to what is known of an experiment that its conclusion doesn't hold, or that it does after all.

    Args:
        directory: the experiment's folder.
        reason: what was found.
        withdrawn: take an earlier retraction back.

    Raises:
        ConfigError: there is no reason; or nothing to withdraw.
        StoreError: the file can't be written.
    """
    if not reason.strip():
        raise ConfigError("a retraction needs a reason", hint="say what was found, as --reason TEXT")
    before = retraction_of(directory)
    if withdrawn and before is None:
        raise ConfigError(f"{directory.name} isn't retracted, so there is nothing to withdraw")
    from evsys_record.encoding import now
    from evsys_record.jsonl import JsonlWriter
    from evsys_record.secrets import Redactor

    said = Retraction(time=now(), reason=" ".join(reason.split()), withdrawn=withdrawn)
    scrub = Redactor.from_environment().text
    with JsonlWriter(directory / RETRACTIONS, scrub=scrub, durable=True) as writer:
        writer.write(attrs.asdict(said))
    return said


def retraction_of(directory: Path) -> Retraction | None:
    """The newest retraction of an experiment; None where there is none, or the newest was withdrawn.

    Raises:
        StoreError: the file can't be read.
    """
    if not (directory / RETRACTIONS).exists():
        return None
    from evsys_record.jsonl import read_jsonl

    last: Mapping[str, Any] | None = None
    for line in read_jsonl(directory / RETRACTIONS, missing_ok=True):
        last = line
    if last is None or last.get("withdrawn"):
        return None
    return Retraction(time=str(last.get("time") or ""), reason=str(last.get("reason") or ""))


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
        for folder in _reached(cited, citations):
            found.setdefault(folder, set()).add(cited)
    return {folder: tuple(sorted(cited)) for folder, cited in found.items()}


def _citations(index: Index) -> dict[str, list[str]]:
    """Of each experiment those that cite it themselves."""
    found: dict[str, list[str]] = {}
    query = "SELECT e.folder, l.value FROM label l JOIN experiment e ON e.id = l.experiment WHERE l.kind = 'cites'"
    for folder, cited in index.rows(query):
        found.setdefault(cited, []).append(folder)
    return found


def _reached(cited: str, citations: Mapping[str, Sequence[str]]) -> set[str]:
    reached, waiting = set[str](), [cited]
    while waiting:
        more = [each for each in citations.get(waiting.pop(), ()) if each not in reached and each != cited]
        reached.update(more)
        waiting += more
    return reached

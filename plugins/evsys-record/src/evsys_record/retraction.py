"""Conclusions overturned later: when, and why.

A retraction is a line appended to `retractions.jsonl` in the folder of the experiment that it is about. Nothing
that was concluded is changed by it, and the newest line counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import ConfigError

__all__ = ["RETRACTIONS", "Retraction", "retract", "retraction_of"]

RETRACTIONS = "retractions.jsonl"


@attrs.frozen(kw_only=True)
class Retraction:
    """That the conclusion of an experiment doesn't hold, and why; `withdrawn` where it holds after all."""

    time: str
    reason: str
    withdrawn: bool = False


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
        raise ConfigError("a retraction needs a reason", hint="give the reason as --reason TEXT")
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

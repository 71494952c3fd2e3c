"""`evsys run --json` in two lines: one when the experiment has begun, and one when it is done."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evsys_runtime.commands import FORMAT, print_json_line

if TYPE_CHECKING:
    from evsys.types import ExperimentResult
    from evsys_record.control import Address

__all__ = ["LONGEST_SUMMARY", "print_done", "print_failed", "print_launched"]

LONGEST_SUMMARY = 1000
"""Bytes of the second line, without `--full`."""

_SHORTENED = 200
"""Characters of a text in a summary."""

_MOST_NAMES = 5


def print_launched(directory: Path, address: Address | None) -> None:
    """The first line: the experiment is on record, and listens for requests."""
    control = None if address is None else {"socket": address.socket, "port": address.port}
    print_json_line(
        {
            "event": "launch",
            "format": FORMAT,
            "experiment_id": directory.name,
            "directory": str(directory),
            "pid": os.getpid(),
            "control": control,
        }
    )


def print_done(result: ExperimentResult, *, full: bool, nothing_to_do: bool = False) -> None:
    """The second line: how the experiment ended, in short; `full` adds the whole `result`."""
    conclusion, statuses = result.conclusion, Counter(arm.status for arm in result.arms)
    summary = _bounded(
        {
            "event": "done",
            "format": FORMAT,
            "experiment_id": result.experiment_id,
            "status": result.status,
            "exit_code": result.exit_code,
            "verdict": conclusion.verdict,
            "subject": conclusion.subject,
            "best_arm": result.best_arm,
            "runs": dict(statuses),
            "failed": list(result.failed[:_MOST_NAMES]),
            "seconds": round(result.seconds, 3),
            "cost_usd": result.usage.cost_usd,
            "nothing_to_do": nothing_to_do,
            "directory": result.directory,
            "reason": _short(conclusion.reason),
            "warnings": len(result.warnings),
            "first_warning": _short(next(iter(result.warnings), None)),
        }
    )
    if full:
        from evsys_record import result_tree

        summary["result"] = {"format": FORMAT, **result_tree(result)}
    print_json_line(summary)


def print_failed(error: Mapping[str, Any], *, full: bool) -> None:
    """The second line of an experiment that ended with an error; the only one if that was before it began."""
    document = {"event": "done", "format": FORMAT, "status": "failed", "exit_code": error["exit_code"]}
    if full:
        print_json_line({**document, "error": error})
        return
    problems = error["problems"]
    shown = {**error, "message": _short(error["message"]), "hint": _short(error["hint"])}
    for count in range(min(len(problems), _MOST_NAMES), -1, -1):
        line = {
            **document,
            "error": {**shown, "problems": problems[:count]},
            "more_problems": len(problems) - count,
        }
        if _size(line) <= LONGEST_SUMMARY:
            break
    print_json_line(line)


def _bounded(document: dict[str, Any]) -> dict[str, Any]:
    """Without its last members, until it is short enough; the first ones, with the record's folder, always stay."""
    while _size(document) > LONGEST_SUMMARY and next(reversed(document)) != "directory":
        document.popitem()
    return document


def _size(document: Mapping[str, Any]) -> int:
    return len(json.dumps(document, separators=(",", ":")))


def _short(text: str | None) -> str | None:
    return text if text is None or len(text) <= _SHORTENED else f"{text[: _SHORTENED - 3]}..."

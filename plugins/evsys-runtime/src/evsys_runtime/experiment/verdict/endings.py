"""Runs that a listener, or a request, ended before their last step, in words."""

from __future__ import annotations

from evsys.types import Conclusion, ExperimentResult
from evsys_record.scorings import THROUGH

__all__ = ["early_ends", "request_lines"]


def early_ends(result: ExperimentResult) -> list[str]:
    """A line for each run ended early: at which step, and why. Empty for a dry run, in which all are."""
    return [
        f"{arm.run_id} ended at step {arm.run.steps}: {arm.run.stop_reason}"
        for arm in result.arms
        if not result.dry and arm.run is not None and arm.status in THROUGH and arm.run.stop_reason
    ]


def request_lines(conclusion: Conclusion) -> list[str]:
    """A line for each request from outside that may have affected the results: its effect, who asked, and why."""
    lines = []
    for request in conclusion.extra.get("requests", ()):
        match request["request"]:
            case "stop":
                runs = "all runs" if request["runs"] is None else ", ".join(request["runs"])
                effect = f"{runs} ended early"
            case "extend":
                effect = ", ".join(
                    f"budget.{name} raised to {limit:,g}" for name, limit in request["limits"].items()
                )
            case _:
                effect = ", ".join(f"{name} set to {value}" for name, value in request["values"].items())
        why = f": {request['reason']}" if request["reason"] else ""
        lines.append(f"{request['at'][:16].replace('T', ' ')} UTC, {effect}, by {request['by']}{why}")
    return lines

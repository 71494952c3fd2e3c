"""Tools that plan, start, steer and retract experiments. Each function is what the command of its name does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evsys.errors import ConfigError, EvsysError, Problem
from evsys_record import ControlError, send_request
from evsys_record.citations import Retracting, retract_experiment
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment.command_results import (
    ControlPlace,
    Launched,
    Previewed,
    PreviewedSequence,
    PreviewSpan,
    Requested,
)
from evsys_runtime.experiment.estimate.plan import plan_experiment
from evsys_runtime.experiment.estimate.results import Planned
from evsys_runtime.experiment.preflight.preview import PreviewedRow, preview_rows
from evsys_runtime.experiment.state.plan_secrets import refuse_secrets
from evsys_runtime.tools.lab import Lab

__all__ = ["launch", "plan", "preview", "request", "retract"]

REPLY_SECONDS = 120.0
"""How long to wait for the reply: a backend may block the event loop for a step."""


def plan(lab: Lab, config: Path, overrides: Sequence[str] = (), *, read_rows: bool = True) -> Planned:
    """The cost of an experiment, and the effect that its verdict can detect.

    Raises:
        ConfigError: every problem of the file.
    """
    checked = load_experiment(config, overrides=overrides, records=False)
    refuse_secrets(checked)
    with lab.opened(checked.project_root / checked.experiment.output_dir) as index:
        return plan_experiment(checked, index, read_rows=read_rows)


def preview(config: Path, overrides: Sequence[str] = (), *, arm: str | None, rows: int) -> Previewed:
    """The first training rows as the model sees them."""
    checked = load_experiment(config, overrides=overrides, records=False)
    found = preview_rows(checked, arm=arm, limit=rows)
    return Previewed(
        rows=tuple(map(_sequence, found.rows)),
        dropped={**found.dropped},
        not_read=found.not_read,
        warnings=tuple(found.warnings),
    )


def _sequence(row: PreviewedRow) -> PreviewedSequence:
    return PreviewedSequence(
        row_id=row.row_id,
        tokens=row.tokens,
        trained_tokens=row.trained_tokens,
        spans=tuple(
            PreviewSpan(text=span.text, trained=span.trained, tokens=span.tokens) for span in row.spans
        ),
    )


def request(
    lab: Lab,
    experiment: str,
    asked: Mapping[str, Any],
    *,
    by: str | None = None,
    reason: str | None = None,
) -> Requested:
    """Send a request to the process of a running experiment.

    Raises:
        ControlError: no process listens, or it refuses; says why.
    """
    with lab.experiment(experiment) as (index, wanted, _):
        folder = index.experiments / wanted
    reply = send_request(folder, {**asked, "reason": reason}, by=by, seconds=REPLY_SECONDS)
    if not reply.get("ok"):
        raise ControlError(str(reply.get("error")), hint=reply.get("hint"))
    known = {name: reply[name] for name in ("limits", "values") if name in reply}
    runs = reply.get("runs")
    return Requested(experiment_id=folder.name, ok=True, runs=None if runs is None else tuple(runs), **known)


def retract(lab: Lab, experiment: str, *, reason: str, withdraw: bool = False) -> Retracting:
    """Retract the conclusion of an experiment, or withdraw a retraction."""
    with lab.experiment(experiment) as (index, wanted, _):
        return retract_experiment(index, wanted, reason, withdrawn=withdraw)


def launch(lab: Lab, config: Path, overrides: Sequence[str] = ()) -> Launched:
    """Start an experiment in a process of its own, which outlives this one; returns once it has begun.

    Raises:
        EvsysError: it ended before; of the kind, and with the problems, that it reported.
    """
    options = [part for each in overrides for part in ("--set", each)]
    words = ["run", str(config), *options, "--detach", "--json", "--full"]
    done = subprocess.run(
        [sys.executable, "-m", "evsys_cli.main", *words],
        cwd=lab.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if lines and lines[0].get("event") == "launch":
        line = {key: value for key, value in lines[0].items() if key != "format"}
        control = None if line["control"] is None else ControlPlace(**line["control"])
        return Launched(**{**line, "control": control})
    raise _failure(lines, done)


def _failure(lines: Sequence[Mapping[str, Any]], done: subprocess.CompletedProcess[str]) -> EvsysError:
    """The error of a process that started nothing."""
    found = next((line["error"] for line in lines if "error" in line), None)
    if found is None:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return EvsysError(f"the experiment did not start: {last[0]}")
    if found["problems"]:
        return ConfigError([Problem(**problem) for problem in found["problems"]])
    return EvsysError(found["message"], hint=found["hint"])

"""`evsys trigger`: check, status, reset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evsys_runtime import echo, json_option, print_json

if TYPE_CHECKING:
    from evsys_traces.trigger.check import Decision

__all__ = ["FIRED", "trigger"]

FIRED = 10
"""The exit code of a check that fired, with `--exit-code`."""

_file = click.argument(
    "file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="TRIGGER"
)


@click.group()
def trigger() -> None:
    """Decide from traces when a deployed model needs new training."""


@trigger.command()
@_file
@click.argument("traces", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--exit-code", is_flag=True, help=f"Exit with {FIRED} if it fires, 0 otherwise.")
@json_option
def check(*, file: Path, traces: Path, exit_code: bool, as_json: bool) -> int:
    """Weigh new traces, and fire if they show a change.

    TRIGGER is a trigger file, TRACES what `evsys traces import` wrote; traces that an earlier check has weighed are skipped.
    The decision with its evidence is in `.evsys/triggers/NAME/decision.json`.
    """
    import attrs

    from evsys_traces.trigger.check import check as weigh
    from evsys_traces.trigger.config import load_trigger

    decision = weigh(load_trigger(file), traces)
    if as_json:
        print_json(attrs.asdict(decision))
    else:
        for line in _lines(decision):
            echo(line)
    return FIRED if exit_code and decision.outcome == "fired" else 0


@trigger.command()
@_file
@json_option
def status(*, file: Path, as_json: bool) -> None:
    """Show the evidence so far."""
    from evsys_traces.trigger.check import state_of
    from evsys_traces.trigger.config import load_trigger

    loaded = load_trigger(file)
    monitor = state_of(loaded)
    evidence = [each.evidence() for each in monitor.series]
    threshold = 1 / loaded.config.false_alarm_rate
    if as_json:
        facts = {"trigger": loaded.config.name, "e_value": monitor.e_value, "threshold": threshold}
        print_json({**facts, "new": monitor.new, "fired": len(monitor.fired), "evidence": evidence})
        return
    echo(f"{loaded.config.name}: e-value {monitor.e_value:.3g} of {threshold:g}, {monitor.new:,} new traces")
    for line in _evidence_lines(evidence):
        echo(line)


@trigger.command()
@_file
def reset(*, file: Path) -> None:
    """Forget the evidence, and begin with the reference of today.

    Do so after the model or the reference changed. Decisions that were written stay, and the days on which it fired still count.
    """
    from evsys_record.files import write_json
    from evsys_traces.trigger.config import load_trigger
    from evsys_traces.trigger.monitor import Monitor

    loaded = load_trigger(file)
    path = loaded.folder / "state.json"
    fresh = Monitor.arm(loaded)
    if path.exists():
        old = Monitor.read(path)
        fresh.fired, fresh.until, fresh.keys = old.fired, old.until, old.keys
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, fresh.tree())
    echo(f"{loaded.config.name}: armed with {loaded.config.reference}")


def _lines(decision: Decision) -> Iterator[str]:
    yield f"{decision.trigger}: {decision.outcome}: {decision.why}"
    yield from _evidence_lines(decision.evidence)
    for reason, count in decision.left_out.items():
        yield f"  left out {count:,}: {reason}"


def _evidence_lines(evidence: Any) -> Iterator[str]:
    for each in evidence:
        if each.get("rate") is not None and each["reference"] is not None:
            now, then = each["rate"], each["reference"]
            about = f"{now['value']:.3f} [{now['low']:.3f}, {now['high']:.3f}], was {then['value']:.3f}"
        elif each.get("quantile") is not None:
            about = f"mean quantile {each['quantile']:.2f}, was 0.50"
        else:
            about = "no traces yet"
        yield f"  {each['series']}: {about}; e-value {each['e_value']:.3g} from {each['traces']:,} traces"

"""`evsys pause`, `unpause`, `stop`, `extend` and `set`: requests to a running experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evsys_cli.records import lab_of
from evsys_runtime import CountedFromTheEnd, echo, experiment_names, json_option, print_json, records_option
from evsys_runtime.commands import json_or_text, named_texts

if TYPE_CHECKING:
    from evsys_runtime.experiment.command_results import Requested

__all__ = ["extend", "pause", "set_value", "stop", "unpause"]

_EXPERIMENT = click.argument("experiment", shell_complete=experiment_names)
_ARM = click.argument("arm", required=False)


def _common[F: Callable[..., Any]](function: F) -> F:
    """The options of all requests."""
    options = (
        json_option,
        records_option,
        click.option(
            "--by", metavar="NAME", help="Name of the requester, for the record.  [default: the current user]"
        ),
        click.option("--reason", metavar="TEXT", help="Reason for the request, for the record."),
    )
    for option in options:
        function = option(function)
    return function


@click.command(cls=CountedFromTheEnd)
@_EXPERIMENT
@_ARM
@click.option(
    "--now", is_flag=True, help="Also hold in the middle of a step or an evaluation, before its next rollout."
)
@_common
def pause(experiment: str, arm: str | None, *, now: bool, **common: Any) -> None:
    """Hold EXPERIMENT, or one ARM of it, once the current step ends.

    Each run saves a checkpoint and holds, with its model loaded, until `evsys unpause`. Without --now, evaluations under
    way continue.
    The watchdog waits, and while all runs hold, `budget.wall_seconds` does too. ARM is a name, or the ID of a run.
    """
    _send(experiment, {"request": "pause", "arm": arm, "now": now}, **common)


@click.command(cls=CountedFromTheEnd)
@_EXPERIMENT
@_ARM
@_common
def unpause(experiment: str, arm: str | None, **common: Any) -> None:
    """Continue EXPERIMENT, or one ARM of it, after `evsys pause`."""
    _send(experiment, {"request": "unpause", "arm": arm}, **common)


@click.command(cls=CountedFromTheEnd)
@_EXPERIMENT
@_ARM
@_common
def stop(experiment: str, arm: str | None, **common: Any) -> None:
    """End EXPERIMENT, or one ARM of it, early, and conclude from the results so far.

    A run ends after its current step; its weights are saved and evaluated. Waiting runs do not start. This is final: to
    interrupt an experiment and resume it later, use Ctrl-C or SIGTERM instead.
    """
    _send(experiment, {"request": "stop", "arm": arm}, **common)


@click.command(cls=CountedFromTheEnd)
@_EXPERIMENT
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Add to `budget.steps`.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Add to `budget.wall_seconds`.",
)
@click.option(
    "--money", type=click.FloatRange(min=0, min_open=True), metavar="USD", help="Add to `budget.usd`."
)
@click.option("--tokens", type=click.IntRange(min=1), metavar="N", help="Add to `budget.tokens`.")
@_common
def extend(
    experiment: str,
    *,
    steps: int | None,
    seconds: float | None,
    money: float | None,
    tokens: int | None,
    **common: Any,
) -> None:
    """Raise limits of the budget of EXPERIMENT by the given amounts."""
    amounts = {"steps": steps, "seconds": seconds, "money": money, "tokens": tokens}
    _send(experiment, {"request": "extend", **amounts}, **common)


@click.command("set", cls=CountedFromTheEnd)
@_EXPERIMENT
@click.argument("values", nargs=-1, required=True, metavar="NAME=VALUE...")
@_common
def set_value(experiment: str, values: tuple[str, ...], **common: Any) -> None:
    """Change a setting of EXPERIMENT while it runs: max_concurrent_arms=N. Nothing else can be changed."""
    named = named_texts(values, option="NAME=VALUE")
    _send(
        experiment,
        {"request": "set", "values": {name: json_or_text(value) for name, value in named}},
        **common,
    )


def _send(
    experiment: str,
    request: Mapping[str, Any],
    *,
    records: Path | None,
    by: str | None,
    reason: str | None,
    as_json: bool,
) -> None:
    """Send a request, and print its effect."""
    from evsys_record import result_tree
    from evsys_runtime.tools.acting import request as send

    reply = send(lab_of(records), experiment, request, by=by, reason=reason)
    if as_json:
        print_json(result_tree(reply))
    else:
        echo(f"{reply.experiment_id}: {_words(request, reply)}")


def _words(request: Mapping[str, Any], reply: Requested) -> str:
    runs = "all runs" if reply.runs is None else ", ".join(reply.runs)
    match request["request"]:
        case "pause":
            return f"{runs} hold after the current {'rollouts' if request['now'] else 'step'}"
        case "unpause":
            return f"{runs} continue"
        case "stop":
            return f"{runs} end after the current step"
        case "extend":
            return ", ".join(f"budget.{name} is {limit:,g}" for name, limit in (reply.limits or {}).items())
        case _:
            return ", ".join(f"{name} is {value}" for name, value in (reply.values or {}).items())

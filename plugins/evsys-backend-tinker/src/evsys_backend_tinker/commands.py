"""`evsys backend`: what a backend does with a small training, compared with itself and with another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from evsys_runtime import echo, json_option, print_json
from evsys_runtime.commands import column_lines, json_or_text, named_texts

if TYPE_CHECKING:
    from evsys.types import ModelSpec
    from evsys_backend_tinker.parity import Finding
    from evsys_backend_tinker.reaper import Left

__all__ = ["backend"]

_PARAM = {"multiple": True, "metavar": "NAME=VALUE"}


class _Beside(NamedTuple):
    """Another backend."""

    kind: str
    params: Mapping[str, Any]


@click.group()
def backend() -> None:
    """Try what a backend, or the server behind it, does with a small training, and what runs have left there."""


@backend.command("probe")
@click.argument("kind", default="tinker")
@click.option("--param", "params", help="One of its params, as JSON or text.", **_PARAM)  # type: ignore[arg-type]  # click's own stubs
@click.option("--model", default="evsys/tiny", show_default=True, metavar="NAME", help="Base model to train.")
@click.option("--rank", default=8, show_default=True, type=click.IntRange(min=1), help="Rank of the adapter.")
@click.option("--beside", metavar="KIND", help="Another backend for comparison, such as local.")
@click.option("--beside-param", "other_params", help="One of its params.", **_PARAM)  # type: ignore[arg-type]  # click's own stubs
@click.option(
    "--tolerance",
    default=0.02,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Largest difference of a logprob, or of a loss in nats per token, to treat as rounding.",
)
@json_option
def probe(
    *,
    kind: str,
    params: tuple[str, ...],
    model: str,
    rank: int,
    beside: str | None,
    other_params: tuple[str, ...],
    tolerance: float,
    as_json: bool,
) -> None:
    """Test a training server with a small run.

    Trains a few steps on KIND (by default tinker) and checks logprobs, losses, the optimiser, states and samples.
    Creates four small models and a state there. Missing features of a server are remembered for a month: later runs
    compute such losses in two passes. The exit code is 1 if anything differs.
    """
    import asyncio

    from evsys.types import LoraSpec, ModelSpec

    spec = ModelSpec(name=model, lora=LoraSpec(rank=rank))
    other = None if beside is None else _Beside(beside, _settings(other_params))
    found = asyncio.run(_look(kind, _settings(params), spec, other, tolerance))
    differing = [one for part in found.values() for one in part if one.outcome == "differs"]
    if as_json:
        import attrs

        print_json(
            {
                "same": not differing,
                "tolerance": tolerance,
                "findings": {name: [attrs.asdict(one) for one in part] for name, part in found.items()},
            }
        )
    else:
        for name, part in found.items():
            echo(f"{name}:")
            for line in column_lines(("", "", "largest difference", ""), [_row(one) for one in part]):
                echo(line.rstrip())
    if differing:
        raise SystemExit(1)


@backend.command("states")
@click.option("--param", "params", help="A param of the backend, as JSON or text.", **_PARAM)  # type: ignore[arg-type]  # click's own stubs
@click.option(
    "--older-than",
    default=0.0,
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Only states saved longer ago than this.",
)
@click.option(
    "--delete",
    is_flag=True,
    help="Delete them, except those of best checkpoints; checkpoints of the record that refer to them can't be restored afterwards.",
)
@click.option("--best-too", is_flag=True, help="Delete those of best checkpoints as well.")
@click.option(
    "--experiments",
    default=".evsys/experiments",
    show_default=True,
    type=click.Path(file_okay=False),
    help="Folder of the record, which marks the best checkpoints.",
)
@json_option
def states(
    *,
    params: tuple[str, ...],
    older_than: float,
    delete: bool,
    best_too: bool,
    experiments: str,
    as_json: bool,
) -> None:
    """List or delete the states left on a training server.

    These are the states that runs of evsys saved on a server of the Tinker protocol.
    """
    import datetime as dt
    from importlib.metadata import version
    from pathlib import Path

    from evsys import current_registry
    from evsys_backend_tinker.http_json import JsonApi
    from evsys_backend_tinker.preflight import look_at
    from evsys_backend_tinker.reaper import best_states, left_states, reap

    made = current_registry().build("backend", "tinker", _settings(params))
    here = JsonApi(base_url=made.base_url, key=made.key)
    api = look_at(here, None, version=version("tinker")).api()
    best = best_states(Path(experiments))
    found = left_states(api, older_than=dt.timedelta(days=older_than), now=dt.datetime.now(dt.UTC), best=best)
    doomed = [one for one in found if best_too or not one.best] if delete else []
    wrong = {state.path: why for state, why in reap(api, doomed)}
    if as_json:
        import attrs

        rows = [{**attrs.asdict(one), "deleted": wrong.get(one.path, "kept") is None} for one in found]
        print_json(
            {"server": api.base_url, "states": [{k: _plain(v) for k, v in row.items()} for row in rows]}
        )
    elif not found:
        echo(f"no states of evsys on {api.base_url}")
    else:
        for line in column_lines(("state", "saved", "until", ""), [_state_row(one, wrong) for one in found]):
            echo(line.rstrip())
    if any(wrong.values()):
        raise SystemExit(1)


def _state_row(state: Left, wrong: Mapping[str, str | None]) -> tuple[str, ...]:
    """A state, and what became of it, or why it stays: `wrong` has those that were to be deleted."""
    until = "stays" if state.expires is None else f"{state.expires:%Y-%m-%d %H:%M}"
    what = "best" if state.best else ""
    if state.path in wrong:
        what = wrong[state.path] or "deleted"
    return state.path, f"{state.saved:%Y-%m-%d %H:%M}", until, what


def _plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value


async def _look(
    kind: str, params: Mapping[str, Any], spec: ModelSpec, beside: _Beside | None, tolerance: float
) -> dict[str, list[Finding]]:
    from evsys import current_registry
    from evsys.errors import boundary
    from evsys_backend_tinker import parity
    from evsys_backend_tinker.trial import try_backend

    registry = current_registry()
    _remember(registry.build("backend", kind, params), ())  # what an earlier probe found is no answer
    with boundary("backend", kind):
        trial = await try_backend(lambda: registry.build("backend", kind, params), spec)
    found = {kind: list(parity.by_itself(trial, tolerance))}
    _remember(registry.build("backend", kind, params), found[kind])
    if beside is not None:
        with boundary("backend", beside.kind):
            other = await try_backend(lambda: registry.build("backend", beside.kind, beside.params), spec)
        found[f"{kind} beside {beside.kind}"] = list(parity.beside(trial, other, tolerance))
    return found


def _remember(probed: Any, findings: Sequence[Finding]) -> None:
    """Keep what a server lacks; other backends know themselves what they can."""
    from evsys_backend_tinker.backend import TinkerBackend
    from evsys_backend_tinker.probes import keep

    if isinstance(probed, TinkerBackend):
        losses = [one.what.removeprefix("loss ") for one in findings if one.what.startswith("loss ")]
        bad = {one.what.removeprefix("loss ") for one in findings if one.outcome != "ok"}
        keep(
            probed.base_url,
            [f"loss_fns:{name}" for name in losses if name in bad and name != "cross_entropy"],
        )


def _row(finding: Finding) -> tuple[str, ...]:
    difference = "" if finding.difference is None else f"{finding.difference:.2g}"
    return f"  {finding.outcome}", finding.what, difference, finding.note


def _settings(params: tuple[str, ...]) -> dict[str, Any]:
    return {name: json_or_text(text) for name, text in named_texts(params)}

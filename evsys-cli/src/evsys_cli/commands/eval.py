"""`evsys eval` and `evsys benchmark run`: a checkpoint, a base model or an API model scored without training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evsys_cli.lazy import ExtendedGroup
from evsys_cli.output import for_terminal
from evsys_runtime import echo, json_option, print_json
from evsys_runtime.commands import named_texts

if TYPE_CHECKING:
    from evsys.types import ArmResult, Usage
    from evsys_runtime import BenchmarkConfig
    from evsys_runtime.config.model import PluginSpec
    from evsys_runtime.experiment.evaluated_models import BaseModel, NamedClient, SavedModel

__all__ = ["benchmark", "evaluate"]

_BASE_URL = "OPENAI_BASE_URL"
_KEY = "OPENAI_API_KEY"
_CLIENT = "openai_compatible"

_OPTIONS = (
    click.option(
        "--backend",
        metavar="KIND",
        help="Evaluate the untrained base model MODEL (a name the backend knows, or a folder) on this backend.",
    ),
    click.option("--renderer", help="Chat template to use with --backend.  [default: the model's own]"),
    click.option("--base-url", help=f"Base URL of the API model's service.  [default: ${_BASE_URL}]"),
    click.option("--api-key-env", help=f"Environment variable with the API key.  [default: {_KEY}, if set]"),
    click.option(
        "--param",
        "params",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a parameter of the inference client or of the backend; the value is YAML.",
    ),
    click.option("--client", help=f"Inference client.  [default: {_CLIENT}]"),
    click.option(
        "--metric",
        "metrics",
        multiple=True,
        help="Metric to compute; may be repeated.  [default: mean_reward]",
    ),
    click.option(
        "--num-samples",
        type=click.IntRange(min=1),
        help="Samples per task.  [default: as many as the metrics need]",
    ),
    click.option(
        "--max-tokens",
        type=click.IntRange(min=1),
        default=256,
        show_default=True,
        help="Maximum tokens per completion.",
    ),
    click.option(
        "--temperature",
        type=click.FloatRange(min=0),
        help="Sampling temperature.  [default: 0 for one sample, 1 for several]",
    ),
    click.option("--limit", type=click.IntRange(min=1), help="Evaluate a random sample of this many tasks."),
    click.option(
        "--n-concurrent",
        type=click.IntRange(min=1),
        default=64,
        show_default=True,
        help="Maximum number of concurrent rollouts.",
    ),
    click.option("--system-prompt", help="System prompt for each task."),
    click.option(
        "--seed",
        type=int,
        default=0,
        show_default=True,
        help="Seed from which the samples' seeds are derived.",
    ),
    click.option(
        "--skip-grader-check", is_flag=True, help="Skip the test of the verifiers on generated answers."
    ),
    click.option("--no-cache", is_flag=True, help="Neither read nor write the cache of results."),
    click.option("-q", "--quiet", is_flag=True, help="Print no log lines."),
    json_option,
)


def _with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.command("eval")
@click.argument("model")
@click.argument("benchmarks", nargs=-1, required=True, metavar="BENCHMARK...")
@_with_options
def evaluate(model: str, benchmarks: tuple[str, ...], **options: Any) -> int:
    """Evaluate MODEL on each BENCHMARK, without training.

    MODEL is EXPERIMENT/RUN (its selected or last checkpoint), the folder of a checkpoint
    (.evsys/experiments/.../runs/<run>/checkpoints/<step>), the name of an API model or, with --backend, a base model:
    `evsys eval smollm2-135m tasks.jsonl --backend local`. BENCHMARK is a file or folder of tasks, or the ID or name of a stored one. The record goes to
    `.evsys/evaluations/` in the project.
    """
    return _score(model, benchmarks, **options)


@click.group(cls=ExtendedGroup)
def benchmark() -> None:
    """Evaluate models on benchmarks, and share benchmarks on a team's server."""


@benchmark.command("run")
@click.argument("benchmarks", nargs=-1, required=True, metavar="BENCHMARK...")
@click.option(
    "--model",
    required=True,
    help="Checkpoint folder, API model or, with --backend, base model.",
)
@_with_options
def run(model: str, benchmarks: tuple[str, ...], **options: Any) -> int:
    """Evaluate a model on each BENCHMARK.

    Like `evsys eval`, with the benchmarks first.
    """
    return _score(model, benchmarks, **options)


def _score(
    model: str, benchmarks: tuple[str, ...], *, as_json: bool, quiet: bool, seed: int, **options: Any
) -> int:
    from evsys_runtime.blas_kernel import use_kernel

    use_kernel()  # before anything imports numpy
    from evsys import use_registry
    from evsys_cli.project import project_plugins
    from evsys_runtime.data.scope import DataScope, use_scope
    from evsys_runtime.experiment.evaluation import ascore
    from evsys_runtime.experiment.supervision.event_loop import run_to_end

    known = project_plugins()
    if known.error is not None:
        raise known.error
    root = known.root or Path.cwd()
    with use_registry(known.registry), use_scope(DataScope(project_root=root)):
        score = partial(
            ascore,
            _target(model, options),
            [_entry(name, options) for name in benchmarks],
            project_root=root,
            registry=known.registry,
            seed=seed,
            quiet=quiet,
            skip_grader_check=options["skip_grader_check"],
            no_cache=options["no_cache"],
        )
        result: ArmResult = run_to_end(score, call="evsys eval", instead="await ascore(...)")
    if as_json:
        from evsys_record import result_tree

        print_json(result_tree(result))
    else:
        echo(for_terminal(_lines(result)))
    return 0 if result.status == "completed" else 1


def _target(model: str, options: Mapping[str, Any]) -> SavedModel | BaseModel | NamedClient:
    """With a backend, a base model; otherwise a folder is a checkpoint, and any other name is that of an API model."""
    import os

    from evsys_runtime.config.document import parse_value
    from evsys_runtime.config.model import PluginSpec
    from evsys_runtime.experiment.evaluated_models import NamedClient, find_saved_model

    of_api_models, of_base_models = ("client", "base_url", "api_key_env"), ("renderer",)
    params = {name: parse_value(text, f"--param {name}") for name, text in named_texts(options["params"])}
    if options["backend"] is not None:
        _refuse(options, of_api_models, "a base model on a backend")
        return _base_model(model, PluginSpec(kind=options["backend"], params=params), options["renderer"])
    saved = _checkpoint(model, options)
    if saved is not None:
        _refuse(options, (*of_api_models, *of_base_models, "params"), "a checkpoint")
        return find_saved_model(saved)
    _refuse(options, of_base_models, "an API model")
    client = options["client"] or _CLIENT
    if client.rpartition("/")[2] == _CLIENT:
        key = options["api_key_env"] or (_KEY if os.environ.get(_KEY) else None)
        if options["base_url"] is None and not os.environ.get(_BASE_URL):
            raise click.UsageError(
                f"{model!r} is not a folder, and an API model needs an address: pass --base-url, or set {_BASE_URL}; "
                "for a base model, pass --backend"
            )
        address = options["base_url"] or f"${{{_BASE_URL}}}"
        params = {"model": model, "base_url": address, "api_key_env": key, **params}
    return NamedClient(label=model, client=PluginSpec(kind=client, params=params))


def _checkpoint(model: str, options: Mapping[str, Any]) -> Path | None:
    """Return the folder of the checkpoint or of the run; None for an API model."""
    from evsys_record.run_checkpoint import checkpoint_named
    from evsys_runtime import records_folder

    if any(options[name] for name in ("client", "base_url", "api_key_env")) and not Path(model).is_dir():
        return None
    return checkpoint_named(model, records_folder(None)) or (Path(model) if Path(model).is_dir() else None)


def _refuse(options: Mapping[str, Any], names: Sequence[str], what: str) -> None:
    for name in names:
        if options[name]:
            flag = "--param" if name == "params" else f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{flag} doesn't apply to {what}")


def _base_model(model: str, backend: PluginSpec, renderer: str | None) -> BaseModel:
    from evsys.types import ModelSpec
    from evsys_runtime.experiment.evaluated_models import BaseModel, is_checkpoint

    folder = Path(model).expanduser()
    if is_checkpoint(folder):
        raise click.UsageError(
            f"{model} is a checkpoint, which is evaluated on the backend that trained it; omit --backend"
        )
    name = str(folder.resolve()) if folder.is_dir() else model
    return BaseModel(model=ModelSpec(name=name, renderer=renderer), backend=backend)


def _entry(name: str, options: Mapping[str, Any]) -> BenchmarkConfig:
    from evsys_runtime import BenchmarkConfig

    keys = ("metrics", "num_samples", "max_tokens", "temperature", "limit", "n_concurrent", "system_prompt")
    where: dict[str, Any] = {"path": str(Path(name).absolute())} if Path(name).exists() else {"name": name}
    return BenchmarkConfig(**where, **{key: options[key] for key in keys})


def _lines(result: ArmResult) -> list[str]:
    from evsys.types import Usage
    from evsys_runtime.experiment.verdict.tables import number

    lines = []
    for scoring in result.evaluations:
        if scoring.status != "completed":
            why = scoring.failure.message if scoring.failure else "no reason given"
            lines.append(f"{scoring.benchmark}: {scoring.status}: {why}")
        for name, metric in scoring.metrics.items():
            if metric.reason is not None:
                lines.append(f"{scoring.benchmark}: {name} failed: {metric.reason}")
                continue
            interval = "" if metric.low is None else f" [{number(metric.low)}, {number(metric.high)}]"
            lines.append(f"{scoring.benchmark}: {name} {number(metric.value)}{interval}, {metric.n} tasks")
    lines += [f"warning: {warning}" for warning in result.warnings]
    if cached := sum(scoring.cached for scoring in result.evaluations):
        rollouts = sum(scoring.scored + scoring.no_score for scoring in result.evaluations)
        lines.append(f"{cached} of {rollouts} rollouts came from the cache; --no-cache recomputes all")
    asked = sum((scoring.usage for scoring in result.evaluations), Usage())
    judged = sum((scoring.judged for scoring in result.evaluations), Usage())
    lines.append(_cost_text(asked))
    if judged.prompt_tokens or judged.completion_tokens:
        lines.append(f"judging: {_cost_text(judged)}")
    lines.append(f"{result.status} in {result.seconds:.1f} s; record: {result.run_dir}")
    return lines


def _cost_text(usage: Usage) -> str:
    from evsys_runtime.accounting.usage import cost_words

    return (
        f"{usage.prompt_tokens} prompt and {usage.completion_tokens} completion tokens, {cost_words(usage)}"
    )

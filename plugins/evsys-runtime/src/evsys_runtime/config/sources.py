"""Checks the sources of a run's rows and starting weights: exactly one, and it exists."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from evsys.errors import DataError, Problem
from evsys_runtime.config import files, tasks
from evsys_runtime.config.model.run import ModelConfig, SourceConfig
from evsys_runtime.data.stored_data import find_dataset

__all__ = ["source_problems", "source_warnings", "weights_problems"]


def source_problems(data: SourceConfig, path: str, root: Path, *, has_store: bool) -> Iterable[Problem]:
    """The problems of the source of rows of a `data` block at `path`."""
    reference = [key for key in ("dataset_id", "dataset_name") if getattr(data, key) is not None]
    sources = [key for key in ("path", "rows", "hf_dataset") if getattr(data, key) is not None]
    if len(reference) > 1:
        yield Problem(
            path=f"{path}.dataset_name",
            message="both 'dataset_id' and 'dataset_name' are given",
            hint="keep one",
        )
    if len(sources) > 1:
        message = f"{' and '.join(map(repr, sources))} both name the rows"
        yield Problem(path=f"{path}.{sources[1]}", message=message, hint="keep one")
    elif not sources and not reference:
        yield Problem(
            path=path, message="names no rows", hint="give 'path', 'rows', 'dataset_id' or 'hf_dataset'"
        )
    needed = {"in_memory": "rows", "hf_dataset": "hf_dataset"}.get(data.source_kind or "", "path")
    if data.source_kind and sources and needed not in sources:
        message = f"source_kind {data.source_kind!r} needs {needed!r}, and {sources[0]!r} is given"
        yield Problem(
            path=f"{path}.source_kind", message=message, hint="leave 'source_kind' out, or correct it"
        )
    if data.rows is not None and not data.rows:
        yield Problem(path=f"{path}.rows", message="there are no rows")
    if data.hf_dataset is not None and find_spec("datasets") is None:
        message = "reading Hugging Face datasets needs the package 'datasets'"
        yield Problem(path=f"{path}.hf_dataset", message=message, hint="pip install 'evsys-sdk[hf]'")
    if reference and not has_store:
        yield from _stored_problems(data, reference[0], path, root)
    elif data.path is not None and not reference:
        yield from _path_problems(data, data.path, path, root)


def _stored_problems(data: SourceConfig, key: str, path: str, root: Path) -> Iterable[Problem]:
    """Without a store, data by name or id must be in the project or its cache; else the fallback is read."""
    try:
        found = find_dataset(root, getattr(data, key))
    except DataError as exc:
        if not exc.facts.get("unknown"):
            yield Problem(path=f"{path}.{key}", message=exc.message, hint=exc.hint)
        elif data.path is not None:
            yield from _path_problems(data, data.path, path, root)
        else:
            message = f"{exc.message}, and no 'data_store' is configured"
            hint = f"{exc.hint}; or give a 'path' as fallback"
            yield Problem(path=f"{path}.{key}", message=message, hint=hint)
        return
    if not found.in_cache and (wrong := files.missing(found.path.relative_to(root).as_posix(), root)):
        yield Problem(path=f"{path}.{key}", message=wrong[0], hint=wrong[1])


def source_warnings(data: SourceConfig, root: Path, *, has_store: bool) -> Iterable[str]:
    """The warnings about a usable source: that it isn't the requested one."""
    reference = data.dataset_id or data.dataset_name
    if reference and data.path is not None and not has_store:
        try:
            find_dataset(root, reference)
        except DataError as exc:
            if exc.facts.get("unknown"):
                yield f"dataset {reference!r} isn't in the project or its cache; {data.path} is read instead"


def _path_problems(data: SourceConfig, name: str, path: str, root: Path) -> Iterable[Problem]:
    wrong = files.missing(name, root)
    suffix = Path(name).suffix.lower()
    if wrong is None and data.source_kind is None and suffix not in tasks.suffixes():
        wrong = (f"no format is known for the suffix {suffix!r}", tasks.suffix_hint(Path(name)))
    if wrong is not None:
        yield Problem(path=f"{path}.path", message=wrong[0], hint=wrong[1])


def weights_problems(model: ModelConfig, path: str, root: Path) -> Iterable[Problem]:
    """The problems of the checkpoints that a `model` block at `path` starts from."""
    if model.init_from_checkpoint and model.load_checkpoint_path:
        message = "'init_from_checkpoint' and 'load_checkpoint_path' both name a source of the weights"
        hint = "keep 'load_checkpoint_path' to continue with the optimiser's state, the other to reset it"
        yield Problem(path=f"{path}.load_checkpoint_path", message=message, hint=hint)
    for key in ("init_from_checkpoint", "load_checkpoint_path"):
        name = getattr(model, key)
        # An address such as tinker://... is for the backend to judge.
        wrong = files.missing(name, root, folder=True) if name and "://" not in name else None
        if wrong:
            yield Problem(path=f"{path}.{key}", message=wrong[0], hint=wrong[1])

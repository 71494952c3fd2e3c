"""Experiments given as Python values: the same document as a file with these values, so that the same checks apply."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import attrs

from evsys.errors import ConfigError, Problem
from evsys_runtime.config import paths
from evsys_runtime.config.document import Document, parse
from evsys_runtime.config.model import BenchmarkConfig, ExperimentConfig

__all__ = ["SOURCE", "document_of", "plain_tree", "with_benchmark"]

SOURCE = "experiment"
"""The name in messages of an experiment without a file."""

_BENCHMARK = "$.metadata.benchmark"
_MODEL = f"{__package__}.model."


def document_of(cfg: Mapping[str, Any] | ExperimentConfig) -> Document:
    """The document of an experiment given as a mapping or as an `ExperimentConfig`; its values have no lines.

    Its text is JSON, which is YAML: the record keeps it as `config.yaml`, from which the experiment resumes.

    Raises:
        ConfigError: a value isn't plain; every such value is listed.
    """
    text = json.dumps(plain_tree(cfg), ensure_ascii=False, indent=2) + "\n"
    document = parse(text, SOURCE)
    found = tuple(attrs.evolve(problem, line=None, column=None) for problem in document.problems)
    return attrs.evolve(document, positions={}, keys={}, literals={}, problems=found)


def with_benchmark(document: Document, benchmark: BenchmarkConfig) -> Document:
    """A document whose `metadata.benchmark` is this entry. Without a name of its own it has that of the only one that it replaces,
    so that the success metric means it.
    """
    entry = plain_tree(benchmark, _BENCHMARK)
    metadata = document.tree.get("metadata")
    before = metadata.get("benchmark") if isinstance(metadata, Mapping) else None
    if isinstance(before, list) and len(before) == 1:
        before = before[0]
    if benchmark.name is None and isinstance(before, Mapping) and "name" in before:
        entry["name"] = before["name"]
    tree = {**document.tree, "metadata": {**(metadata or {}), "benchmark": entry}}
    return attrs.evolve(document, tree=tree, overrides={**document.overrides, _BENCHMARK: "benchmark"})


def plain_tree(value: Any, path: str = "$") -> Any:
    """Plain values: text, numbers, lists and mappings, as a file has them.

    Classes of the model become mappings of the keys whose values aren't the defaults. Paths become text, tuples lists, and
    scalars and arrays of numpy numbers and lists.

    Args:
        value: what to convert.
        path: the place of the value in the experiment.

    Raises:
        ConfigError: with every value that a file can't hold.
    """
    problems: list[Problem] = []
    tree = _plain(value, path, problems)
    if problems:
        raise ConfigError(problems)
    return tree


def _plain(value: Any, path: str, problems: list[Problem]) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            problems.append(_problem(path, f"{value} is not a finite number", "give a number"))
        return float(value)
    if isinstance(value, PurePath):
        return value.as_posix()
    if isinstance(value, Mapping):
        return _mapping(value, path, problems)
    if isinstance(value, list | tuple):
        return [_plain(item, paths.child(path, place), problems) for place, item in enumerate(value)]
    if attrs.has(type(value)) and any(cls.__module__.startswith(_MODEL) for cls in type(value).__mro__):
        return _mapping(_set_keys(value), path, problems)
    if hasattr(value, "tolist"):
        return _plain(value.tolist(), path, problems)
    message = f"expected text, a number, a list or a mapping, got {type(value).__qualname__}"
    problems.append(_problem(path, message, "name plugins by `kind`, and give them `params`"))
    return None


def _mapping(value: Mapping[Any, Any], path: str, problems: list[Problem]) -> dict[str, Any]:
    tree = {}
    for key, item in value.items():
        if isinstance(key, str):
            tree[key] = _plain(item, paths.child(path, key), problems)
        else:
            problems.append(_problem(path, f"expected text as a key, got {key!r}", f"quote it: {str(key)!r}"))
    return tree


def _set_keys(config: Any) -> dict[str, Any]:
    """The fields of a class of the model that differ from their defaults."""
    fields = attrs.fields_dict(type(config))
    given = {}
    for name, field in fields.items():
        value, default = getattr(config, name), field.default
        factory = getattr(default, "factory", None)
        if factory is not None:
            default = factory()
        if default is attrs.NOTHING or value != default:
            given[name] = value
    if isinstance(config, BenchmarkConfig) and config.tags:
        given.pop("split", None)  # `tags` has set it
    return given


def _problem(path: str, message: str, hint: str) -> Problem:
    return Problem(path=path, message=message, hint=hint, source=SOURCE)

"""`--set path=value`: amend an experiment as it was read.

The value is a YAML scalar, or a list or mapping in flow style. The path is that of the file (`metadata.baseline`,
`runs[0].seed`, `matrix.axes.seed`). A path that starts with `run.` means every arm, however the arms are given: the
run itself, each entry of `runs`, or the base run of a matrix, where an axis that varies the same value is an error
rather than the silent winner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs

from evsys._plugins.refusals import closest
from evsys.errors import ConfigError, Problem
from evsys_runtime.config import axes, paths, trees
from evsys_runtime.config.document import Document, parse_value
from evsys_runtime.config.model import ExperimentConfig, RunConfig
from evsys_runtime.config.paths import Segment
from evsys_runtime.config.report import Report

if TYPE_CHECKING:
    from evsys_runtime.config.aliases import Aliases

__all__ = ["apply", "option", "split"]

_TOP = tuple(field.name for field in attrs.fields(ExperimentConfig))
_RUN = tuple(field.name for field in attrs.fields(RunConfig))


def apply(
    document: Document, overrides: Sequence[str], report: Report, aliases: Aliases | None = None
) -> Document:
    """The document with every override set, later ones winning; those that can't be set are reported.

    Args:
        document: the file, by canonical names if `aliases` are given.
        overrides: `path=value` texts.
        report: takes the problems.
        aliases: what a path may use in place of canonical names.
    """
    tree = document.tree
    places: dict[str, str] = {}
    literals = dict(document.literals)
    for override in overrides:
        try:
            segments, value = split(override)
            segments = segments if aliases is None else aliases.path(segments, tree)
            for target in _targets(segments, tree):
                tree = trees.put(tree, target, value)
                place = paths.join(target)
                places[place] = option(override)
                literals.pop(place, None)
                if isinstance(value, int | float | None):
                    literals[place] = override.partition("=")[2].strip()
        except (ConfigError, ValueError) as exc:
            found = exc.problems if isinstance(exc, ConfigError) else [Problem(path="", message=str(exc))]
            source = option(override)
            report.add(*(attrs.evolve(problem, source=source) for problem in found))
    return attrs.evolve(document, tree=tree, literals=literals, overrides={**document.overrides, **places})


def option(override: str) -> str:
    """An override as messages name it: without its value, which may be a secret."""
    return f"--set {override.partition('=')[0].strip()}"


def split(override: str) -> tuple[tuple[Segment, ...], Any]:
    """The path and the value of one `path=value`.

    Raises:
        ConfigError: it has no `=`, its path begins with no key of the file, or its value is not valid YAML.
        ValueError: its path is none.
    """
    name, found, text = override.partition("=")
    if not found:
        raise ConfigError("it has no '='", hint="write --set PATH=VALUE")
    segments = paths.parse(name.strip())
    if segments[0] not in _TOP:
        if segments[0] in _RUN:
            hint = f"did you mean run.{name.strip()}?"
        else:
            hint = closest(segments[0], _TOP) or f"the file's keys: {', '.join(_TOP)}"
        raise ConfigError(f"there is no key {segments[0]!r}", hint=hint)
    return segments, parse_value(text, override)


def _targets(segments: tuple[Segment, ...], tree: Mapping[str, Any]) -> list[tuple[Segment, ...]]:
    """The paths of the file that an override means."""
    if segments[:2] == ("matrix", "axes") and len(segments) > 2:
        return [("matrix", "axes", _axis_key(segments[2:], tree))]
    if segments[0] == "base_run" and isinstance(trees.get(tree, ("matrix", "base_run")), Mapping):
        return [("matrix", *segments)]
    if segments[0] != "run" or "run" in tree or len(segments) == 1:
        return [segments]
    inside = segments[1:]
    if isinstance(runs := tree.get("runs"), list):
        return [("runs", index, *inside) for index in range(len(runs))]
    if "matrix" in tree:
        _refuse_axis(inside, tree)
        within = isinstance(trees.get(tree, ("matrix", "base_run")), Mapping)
        return [("matrix", "base_run", *inside) if within else ("base_run", *inside)]
    return [segments]


def _axis_key(segments: tuple[Segment, ...], tree: Mapping[str, Any]) -> str:
    """The key of an axis as the file spells it; a new axis gets its dotted path."""
    name = ".".join(map(str, segments))
    meant = axes.run_path(name)
    return next((key for key, path in _axis_paths(tree).items() if path == meant), name)


def _axis_paths(tree: Mapping[str, Any]) -> dict[str, tuple[Segment, ...]]:
    given = trees.get(tree, ("matrix", "axes"))
    known: dict[str, tuple[Segment, ...]] = {}
    for key in given if isinstance(given, Mapping) else ():
        with suppress(ValueError):  # an axis whose name is no path is reported where the axes are read
            known[key] = axes.run_path(key)
    return known


def _refuse_axis(inside: tuple[Segment, ...], tree: Mapping[str, Any]) -> None:
    for key, path in _axis_paths(tree).items():
        if inside[: len(path)] == path:
            raise ConfigError(
                f"the axis {key!r} of the matrix varies this, so setting it changes no arm",
                hint=f"set the axis: --set matrix.axes.{key}=[...]",
            )

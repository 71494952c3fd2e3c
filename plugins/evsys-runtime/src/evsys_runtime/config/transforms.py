"""The checks of one transform: its params, and what it says of files and other transforms that it uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evsys.errors import Problem
from evsys_runtime.config import files
from evsys_runtime.config.building import Plugins

__all__ = ["check_transform"]


def check_transform(
    plugins: Plugins, kind: str, params: Mapping[str, Any], path: str, root: Path
) -> Iterator[Problem]:
    """The problems of a transform whose spec is at `path`.

    A transform may offer `files`, the files that it reads, and `transforms`, specs of those that it calls: mappings
    by the place in its params.
    """
    built = plugins.build("transform", kind, params, path)
    yield from built.problems
    for place, name in _offered_inputs(built.plugin, "files").items():
        wrong = files.missing(str(name), root)
        if wrong:
            yield Problem(path=f"{path}.params.{place}", message=wrong[0], hint=wrong[1])
    for place, spec in _offered_inputs(built.plugin, "transforms").items():
        yield from check_transform(plugins, spec.kind, spec.params, f"{path}.params.{place}", root)


def _offered_inputs(plugin: Any, name: str) -> Mapping[str, Any]:
    offered = getattr(plugin, name, None)
    return offered if isinstance(offered, Mapping) else {}

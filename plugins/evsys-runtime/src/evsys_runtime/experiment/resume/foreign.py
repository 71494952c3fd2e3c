"""Places that a record's file names: the user who resumes or forks an experiment may not have written its file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys_runtime.config import paths
from evsys_runtime.config.plan import Plan

__all__ = ["relocate_plan"]

_PROSE = frozenset({"rows", "hypothesis", "description", "system_prompt", "tags"})
"""Keys of texts that name no place, however they look."""


def relocate_plan(plan: Plan, directory: Path, overrides: tuple[str, ...] = ()) -> Plan:
    """The plan of an experiment on record, whose `output_dir` is the folder that the record is in.

    A warning names every place outside the project that the file names, before it is used.

    Args:
        plan: made from the record's file.
        directory: the record's folder.
        overrides: the `--set` options of now. An `output_dir` among them is followed.
    """
    root, folder = plan.project_root, directory.parent
    warnings = [
        f"the record names {text}, which is outside its project ({path})"
        for path, text in _places(plan.document.tree)
        if _is_outside(text, root) and path != "$.output_dir"
    ]
    experiment = plan.experiment
    is_at_home = (root / experiment.output_dir).resolve() == folder.resolve()
    if not is_at_home and not directory.resolve().is_relative_to(root.resolve()):
        warnings.append(f"the record names {root} as its project, but it is outside that folder")
    asked = any(each.partition("=")[0].strip() == "output_dir" for each in overrides)
    if not asked and not is_at_home:
        warnings.append(
            f"the output_dir of the record, {experiment.output_dir}, is not followed: records are written to {folder}"
        )
        experiment = attrs.evolve(experiment, output_dir=str(folder))
    return attrs.evolve(plan, experiment=experiment, warnings=(*plan.warnings, *dict.fromkeys(warnings)))


def _places(tree: Any, path: str = "$") -> Iterator[tuple[str, str]]:
    """Texts that lead somewhere from the root of the file system, or upwards, each with its path in the file."""
    if isinstance(tree, str):
        if Path(tree).is_absolute() or ".." in Path(tree).parts:
            yield path, tree
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            if key not in _PROSE:
                yield from _places(value, paths.child(path, key))
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from _places(value, paths.child(path, index))


def _is_outside(text: str, root: Path) -> bool:
    return "\0" not in text and not (root / text).resolve().is_relative_to(root.resolve())

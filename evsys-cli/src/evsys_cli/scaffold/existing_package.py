"""Adds plugins to a distribution that `evsys new-plugin` has written before, with its own changes since then."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evsys_cli.scaffold.plugin_names import PluginNames
from evsys_cli.scaffold.plugin_package import PluginPart, dependency_lines, part_of, write_part

__all__ = ["add_plugins", "distribution_in", "fault_of_addition"]

_README_PLACE = "\n## Develop\n"
"""The heading before which the README describes plugins."""

_NEXT_TABLE = "\n[dependency-groups]\n"
"""The table before which pyproject.toml lists entry points."""


def distribution_in(folder: Path) -> str | None:
    """The name of the distribution in a folder; None without a readable pyproject.toml that names one."""
    try:
        name = _project(folder).get("name")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return None
    return name if isinstance(name, str) else None


def fault_of_addition(plugins: Sequence[PluginNames], folder: Path) -> str | None:
    """Why these plugins can't be added to the distribution in a folder, or None if they can."""
    parts = [part_of(names) for names in plugins]
    points = _project(folder).get("entry-points", {})
    for part in parts:
        if part.names.name in points.get(part.group, {}):
            return f"{part.names.distribution} already has the {part.words}"
        package = folder / "src" / part.names.package.replace(".", "/")
        if package.exists():
            return f"{package} already exists"
    if not (folder / "src" / plugins[0].top_package / "__init__.py").is_file():
        return f"{folder} has no package src/{plugins[0].top_package}"
    if _is_complete(_edit_pyproject(parts, folder), parts):
        return None
    return (
        f"{folder / 'pyproject.toml'} isn't laid out as evsys new-plugin writes it: "
        "'dependencies' of [project] and 'dev' of [dependency-groups] have to be lists with a line for each item"
    )


def add_plugins(plugins: Sequence[PluginNames], folder: Path) -> list[Path]:
    """Write the modules and the tests of plugins, and change pyproject.toml and README.md; returns all these files.

    Raises:
        StoreError: a file can't be written.
    """
    from evsys_record import write_atomic
    from evsys_record.files import storing

    parts = [part_of(names) for names in plugins]
    written = [path for part in parts for path in write_part(part, folder)]
    changes = {folder / "pyproject.toml": _edit_pyproject(parts, folder)}
    readme = folder / "README.md"
    with storing(readme):
        if readme.is_file():
            changes[readme] = _package_parts(parts, readme.read_text(encoding="utf-8"))
    for path, text in changes.items():
        write_atomic(path, text)
    return sorted([*written, *changes])


def _project(folder: Path) -> dict[str, Any]:
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
    return project if isinstance(project, dict) else {}


def _edit_pyproject(parts: Sequence[PluginPart], folder: Path) -> str:
    """The pyproject.toml with the entry points and the requirements of further plugins; its comments stay."""
    text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    for part in parts:
        text = _with_requirements(text, "dependencies", part.requires)
        text = _with_requirements(text, "dev", part.development)
        head = f'[project.entry-points."{part.group}"]\n'
        if head in text:
            text = text.replace(head, head + part.entry_point, 1)
        elif _NEXT_TABLE in text:
            text = text.replace(_NEXT_TABLE, f"\n{head}{part.entry_point}{_NEXT_TABLE}", 1)
        else:
            text = f"{text.rstrip()}\n\n{head}{part.entry_point}"
    return text


def _with_requirements(text: str, key: str, requirements: Sequence[str]) -> str:
    """Append requirements to a list, but those on distributions that it names already."""
    found = re.search(rf"^{key} = \[\n((?:(?!\]).*\n)*)\]", text, re.MULTILINE)
    if found is None:
        return text
    there = {name for line in found[1].splitlines() if (name := _name(line.strip(" '\"")))}
    missing = [one for one in requirements if _name(one) not in there]
    return text[: found.end(1)] + dependency_lines(missing) + text[found.end(1) :]


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9][\w.-]*(?:\[[\w,-]+\])?", requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def _is_complete(text: str, parts: Sequence[PluginPart]) -> bool:
    """Whether a changed pyproject.toml has everything that the plugins need."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    project = tree.get("project", {})
    named = {_name(one) for one in project.get("dependencies", [])}
    development = {
        _name(one) for one in tree.get("dependency-groups", {}).get("dev", []) if isinstance(one, str)
    }
    return all(
        project["entry-points"].get(part.group, {}).get(part.names.name) == part.object
        and {_name(one) for one in part.requires} <= named
        and {_name(one) for one in part.development} <= development
        for part in parts
    )


def _package_parts(parts: Sequence[PluginPart], readme: str) -> str:
    sections = "\n\n".join(part.section for part in parts)
    if _README_PLACE in readme:
        return readme.replace(_README_PLACE, f"\n{sections}\n{_README_PLACE}", 1)
    return f"{readme.rstrip()}\n\n{sections}\n"

"""The plugin folder in this distribution, with the skills that other distributions bring through `evsys.skills`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from evsys.errors import PluginConflictError, PluginLoadError

__all__ = ["FOLDER", "GROUP", "added_skills", "plugin_files", "plugin_version"]

FOLDER = Path(__file__).parent / "plugin"
GROUP = "evsys.skills"
"""Entry points `NAME = PACKAGE`: the skill is the folder NAME in that package, with its SKILL.md."""


def plugin_version() -> str:
    """The version of the plugin, which is that of this distribution."""
    return metadata.version("evsys-agents")


def plugin_files() -> dict[str, bytes]:
    """The files of the plugin folder by their path in it, skills of other distributions included.

    Raises:
        PluginLoadError: a distribution lists a skill that it doesn't have.
        PluginConflictError: two distributions bring a skill of one name.
    """
    files = dict(_files_of(FOLDER))
    for name, folder in added_skills().items():
        files |= {f"skills/{name}/{file}": content for file, content in _files_of(folder)}
    return files


def added_skills() -> Mapping[str, Path]:
    """The skills of other distributions: their folders by name. No package but a skill's parents is imported.

    Raises:
        PluginLoadError: a distribution lists a skill that it doesn't have.
        PluginConflictError: two distributions bring a skill of one name.
    """
    found: dict[str, tuple[Path, str]] = {}
    own = {path.parent.name for path in FOLDER.glob("skills/*/SKILL.md")}
    for entry in metadata.entry_points(group=GROUP):
        distribution = entry.dist.name if entry.dist is not None else "?"
        other = "evsys-agents" if entry.name in own else found.get(entry.name, (None, None))[1]
        if other is not None:
            raise PluginConflictError(
                f"the skill {entry.name!r} comes from {other} and from {distribution}",
                hint=f"uninstall one of them, or rename the skill of {distribution}",
            )
        found[entry.name] = _skill_folder(entry.name, entry.value, distribution), distribution
    return {name: folder for name, (folder, _) in sorted(found.items())}


def _skill_folder(name: str, package: str, distribution: str) -> Path:
    try:
        spec = find_spec(package)
    except (ImportError, ValueError) as exc:
        raise PluginLoadError(
            f"the skill {name!r} of {distribution} can't be found: {exc}", hint=f"reinstall {distribution}"
        ) from exc
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (Path(place) / name / "SKILL.md").is_file():
            return Path(place) / name
    raise PluginLoadError(
        f"the skill {name!r} of {distribution} can't be found: there is no {name}/SKILL.md in the package {package!r}",
        hint=f"correct the entry point of {distribution} in the group {GROUP!r}: NAME = PACKAGE",
    )


def _files_of(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(folder).as_posix(), path.read_bytes()

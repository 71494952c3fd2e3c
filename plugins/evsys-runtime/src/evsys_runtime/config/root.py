"""Finds the root of a project. Imports next to nothing, since every `evsys list` asks whether it is in one."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["enclosing_project", "find_project_root"]


def find_project_root(config_path: str | Path) -> Path:
    """The project that a config is in, else the config's own folder.

    Raises:
        ConfigError: the pyproject.toml that names `tool.evsys` isn't valid TOML.
    """
    folder = Path(os.path.normpath(Path(config_path).absolute())).parent
    return enclosing_project(folder) or folder


def enclosing_project(folder: Path) -> Path | None:
    """The nearest of a folder and those above it with `[tool.evsys]` in its pyproject.toml or with `.evsys/`.

    One that holds nothing but what `evsys serve` has written marks none: a server is started anywhere.

    Raises:
        ConfigError: as `find_project_root`.
    """
    for candidate in (folder, *folder.parents):
        if _is_a_projects(candidate / ".evsys") or _is_marked(candidate / "pyproject.toml"):
            return candidate
    return None


def _is_a_projects(state: Path) -> bool:
    try:
        return {entry.name for entry in state.iterdir()} != {"server"}
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # it is there, though no one may look into it
        return True


def _is_marked(pyproject: Path) -> bool:
    try:
        text = pyproject.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    if "evsys" not in text:
        return False
    import tomllib

    try:
        tables = tomllib.loads(text).get("tool")
        return isinstance(tables, dict) and "evsys" in tables
    except tomllib.TOMLDecodeError as exc:
        if "tool.evsys" in text:
            from evsys.errors import ConfigError

            raise ConfigError(f"{pyproject} isn't valid TOML: {exc}", hint="correct it") from exc
        return False  # a stranger's broken file further up is not ours to judge

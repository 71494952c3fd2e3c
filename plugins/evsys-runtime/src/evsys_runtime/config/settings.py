# ruff: noqa: RUF009 - `key` declares a field, it is no default
"""The settings of a project: the table `[tool.evsys]` of its pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import attrs

from evsys import structure
from evsys.errors import ConfigError
from evsys_runtime.config.model.fields import key

__all__ = ["ProjectBudget", "ProjectSettings", "project_settings"]

_FILE = "pyproject.toml"
_TABLE = "$.tool.evsys"


@attrs.frozen(kw_only=True)
class ProjectBudget:
    """The limits of all experiments on record together."""

    experiments: int | None = key("Number of experiments; dry runs don't count.", None, ge=1)
    usd: float | None = key("US dollars, as far as prices are known.", None, gt=0, aliases=("money",))
    tokens: int | None = key(
        "Tokens: trained, sampled and judged, without those of simulated models.", None, ge=1
    )
    wall_seconds: float | None = key(
        "Seconds that experiments ran, each counted by itself.", None, gt=0, aliases=("seconds",)
    )


@attrs.frozen(kw_only=True)
class ProjectSettings:
    """What holds for all experiments of a project."""

    budget: ProjectBudget | None = key("Limits over all experiments.", None)


def project_settings(root: Path) -> ProjectSettings:
    """The settings of a project; all defaults where its pyproject.toml has none.

    Args:
        root: the project's folder.

    Raises:
        ConfigError: the file isn't valid TOML, or a setting is wrong; names each by its path.
    """
    path = root / _FILE
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # as where the project's root is looked for
        return ProjectSettings()
    if "evsys" not in text:
        return ProjectSettings()
    try:
        tables: dict[str, Any] = tomllib.loads(text).get("tool", {}).get("evsys", {})
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} isn't valid TOML: {error}", hint="correct it") from error
    try:
        return structure(ProjectSettings, tables, path=_TABLE)
    except ConfigError as error:
        raise ConfigError([attrs.evolve(each, source=str(path)) for each in error.problems]) from error

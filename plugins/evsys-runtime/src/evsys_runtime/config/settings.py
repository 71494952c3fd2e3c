# ruff: noqa: RUF009 - `key` declares a field, it is no default
"""The settings of a project: the table `[tool.evsys]` of its pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from evsys import structure
from evsys.errors import ConfigError
from evsys_runtime.config.model.fields import key

if TYPE_CHECKING:
    from evsys_runtime.config.model.experiment import MetadataConfig

__all__ = ["ProjectBudget", "ProjectSettings", "missing_preregistration", "project_settings"]

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
    require_preregistration: bool = key(
        "Refuse experiments without a hypothesis, a success metric and the effect they are expected to have.",
        False,
    )
    sealed: tuple[str, ...] = key(
        "Files and folders, relative to the project, whose rows coding agents may not read; `*` stands for any name.",
        factory=tuple,
    )


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


def missing_preregistration(root: Path, metadata: MetadataConfig) -> tuple[str, ...]:
    """The keys of `metadata` without which an experiment doesn't say what it is expected to show; none in a project whose
    settings don't ask for them.

    Raises:
        ConfigError: as `project_settings`.
    """
    if not project_settings(root).require_preregistration:
        return ()
    expected = {
        "hypothesis": (metadata.hypothesis or "").strip(),
        "success_metric": metadata.success_metric,
        "minimum_effect": metadata.claimed_margin,
    }
    return tuple(name for name, value in expected.items() if not value)

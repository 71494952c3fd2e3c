"""The settings of a project, in its pyproject.toml."""

import pytest

from evsys.errors import ConfigError
from evsys_runtime.config.settings import ProjectBudget, ProjectSettings, project_settings


def test_a_project_without_settings_has_the_defaults(tmp_path):
    assert project_settings(tmp_path) == ProjectSettings()
    (tmp_path / "pyproject.toml").write_text("[tool.evsys]\n", encoding="utf-8")
    assert project_settings(tmp_path) == ProjectSettings()


def test_a_budget_is_read_under_either_name(tmp_path):
    text = "[tool.evsys.budget]\nmoney = 20\nseconds = 7200.5\nexperiments = 30\n"
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    budget = ProjectBudget(usd=20.0, wall_seconds=7200.5, experiments=30)
    assert project_settings(tmp_path).budget == budget


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[tool.evsys.budget]\nexperimets = 3\n",
            r"pyproject\.toml: \$\.tool\.evsys\.budget.*did you mean 'experiments'",
        ),
        ("[tool.evsys]\nbudgets = {}\n", r"\$\.tool\.evsys.*did you mean 'budget'"),
        ("[tool.evsys.budget]\nusd = 0\n", r"\$\.tool\.evsys\.budget\.usd"),
        ("[tool.evsys\n", r"isn't valid TOML"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_path(tmp_path, text, message):
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        project_settings(tmp_path)

"""The settings of a project, in its pyproject.toml."""

import pytest
from small_project import Project

from evsys.errors import ConfigError
from evsys_runtime.config.settings import ProjectBudget, ProjectSettings, project_settings
from evsys_runtime.config.validate import load_experiment


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


@pytest.mark.parametrize("missing", ["hypothesis", "success_metric", "minimum_effect"])
def test_a_project_may_ask_for_the_preregistration_of_every_experiment(tmp_path, missing):
    project = Project(tmp_path)
    said = {"hypothesis": "it learns", "success_metric": "val.mean_reward", "minimum_effect": "0.1"}
    lines = [f"  {name}: {value}\n" for name, value in said.items() if name != missing]
    config = project.config(
        metadata=f"metadata:\n{''.join(lines)}  benchmark: {{name: val, path: tasks.jsonl}}\n"
    )
    assert load_experiment(config).arms
    (tmp_path / "pyproject.toml").write_text(
        "[tool.evsys]\nrequire_preregistration = true\n", encoding="utf-8"
    )
    with pytest.raises(ConfigError, match=rf"metadata\.{missing}: is missing, and this project requires"):
        load_experiment(config)
    config = project.config(
        metadata=f"metadata:\n{''.join(f'  {name}: {value}\n' for name, value in said.items())}"
        "  benchmark: {name: val, path: tasks.jsonl}\n"
    )
    assert load_experiment(config).arms

"""`evsys list`: everything that an experiment of this folder can name, and where it is from."""

from __future__ import annotations

import itertools
import re
import shutil
import sys

import pytest

from evsys import PluginEntry, Registry, use_registry


def names(outcome) -> list[str]:
    return [row["name"] for row in outcome.json["plugins"]]


def test_it_shows_where_plugins_come_from(evsys):
    outcome = evsys("list", "algorithm")
    assert re.match(r"KIND +NAME +FROM\nalgorithm ", outcome.out)
    assert re.search(r"^algorithm +sft +evsys-algo-sft \d", outcome.out, re.MULTILINE)
    kinds = {row["kind"] for row in evsys("list", "--json").json["plugins"]}
    assert kinds >= {"backend", "verifier", "metric"}


def test_check_imports_every_plugin_and_says_so(evsys):
    document = evsys("list", "--check", "--json")
    assert document.code == 0
    assert all(row["error"] is None for row in document.json["plugins"])
    outcome = evsys("list", "metric", "--check")
    assert outcome.code == 0
    number = len(evsys("list", "metric", "--json").json["plugins"])
    assert outcome.out.endswith(f"\n{number} plugins imported without problems.\n")
    assert "imported" not in evsys("list", "metric").out


def test_broken_says_that_there_is_none(evsys):
    outcome = evsys("list", "metric", "--broken")
    assert outcome.code == 0
    number = len(evsys("list", "metric", "--json").json["plugins"])
    assert outcome.out == f"No broken plugin.\n{number} plugins imported without problems.\n"


def test_a_broken_plugin_is_named_among_those_that_work(evsys):
    entry = PluginEntry("metric", "gone", "evsys-stranger", "1.0", "no_such_module:Gone")
    fine = PluginEntry(
        "metric", "mean_reward", "evsys-verifiers-std", "0.1.0", "evsys_verifiers_std.metrics:MeanReward"
    )
    with use_registry(Registry(entry_points=[entry, fine])):
        outcome = evsys("list", "--check")
        assert outcome.code == 3
        assert re.search(
            r"^metric +gone +evsys-stranger 1.0\n +broken: .*'no_such_module' is gone",
            outcome.out,
            re.MULTILINE,
        )
        assert "nothing is wrong" not in outcome.out
        assert names(evsys("list", "--broken", "--json")) == ["gone"]


@pytest.fixture
def strangers(tmp_path, monkeypatch):
    """Writes installed distributions whose modules are there, by their entry points."""

    def write(name: str, entry_points: str, module: str = "") -> None:
        stem = name.replace("-", "_")
        info = tmp_path / "site" / f"{stem}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "entry_points.txt").write_text(entry_points, encoding="utf-8")
        (tmp_path / "site" / f"{stem}.py").write_text(module, encoding="utf-8")

    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    monkeypatch.setattr("evsys._plugins.registry._process_registry", Registry)
    yield write
    for name in [name for name in sys.modules if name.startswith("stranger_")]:
        del sys.modules[name]


METRIC = """
print("imported", __name__)

class Mine:
    direction = "max"

    def compute(self, task_rewards):
        return 0.0
"""


@pytest.mark.parametrize("option", [[], ["--check"]])
def test_a_misspelt_group_and_names_in_lists_that_mean_nothing_are_warned_about(
    evsys, strangers, monkeypatch, option
):
    strangers("stranger-a", "[evsys-metrics]\nmine = stranger_a:Mine\n", METRIC)
    monkeypatch.setenv("EVSYS_PLUGINS_DENY", "metric:mean_rewards")
    told = [
        "stranger-a: 'mine' is in the unknown group 'evsys-metrics' and can't be found; did you mean 'evsys.metrics'?",
        "EVSYS_PLUGINS_DENY names 'metric:mean_rewards', which no installed plugin is; did you mean 'metric:mean_reward'?",
    ]
    outcome = evsys("list", "metric", *option)
    assert outcome.code == 0
    assert outcome.err == "".join(f"warning: {text}\n" for text in told)
    assert evsys("list", "metric", *option, "--json").json["warnings"] == told


def test_check_names_the_distributions_that_offer_one_name(evsys, strangers):
    for name in ("stranger-a", "stranger-b"):
        strangers(name, f"[evsys.metrics]\nmine = {name.replace('-', '_')}:Mine\n", METRIC)
    told = (
        "metric 'mine' is offered by stranger-a 1.0 (stranger_a:Mine) and stranger-b 1.0 (stranger_b:Mine); "
        "write 'stranger-a/mine' or 'stranger-b/mine'"
    )
    document = evsys("list", "metric", "--check", "--json").json
    assert document["warnings"] == [told]
    assert all(row["error"] is None for row in document["plugins"])
    assert evsys("list", "metric").err == ""


def test_check_says_how_long_a_slow_import_took(evsys, strangers, monkeypatch):
    strangers("stranger-a", "[evsys.metrics]\nmine = stranger_a:Mine\n", METRIC)
    ticks = itertools.count(step=2.5)
    monkeypatch.setattr("time.process_time", lambda: next(ticks))
    monkeypatch.setenv("EVSYS_PLUGINS_ALLOW", "stranger-a")
    assert evsys("list", "--check", "--json").json["warnings"] == [
        "metric stranger-a/mine (1.0) (stranger_a:Mine) took 2.5 s to import"
    ]


def test_check_says_which_plugin_the_projects_own_hides(evsys, project):
    project.write(
        "src/metrics.py",
        METRIC.replace("class", "import evsys\n@evsys.register_metric('mean_reward')\nclass"),
    )
    (told,) = evsys("list", "metric", "--check", "--json").json["warnings"]
    assert told.startswith(
        "metric 'mean_reward' is the project's own and hides metric evsys-verifiers-std/mean_reward"
    )


@pytest.mark.parametrize(
    "arguments",
    [["list", "metric", "--check", "--json"], ["schema", "metric", "mine"], ["schema", "--experiment"]],
)
def test_what_a_plugin_prints_when_it_is_imported_is_not_in_the_document(evsys, strangers, arguments):
    strangers("stranger-a", "[evsys.metrics]\nmine = stranger_a:Mine\n", METRIC)
    outcome = evsys(*arguments)
    assert "mine" in str(outcome.json)
    assert "imported stranger_a\n" in outcome.err


def test_what_plugins_and_the_project_print_when_they_are_imported_is_not_in_a_runs_document(
    evsys, strangers, project, config
):
    strangers("stranger-a", "[evsys.metrics]\nmine = stranger_a:Mine\n", METRIC)
    metrics = "[mine, half, {kind: best_of_k, params: {k: 1}}, {kind: best_of_k, params: {k: 2}}]"
    text = config.read_text(encoding="utf-8")
    config.write_text(
        text.replace("max_tokens: 4", f"max_tokens: 4, num_samples: 2, metrics: {metrics}"), encoding="utf-8"
    )
    outcome = evsys("run", config, "--json", "--full", "-q")
    assert outcome.code == 0, outcome.err
    (scoring, *_) = outcome.json["arms"][0]["evaluations"]
    assert list(scoring["metrics"]) == ["mine", "half", "best_of_k[k=1]", "best_of_k[k=2]"]
    assert "imported stranger_a\n" in outcome.err
    assert "imported\n" in outcome.err


def test_it_refuses_an_unknown_kind(evsys):
    outcome = evsys("list", "algorithms")
    assert outcome.code == 2
    assert "unknown kind 'algorithms'; did you mean 'algorithm'?" in outcome.err


# --- in a project ----------------------------------------------------------------------------------------------------


def test_the_plugins_of_the_project_are_there_from_any_folder_of_it(evsys, project, monkeypatch):
    monkeypatch.chdir(project.root / "src")
    outcome = evsys("list", "metric")
    assert outcome.code == 0
    assert re.search(r"^metric +half +project \(src\.metrics:Half\)$", outcome.out, re.MULTILINE)
    assert outcome.err == "imported\n"


def test_as_json_they_say_which_project_they_are_of(evsys, project):
    document = evsys("list", "metric", "--json").json
    (own,) = [row for row in document["plugins"] if row["distribution"] == "project"]
    assert own == {
        "kind": "metric",
        "name": "half",
        "distribution": "project",
        "version": "",
        "value": "src.metrics:Half",
        "error": None,
    }
    assert document["project"] == {"root": str(project.root), "error": None}


def test_check_looks_at_the_plugins_of_the_project_too(evsys, project):
    project.write("src/other.py", "from evsys import register_metric\nregister_metric('odd')(object())\n")
    outcome = evsys("list", "--check")
    assert outcome.code == 3
    assert re.search(r"metric +odd +project .*\n +broken: metric project/odd has no 'compute'", outcome.out)


@pytest.mark.parametrize("code", ["1 / 0", "import sys; sys.exit(0)", "def f(:"])
def test_broken_code_of_the_project_is_named_and_hides_no_installed_plugin(evsys, project, code):
    project.write("src/broken.py", code)
    outcome = evsys("list", "metric")
    assert outcome.code == 3
    assert "mean_reward" in outcome.out
    assert re.search(r"The project's own plugins are missing: .*src/broken\.py:1: ", outcome.err)
    document = evsys("list", "metric", "--json")
    assert document.code == 3
    assert "mean_reward" in names(document)
    assert "src/broken.py:1: " in document.json["project"]["error"]


def test_a_project_file_that_is_no_toml_hides_no_installed_plugin(evsys, project):
    project.write("pyproject.toml", "[tool.evsys]\nx = \n")
    outcome = evsys("list", "metric")
    assert outcome.code == 3
    assert "mean_reward" in outcome.out
    assert re.search(
        r"The project's own plugins are missing: .*pyproject\.toml isn't valid TOML", outcome.err
    )


def test_outside_of_a_project_no_code_is_imported(evsys, project):
    project.write("pyproject.toml", "[tool.other]\n")
    outcome = evsys("list", "metric", "--json")
    assert outcome.json["project"] is None
    assert "half" not in names(outcome)
    assert outcome.err == ""


def test_a_folder_that_was_removed_is_in_no_project(evsys, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    shutil.rmtree(gone)
    assert "mean_reward" in evsys("list", "metric").out
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("arguments", [("command",), ("--check",), ("command", "--check")])
def test_a_command_that_evsys_itself_has_is_an_error_with_its_distribution(evsys, arguments):
    entry = PluginEntry("command", "run", "evsys-stranger", "1.0", "click:Command")
    other = PluginEntry("command", "models", "evsys-backend-local", "1.0", "click:Command")
    with use_registry(Registry(entry_points=[entry, other])):
        found = evsys("list", *arguments, "--json")
        assert found.code == 3
        [row] = [row for row in found.json["plugins"] if row["error"]]
        assert (row["distribution"], row["name"]) == ("evsys-stranger", "run")
        assert row["error"] == (
            "command evsys-stranger/run (1.0) (click:Command) can't be run: `evsys run` is a command of evsys-cli; "
            "give it another name"
        )
        assert evsys("list", "metric", "--check").code == 0

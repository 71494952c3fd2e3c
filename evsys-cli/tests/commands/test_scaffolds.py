"""`evsys init-project` and `evsys new-experiment`: what they write runs, and what they say can be pasted into a shell."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TREE = {
    *("pyproject.toml", "README.md", ".gitignore", "AGENTS.md"),
    *(
        "data/raw",
        "data/fetch",
        "data/process",
        "data/benchmark",
        "data/datasets/turn/v1",
        "data/validation/turn",
    ),
    *(f"src/{name}.py" for name in ("transforms", "verifiers", "metrics", "algorithms", "agents")),
}


def pasted(outcome) -> list[str]:
    """The words of the last line, as a shell would split them."""
    line = outcome.out.splitlines()[-1]
    assert line.startswith("Next: ")
    return shlex.split(line.removeprefix("Next: "))


def test_a_new_project_runs_and_is_never_overwritten(evsys, tmp_path):
    assert evsys("init-project", "lab").code == 0
    config = next((tmp_path / "lab/experiments").glob("*/config.yaml"))
    readme = tmp_path / "lab/README.md"
    readme.write_text("mine", encoding="utf-8")
    again = evsys("init-project", "lab")
    assert "kept" in again.out
    assert readme.read_text(encoding="utf-8") == "mine"
    outcome = evsys(
        "run",
        config,
        "--json",
        "--full",
        "--set",
        "run.backend.kind=mock",
        "--set",
        "run.algorithm.params.steps=3",
    )
    assert outcome.code == 0, outcome.err
    assert outcome.json["directory"].startswith(str(tmp_path / "lab/.evsys/experiments"))


def test_a_new_project_has_every_folder_that_its_readme_names(evsys, tmp_path):
    evsys("init-project", "lab")
    assert {name for name in TREE if not (tmp_path / "lab" / name).exists()} == set()


QUICK = (("kind: local", "kind: mock"), ("steps: 150", "steps: 2"), ("batch_size: 32", "batch_size: 4"))
REGISTERED = """
from evsys import current_registry
print("registered", sorted(entry.name for entry in current_registry().entries() if entry.local), src.__file__)
"""


def test_help_of_the_script_of_an_experiment_trains_nothing(evsys, tmp_path):
    evsys("init-project", "lab")
    [script] = (tmp_path / "lab/experiments").glob("*/run.py")
    done = subprocess.run(
        [sys.executable, script, "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: run.py")
    assert not (tmp_path / "lab/.evsys/experiments").exists()


@pytest.mark.parametrize("at", ["lab", "lab/experiments/*", "/"])
def test_import_src_in_a_script_of_the_project_registers_its_plugins_though_it_is_not_installed(
    evsys, tmp_path, at
):
    evsys("init-project", "lab")
    [script] = (tmp_path / "lab/experiments").glob("*/run.py")
    text = script.read_text(encoding="utf-8")
    script.write_text(text.replace("if __name__", f"{REGISTERED}\nif __name__"), encoding="utf-8")
    config = script.with_name("config.yaml")
    text = config.read_text(encoding="utf-8")
    for old, new in QUICK:
        assert old in text
        text = text.replace(old, new)
    config.write_text(text, encoding="utf-8")
    folder = Path("/") if at == "/" else next(tmp_path.glob(at))
    done = subprocess.run(
        [sys.executable, os.path.relpath(script, folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"registered ['only_short', 'same_letters', 'share_solved'] {tmp_path}" in done.stdout
    assert "hides" not in done.stderr


def test_outside_of_a_project_src_is_not_found(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", "import evsys_sdk, src"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'src'"


def test_only_src_is_packaged(evsys, tmp_path):
    evsys("init-project", "lab")
    settings = tomllib.loads((tmp_path / "lab/pyproject.toml").read_text(encoding="utf-8"))
    assert settings["build-system"]["build-backend"] == "setuptools.build_meta"
    assert settings["tool"]["setuptools"]["packages"]["find"]["include"] == ["src", "src.*"]


def test_dumps_stay_out_of_git_and_their_folder_stays_in(evsys, tmp_path):
    evsys("init-project", "lab")
    (tmp_path / "lab/data/raw/dump.csv").write_text("a\n", encoding="utf-8")
    try:
        subprocess.run(["git", "init", "--quiet", tmp_path / "lab"], check=True)
    except FileNotFoundError:
        pytest.skip("git isn't installed")
    command = ["git", "ls-files", "--others", "--exclude-standard", "data/raw"]
    listed = subprocess.run(command, cwd=tmp_path / "lab", capture_output=True, text=True, check=True)
    assert listed.stdout.split() == ["data/raw/README.md"]


def test_the_plugins_of_a_new_project_are_listed_in_it(evsys, tmp_path, monkeypatch):
    evsys("init-project", "lab")
    monkeypatch.chdir(tmp_path / "lab")
    rows = evsys("list", "--check", "--json").json["plugins"]
    own = {row["name"]: row["error"] for row in rows if row["distribution"] == "project"}
    assert own == {"only_short": None, "same_letters": None, "share_solved": None}


@pytest.mark.parametrize("name", ["lab", "my lab", "it's", "$HOME"])
def test_the_next_step_can_be_pasted_whatever_the_folder_is_called(evsys, tmp_path, name):
    cd, folder, then, run, verb, config = pasted(evsys("init-project", name))
    assert (cd, folder, then, run, verb) == ("cd", name, "&&", "evsys", "run")
    assert (tmp_path / name / config).is_file()


def test_a_project_in_the_current_folder_needs_no_change_of_folder(evsys):
    run, verb, config = pasted(evsys("init-project", "lab", "--here"))
    assert (run, verb) == ("evsys", "run")
    assert Path(config).is_file()


@pytest.mark.parametrize("below", [".", "data", "my notes"])
def test_a_new_experiment_is_valid_and_its_next_step_starts_from_here(evsys, tmp_path, monkeypatch, below):
    evsys("init-project", "my lab")
    here = tmp_path / "my lab" / below
    here.mkdir(exist_ok=True)
    monkeypatch.chdir(here)
    outcome = evsys("new-experiment", "Second: try!")
    assert outcome.code == 0
    *_, config = pasted(outcome)
    assert (here / config).resolve().match("my lab/experiments/*_second-try/config.yaml")
    assert evsys("validate", config).code == 0


def test_a_new_experiment_outside_of_a_project_says_how_to_make_one(evsys, tmp_path):
    outcome = evsys("new-experiment", "first")
    assert outcome.code == 2
    assert f"{tmp_path} is not in an evsys project; create one with 'evsys init-project NAME'" in outcome.err
    assert list(tmp_path.iterdir()) == []

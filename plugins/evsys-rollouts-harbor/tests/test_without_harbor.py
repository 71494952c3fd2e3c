"""What holds on every machine: nothing of Harbor is imported before a rollout is asked for, and its absence says what to do."""

import ast
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

import evsys_rollouts_harbor
from evsys import Registry
from evsys.errors import PluginLoadError
from evsys_rollouts_harbor import bubblewrap
from evsys_runtime.config.building import Plugins

PACKAGE = Path(evsys_rollouts_harbor.__file__).parent
LINE = "install it with: pip install 'evsys-sdk[harbor]'"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch):
    """Say which version of Harbor is installed, None for none."""

    def say(number: str | None) -> None:
        real = importlib.metadata.version

        def version(name: str) -> str:
            if name != "harbor":
                return real(name)
            if number is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return number

        monkeypatch.setattr("evsys_rollouts_harbor.engine.version", version)

    return say


def test_one_module_imports_harbor():
    importing = set()
    for file in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            importing |= {file.name for name in names if name.partition(".")[0] in {"harbor", "litellm"}}
    assert importing == {"api.py"}


def test_the_engine_and_its_schema_import_neither_harbor_nor_pydantic():
    code = (
        "import json, sys\nfrom evsys import Registry\nregistry = Registry()\n"
        "print(json.dumps(registry.schema('rollout_engine', 'evsys-rollouts-harbor/harbor')))\n"
        "registry.schema('environment', 'evsys-rollouts-harbor/bwrap')\n"
        "print(json.dumps([name for name in ('harbor', 'pydantic', 'litellm') if name in sys.modules]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    schema, brought = map(json.loads, done.stdout.splitlines())
    assert "max_retries" in schema["properties"]
    assert brought == []


def test_an_engine_without_harbor_is_a_problem_of_the_file_with_the_line_that_installs_it(installed):
    installed(None)
    built = Plugins(Registry()).build("rollout_engine", "harbor", {}, "$.metadata.benchmark.engine")
    [problem] = built.problems
    assert problem.path == "$.metadata.benchmark.engine.kind"
    assert (problem.message, problem.hint) == ("rollout_engine 'harbor' needs the package `harbor`", LINE)


@pytest.mark.parametrize("number", ["0.24.0", "0.27.1", "1.0.0", "unknown"])
def test_a_version_that_was_never_tried_is_refused(installed, number):
    installed(number)
    with pytest.raises(PluginLoadError, match=f"0.25 or 0.26, and {number} is installed"):
        Registry().build("rollout_engine", "harbor", {})


@pytest.mark.parametrize("number", ["0.25.0", "0.26.3"])
def test_versions_that_are_known_to_work_are_taken(installed, number):
    installed(number)
    assert Registry().build("rollout_engine", "harbor", {"max_retries": 0}).config.max_retries == 0


def test_a_sandbox_without_its_programs_says_what_to_install(monkeypatch):
    monkeypatch.setattr(bubblewrap, "missing_programs", lambda: ["bwrap"])
    with pytest.raises(
        PluginLoadError, match="needs bwrap, which this machine doesn't have; install bubblewrap"
    ):
        Registry().build("environment", "bwrap", {})

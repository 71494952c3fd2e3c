"""Starting fast is a matter of what is imported, which is the same on every machine, so it is tested by that."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROBE = """
import json, sys
before = set(sys.modules)
from evsys_cli.main import main
sys.argv = ["evsys", *sys.argv[1:]]
try:
    code = main()
except SystemExit as exit:
    code = exit.code
print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)
sys.exit(code)
"""

ROOT = Path(__file__).parents[1]
PLAIN = {
    "evsys_runtime",
    "evsys_runtime.commands",
    "evsys_runtime.terminal",
    "evsys_runtime.config",
    "evsys_runtime.config.root",
    "evsys_record",
    "evsys_record.text",
}
"""Modules of ours that import nothing: how a command prints, and whether a folder is in a project."""
HEAVY = {
    *(
        "aiohttp",
        "datasets",
        "huggingface_hub",
        "jax",
        "jinja2",
        "pandas",
        "pydantic",
        "pytest",
        "rich",
        "tokenizers",
    ),
    *("torch", "transformers", "hypothesis", "threadpoolctl"),
}


@pytest.fixture(autouse=True)
def outside_of_any_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)


def modules_of(*arguments: str) -> set[str]:
    """The modules that a command imports, and a check that it ended well."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    return set(json.loads(done.stderr.splitlines()[-1]))


def tops(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def foreign(modules: set[str]) -> set[str]:
    """What is neither of the standard library nor of the command line itself, by top module."""
    return tops(modules - PLAIN) - sys.stdlib_module_names - {"colorama", "evsys_cli"}


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("run", "--help"), ("validate", "--help"), ("list", "--help"), ("schema", "--help")],
)
def test_help_imports_click_and_nothing_else(arguments: tuple[str, ...]):
    modules = modules_of(*arguments)
    assert foreign(modules) == {"click"}
    assert "asyncio" not in modules
    assert "importlib.metadata" not in modules


@pytest.mark.parametrize("arguments", [("list",), ("list", "transform"), ("list", "--json")])
def test_list_imports_the_registry_and_no_plugin(arguments: tuple[str, ...]):
    modules = modules_of(*arguments)
    assert foreign(modules) == {"click", "evsys"}
    assert not {"asyncio", "tomllib"} & modules


def test_list_in_a_project_imports_its_code_and_still_no_installed_plugin(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text("[tool.evsys]\n", encoding="utf-8")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/metrics.py").write_text("", encoding="utf-8")
    modules = modules_of("list")
    assert "src.metrics" in modules
    assert {top for top in tops(modules) if top.startswith("evsys_")} == {
        *("evsys_cli", "evsys_record", "evsys_runtime"),
    }
    assert tops(modules) & (HEAVY | {"asyncio", "cattrs", "numpy", "pluggy", "ruamel", "structlog"}) == set()


@pytest.mark.parametrize("words", ["evsys ", "evsys l", "evsys schema ", "evsys schema metric "])
def test_completing_a_name_imports_no_plugin(words: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("_EVSYS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    assert tops(modules_of()) & (HEAVY | {"asyncio", "cattrs", "numpy", "pluggy", "ruamel"}) == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ("schema",),
        ("schema", "transform", "filter"),
        ("schema", "algorithm", "rl"),
        ("schema", "algorithm", "sft"),
        ("schema", "metric", "pass@3"),
    ],
)
def test_schema_imports_core_and_that_plugin(arguments: tuple[str, ...]):
    modules = modules_of(*arguments)
    assert tops(modules) & (HEAVY | {"asyncio", "numpy", "pluggy", "ruamel", "structlog"}) == set()


def unrun(name: str, folder: Path) -> str:
    """The config of an example in a place where it was never run, so that there is no record to be asked."""
    shutil.copytree(ROOT / "examples" / name, folder / name, ignore=shutil.ignore_patterns(".evsys"))
    return str(folder / name / "config.yaml")


@pytest.mark.parametrize("name", ["quickstart", "rl_word_length"])
def test_validate_imports_no_array_library(name: str, tmp_path: Path):
    modules = modules_of("validate", unrun(name, tmp_path))
    assert tops(modules) & (HEAVY | {"numpy", "structlog", "pydantic"}) == set()


def test_validate_imports_nothing_that_only_many_values_or_a_run_need(tmp_path: Path):
    modules = modules_of("validate", unrun("quickstart", tmp_path))
    assert tops(modules) & {"cattrs", "msgspec", "pluggy", "typing_extensions"} == set()
    assert "evsys.types.context" not in modules


@pytest.mark.parametrize("module", ["evsys", "evsys_sdk", "evsys_runtime"])
def test_importing_a_package_costs_nothing_until_a_name_is_used(module: str):
    code = (
        f"import sys; before = set(sys.modules); import {module}; print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert tops(set(done.stdout.split())) - sys.stdlib_module_names <= {"evsys", "evsys_runtime", "evsys_sdk"}
    assert "asyncio" not in done.stdout.split()

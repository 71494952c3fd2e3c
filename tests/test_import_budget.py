"""Starting fast is a matter of what is imported, which is the same on every machine, so it is tested by that."""

import json
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


@pytest.mark.parametrize(
    "arguments", [("--help",), ("run", "--help"), ("validate", "--help"), ("list", "--help")]
)
def test_help_imports_click_and_nothing_else(arguments: tuple[str, ...]):
    modules = modules_of(*arguments)
    assert tops(modules) - sys.stdlib_module_names <= {"click", "evsys_cli", "colorama"}
    assert "asyncio" not in modules
    assert "importlib.metadata" not in modules


@pytest.mark.parametrize("arguments", [("list",), ("list", "transform"), ("list", "--json")])
def test_list_imports_the_registry_and_no_plugin(arguments: tuple[str, ...]):
    modules = modules_of(*arguments)
    plugins = {top for top in tops(modules) if top.startswith("evsys_")} - {"evsys_cli"}
    assert plugins == set()
    assert tops(modules) & (HEAVY | {"asyncio", "cattrs", "numpy", "pluggy", "ruamel", "structlog"}) == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ("schema",),
        ("schema", "transform", "filter"),
        ("schema", "algorithm", "sft"),
        ("schema", "metric", "pass@3"),
    ],
)
def test_schema_imports_core_and_that_plugin(arguments: tuple[str, ...]):
    modules = modules_of(*arguments)
    assert tops(modules) & (HEAVY | {"asyncio", "numpy", "pluggy", "ruamel", "structlog"}) == set()


def test_validate_imports_no_array_library():
    modules = modules_of("validate", str(ROOT / "examples/quickstart/config.yaml"))
    assert tops(modules) & (HEAVY | {"asyncio", "numpy", "structlog", "pydantic"}) == set()


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

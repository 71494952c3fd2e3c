"""The outside package is one: no part of the workspace, and made of public names. `nox -s downstream` installs and checks it."""

import ast
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from house import ROOT, distributions

FOLDER = ROOT / "examples/third_party_plugin"
MODULES = sorted(FOLDER.rglob("*.py"))
PROJECT = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_it_is_no_member_of_the_workspace():
    assert FOLDER not in [dist.folder for dist in distributions()]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert PROJECT["name"] not in settings["tool"]["uv"]["sources"]


def test_its_tests_are_not_run_beside_ours():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    roots = [
        path
        for pattern in settings["tool"]["pytest"]["ini_options"]["testpaths"]
        for path in ROOT.glob(pattern)
    ]
    assert not [root for root in roots if FOLDER.is_relative_to(root)]


def test_it_asks_for_the_version_that_is_here():
    major, minor, _ = distributions()[0].pyproject["project"]["version"].split(".")
    ours = [requirement for requirement in PROJECT["dependencies"] if requirement.startswith("evsys-")]
    assert ours
    assert [one for one in ours if not one.endswith(f"~={major}.{minor}")] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_it_uses_public_names_alone(path: Path):
    """Only what `__all__` lists, of packages that are there for everybody."""
    used = [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0].startswith("evsys")
        for alias in node.names
    ]
    outside = [(module, name) for module, name in used if module.partition(".")[0] != "evsys_quantities"]
    assert {module for module, _ in outside} <= {
        *("evsys", "evsys.protocols", "evsys.types", "evsys_algo_sft", "evsys_conformance"),
    }
    exported = {module: vars(import_module(module)).get("__all__") for module, _ in outside}
    hidden = [(m, name) for m, name in outside if exported[m] is not None and name not in exported[m]]
    assert hidden == []


def test_it_is_told_of():
    assert "(third_party_plugin/README.md)" in (ROOT / "examples/README.md").read_text(encoding="utf-8")

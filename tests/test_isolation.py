"""A test leaves nothing of a project in the process for the next one. Each of these would fail the second time."""

import importlib
import os
import sys
from pathlib import Path

import pytest

from evsys import Registry, current_registry, register_verifier
from evsys_runtime.config.project import import_project_code

IN_ANY_ORDER = pytest.mark.parametrize("time", ["once", "and again"])


@IN_ANY_ORDER
def test_the_registry_of_the_process_begins_without_anybodys_registrations(time: str):
    assert not [entry for entry in current_registry().entries() if entry.local]
    register_verifier("left_behind")(lambda model_output, expected, params: 1.0)
    assert [entry.name for entry in current_registry().entries() if entry.local] == ["left_behind"]


@IN_ANY_ORDER
def test_no_project_is_on_the_path_or_imported(tmp_path: Path, time: str):
    assert not [name for name in sys.modules if name.partition(".")[0] == "src"]
    assert not [part for part in sys.path if (Path(part) / "src/left_behind.py").exists()]
    (tmp_path / "src").mkdir()
    (tmp_path / "src/left_behind.py").write_text("", encoding="utf-8")
    import_project_code(tmp_path, Registry(entry_points=()))
    assert importlib.import_module("src.left_behind").__file__ == str(tmp_path / "src/left_behind.py")


@IN_ANY_ORDER
def test_the_working_directory_is_where_the_tests_were_started(tmp_path: Path, request, time: str):
    assert Path.cwd() == request.config.invocation_params.dir
    os.chdir(tmp_path)

"""The dashboard draws what is on record, needs the library of the record alone, and follows a run to its end."""

import ast
import re
import runpy
import sys

import pytest
from house import ROOT

import evsys_record

FOLDER = ROOT / "examples/dashboard"


@pytest.fixture(scope="module")
def quickstart(example):
    ran = example("quickstart")
    ran.run()
    return ran.folder


@pytest.fixture
def dashboard():
    return runpy.run_path(str(FOLDER / "dashboard.py"))


def test_the_page_has_the_verdict_the_scores_and_a_point_for_each_step(quickstart, dashboard, tmp_path):
    dashboard["main"]([str(quickstart), "--out", str(tmp_path / "page.html"), "--watch"])
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    (experiment,) = evsys_record.open(quickstart)
    (run,) = experiment.runs()
    assert f"<h2>{experiment.id}</h2><p>completed, verdict {experiment.verdict}</p>" in text
    assert re.search(rf"<td>{run.id}<td>completed<td>\d+<td>held_out \d\.\d{{3}}", text)
    (points,) = re.findall(r'<polyline points="([^"]*)"', text)
    assert len(points.split()) == len(list(run.metrics()))


def test_a_project_without_experiments_has_an_empty_page(dashboard, tmp_path):
    dashboard["main"]([str(tmp_path), "--out", str(tmp_path / "page.html"), "--watch"])
    assert "<h2>" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_it_imports_one_package_that_is_not_in_the_standard_library():
    tree = ast.parse((FOLDER / "dashboard.py").read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} - sys.stdlib_module_names == {"evsys_record"}

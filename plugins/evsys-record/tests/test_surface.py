"""What the library of the record offers, and that asking for it costs only what is asked for."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import evsys_record

SURFACE = """BASE_MODEL Control ControlError Experiment Experiments History Line PastExperiment PastRun Question
    RecordedRollout Run ask final_scoring find_experiment is_proof make_directory mean_over_repeats
    metric_of moment_of open refuse_links result_tree send_request slug untrained_scoring write_atomic"""
PAGE = Path(__file__).parents[3] / "docs/reference/record.md"


def test_the_surface_is_pinned():
    assert evsys_record.__all__ == SURFACE.split() == dir(evsys_record)


@pytest.mark.parametrize("name", SURFACE.split())
def test_each_name_is_there(name):
    assert inspect.getdoc(getattr(evsys_record, name))


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'evsys_record' has no attribute 'nothing'"):
        getattr(evsys_record, "nothing")  # noqa: B009


def test_importing_it_imports_nothing_else():
    code = "import sys; before = set(sys.modules); import evsys_record; print(*sorted(set(sys.modules) - before))"
    new = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {name.partition(".")[0] for name in new} - set(sys.stdlib_module_names) == {"evsys_record"}


@pytest.mark.parametrize("name", ["Experiments", "Experiment", "Run"])
def test_the_reference_page_describes_each_member(name):
    table = PAGE.read_text(encoding="utf-8").split(f"| `{name}` | |")[1].split("\n\n")[0]
    described = set(
        re.findall(r"`(\w+)(?:\([^`]*\))?`", "".join(re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)))
    )
    found = getattr(evsys_record, name)
    members = {each for each in vars(found) if not each.startswith("_")} | {"directory"}
    assert members <= described | {"to_dict"}

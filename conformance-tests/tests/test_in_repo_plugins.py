"""Every plugin of this repository keeps its contract."""

import json
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """What the whole suite says, run once as an author would run it, in a folder of its own."""
    folder = tmp_path_factory.mktemp("all")
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        "--tb=short",
        "--evsys-report=report.json",
        "--basetemp=temp",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--evsys-conformance=all"],
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=110,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def test_all_of_them_pass_every_check(report):
    failed = {
        f"{e['check']}[{e['plugin']}]": e["reason"] for e in report["checks"] if e["outcome"] == "failed"
    }
    assert failed == {}
    assert report["passed"] is True


def test_each_is_measured_by_what_its_kind_asks_for(report):
    for plugin, check in {
        "evsys-algo-sft/sft": "TestAlgorithm::test_resumes_exactly",
        "evsys-backend-local/local": "TestBackend::test_gradient_of_a_built_in_is_that_of_the_callable",
        "evsys-backend-mock/mock": "TestBackend::test_restores_what_it_saved",
        "evsys-runtime/ppo": "TestLoss::test_agrees_with_the_formula",
        "evsys-std/mix": "TestTransform::test_other_columns_are_kept",
        "evsys-std/local": "TestDataStore::test_rows_come_as_they_are",
        "evsys-verifiers-std/pass@k": "TestMetric::test_more_than_the_samples_is_refused",
        "evsys-verifiers-std/tool_calls_match": "TestVerifier::test_any_text_gets_a_finite_reward",
    }.items():
        (outcome,) = [e["outcome"] for e in report["checks"] if (e["plugin"], e["check"]) == (plugin, check)]
        assert outcome == "passed", f"{check} of {plugin}"


def test_none_is_known_to_fail(report):
    assert "xfailed" not in report["counts"]

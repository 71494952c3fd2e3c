"""The document and the table of a run."""

from types import SimpleNamespace

import pytest
from jsonschema import Draft202012Validator

from evsys_conformance.report import Outcome, Report, report_schema


def outcome(check="TestVerifier::test_loads", plugin="mine/judge", kind="verifier"):
    return Outcome(check=check, kind=kind, plugin=plugin, contract="It loads.", documented="evsys.protocols")


def phase(nodeid, when, *, passed=False, failed=False, skipped=False, longrepr=None, seconds=0.25, **more):
    return SimpleNamespace(
        nodeid=nodeid,
        when=when,
        passed=passed,
        failed=failed,
        skipped=skipped,
        longrepr=longrepr,
        duration=seconds,
        **more,
    )


@pytest.fixture
def report():
    """A report of four checks that are about to run."""
    report = Report()
    for name in ("a", "b", "c", "d"):
        report.expect(name, outcome(check=f"TestVerifier::test_{name}"))
    return report


def finish(report, *names):
    for name in names:
        report.add(phase(name, "call", passed=True))


def test_the_document_is_valid_by_the_published_schema(report):
    report.add(phase("a", "call", passed=True))
    crash = SimpleNamespace(message="Failed: it is wrong\n  seen:   1", path="x.py", lineno=3)
    report.add(phase("b", "call", failed=True, longrepr=SimpleNamespace(reprcrash=crash)))
    report.add(phase("c", "setup", skipped=True, longrepr=("file", 3, "Skipped: it takes no params")))
    document = report.document(["evsys-core", "nowhere-to-be-found"])
    Draft202012Validator(report_schema()).validate(document)
    assert document["format"] == 1
    assert document["counts"] == {"passed": 1, "failed": 1, "skipped": 1, "not run": 1}
    assert document["versions"].keys() == {"evsys-core", "evsys-conformance", "nowhere-to-be-found"}
    assert document["versions"]["nowhere-to-be-found"] is None
    assert document["seconds"] == 0.5
    assert [e["reason"] for e in document["checks"]] == [
        None,
        "it is wrong\n  seen:   1",
        "it takes no params",
        None,
    ]


def test_it_passed_when_every_check_ran_and_none_failed(report):
    finish(report, "a", "b", "c")
    assert report.document([])["passed"] is False
    finish(report, "d")
    assert report.document([])["passed"] is True


def test_a_run_in_which_all_was_skipped_has_not_passed():
    report = Report()
    report.expect("a", outcome())
    report.add(phase("a", "setup", skipped=True, longrepr=("file", 3, "Skipped: no")))
    assert report.document([])["passed"] is False


def test_an_exception_of_the_plugin_is_told_with_its_place(report):
    crash = SimpleNamespace(message="KeyError: 'accuracy'", path="judge.py", lineno=7)
    report.add(phase("a", "call", failed=True, longrepr=SimpleNamespace(reprcrash=crash)))
    assert report.of("a").reason == "KeyError: 'accuracy' (judge.py:7)"


def test_what_failed_before_stays_failed(report):
    crash = SimpleNamespace(message="Failed: wrong", path="x.py", lineno=3)
    report.add(phase("a", "call", failed=True, longrepr=SimpleNamespace(reprcrash=crash)))
    report.add(phase("a", "teardown", passed=True))
    assert (report.of("a").outcome, report.of("a").reason) == ("failed", "wrong")


def test_a_failed_teardown_is_a_failure(report):
    finish(report, "a")
    report.add(phase("a", "teardown", failed=True, longrepr="it broke"))
    assert (report.of("a").outcome, report.of("a").reason) == ("failed", "it broke")


def test_a_known_failure_keeps_its_reason(report):
    report.add(phase("a", "call", skipped=True, wasxfail="until 2.0"))
    assert (report.of("a").outcome, report.of("a").reason) == ("xfailed", "until 2.0")


def test_a_phase_of_a_test_that_is_no_check_is_passed_over(report):
    report.add(phase("test_mine", "call", failed=True))
    assert "failed" not in report.counts()


def test_the_table_has_a_line_a_plugin_and_a_line_for_each_reason_to_skip():
    report = Report()
    for i in range(5):
        report.expect(f"{i}", outcome(plugin=f"mine/judge{i}"))
        report.add(phase(f"{i}", "setup", skipped=True, longrepr=("file", 3, "Skipped: it takes no params")))
    report.expect("x", outcome(plugin="mine/x"))
    finish(report, "x")
    report.expect("y", outcome(plugin="mine/deselected"))
    report.leave_out("y")
    lines = list(report.table())
    assert lines[0].split() == ["mine/judge0", "verifier", "1", "skipped", "0.00", "s"]
    assert lines[5].split() == ["mine/x", "verifier", "1", "passed", "0.25", "s"]
    assert lines[6:] == [
        "checks that were skipped, with the reason of each: 5",
        "     5  it takes no params [mine/judge0, mine/judge1, mine/judge2 and 2 more]",
    ]


def test_the_table_fits_a_terminal_of_80_columns():
    report = Report()
    for i, name in enumerate(("short/x", "evsys-verifiers-of-a-stranger/tool_calls_match_in_any_order")):
        for check, how in (("a", {"passed": True}), ("b", {"failed": True, "longrepr": "it broke"})):
            report.expect(
                f"{name}{check}", outcome(check=f"T::{check}", plugin=name, kind="inference_client")
            )
            report.add(phase(f"{name}{check}", "call", **how))
        report.expect(f"{name}s", outcome(check="T::s", plugin=name, kind="inference_client"))
        reason = f"Skipped: it says {'a long thing ' * 12}{i}"
        report.add(phase(f"{name}s", "setup", skipped=True, longrepr=("file", 3, reason)))
    lines = list(report.table())
    assert max(map(len, lines)) <= 80
    assert lines[0] == "evsys-verifiers-of-a-stranger/tool_calls_match_in_any_order"
    assert lines[1].split() == "inference_client 1 passed, 1 failed, 1 skipped 0.50 s".split()
    assert lines[2].startswith("short/x ")


def behaviour(plugin, word, reason=None):
    entry = outcome(plugin=plugin)
    entry.behaviour, entry.outcome, entry.reason = True, word, reason
    return entry


@pytest.mark.parametrize(
    ("words", "passed", "untried"),
    [
        ({"mine/a": "skipped"}, False, {"mine/a": ["no service"]}),
        (
            {"mine/a": "skipped", "mine/b": "skipped"},
            False,
            {"mine/a": ["no service"], "mine/b": ["no service"]},
        ),
        ({"mine/a": "skipped", "mine/b": "passed"}, True, {"mine/a": ["no service"]}),
        ({"mine/a": "xfailed"}, True, {}),
        ({}, True, {}),
    ],
)
def test_a_run_in_which_no_plugin_was_seen_to_do_anything_has_not_passed(words, passed, untried):
    report = Report()
    report.expect("loads", outcome())
    finish(report, "loads")
    for name, word in words.items():
        report.expect(name, behaviour(name, word, "no service" if word == "skipped" else None))
    document = report.document([])
    assert document["passed"] is passed
    assert document["untried"] == untried
    told = " ".join(report.table())
    assert ("NOT PASSED: no check saw a plugin do anything" in told) is not passed
    assert all(f"NOTHING TRIED of what {name} does: no service" in told for name in untried)

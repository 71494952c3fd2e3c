"""Both doors of the suite, as pytest sees them."""

import json
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from evsys_conformance import suite
from evsys_conformance.report import report_schema

pytest_plugins = ["pytester"]
BROKEN = Path(__file__).with_name("broken")
LOADED = suite  # imported before pytester notes which modules there are: numpy can't be imported twice


@pytest.fixture
def project(pytester, monkeypatch, install):
    """A folder with a distribution `outside` of one right verifier, and a wrong one beside it."""
    (pytester.path / "judges.py").write_text(
        """
class Right:
    name = "right"
    reward_range = (0.0, 1.0)
    def __call__(self, model_output, expected, params):
        return float(model_output == expected)

class Wrong(Right):
    name = "wrong"
    reward_range = None
""",
        encoding="utf-8",
    )
    install(pytester.path, "outside", [("verifier", "right", "judges:Right")])
    install(pytester.path, "wrong_side", [("verifier", "wrong", "judges:Wrong")])
    pytester.makeini("[pytest]")
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    pytester.syspathinsert()
    return pytester


def run(pytester, *arguments):
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)


# --- door 1: by name ------------------------------------------------------------------------------------------------


def test_a_distribution_is_checked_by_its_name_with_the_plugin_in_each_id(project):
    done = run(project, "--evsys-conformance", "Outside", "-v")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["*TestVerifier::test_loads?outside/right? PASSED*"])
    done.stdout.fnmatch_lines(["outside/right * verifier * passed*"])
    assert "wrong_side" not in done.stdout.str()


def test_classes_without_anything_to_check_are_left_out_not_skipped(project):
    done = run(project, "--evsys-conformance", "outside", "--collect-only", "-q")
    assert "TestVerifier" in done.stdout.str()
    assert "TestAlgorithm" not in done.stdout.str()


def test_one_plugin_can_be_checked_by_its_qualified_name(project):
    done = run(project, "--evsys-conformance", "wrong-side/wrong")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(["FAILED *test_reward_range_is_declared?wrong-side/wrong?*"])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "outsid",
            "*no installed distribution called 'outsid' has evsys entry points*did you mean 'outside'?*",
        ),
        ("pytest", "*no installed distribution called 'pytest' has evsys entry points*"),
        (
            "outside/rigth",
            "*outside offers no plugin 'rigth', so there is nothing*did you mean 'outside/right'?",
        ),
        ("outside/zzz", "*outside offers no plugin 'zzz', so there is nothing*it offers right"),
    ],
)
def test_a_name_that_matches_nothing_fails(project, name, said):
    done = run(project, "--evsys-conformance", name)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([said])


def test_a_plugin_that_is_kept_out_is_told_from_one_that_is_not_there(project, monkeypatch):
    monkeypatch.setenv("EVSYS_PLUGINS_DENY", "outside")
    done = run(project, "--evsys-conformance", "outside/right")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*'outside/right' has evsys*(EVSYS_PLUGINS_DENY may leave it out)"])


def test_a_plugin_that_cannot_be_loaded_is_one_failed_test(project, install):
    install(
        project.path, "halfway", [("verifier", "gone", "nowhere:Gone"), ("verifier", "right", "judges:Right")]
    )
    done = run(project, "--evsys-conformance", "halfway", "-q")
    done.stdout.fnmatch_lines(
        ["verifier halfway/gone (1.0) (nowhere:Gone) can't be loaded: its module 'nowhere' is gone*"]
    )
    done.stdout.fnmatch_lines(["halfway/gone * 1 failed, * skipped*", "halfway/right * passed, * skipped*"])
    assert done.parseoutcomes()["failed"] == 1


def test_tests_that_are_named_run_beside_the_suite(project):
    path = project.makepyfile("def test_mine(): pass")
    done = run(project, str(path), "--evsys-conformance", "outside", "-v")
    done.stdout.fnmatch_lines(["*test_mine PASSED*", "*TestVerifier::test_loads*"])


def test_without_the_option_nothing_of_the_suite_runs(project):
    project.makepyfile("def test_mine(): pass")
    run(project).assert_outcomes(passed=1)


def test_the_report_is_a_document_of_every_check(project):
    run(
        project,
        "--evsys-conformance",
        "outside",
        "--evsys-conformance",
        "wrong-side",
        "--evsys-report",
        "r.json",
    )
    report = json.loads((project.path / "r.json").read_text(encoding="utf-8"))
    assert report["format"] == 1
    assert report["passed"] is False
    assert report["versions"].keys() == {"evsys-core", "evsys-conformance", "outside", "wrong-side"}
    wrong = [entry for entry in report["checks"] if entry["outcome"] == "failed"]
    assert [(e["check"], e["kind"], e["plugin"]) for e in wrong] == [
        ("TestVerifier::test_reward_range_is_declared", "verifier", "wrong-side/wrong")
    ]
    assert wrong[0]["reason"].startswith("it doesn't say which rewards it gives")
    assert wrong[0]["contract"] == "`reward_range = (low, high)` says between which rewards it stays."
    assert wrong[0]["documented"].startswith("evsys.protocols.Verifier")
    assert report["counts"]["failed"] == 1
    assert report["counts"]["passed"] > 20
    assert all(entry["seconds"] >= 0 for entry in report["checks"])
    assert [e for e in report["checks"] if e["outcome"] == "skipped" and not e["reason"]] == []
    Draft202012Validator(report_schema()).validate(report)


def test_skipped_checks_are_listed_with_their_reasons(project):
    done = run(project, "--evsys-conformance", "outside")
    done.stdout.fnmatch_lines(
        ["checks that were skipped, with the reason of each: *", " * it takes no params ?outside/right?"]
    )


def test_checks_that_were_deselected_leave_the_report_open(project):
    done = run(project, "--evsys-conformance", "outside", "-k", "test_loads", "--evsys-report", "r.json")
    report = json.loads((project.path / "r.json").read_text(encoding="utf-8"))
    assert done.ret == 0
    assert report["passed"] is False
    assert {e["reason"] for e in report["checks"] if e["outcome"] == "not run"} == {"it was deselected"}


def test_a_run_of_no_check_fails(project):
    done = run(project, "--evsys-conformance", "outside", "-k", "nothing_has_this_name")
    assert done.ret == pytest.ExitCode.NO_TESTS_COLLECTED


# --- door 2: by subclass --------------------------------------------------------------------------------------------

SUBCLASS = """
import pytest
from evsys_conformance import VerifierConformance
from judges import {plugin}

class TestMine(VerifierConformance):
    @pytest.fixture
    def plugin(self):
        return {plugin}()
"""


def test_a_subclass_checks_what_its_plugin_fixture_makes(project):
    project.makepyfile(SUBCLASS.format(plugin="Right"))
    done = run(project)
    assert done.ret == 0
    assert done.parseoutcomes()["passed"] > 10


def test_a_subclass_fails_for_a_wrong_plugin_with_the_values_that_differ(project):
    project.makepyfile(SUBCLASS.format(plugin="Wrong"))
    done = run(project)
    done.assert_outcomes(
        failed=1, passed=done.parseoutcomes()["passed"], skipped=done.parseoutcomes()["skipped"]
    )
    done.stdout.fnmatch_lines(
        [
            "it doesn't say which rewards it gives",
            "  wanted: reward_range: ClassVar*",
            "*what the contract wants*",
            "`reward_range = (low, high)` says between which rewards it stays.",
            "It is written down in evsys.protocols.Verifier*",
        ]
    )


def test_a_bare_function_can_be_checked(project):
    project.makepyfile(
        """
import pytest
from evsys_conformance import VerifierConformance

def judge(model_output, expected, params):
    return 1.0 if model_output else 0.0

judge.reward_range = (0, 1)

class TestMine(VerifierConformance):
    @pytest.fixture
    def plugin(self):
        return judge
"""
    )
    assert run(project).ret == 0


@pytest.mark.parametrize(
    ("cls", "plugin", "failed"),
    [
        ("CommandConformance", "click.Command('told', help='Say it.')", None),
        ("CommandConformance", "click.Command('silent')", "test_says_what_it_does"),
        ("CommandConformance", "print", "test_is_a_command"),
        ("AmbientConformance", "hooks", None),
        ("AmbientConformance", "misspelt", "test_hooks_are_real_ones"),
    ],
)
def test_a_module_or_a_command_can_be_checked(project, cls, plugin, failed):
    project.makepyfile(hooks="def evsys_run_started(ctx): pass", misspelt="def evsys_run_strated(ctx): pass")
    project.makepyfile(
        test_it=f"""
import click, pytest
import hooks, misspelt
from evsys_conformance import {cls}

class TestMine({cls}):
    @pytest.fixture
    def plugin(self):
        return {plugin}
"""
    )
    done = run(project)
    failures = [line.split()[1].rpartition("::")[2] for line in done.outlines if line.startswith("FAILED")]
    assert failures == ([failed] if failed else [])


@pytest.mark.parametrize("cls", ["VerifierConformance", "AmbientConformance"])
def test_a_subclass_without_a_plugin_is_told_so(project, cls):
    project.makepyfile(f"from evsys_conformance import {cls}\nclass TestMine({cls}): pass\n")
    done = run(project)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(["*TestMine must override the fixture `plugin`*"])


OVERRIDING = SUBCLASS + "\n    def test_reward_range_is_declared(self):\n        pass\n"


def test_a_check_that_is_overridden_fails(project):
    project.makepyfile(OVERRIDING.format(plugin="Wrong"))
    done = run(project)
    done.stdout.fnmatch_lines(["FAILED *TestMine::test_no_check_is_overridden*"])


@pytest.mark.parametrize("change", ["test_loads = None", "test_loads = lambda self: None"])
def test_a_check_that_is_deleted_fails(project, change):
    project.makepyfile(SUBCLASS.format(plugin="Right") + f"\n    {change}\n")
    done = run(project)
    done.stdout.fnmatch_lines(
        [
            "TestMine overrides checks of the suite",
            "  seen:   test_loads",
            "  wanted: *TestMine::test_loads = reason",
        ]
    )


# --- time -----------------------------------------------------------------------------------------------------------

HANGING = """
import asyncio, time

class Judge:
    reward_range = (0.0, 1.0)
    def __call__(self, model_output, expected, params):
        time.sleep(600)

class Stubborn(Judge):
    def __call__(self, model_output, expected, params):
        for _ in range(3):
            try:
                time.sleep(600)
            except:
                pass

class Waits:
    async def run(self, task, model, tools, ctx):
        await asyncio.sleep(600)

def loops(rows):
    while True:
        pass

class Hopes:
    def __init__(self):
        time.sleep(600)
    def compute(self, task_rewards):
        return 0.5
"""


def test_a_plugin_that_hangs_fails_one_check_with_the_place_and_the_others_go_on(project, install):
    project.makepyfile(hanging=HANGING)
    entries = [
        ("verifier", "Judge", "hanging:Judge"),
        ("agent", "Waits", "hanging:Waits"),
        ("transform", "loops", "hanging:loops"),
        ("metric", "Hopes", "hanging:Hopes"),
    ]
    install(project.path, "hanging_side", entries)
    options = ["--evsys-timeout", "2", "--evsys-report", "r.json"]
    run(project, "--evsys-conformance", "hanging-side", "--evsys-conformance", "outside", *options)
    report = json.loads((project.path / "r.json").read_text(encoding="utf-8"))
    failed = {e["plugin"]: e for e in report["checks"] if e["outcome"] == "failed"}
    assert report["counts"]["failed"] == 4
    assert failed.keys() == {f"hanging-side/{name}" for _, name, _ in entries}
    reasons = {plugin.partition("/")[2]: entry["reason"].splitlines() for plugin, entry in failed.items()}
    assert all(lines[0] == "it hung: the check was not done after 2 s" for lines in reasons.values())
    assert reasons["Judge"][1].endswith("hanging.py:6 in __call__")
    assert reasons["loops"][1].endswith("in loops")
    assert reasons["Hopes"][1].endswith("in __init__")
    assert reasons["Waits"][1].endswith("in run")
    after = [e for e in report["checks"] if e["plugin"] in failed and "it hung there" in (e["reason"] or "")]
    assert {e["outcome"] for e in after} == {"skipped"}
    right = [e["outcome"] for e in report["checks"] if e["plugin"] == "outside/right"]
    assert "failed" not in right


def test_a_plugin_that_catches_everything_is_interrupted_again(project):
    project.makepyfile(hanging=HANGING)
    project.makepyfile(SUBCLASS.replace("judges", "hanging").format(plugin="Stubborn"))
    done = run(project, "--evsys-timeout", "1", "-k", "test_any_text")
    done.stdout.fnmatch_lines(["it hung: the check was not done after 1 s"])


def test_a_check_may_take_as_long_as_it_likes(project):
    project.makepyfile(SUBCLASS.format(plugin="Right"))
    assert run(project, "--evsys-timeout", "0").ret == 0


def test_code_that_cannot_be_interrupted_ends_the_process_with_its_place(project):
    project.makepyfile(
        """
import itertools
import pytest
from evsys_conformance import VerifierConformance, timeouts

timeouts._GRACE_SECONDS = 0.5

class Deaf:
    reward_range = (0.0, 1.0)
    def __call__(self, model_output, expected, params):
        return sum(itertools.repeat(0))  # never leaves C

class TestMine(VerifierConformance):
    @pytest.fixture
    def plugin(self):
        return Deaf()
"""
    )
    options = ["-p", "no:cacheprovider", "--evsys-timeout", "1", "-k", "test_any_text"]
    done = project.runpytest_subprocess(*options, timeout=60)
    assert done.ret == 1
    done.stderr.fnmatch_lines(["Timeout (*)!", "* line 10 in __call__"])


# --- expected failures ----------------------------------------------------------------------------------------------


def test_a_known_failure_with_a_reason_is_expected(project):
    project.makeini(
        "[pytest]\nevsys_xfail =\n  TestVerifier::test_reward_range_is_declared[wrong-side/wrong] = ranges come in 2.0\n"
    )
    done = run(project, "--evsys-conformance", "wrong-side", "-rx", "--evsys-report", "r.json")
    assert done.ret == 0
    assert done.parseoutcomes()["xfailed"] == 1
    report = json.loads((project.path / "r.json").read_text(encoding="utf-8"))
    assert [e["reason"] for e in report["checks"] if e["outcome"] == "xfailed"] == ["ranges come in 2.0"]


def test_a_known_failure_that_passes_fails(project):
    project.makeini("[pytest]\nevsys_xfail =\n  TestVerifier::test_loads[outside/right] = it never loads\n")
    done = run(project, "--evsys-conformance", "outside")
    done.stdout.fnmatch_lines(["*[[]XPASS(strict)[]] it never loads*"])
    assert done.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("TestVerifier::test_loads[outside/right]", "*isn't `Class::test*= reason`*"),
        ("TestVerifier::test_loads[outside/right] = ", "*isn't `Class::test*= reason`*"),
        (
            "TestVerifier::test_laods[outside/right] = typo",
            "*tests that there aren't: TestVerifier::test_laods*",
        ),
        (
            "TestVerifier::test_loads[outside/left] = typo",
            "*tests that there aren't: TestVerifier::test_loads*",
        ),
    ],
)
def test_a_line_without_a_reason_or_a_test_is_refused(project, line, said):
    project.makeini(f"[pytest]\nevsys_xfail =\n  {line}\n")
    done = run(project, "--evsys-conformance", "outside")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([said])


def test_lines_for_other_distributions_are_passed_over(project):
    project.makeini("[pytest]\nevsys_xfail =\n  TestVerifier::test_loads[elsewhere/right] = not here\n")
    assert run(project, "--evsys-conformance", "outside").ret == 0


def test_a_known_failure_of_a_subclass_may_be_overridden(project):
    project.makepyfile(OVERRIDING.format(plugin="Wrong").replace("        pass\n", "        assert False\n"))
    project.makeini("[pytest]\nevsys_xfail =\n  TestMine::test_reward_range_is_declared = no range yet\n")
    done = run(project)
    assert done.ret == 0
    assert done.parseoutcomes()["xfailed"] == 1


# --- one mistake, one failure ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "failed"),
    [
        ("class Config: pass", "test_schema_can_be_made"),
        ("class Config(BaseModel):\n        rate: Callable = len", "test_schema_can_be_made"),
        ("@attrs.frozen\n    class Config:\n        rate: 'Nowhere' = 1", "test_schema_can_be_made"),
        ("def __init__(self): raise RuntimeError('not today')", "test_builds"),
        ("def __init__(self, **fields): raise SystemExit", "test_builds"),
        ("Config = property(lambda self: 1)", "test_schema_can_be_made"),
        ("protocol = 99", "test_loads"),
    ],
)
def test_what_depends_on_a_failed_check_is_skipped_after_it(project, install, source, failed):
    project.makepyfile(
        once=f"""
from collections.abc import Callable
import attrs
from pydantic import BaseModel

class Once:
    reward_range = (0.0, 1.0)
    {source}
    def __call__(self, model_output, expected, params):
        return 1.0
"""
    )
    install(project.path, "once_side", [("verifier", "Once", "once:Once")])
    run(project, "--evsys-conformance", "once-side", "--evsys-report", "r.json")
    report = json.loads((project.path / "r.json").read_text(encoding="utf-8"))
    assert [e["check"] for e in report["checks"] if e["outcome"] == "failed"] == [f"TestVerifier::{failed}"]
    after = [e["reason"] for e in report["checks"] if e["outcome"] == "skipped"]
    assert any(reason.startswith(f"after {failed}: ") for reason in after)


MISTAKES = [
    ("verifier", "JsonJudge", "test_any_text_gets_a_finite_reward", "mistakes.py:12 in __call__"),
    (
        "verifier",
        "TwoArguments",
        "test_signatures_are_those_of_the_protocol",
        "model_output, expected, params",
    ),
    ("verifier", "ForgetsToReturn", "test_any_text_gets_a_finite_reward", "seen:   None"),
    ("transform", "SaysNoParams", "test_builds", "conformance = {'params': {...}}"),
    ("transform", "no_rows", "test_gives_mappings", "nothing to iterate over"),
    ("agent", "NotAwaited", "test_async_where_the_protocol_is", "run is not an `async def`"),
    ("agent", "NoSuchAttribute", "test_gives_a_rollout_or_a_text", "no attribute 'prompt'"),
    ("inference_client", "AlwaysEmpty", "test_gives_as_many_completions_as_asked", "wanted: 1"),
    ("data_store", "NotAsync", "test_async_where_the_protocol_is", "pull is not an `async def`"),
]


def test_a_mistake_that_several_checks_meet_is_told_once(project, install, monkeypatch):
    monkeypatch.syspath_prepend(BROKEN)
    install(project.path, "mistakes_side", [(kind, name, f"mistakes:{name}") for kind, name, *_ in MISTAKES])
    run(project, "--evsys-conformance", "mistakes-side", "--evsys-report", "r.json")
    report = json.loads((project.path / "r.json").read_text(encoding="utf-8"))
    failed = [
        (e["kind"], e["plugin"].partition("/")[2], e["check"].partition("::")[2], e["reason"])
        for e in report["checks"]
        if e["outcome"] == "failed"
    ]
    assert sorted(one[:3] for one in failed) == sorted(one[:3] for one in MISTAKES)
    for kind, name, check, told in MISTAKES:
        (reason,) = [one[3] for one in failed if one[:3] == (kind, name, check)]
        assert told in reason


# --- what applies ---------------------------------------------------------------------------------------------------


def test_a_check_of_a_later_protocol_leaves_older_plugins_alone(project):
    project.makepyfile(
        SUBCLASS.format(plugin="Right")
        + """
    from evsys_conformance import check

    @check(since_protocol=2)
    def test_of_tomorrow(self, plugin):
        assert False

    @check(needs="teleport")
    def test_of_few(self, plugin):
        assert False

    @pytest.mark.evsys_live
    def test_of_a_service(self, plugin):
        assert False
"""
    )
    done = run(project, "-rs", "--strict-markers")
    assert done.ret == 0
    done.stdout.fnmatch_lines(
        [
            "SKIPPED*for protocol 2, and the plugin speaks 1",
            "SKIPPED*the plugin doesn't declare 'teleport'",
            "SKIPPED*needs a service; run it with --evsys-live",
        ],
        consecutive=False,
    )
    done = run(project, "--evsys-live")
    done.stdout.fnmatch_lines(["FAILED *test_of_a_service*"])


def test_what_needs_a_service_is_left_alone_unless_there_is_one(project, install):
    project.makepyfile(
        remote="""
class Remote:
    reward_range = (0.0, 1.0)
    conformance = {"service": True}
    def __call__(self, model_output, expected, params):
        raise ConnectionError("nobody answers")
"""
    )
    install(project.path, "remote_side", [("verifier", "Remote", "remote:Remote")])
    done = run(project, "--evsys-conformance", "remote-side")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["* the plugin says that it needs a service; run it with --evsys-live"])
    done.stdout.fnmatch_lines(["NOTHING TRIED of what remote-side/Remote does: *", "NOT PASSED: *"])
    done = run(project, "--evsys-conformance", "remote-side", "--evsys-live")
    done.stdout.fnmatch_lines(
        ["judging '' it fails: ConnectionError: nobody answers (*remote.py:5 in __call__)"]
    )


def test_a_plugin_of_which_nothing_was_tried_has_not_passed(project, install):
    project.makepyfile(
        remote="""
class Remote:
    reward_range = (0.0, 1.0)
    conformance = {"service": True}
    def __call__(self, model_output, expected, params):
        return 1.0
"""
    )
    install(project.path, "remote_side", [("verifier", "Remote", "remote:Remote")])
    done = command(project, "remote-side", "--json")
    assert done.ret == 3
    document = json.loads(done.stdout.str())
    assert document["passed"] is False
    assert document["untried"] == {
        "remote-side/Remote": ["the plugin says that it needs a service; run it with --evsys-live"]
    }
    assert command(project, "remote-side", "--live").ret == 0


def test_a_data_store_that_was_only_seen_to_fail_has_not_passed(project, install):
    project.makepyfile(
        closed="""
class Closed:
    async def pull(self, ref):
        raise KeyError(ref)
"""
    )
    install(project.path, "closed_side", [("data_store", "closed", "closed:Closed")])
    done = command(project, "closed-side", "--json")
    assert done.ret == 3
    document = json.loads(done.stdout.str())
    assert document["passed"] is False
    assert any(
        why.startswith("says no reference to pull") for why in document["untried"]["closed-side/closed"]
    )


def test_a_subclass_of_a_plugin_that_needs_a_service_brings_its_own(project):
    project.makepyfile(
        """
import pytest
from evsys_conformance import VerifierConformance

class Remote:
    reward_range = (0.0, 1.0)
    conformance = {"service": True}
    def __init__(self, answer):
        self.answer = answer
    def __call__(self, model_output, expected, params):
        return self.answer

class TestMine(VerifierConformance):
    @pytest.fixture
    def plugin(self):
        return Remote(0.5)
"""
    )
    done = run(project, "-rs")
    assert done.ret == 0
    done.stdout.no_fnmatch_line("*needs a service*")


def test_a_plugin_that_raises_is_told_with_its_traceback_and_the_contract(project):
    project.makepyfile(
        """
import pytest
from evsys_conformance import MetricConformance

class Mine:
    def compute(self, task_rewards):
        return {}["accuracy"]

class TestMine(MetricConformance):
    @pytest.fixture
    def plugin(self):
        return Mine()
"""
    )
    done = run(project, "-k", "test_is_finite")
    done.stdout.fnmatch_lines(
        [
            "*return {}*accuracy*",
            "E *KeyError: 'accuracy'",
            "*what the contract wants*",
            "Any scored tasks have a finite value.",
            "It is written down in evsys.protocols.Metric and docs/reference/kinds/metric.md.",
        ]
    )


def test_an_object_that_cannot_be_copied_needs_a_way_to_make_another(project):
    project.makepyfile(
        """
import threading
import pytest
from evsys_conformance import TransformConformance

class Locked:
    def __init__(self):
        self.lock = threading.Lock()
    def __call__(self, rows):
        return list(rows)

class TestLocked(TransformConformance):
    @pytest.fixture
    def plugin(self):
        return Locked()

class TestMade(TestLocked):
    @pytest.fixture
    def make(self):
        return Locked
"""
    )
    done = run(project, "-v")
    assert done.ret == 0
    done.stdout.fnmatch_lines(
        ["*it can't be copied (*): override the", " *fixture `make`, which makes another ?TestLocked?"]
    )
    done.stdout.fnmatch_lines(["*TestMade::test_same_rows_twice_give_the_same PASSED*"])


def test_algorithms_without_a_backend_to_train_on_name_the_extra(project, monkeypatch):
    monkeypatch.setenv("EVSYS_PLUGINS_DENY", "backend:mock")
    done = run(project, "--evsys-conformance", "evsys-algo-sft", "-k", "test_steps_are_counted")
    done.stdout.fnmatch_lines(
        ["this check needs the backend `mock`", "  wanted: pip install 'evsys-conformance?train?'"]
    )
    done.stdout.no_fnmatch_line("*another exception occurred*")
    assert done.ret == pytest.ExitCode.TESTS_FAILED


def test_every_run_draws_the_same_examples(project, install):
    project.makepyfile(
        judges2="""
from pathlib import Path

class Noting:
    reward_range = (0.0, 1.0)
    def __call__(self, model_output, expected, params):
        with (Path(__file__).parent / "drawn.txt").open("a", encoding="utf-8") as file:
            print(ascii(model_output), file=file)
        return 1.0
"""
    )
    install(project.path, "noting", [("verifier", "Noting", "judges2:Noting")])
    drawn = project.path / "drawn.txt"
    run(project, "--evsys-conformance", "noting", "-k", "test_any_text")
    first = drawn.read_text(encoding="utf-8")
    drawn.unlink()
    run(project, "--evsys-conformance", "noting", "-k", "test_any_text")
    assert len(first.splitlines()) >= 20
    assert drawn.read_text(encoding="utf-8") == first


def test_the_plugin_imports_nothing_of_the_product_by_itself(project):
    project.makepyfile(
        """
import sys

def test_nothing():
    assert "evsys_conformance.pytest_plugin" in sys.modules
    assert [name for name in sys.modules if name == "evsys" or name.startswith("evsys.")] == []
    assert "evsys_conformance.checks" not in sys.modules
    assert "hypothesis" not in sys.modules or "_hypothesis_pytestplugin" in sys.modules
"""
    )
    assert project.runpytest_subprocess("-p", "no:cacheprovider").ret == 0


def test_the_suite_imports_no_runtime_and_no_backend(project):
    project.makepyfile(
        test_it="""
import sys
from evsys_conformance import catalogue, suite

def test_nothing():
    for kind in catalogue.KINDS:
        catalogue.checks_of(kind)
    loaded = {name.partition(".")[0] for name in sys.modules}
    assert {name for name in loaded if name.startswith("evsys")} == {"evsys", "evsys_conformance"}
"""
    )
    assert project.runpytest_subprocess("-p", "no:cacheprovider").ret == 0


# --- the command ----------------------------------------------------------------------------------------------------


def command(pytester, *arguments):
    program = "from evsys_cli.main import main; main()"
    return pytester.run(sys.executable, "-c", program, "conformance", *arguments)


def test_the_command_ends_with_0_when_all_pass(project):
    done = command(project, "outside/right")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["outside/right * verifier * passed*"])


def test_the_command_ends_with_3_when_a_plugin_is_wrong_and_prints_one_document(project):
    done = command(project, "wrong-side", "--json", "--report", "kept.json")
    document = json.loads(done.stdout.str())
    assert done.ret == 3
    assert document["passed"] is False
    assert json.loads((project.path / "kept.json").read_text(encoding="utf-8")) == document
    done.stderr.fnmatch_lines(["FAILED *test_reward_range_is_declared*"])


def test_the_command_refuses_a_name_that_matches_nothing(project):
    done = command(project, "nobody")
    assert done.ret == 3
    done.stderr.fnmatch_lines(["*no installed distribution called 'nobody'*"])


def test_the_broken_plugins_are_not_collected(project):
    done = run(project, str(BROKEN), "--collect-only", "-q")
    assert done.ret == pytest.ExitCode.NO_TESTS_COLLECTED

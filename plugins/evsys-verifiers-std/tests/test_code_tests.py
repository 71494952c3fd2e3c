"""What code is tested by, and how a score is made of it. What code tries against it is in test_code_attacks."""

import asyncio
import os
import threading

import pytest

from evsys import Registry
from evsys.errors import PluginLoadError
from evsys.types import NoScore, Score
from evsys_verifiers_std import sandbox
from evsys_verifiers_std.code_tests import CodeTests, extract_code

pytestmark = pytest.mark.skipif(
    sandbox.no_sandbox() is not None, reason=f"this machine makes no sandbox: {sandbox.no_sandbox()}"
)

DOUBLE = "def double(x):\n    return 2 * x\n"


def judged(code: str, tests: object, **params: object) -> Score:
    said = CodeTests(**params).judged(code, tests, {})
    assert isinstance(said, Score)
    return said


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("```python\na = 1\n```", "a = 1"),
        ("First:\n```\na = 1\n```\nbetter:\n```py\na = 2\n```\nDone.", "a = 2"),
        ("```python\na = 1\n```\n```bash\nls\n```", "a = 1"),
        ("1. So:\n   ```python\n   if a:\n       b\n   ```", "if a:\n    b"),
        ("~~~python\na = '''\n```\n'''\n~~~", "a = '''\n```\n'''"),
        ("````python\n```\n````", "```"),
        ('```python title="x.py"\r\na = 1\r\n```', "a = 1"),
        ("```python\na = 1", "```python\na = 1"),
        ("a = 1", "a = 1"),
        (" \n", None),
        ("```bash\nls\n```", "```bash\nls\n```"),
    ],
)
def test_the_last_block_of_python_is_the_code(answer, code):
    assert extract_code(answer, unfenced=True) == code


def test_without_a_block_there_is_no_code_where_one_is_required():
    assert extract_code("a = 1", unfenced=False) is None
    score = CodeTests(unfenced=False).judged("a = 1", ["assert a"], {})
    assert (score.value, score.metadata["error"]) == (0.0, "the answer has no block of Python code")


def test_an_answer_full_of_fences_is_read_in_linear_time():
    assert extract_code("```a\n" * 200_000, unfenced=False) is None


def test_the_score_is_the_share_of_tests_that_pass_and_each_is_a_component():
    score = judged(DOUBLE, ["assert double(2) == 4", "assert double(3) == 5", "assert double('a') == 'aa'"])
    assert score.value == pytest.approx(2 / 3)
    assert score.components == {"test_1": 1.0, "test_2": 0.0, "test_3": 1.0}
    assert score.metadata["sandboxed"] is True
    assert score.metadata["errors"] == {"test_2": "AssertionError: "}


def test_all_or_nothing_gives_nothing_for_a_part():
    tests = ["assert double(2) == 4", "assert double(3) == 5"]
    assert judged(DOUBLE, tests, partial=False).value == 0.0
    assert judged(DOUBLE, tests[:1], partial=False).value == 1.0


def test_many_tests_are_logged_as_one_share():
    score = judged(
        DOUBLE,
        {"tests": [{"args": [n], "returns": 2 * min(n, 29)} for n in range(40)], "entry_point": "double"},
    )
    assert score.components == {"passed": 0.75}
    assert (score.value, len(score.metadata["errors"])) == (0.75, 5)


@pytest.mark.parametrize(
    ("code", "tests"),
    [
        ("def f(*, n):\n    return (n, [n])", {"tests": [{"kwargs": {"n": 1}, "returns": [1, [1]]}], "entry_point": "f"}),
        ("class A:\n    def go(self, x):\n        return x + 1", {"tests": [{"args": [1], "returns": 2}], "entry_point": "A.go"}),
        ("def f(x):\n    return x", {"tests": "def check(candidate):\n    assert candidate(3) == 3", "entry_point": "f"}),
        ("def f(x):\n    return x", "def test_a():\n    assert f(1) == 1\n\ndef test_b():\n    assert f(2) == 2"),
        (
            "def f(x):\n    return x",
            "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(f(1), 1)",
        ),
        ("def f(l):\n    l.sort()", "l = [2, 1]\nf(l)\nassert l == [1, 2]"),
        ("def f(d, s):\n    d['a'] = 1\n    s.add(2)", "d, s = {}, set()\nf(d, s)\nassert (d, s) == ({'a': 1}, {2})"),
        ("def f():\n    raise KeyError('k')", "try:\n    f()\nexcept KeyError:\n    pass\nelse:\n    assert False"),
        ("def f():\n    yield from (1, 2)", "assert list(f()) == [1, 2]"),
        (
            "def f():\n    return {1: (2.5, {3}), 'x': b'y', None: frozenset([1j])}, 10**400, range(3), float('inf')",
            "assert f() == ({1: (2.5, {3}), 'x': b'y', None: frozenset([1j])}, 10**400, range(3), float('inf'))",
        ),
        (
            "class Stack:\n    def __init__(self):\n        self.items = []\n    def push(self, x):\n        self.items.append(x)",
            "s = Stack()\ns.push(3)\nassert s.items == [3]",
        ),
        ("import sys\nprint(sum(map(int, sys.stdin)))", [{"input": "1\n2\n", "output": "3\n\n"}]),
        ("if __name__ == '__main__':\n    print('é ')", {"input": "", "output": "é"}),
        ("import json, dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int\ndef f():\n    return P(1).x", "assert f() == 1"),
        ("import threading\ndef f():\n    t = threading.Thread(target=print)\n    t.start()\n    t.join()\n    return 1", "assert f() == 1"),
        ("import tempfile\ndef f():\n    with tempfile.TemporaryFile() as a:\n        return a.write(b'abc')", "assert f() == 3"),
    ],
)  # fmt: skip
def test_right_code_passes(code, tests):
    score = judged(code, tests)
    assert (score.value, score.metadata.get("errors")) == (1.0, None)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("def double(x)", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("def other(x):\n    return x", "AttributeError"),
        ("raise SystemExit", "the program has ended"),
        ("def double(x):\n    raise ValueError('no')", "ValueError: no"),
        ("def double(x):\n    return double(x)", "RecursionError"),
    ],
)
def test_wrong_code_is_a_zero_that_says_why(code, error):
    score = judged(code, {"tests": [{"args": [2], "returns": 4}], "entry_point": "double"})
    assert score.value == 0.0
    assert error in score.metadata["errors"]["test_1"]


def test_a_test_that_ends_the_program_takes_along_those_after_it_and_none_before():
    code = "import os\ndef f(x):\n    if x == 2: os._exit(0)\n    return x"
    score = judged(code, ["assert f(1) == 1", "assert f(2) == 2", "assert f(3) == 3"])
    assert score.components == {"test_1": 1.0, "test_2": 0.0, "test_3": 0.0}


def test_a_test_that_hangs_is_a_zero_and_those_before_it_count():
    code = "def f(x):\n    while x: pass\n    return x"
    score = judged(code, ["assert f(0) == 0", "assert f(1) == 1"], timeout_seconds=0.5)
    assert score.components == {"test_1": 1.0, "test_2": 0.0}
    assert "0.5 s" in score.metadata["errors"]["test_2"]


def test_programs_share_the_time_with_each_other():
    code = "word = input()\nwhile word == 'hang': pass\nprint(word)"
    words = ["good", "hang", "late"]
    score = judged(code, [{"input": word, "output": word} for word in words], timeout_seconds=0.8)
    assert score.components == {"test_1": 1.0, "test_2": 0.0, "test_3": 0.0}
    assert "0.8 s, which is the time of all tests together" in score.metadata["errors"]["test_3"]


def test_programs_have_the_time_that_the_calls_left():
    tests = ["assert f(1) == 1", {"input": "", "output": ""}]
    score = judged("def f(x):\n    while x: pass", tests, timeout_seconds=0.5)
    assert score.components == {"test_1": 0.0, "test_2": 0.0}


def test_setup_and_prefix_run_each_in_its_own_process():
    score = judged(
        "def f(x):\n    return sqrt(x)",
        ["assert isclose(f(2) ** 2, 2)", "import math\nassert not hasattr(math, 'mine')"],
        setup="from math import isclose",
        prefix="import math\nmath.mine = 1\nfrom math import sqrt",
    )
    assert score.value == 1.0


def test_a_setup_that_fails_is_no_verdict_on_the_code():
    with pytest.raises(ValueError, match="the setup of the tests fails: ZeroDivisionError"):
        CodeTests(setup="1 / 0").judged(DOUBLE, ["assert double(1) == 2"], {})


@pytest.mark.parametrize(
    ("expected", "params", "message"),
    [
        (None, {}, "there are no tests"),
        ([], {}, "there are no tests"),
        ({"tests": []}, {}, "there are no tests"),
        ({"tests": ["assert 1"], "timeout": 3}, {}, "unknown key 'timeout'"),
        (["assert f("], {}, "test 1 is not valid Python"),
        (["assert f()", " \n# nothing"], {}, "test 2 is empty"),
        ([3], {}, "test 1 is a int"),
        ([{"args": [1], "returns": 2}], {}, "no entry_point"),
        ([{"args": 1, "returns": 2}], {"entry_point": "f"}, "args is a list"),
        ([{"input": "1", "output": 2}], {}, "are texts"),
        ([{"input": "1"}], {}, "test 1 has input"),
        (["assert 1"], {"entry_point": "a.b.c"}, "is not a name"),
        (["assert 1"], {"setup": "("}, "setup is not valid Python"),
        ({"tests": "assert 1", "solution": "("}, {}, "solution is not valid Python"),
        ("def check(candidate):\n    assert candidate(1)", {}, "only defines things"),
        (
            "'a text'\nimport math\nclass T:\n    def test_a(self):\n        assert 0",
            {},
            "only defines things",
        ),
        ("async def test_a():\n    assert f(1)", {}, "test_a is async"),
    ],
)
def test_tests_that_can_not_be_run_are_refused_before_any_model_is_asked(expected, params, message):
    with pytest.raises(ValueError, match=message):
        CodeTests(**params).check(expected)


def test_the_solution_of_a_task_is_an_answer_that_passes_its_tests():
    expected = {"tests": "assert double(2) == 4", "solution": DOUBLE}
    answer = CodeTests().oracle(expected, {})
    assert judged(answer, expected, unfenced=False).value == 1.0
    assert CodeTests().oracle("assert double(2) == 4", {}) is None


def test_tests_of_the_params_win_over_what_the_task_expects():
    score = CodeTests(tests="assert double(2) == 4").judged(DOUBLE, ["assert double(2) == 5"], {})
    assert score.value == 1.0


def test_a_sandbox_that_fails_is_no_score(monkeypatch: pytest.MonkeyPatch):
    verifier = CodeTests()
    monkeypatch.setattr(sandbox, "_bwrap", lambda _filtering: ["/no/such/bwrap"])
    said = verifier.judged(DOUBLE, ["assert double(2) == 4"], {})
    assert isinstance(said, NoScore)
    assert (said.retryable, "sandbox" in said.reason) == (True, True)


def test_a_sandbox_that_ends_at_once_is_no_score(monkeypatch: pytest.MonkeyPatch):
    verifier = CodeTests()
    monkeypatch.setattr(sandbox, "_python", lambda: "/usr/bin/true")
    for tests in (["assert double(2) == 4"], [{"input": "", "output": ""}]):
        said = verifier.judged(DOUBLE, tests, {})
        assert isinstance(said, NoScore)
        assert "can't be started" in said.reason


def test_without_a_sandbox_it_is_refused_with_a_hint_when_it_is_made(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox, "no_sandbox", lambda: "bubblewrap isn't installed")
    with pytest.raises(PluginLoadError, match="this machine has none: bubblewrap isn't installed") as caught:
        Registry().build("verifier", "code_tests", {})
    assert "allow_unsandboxed: true" in str(caught.value.hint)


def test_code_that_runs_without_a_sandbox_is_marked_in_each_score_and_warned_of(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(sandbox, "no_sandbox", lambda: "bubblewrap isn't installed")
    verifier = CodeTests(allow_unsandboxed=True)
    score = verifier.judged(DOUBLE, ["assert double(2) == 4"], {})
    assert (score.value, score.metadata["sandboxed"]) == (1.0, False)
    assert "without a sandbox" in verifier.warnings[0]
    program = verifier.judged("print(input())", [{"input": "a", "output": "a"}], {})
    assert (program.value, program.metadata["sandboxed"]) == (1.0, False)


def test_where_there_is_a_sandbox_it_is_used_even_if_it_may_be_left_out():
    verifier = CodeTests(allow_unsandboxed=True)
    assert verifier.warnings == ()
    assert verifier.judged(DOUBLE, ["assert double(1) == 2"], {}).metadata["sandboxed"] is True


def test_answers_are_tested_side_by_side_but_no_more_than_there_are_processors(
    monkeypatch: pytest.MonkeyPatch,
):
    running: list[int] = []
    lock, most = threading.Lock(), 0
    real = CodeTests.judged

    def counting(self: CodeTests, *arguments: object) -> Score:
        nonlocal most
        with lock:
            running.append(1)
            most = max(most, len(running))
        try:
            return real(self, *arguments)
        finally:
            with lock:
                running.pop()

    monkeypatch.setattr(CodeTests, "judged", counting)

    async def main() -> list[Score]:
        verifier = CodeTests()
        calls = (verifier(DOUBLE, [f"assert double({n}) == {2 * n}"], {}) for n in range(12))
        return await asyncio.gather(*calls)

    assert [score.value for score in asyncio.run(main())] == [1.0] * 12
    assert 1 <= most <= (os.cpu_count() or 1)

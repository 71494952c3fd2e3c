"""Each standard verifier gives its own right answer full marks, and its own wrong one none."""

import asyncio
from typing import Any

import pytest

from evsys import Registry, use_registry
from evsys.types import HarborTask, Score, VerifierSpec
from evsys_runtime.evaluation.made_answers import counterexample_of, made_rollout, oracle_of
from evsys_runtime.evaluation.verify import bind_verifier, make_verify

FORM = {"verifier": "format_only", "params": {"max_characters": 20}, "weight": 0.2}
RIGHT = [
    ("exact_match", "a", {}),
    ("exact_match", [1, 2], {}),
    ("contains", ["dog", "cat"], {}),
    ("contains", "Dog", {"case_sensitive": False}),
    ("tool_calls_match", [], {}),
    ("tool_calls_match", {"name": "send", "arguments": {"to": "bob", "times": 2}}, {}),
    ("tool_calls_match", [{"name": "a"}, {"name": "b"}], {"ordered": True}),
    ("numeric", 3.5, {"decimal": ","}),
    ("numeric", "5 km", {"after": "####", "pick": "only"}),
    ("numeric", {"value": 1e-7, "unit": "m"}, {}),
    ("numeric", ["1/3", 2], {}),
    ("numeric", "5 apples", {}),
    ("format_only", None, {"max_characters": 20}),
    ("format_only", None, {"tags": ["think", "answer"], "min_characters": 100, "only_tags": True}),
    ("format_only", None, {"forbidden": ["x"]}),
    ("json_schema", {"enum": [1, 2]}, {}),
    ("math_equal", r"\frac{1}{2}", {}),
    ("math_equal", "x+1", {}),
    ("math_equal", "$x^2$", {}),
    ("math_equal", r"\boxed{7}", {}),
    ("math_equal", r"\{1,2\}", {}),
    ("composite", "a", {"parts": {"right": {"verifier": "exact_match"}, "short": FORM}}),
]


def judged(name: str, expected: Any, params: Any, made: Any) -> tuple[str | None, float | None]:
    """The answer that `made` gives for a verifier, and its reward."""
    registry = Registry()
    spec = VerifierSpec(name=name, expected=expected, params=params)

    async def ask() -> tuple[str | None, float | None]:
        answer = await made(bind_verifier(spec, registry), expected)
        if answer is None:
            return None, None
        text = answer if isinstance(answer, str) else answer.text
        task = HarborTask(task_id="t", instruction="", verifier=spec)
        score = await make_verify(registry)(task, made_rollout(task, text))
        return text, score.value if isinstance(score, Score) else None

    with use_registry(registry):
        return asyncio.run(ask())


@pytest.mark.parametrize(("name", "expected", "params"), RIGHT)
def test_the_right_answer_gets_full_marks(name, expected, params):
    assert judged(name, expected, params, oracle_of)[1] == 1.0


@pytest.mark.parametrize(
    ("name", "expected", "params"),
    [case for case in RIGHT if case[0] in {"tool_calls_match", "format_only", "json_schema"}],
)
def test_the_wrong_answer_gets_none(name, expected, params):
    assert judged(name, expected, params, counterexample_of)[1] == 0.0


@pytest.mark.parametrize(
    ("name", "expected", "params"),
    [
        ("regex_match", "a+", {}),
        ("json_schema", {"type": "object"}, {}),
        ("format_only", None, {"forbidden": ["x", "0", "?"], "min_characters": 1}),
        (
            "composite",
            "z",
            {
                "parts": {
                    "z": {"verifier": "contains"},
                    "q": {"verifier": "regex_match", "params": {"pattern": "q"}},
                }
            },
        ),
    ],
)
def test_where_nobody_can_tell_a_right_answer_there_is_none(name, expected, params):
    assert judged(name, expected, params, oracle_of) == (None, None)

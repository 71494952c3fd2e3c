import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.types import Message, Rollout
from evsys_verifiers_std.format_only import FormatOnly

BOTH = {"tags": ("think", "answer")}


@pytest.mark.parametrize(
    ("output", "params", "reward"),
    [
        ("<think>a</think><answer>b</answer>", BOTH, 1.0),
        ("Well: <think>a</think> so <answer>b</answer>!", BOTH, 1.0),
        ("Well: <think>a</think> so <answer>b</answer>!", {**BOTH, "only_tags": True}, 0.0),
        (" <think>a\n</think>\n<answer>b</answer>\n", {**BOTH, "only_tags": True}, 1.0),
        ("<think>a</think><answer>b</answer> bye", {**BOTH, "only_tags": True}, 0.0),
        ("<answer>b</answer><think>a</think>", BOTH, 0.0),
        ("<think>a<answer>b</answer></think>", BOTH, 0.0),
        ("<think>a</think><answer>b</answer><answer>c</answer>", BOTH, 0.0),
        ("<think>a</think><answer>b", BOTH, 0.0),
        ("</think>a<think><answer>b</answer>", BOTH, 0.0),
        ("<think> \n</think><answer>b</answer>", BOTH, 0.0),
        ("<answer>b</answer>", BOTH, 0.0),
        ("<Think>a</Think><answer>b</answer>", BOTH, 0.0),
        ("", BOTH, 0.0),
        ("  12345  ", {"max_characters": 5}, 1.0),
        ("123456", {"max_characters": 5}, 0.0),
        ("  1   ", {"min_characters": 2}, 0.0),
        ("12", {"min_characters": 2}, 1.0),
        ("As an AI", {"forbidden": ("As an AI", "sorry")}, 0.0),
        ("Fine", {"forbidden": ("As an AI", "sorry")}, 1.0),
    ],
)
def test_only_the_form_counts(output, params, reward):
    assert FormatOnly(**params)(output, None, {}) == reward
    assert FormatOnly(**params)(output, "anything", {}) == reward
    assert FormatOnly(max_characters=9999)(output, None, {"max_characters": None, **params}) == reward


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "asks for nothing"),
        ({"only_tags": True, "max_characters": 3}, "only_tags needs tags"),
        ({"tags": ("<think>",)}, "without brackets"),
        ({"tags": ("a", "a")}, "twice"),
        ({"forbidden": ("",)}, "every answer contains"),
        ({"min_characters": 3, "max_characters": 2}, "above max_characters"),
        ({"max_characters": 0}, "max_characters"),
    ],
)
def test_a_form_that_every_or_no_answer_has_is_refused(params, message):
    with pytest.raises(ValueError, match=message):
        FormatOnly(**params)


INSIDE = st.text(st.characters(exclude_characters="<>", exclude_categories=["Cs"])).filter(str.strip)


@given(st.lists(INSIDE, min_size=2, max_size=2), st.sampled_from(["", " ", "\n"]))
def test_whatever_stands_inside_the_tags_is_fine(inside, between):
    text = f"<think>{inside[0]}</think>{between}<answer>{inside[1]}</answer>"
    assert FormatOnly(**BOTH, only_tags=True)(text, None, {}) == 1.0


@pytest.mark.parametrize(
    ("reasoning", "content", "reward"),
    [("hm", "<answer>4</answer>", 1.0), (None, "<answer>4</answer>", 0.0), ("hm", "", 0.0)],
)
def test_reasoning_counts_as_the_think_tag(reasoning, content, reward):
    message = Message(role="assistant", content=content, reasoning=reasoning)
    rollout = Rollout(task_id="t", sample_index=0, messages=(message,), output=content)
    verifier = FormatOnly(tags=["think", "answer"], only_tags=True)
    assert verifier(content, None, {}, rollout) == reward

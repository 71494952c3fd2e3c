import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys.types import Message, Rollout, ToolCall, Turn
from evsys_verifiers_std.verifiers import Contains, ExactMatch, RegexMatch, ToolCallsMatch

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


# --- exact_match ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "expected", "params", "reward"),
    [
        ("Paris", "Paris", {}, 1.0),
        (" Paris\n", "Paris ", {}, 1.0),
        (" Paris", "Paris", {"strip": False}, 0.0),
        ("paris", "Paris", {}, 0.0),
        ("PARIS", "paris", {"case_sensitive": False}, 1.0),
        ("STRASSE", "straße", {"case_sensitive": False}, 1.0),
        ("Paris.", "Paris", {}, 0.0),
        ("", "Paris", {}, 0.0),
        ("", "", {}, 1.0),
        ("4", 4, {}, 1.0),
        ("true", True, {}, 1.0),
        ("True", True, {}, 0.0),
        ("0.5", 0.5, {}, 1.0),
        ("b", ["a", "b"], {}, 1.0),
        ("c", ["a", "b"], {}, 0.0),
    ],
)
def test_exact_match(output, expected, params, reward):
    assert ExactMatch(**params)(output, expected, {}) == reward
    assert ExactMatch()(output, expected, params) == reward


@pytest.mark.parametrize("expected", [None, [], {"a": 1}, [None], [["a"]]])
@pytest.mark.parametrize("verifier", [ExactMatch(), Contains()])
def test_an_expectation_that_is_no_text_is_refused_and_gives_no_reward(verifier, expected):
    with pytest.raises(ValueError, match="`expected`"):
        verifier("answer", expected, {})
    with pytest.raises(ValueError, match="`expected`"):
        verifier.check(expected)


@given(st.text(), st.text())
def test_exact_match_is_equality_when_nothing_is_normalised(output, expected):
    verifier = ExactMatch(strip=False)
    assert verifier(output, expected, {}) == float(output == expected)
    assert verifier(expected, [output, expected], {}) == 1.0


def test_an_unknown_param_is_refused():
    with pytest.raises(TypeError):
        ExactMatch(stripp=True)
    with pytest.raises(TypeError):
        ExactMatch()("a", "a", {"stripp": True})


# --- contains ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "expected", "reward"),
    [
        ("It is unsafe.", "safe", 0.0),
        ("It is safe.", "safe", 1.0),
        ("112 apples", "12", 0.0),
        ("12.5 kg", 12, 0.0),
        ("1,112 or 3.12", "12", 0.0),
        ("That makes 12.", "12", 1.0),
        ("(12)", 12, 1.0),
        ("café", "caf", 0.0),
        ("use C++ here", "C++", 1.0),
        ("a new york minute", "new york", 1.0),
    ],
)
def test_contains_finds_whole_words_and_numbers_if_asked(output, expected, reward):
    assert Contains(word_boundary=True)(output, expected, {}) == reward


@pytest.mark.parametrize(
    ("output", "expected", "params", "reward"),
    [
        ("It is Paris.", "Paris", {}, 1.0),
        ("It is paris.", "Paris", {}, 0.0),
        ("It is paris.", "Paris", {"case_sensitive": False}, 1.0),
        ("a and b", ["a", "b"], {}, 1.0),
        ("a only", ["a", "b"], {}, 0.0),
        ("a only", ["a", "b"], {"require": "any"}, 1.0),
        ("nothing", ["a", "b"], {"require": "any"}, 0.0),
        ("42 apples", 42, {}, 1.0),
    ],
)
def test_contains(output, expected, params, reward):
    assert Contains(**params)(output, expected, {}) == reward
    assert Contains()(output, expected, params) == reward


@pytest.mark.parametrize("expected", ["", ["a", ""]])
def test_contains_refuses_a_text_that_every_answer_contains(expected):
    with pytest.raises(ValueError, match="every answer contains"):
        Contains()("anything", expected, {})
    with pytest.raises(ValueError, match="every answer contains"):
        Contains().check(expected)


def test_contains_refuses_an_unknown_requirement():
    with pytest.raises(ValueError, match="require"):
        Contains(require="some")


# --- regex_match ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "expected", "params", "reward"),
    [
        ("the answer is 42.", r"\b42\b", {}, 1.0),
        ("the answer is 421.", r"\b42\b", {}, 0.0),
        ("42 apples", r"\d+", {"full": True}, 0.0),
        (" 42 ", r"\d+", {"full": True}, 1.0),
        (" 42 ", r"\d+", {"full": True, "strip": False}, 0.0),
        ("ABC", "abc", {}, 0.0),
        ("ABC", "abc", {"ignore_case": True}, 1.0),
        ("ABC", "(?i)abc", {"dot_all": True}, 1.0),
        ("a\nb", "a.b", {}, 0.0),
        ("a\nb", "a.b", {"dot_all": True}, 1.0),
        ("a\nb", "^b$", {"multiline": True}, 1.0),
        ("a\nb", "^b$", {}, 0.0),
        ("42", None, {"pattern": "4."}, 1.0),
        ("42", "ignored", {"pattern": "4."}, 1.0),
        ("cut \ud83d", "cut .$", {}, 1.0),
    ],
)
def test_regex_match(output, expected, params, reward):
    assert RegexMatch(**params)(output, expected, {}) == reward
    assert RegexMatch()(output, expected, params) == reward


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "(?P<1>a)", "a{99999999999999999999}"])
def test_a_pattern_that_cannot_be_compiled_is_a_problem_of_the_configuration(pattern):
    with pytest.raises(ValueError, match="is not a regular expression"):
        RegexMatch(pattern=pattern)
    with pytest.raises(ValueError, match="is not a regular expression"):
        RegexMatch().check(pattern)


def test_no_pattern_is_refused():
    for expected in (None, 4, ["a"]):
        with pytest.raises(ValueError, match="there is no pattern"):
            RegexMatch()("a", expected, {})
    with pytest.raises(ValueError, match="timeout_seconds"):
        RegexMatch(timeout_seconds=0)


def test_a_pattern_that_backtracks_without_end_is_stopped_and_the_next_one_works():
    endless = RegexMatch(timeout_seconds=0.2)
    with pytest.raises(TimeoutError, match=r"'\(a\+\)\+\$' took longer than 0\.2 s"):
        endless("a" * 40 + "!", "(a+)+$", {})
    assert endless("aaa", "(a+)+$", {}) == 1.0


def test_a_long_answer_is_matched_whole():
    assert RegexMatch()("x" * 1_000_000 + "42", "42$", {}) == 1.0


# --- tool_calls_match -------------------------------------------------------------------------------------------

ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}
SUB = {"name": "sub", "arguments": {"a": 3}}


def rollout(*calls: ToolCall) -> Rollout:
    """Each call in a turn of its own."""
    turns = tuple(Turn(message=Message(role="assistant", tool_calls=(call,))) for call in calls)
    return Rollout(task_id="t", sample_index=0, turns=turns)


def made(value: dict) -> ToolCall:
    return ToolCall(name=value["name"], arguments=value["arguments"])


@pytest.mark.parametrize(
    ("calls", "expected", "params", "reward"),
    [
        ([ADD], ADD, {}, 1.0),
        ([ADD], [ADD], {}, 1.0),
        ([SUB, ADD], [ADD, SUB], {}, 1.0),
        ([SUB, ADD], [ADD, SUB], {"ordered": True}, 0.0),
        ([ADD, SUB], [ADD, SUB], {"ordered": True}, 1.0),
        ([ADD, SUB], [ADD], {}, 0.0),
        ([ADD, SUB], [ADD], {"allow_extra": True}, 1.0),
        ([ADD, SUB, ADD], [ADD, ADD], {"allow_extra": True, "ordered": True}, 1.0),
        ([ADD], [ADD, ADD], {"allow_extra": True}, 0.0),
        ([ADD], [ADD, SUB], {}, 0.0),
        ([], [], {}, 1.0),
        ([ADD], [], {}, 0.0),
        ([], [ADD], {}, 0.0),
        ([{"name": "add", "arguments": {"b": 2.0, "a": 1}}], ADD, {}, 1.0),
        ([{"name": "add", "arguments": '{"a": 1, "b": 2}'}], ADD, {}, 1.0),
        ([{"name": "add", "arguments": {"a": True, "b": 2}}], ADD, {}, 0.0),
        ([{"name": "add", "arguments": {"a": "1", "b": 2}}], ADD, {}, 0.0),
        ([{"name": "add", "arguments": {"a": 1}}], ADD, {}, 0.0),
        ([ADD], {"name": "add", "arguments": {"a": 1}}, {"arguments": "subset"}, 1.0),
        ([ADD], {"name": "add", "arguments": {"a": 2}}, {"arguments": "subset"}, 0.0),
        ([{"name": "add", "arguments": "not json"}], ADD, {"arguments": "subset"}, 0.0),
        ([{"name": "add", "arguments": {}}], ADD, {"arguments": "ignore"}, 1.0),
        ([SUB], ADD, {"arguments": "ignore"}, 0.0),
    ],
)
def test_tool_calls_match(calls, expected, params, reward):
    seen = rollout(*map(made, calls))
    assert ToolCallsMatch(**params)("", expected, {}, seen) == reward
    assert ToolCallsMatch()("", expected, params, seen) == reward
    text = "".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls)
    assert ToolCallsMatch(**params)(text, expected, {}) == reward


def test_a_greedy_pairing_of_loose_calls_does_not_fail_a_right_answer():
    both, one = {"name": "f", "arguments": {"a": 1, "b": 2}}, {"name": "f", "arguments": {"a": 1}}
    wanted = [{"name": "f", "arguments": {"a": 1}}, {"name": "f", "arguments": {"a": 1, "b": 2}}]
    assert ToolCallsMatch(arguments="subset")("", wanted, {}, rollout(made(both), made(one))) == 1.0


@pytest.mark.parametrize(
    ("text", "expected", "reward"),
    [
        ("```json\n%s\n```", [ADD], 1.0),
        ("I call %s now.", [ADD], 1.0),
        ("<tool_call>%s", [ADD], 1.0),
        ("```json\n%s\n```", [], 0.0),
        ("I call %s now.", [], 0.0),
        ("<tool_call>%s", [], 0.0),
        ("<think>%s</think>No call.", [], 1.0),
        ("<think>%s</think>No call.", [ADD], 0.0),
    ],
)
def test_a_call_in_the_text_is_read_in_any_form_but_not_from_the_reasoning(text, expected, reward):
    assert ToolCallsMatch()(text % json.dumps(ADD), expected, {}) == reward


def test_calls_of_the_rollout_win_over_those_in_the_text():
    text = f"<tool_call>{json.dumps(SUB)}</tool_call>"
    assert ToolCallsMatch()(text, ADD, {}, rollout(made(ADD))) == 1.0
    assert ToolCallsMatch()(text, SUB, {}, rollout()) == 1.0


def test_a_rollout_without_turns_is_read_from_its_messages():
    seen = Rollout(
        task_id="t", sample_index=0, messages=(Message(role="assistant", tool_calls=(made(ADD),)),)
    )
    assert ToolCallsMatch()("", ADD, {}, seen) == 1.0


@pytest.mark.parametrize(
    "text", [json.dumps(ADD), json.dumps([ADD]), json.dumps({"function": ADD}), f"  {json.dumps(ADD)}\n"]
)
def test_bare_json_in_the_text_is_a_call(text):
    assert ToolCallsMatch()(text, ADD, {}) == 1.0


@pytest.mark.parametrize("text", ["add(1, 2)", "{", "[]", '[{"name": "add"}, 3]', "<tool_call>{</tool_call>"])
def test_a_text_without_a_call_makes_none(text):
    assert ToolCallsMatch()(text, ADD, {}) == 0.0
    assert ToolCallsMatch()(text, [], {}) == 1.0


@pytest.mark.parametrize("expected", [None, "add", 3, [{"arguments": {}}], [{"name": ""}], [[]]])
def test_an_expectation_that_is_no_call_is_refused(expected):
    with pytest.raises(ValueError, match="`expected`"):
        ToolCallsMatch()("", expected, {})
    with pytest.raises(ValueError, match="`expected`"):
        ToolCallsMatch().check(expected)


@settings(max_examples=30)
@given(
    st.lists(
        st.builds(dict, name=st.sampled_from("fgh"), arguments=st.dictionaries(st.text(max_size=2), JSON))
    )
)
def test_what_was_expected_matches_itself_in_any_order(calls):
    seen = rollout(*map(made, reversed(calls)))
    assert ToolCallsMatch()("", calls, {}, seen) == 1.0
    assert ToolCallsMatch(arguments="subset")("", calls, {}, seen) == 1.0


@given(st.text() | JSON.map(json.dumps))
def test_any_text_is_judged(text):
    assert ToolCallsMatch()(text, [ADD], {}) in (0.0, 1.0)
    assert ExactMatch()(text, "a", {}) in (0.0, 1.0)
    assert Contains()(text, "a", {}) in (0.0, 1.0)


@given(st.text(max_size=30))
def test_any_text_is_matched_against_a_pattern_as_re_does(text):
    import re

    assert RegexMatch(strip=False)(text, r"[a-f]\w", {}) == float(re.search(r"[a-f]\w", text) is not None)

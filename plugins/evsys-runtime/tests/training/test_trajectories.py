import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.types import Message, Rollout, Turn
from evsys_runtime.training.precision import in_float32
from evsys_runtime.training.trajectories import RejectedRolloutError, to_data, to_datum, trajectories

SAID = Message(role="assistant", content="x")


def turn(prompt, tokens, logprobs=None, version=None):
    logprobs = [-0.1 * (place + 1) for place in range(len(tokens))] if logprobs is None else logprobs
    return Turn(message=SAID, prompt_tokens=prompt, tokens=tokens, logprobs=logprobs, policy_version=version)


def rollout(*turns, **fields):
    return Rollout(task_id="t", sample_index=3, turns=turns, **{"policy_version": 5, **fields})


def test_turns_become_one_sequence_where_the_next_prompt_goes_on_with_it():
    [one] = trajectories(rollout(turn([1, 2], [3, 4]), turn([1, 2, 3, 4, 9, 9], [5])))
    assert one.tokens.tolist() == [1, 2, 3, 4, 9, 9, 5]
    assert one.mask.tolist() == [False, False, True, True, False, False, True]
    assert one.logprobs.tolist() == [0, 0, -0.1, -0.2, 0, 0, -0.1]
    assert one.turns.tolist() == [-1, -1, 0, 0, -1, -1, 1]
    assert one.versions.tolist() == [-1, -1, 5, 5, -1, -1, 5]
    assert (len(one), one.sampled, one.task_id, one.sample_index, one.row) == (7, 3, "t", 3, 0)


def test_a_prompt_that_rewrites_the_history_begins_another_sequence():
    first, second = trajectories(rollout(turn([1, 2], [3, 4]), turn([1, 2, 4, 9], [5])))
    assert first.tokens.tolist() == [1, 2, 3, 4]
    assert second.tokens.tolist() == [1, 2, 4, 9, 5]
    assert second.mask.tolist() == [False] * 4 + [True]
    assert (first.row, second.row) == (0, 1)


def test_two_conversations_in_turn_stay_two_sequences():
    one, other = trajectories(
        rollout(turn([1], [2]), turn([7], [8]), turn([1, 2, 3], [4]), turn([7, 8, 9], [6]))
    )
    assert (one.tokens.tolist(), other.tokens.tolist()) == ([1, 2, 3, 4], [7, 8, 9, 6])
    assert [span.turn for span in other.spans] == [1, 3]


def test_a_conversation_taken_up_again_from_the_middle_trains_no_token_twice():
    whole, again = trajectories(rollout(turn([1], [2]), turn([1, 2, 3], [4]), turn([1, 2, 5], [6])))
    assert whole.sampled == 2
    assert again.tokens.tolist() == [1, 2, 5, 6]
    assert again.mask.tolist() == [False, False, False, True]


def test_each_token_has_the_version_of_the_weights_that_sampled_it():
    [one] = trajectories(
        rollout(turn([1], [2], version=7), turn([1, 2], [3], version=8), turn([1, 2, 3], [4]))
    )
    assert one.versions.tolist() == [-1, 7, 8, 5]
    assert one.oldest_version == 5
    [unknown] = trajectories(rollout(turn([1], [2]), policy_version=None))
    assert unknown.versions.tolist() == [-1, -1]
    assert unknown.oldest_version is None


def test_numbers_may_come_in_arrays_of_any_width():
    tokens = np.array([3, 4], np.int32)
    [one] = trajectories(rollout(turn(np.array([1], np.uint16), tokens, np.array([-0.5, 0], np.float32))))
    assert one.tokens.dtype == np.int64
    assert one.logprobs.tolist() == [0, -0.5, 0]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (turn(None, [3]), "no_prompt"),
        (turn([], [3]), "no_prompt"),
        (turn([1], []), "no_tokens"),
        (Turn(message=SAID, prompt_tokens=[1]), "no_tokens"),
        (Turn(message=SAID, prompt_tokens=[1], tokens=[2]), "no_logprobs"),
        (turn([1], [2, 3], [-0.1]), "length_mismatch"),
        (turn([1], [2], [-0.1, -0.2]), "length_mismatch"),
        (turn([1], [2], []), "length_mismatch"),
        (turn([1], [2], [float("nan")]), "bad_logprob"),
        (turn([1], [2], [float("-inf")]), "bad_logprob"),
        (turn([1], [2], [-9999.0]), "bad_logprob"),
        (turn([1], [2], [None]), "bad_logprob"),
        (turn([1], [2], ["x"]), "bad_logprob"),
        (turn([1], [2], [[-0.1]]), "bad_logprob"),
        (turn([1], [-2]), "bad_token"),
        (turn([1], [2.5]), "bad_token"),
        (turn([True], [2]), "bad_token"),
        (turn([[1]], [2]), "bad_token"),
        (turn([[1], [1, 2]], [2]), "bad_token"),
        (turn([1], [2**70]), "bad_token"),
    ],
)
def test_one_turn_that_cannot_be_right_rejects_the_rollout_with_a_reason(wrong, reason):
    with pytest.raises(RejectedRolloutError) as caught:
        trajectories(rollout(turn([1], [2]), wrong))
    assert caught.value.reason == reason
    assert "turn 1" in str(caught.value) or "of turn 1" in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).reason == reason


def test_a_rollout_without_turns_is_rejected_and_what_its_agent_left_is_told():
    with pytest.raises(RejectedRolloutError) as caught:
        trajectories(rollout())
    assert caught.value.reason == "no_turns"
    with pytest.raises(RejectedRolloutError, match="3 prompts") as caught:
        trajectories(rollout(metadata={"complaint": "token ids refused: 3 prompts, 2 completions"}))
    assert caught.value.reason == "token_ids_refused"


def test_a_datum_has_each_number_where_its_token_is_predicted():
    [one] = trajectories(rollout(turn([1, 2], [3, 4]), turn([1, 2, 3, 4, 9], [5])))
    datum = to_datum(one, 2.0)
    assert datum.tokens.tolist() == [1, 2, 3, 4, 9]
    inputs = {name: array.tolist() for name, array in datum.loss_inputs.items()}
    assert inputs == {
        "target_tokens": [2, 3, 4, 9, 5],
        "weights": [0, 1, 1, 0, 1],
        "logprobs": [0, -0.1, -0.2, 0, -0.1],
        "advantages": [0, 2, 2, 0, 2],
    }
    assert datum.meta == {"group": "t", "rollout": "t/3", "row": 0, "turns": (0, 1), "policy_version": 5}


def test_advantages_may_differ_by_token_and_count_only_for_the_models_own():
    [one] = trajectories(rollout(turn([1, 2], [3, 4])))
    assert to_datum(one, np.array([9.0, 9, 1, 2])).loss_inputs["advantages"].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="4 tokens"):
        to_datum(one, np.ones(3))


turns_of = st.lists(
    st.tuples(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3), min_size=1), st.booleans()),
    min_size=1,
)


@given(st.lists(turns_of), st.randoms(use_true_random=False))
def test_many_sequences_at_once_are_what_each_is_alone_in_float32(rollouts, random):
    rows = []
    for parts in rollouts:
        turns, history = [], [0]
        for between, tokens, forget in parts:
            prompt = [0, *between] if forget else [*history, *between]
            turns.append(turn(prompt, tokens))
            history = [*prompt, *tokens]
        rows += trajectories(rollout(*turns))
    advantages = [random.uniform(-3, 3) for _ in rows]
    found = to_data(rows, advantages)
    assert len(found) == len(rows)
    for datum, row, advantage in zip(found, rows, advantages, strict=True):
        alone = in_float32(to_datum(row, advantage))
        assert datum.meta == alone.meta
        assert datum.tokens.tolist() == alone.tokens.tolist()
        assert list(datum.loss_inputs) == list(alone.loss_inputs)
        for name, array in alone.loss_inputs.items():
            assert datum.loss_inputs[name].dtype == array.dtype
            assert datum.loss_inputs[name].tolist() == array.tolist()


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3), min_size=1), st.booleans()))
)
def test_every_sampled_token_is_in_one_sequence_behind_the_prompt_it_was_sampled_from(parts):
    turns, history = [], [0]
    for between, tokens, forget in parts:
        prompt = [0, *between] if forget else [*history, *between]
        turns.append(turn(prompt, tokens))
        history = [*prompt, *tokens]
    if not turns:
        return
    found = trajectories(rollout(*turns))
    assert sum(one.sampled for one in found) == sum(len(each.tokens) for each in turns)
    for one in found:
        for span in one.spans:
            said = turns[span.turn]
            assert one.tokens[: span.start].tolist() == said.prompt_tokens
            assert one.tokens[span.start : span.end].tolist() == said.tokens
            assert one.logprobs[span.start : span.end].tolist() == said.logprobs

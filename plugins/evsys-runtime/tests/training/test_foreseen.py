"""What a step that samples takes at most."""

import numpy as np

from evsys.types import HarborTask, Message
from evsys_runtime.rendering.resolve import load_renderer
from evsys_runtime.training.foreseen import foresee, task_prompt


def test_every_answer_is_as_long_as_it_may_be():
    found = foresee([[5] * 10, [6] * 20], count=3, most=8, limit=None)
    assert (found.prompt_tokens, found.answers, found.answer_tokens, found.at_once) == (30, 6, 8, 6)
    assert [len(datum.tokens) for datum in found.data] == [17] * 3 + [27] * 3
    assert [int(datum.loss_inputs["weights"].sum()) for datum in found.data] == [8] * 6
    for datum in found.data:
        np.testing.assert_array_equal(datum.tokens[1:], datum.loss_inputs["target_tokens"][:-1])


def test_answers_to_one_prompt_are_apart_from_the_first_tokens_on():
    found = foresee([[5] * 10], count=300, most=6, limit=None)
    assert len({tuple(datum.loss_inputs["target_tokens"].tolist()) for datum in found.data}) == 300
    assert max(datum.loss_inputs["target_tokens"][9:].max() for datum in found.data) < 16


def test_no_sequence_is_longer_than_the_limit():
    found = foresee([[5] * 10, [6] * 20, [7] * 30], count=1, most=100, limit=24, at_once=64)
    assert [len(datum.tokens) + 1 for datum in found.data] == [24, 24]
    assert (found.answers, found.answer_tokens, found.at_once) == (2, 14, 2)


def test_nothing_is_foreseen_where_no_prompt_leaves_room():
    assert foresee([[5] * 24], count=2, most=8, limit=24) is None
    assert foresee([], count=2, most=8, limit=None) is None


def test_a_task_is_read_as_a_plain_chat_reads_it():
    renderer = load_renderer("evsys/tiny")
    said = Message(role="user", content="Turn abc.")
    task = HarborTask(task_id="t", instruction="Turn abc.")
    assert task_prompt(task, renderer, None) == renderer.render_prompt([said])
    before = Message(role="system", content="Be brief.")
    assert task_prompt(task, renderer, "Be brief.") == renderer.render_prompt([before, said])
    several = HarborTask(task_id="t", instruction=(before, said))
    assert task_prompt(several, renderer, None) == renderer.render_prompt([before, said])

"""Sequences of a conversation, their logprobs, and how algorithms get through many of them."""

import asyncio

import attrs
import numpy as np
import pytest

from evsys.errors import DataError
from evsys.types import Datum, Message
from evsys_runtime.training.algorithm import BaseAlgorithm
from evsys_runtime.training.sequences import sequences_of, weighted_sum

ASKED = (Message(role="user", content="hi"), Message(role="assistant", content="ho"))


class Renderer:
    """Renders everything as the same, and keeps what it was asked."""

    def __init__(self, pairs=(), error=None):
        self.pairs, self.error, self.asked = pairs, error, []

    def render_training(self, messages, tools, train_on):
        self.asked.append((messages, tools, train_on))
        if self.error is not None:
            raise self.error
        return self.pairs


def test_sequences_are_arrays_without_those_that_predict_nothing():
    renderer = Renderer([([1, 2, 3], [0, 0.5, 1]), ([4], [1.0]), ([], [])])
    ((tokens, weights),) = sequences_of(renderer, "row-7", ASKED, ({"name": "f"},), "all")
    assert renderer.asked == [(ASKED, ({"name": "f"},), "all")]
    assert (tokens.dtype, weights.dtype) == (np.int64, np.float32)
    assert (tokens.tolist(), weights.tolist()) == ([1, 2, 3], [0, 0.5, 1])


def test_a_row_that_cannot_be_rendered_is_named():
    error = DataError("no such role", source="rows.jsonl", line=3, hint="use another")
    with pytest.raises(DataError) as told:
        sequences_of(Renderer(error=error), "row-7", ASKED, (), "all")
    assert told.value.message == "row row-7: no such role"
    assert (told.value.source, told.value.line, told.value.hint) == ("rows.jsonl", 3, "use another")


def test_what_has_no_weight_may_be_no_number():
    weights = np.array([0, 2, 0.5], dtype=np.float32)
    datum = Datum(tokens=np.arange(3), loss_inputs={"weights": weights})
    assert weighted_sum(datum, np.array([np.nan, -1.0, -3.0])) == -3.5


async def test_others_go_on_while_many_items_are_made(run):
    beats, turns = [], []

    async def other():
        while True:
            turns.append(len(beats))
            await asyncio.sleep(0)

    async with run.attempt([]) as ctx:
        ctx = attrs.evolve(ctx, heartbeat=lambda: beats.append(1))
        beside = asyncio.create_task(other())
        found = await BaseAlgorithm().rendered(ctx, iter(range(200)))
        beside.cancel()
    assert found == list(range(200))
    assert len(beats) == 3
    assert len(turns) == 3


@pytest.mark.parametrize(
    ("params", "model", "longest"), [(None, None, None), (9, None, 9), (None, 8, 8), (9, 8, 8), (7, 8, 7)]
)
async def test_the_longest_sequence_is_what_params_and_model_allow(run, monkeypatch, params, model, longest):
    async with run.attempt([]) as ctx:
        monkeypatch.setattr(ctx.clients.policy, "max_length", model, raising=False)
        assert BaseAlgorithm(max_length=params).longest_sequence(ctx) == longest

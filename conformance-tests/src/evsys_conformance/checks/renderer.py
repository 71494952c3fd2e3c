"""The contract of a renderer: a model is trained on exactly the tokens that it is prompted with and that it
answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, ClassVar

import pytest

from evsys.types import Message, ToolCall
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import Words, breach, require, require_equal

__all__ = ["RendererConformance"]

_TURNS = ("What is 6 times 7?", "It is 42.", "Und auf Japanisch? 🙂", "四十二です。")


class RendererConformance(PluginConformance):
    """Checks of the kind `renderer`."""

    kind: ClassVar[str | None] = "renderer"

    @pytest.fixture
    def conversation(self) -> tuple[Message, ...]:
        """A conversation of two turns, which ends with the assistant."""
        return tuple(
            Message(role="assistant" if i % 2 else "user", content=text) for i, text in enumerate(_TURNS)
        )

    @check()
    def test_prompts_are_token_ids(self, plugin: Any, conversation: tuple[Message, ...]) -> None:
        """A prompt is a list of integers, and stays the same."""
        prompt = plugin.render_prompt(conversation[:1])
        require(
            prompt and all(isinstance(token, int) and token >= 0 for token in prompt),
            "a prompt isn't made of token ids",
            seen=prompt,
            wanted="a list of integers, none below 0",
        )
        require_equal(plugin.render_prompt(conversation[:1]), prompt, "rendered again, a prompt is another")

    @check()
    def test_tokens_and_weights_have_one_length(self, plugin: Any, conversation: tuple[Message, ...]) -> None:
        """Each training sequence has a weight for each token, and something to train."""
        sequences = plugin.render_training(conversation)
        require(sequences, "it gives nothing to train", seen=sequences, wanted="[(tokens, weights), ...]")
        for tokens, weights in sequences:
            require_equal(len(weights), len(tokens), "the number of weights isn't that of the tokens")
            require(any(weights), "a training sequence has no weight above 0", seen=weights)

    @check()
    def test_training_goes_on_from_the_prompt(self, plugin: Any, conversation: tuple[Message, ...]) -> None:
        """The last turn is trained behind the very tokens that it is sampled from."""
        prompt = list(plugin.render_prompt(conversation[:3]))
        tokens, _ = plugin.render_training(conversation, train_on="last_assistant")[-1]
        require_equal(
            list(tokens[: len(prompt)]),
            prompt,
            "what is trained doesn't begin with the prompt from which the answer is sampled",
        )

    @check()
    def test_prompts_are_not_trained(self, plugin: Any, conversation: tuple[Message, ...]) -> None:
        """With `last_assistant` nothing before the answer has a weight."""
        prompt = plugin.render_prompt(conversation[:3])
        trained = _trained_of_the_prompt(plugin, conversation)
        require(
            not trained,
            "with train_on='last_assistant' tokens of the prompt have weights",
            seen=Words(f"weights at {trained}"),
            wanted=f"0.0 for the first {len(prompt)} tokens",
        )

    @check()
    def test_every_answer_is_trained(self, plugin: Any, conversation: tuple[Message, ...]) -> None:
        """With `all_assistant` each answer of the conversation is trained, with the tokens that it has as the last one."""
        sequences = plugin.render_training(conversation, train_on="all_assistant")
        trained = [span for tokens, weights in sequences for span in _spans(tokens, weights)]
        for end, message in enumerate(conversation, start=1):
            if message.role == "assistant":
                tokens, weights = plugin.render_training(conversation[:end], train_on="last_assistant")[-1]
                last = list(_spans(tokens, weights))[-1:]
                require(
                    last and last[0] in trained,
                    f"with train_on='all_assistant' the answer {message.content!r} isn't trained",
                    seen=Words(f"stretches of tokens with weights: {trained}"),
                    wanted=f"among them {last}, which is trained when this answer is the last",
                )

    @check()
    def test_answers_are_read_back(self, plugin: Any, conversation: tuple[Message, ...]) -> None:
        """The trained tokens of an answer parse back into the message that they were made from."""
        message = plugin.parse(_answer(plugin, conversation))
        require_equal(
            (message.role, message.content),
            ("assistant", conversation[-1].content),
            "the tokens of an answer read back as another message: (role, content)",
        )

    @check(needs="tools")
    def test_tool_calls_are_read_back(self, plugin: Any, conversation: tuple[Message, ...]) -> None:
        """A call of a tool that a model is trained to write reads back as that call."""
        call = ToolCall(name="look_up", arguments={"word": "四", "times": 2})
        said = (*conversation[:-1], Message(role="assistant", tool_calls=(call,)))
        message = plugin.parse(_answer(plugin, said))
        require_equal(
            [(one.name, one.arguments) for one in message.tool_calls],
            [(call.name, call.arguments)],
            "a tool call that is trained reads back as something else: (name, arguments)",
        )

    @check()
    def test_a_trained_turn_ends_with_a_stop_token(
        self, plugin: Any, conversation: tuple[Message, ...]
    ) -> None:
        """A model learns to stop: the last trained token is one at which sampling ends."""
        tokens, weights = plugin.render_training(conversation, train_on="last_assistant")[-1]
        trained = [token for token, weight in zip(tokens, weights, strict=False) if weight]
        if not trained:
            breach("it trains nothing of the last answer", seen=weights)
        if trained[-1] not in plugin.stop_token_ids and _trained_of_the_prompt(plugin, conversation):
            pytest.skip("after test_prompts_are_not_trained: its weights are those of other tokens")
        require(
            trained[-1] in plugin.stop_token_ids,
            "the last trained token isn't one at which sampling ends",
            seen=trained[-1],
            wanted=f"one of stop_token_ids, {tuple(plugin.stop_token_ids)}",
        )


def _trained_of_the_prompt(renderer: Any, conversation: Sequence[Message]) -> list[int]:
    """The places where the prompt of the last answer has weights, though that answer alone is trained."""
    prompt = renderer.render_prompt(conversation[:3])
    _, weights = renderer.render_training(conversation, train_on="last_assistant")[-1]
    return [i for i, weight in enumerate(weights[: len(prompt)]) if weight]


def _answer(renderer: Any, conversation: Sequence[Message]) -> list[int]:
    """The tokens of a conversation's last message, as they are trained."""
    prompt = renderer.render_prompt(conversation[:-1])
    tokens, _ = renderer.render_training(conversation, train_on="last_assistant")[-1]
    return list(tokens[len(prompt) :])


def _spans(tokens: Sequence[int], weights: Sequence[float]) -> Iterator[list[int]]:
    """Each stretch of tokens with weights."""
    for trained, part in groupby(zip(tokens, weights, strict=False), key=lambda pair: bool(pair[1])):
        if trained:
            yield [token for token, _ in part]

"""What a renderer keeps: a model is trained on exactly what it is prompted with and says."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from evsys.types import Message
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check

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
        assert prompt
        assert all(isinstance(token, int) and token >= 0 for token in prompt)
        assert plugin.render_prompt(conversation[:1]) == prompt

    @check()
    def test_tokens_and_weights_have_one_length(self, plugin: Any, conversation: tuple[Message, ...]) -> None:
        """Each training sequence has a weight for each token, and something to train."""
        sequences = plugin.render_training(conversation)
        assert sequences
        assert [
            (len(tokens), len(weights)) for tokens, weights in sequences if len(tokens) != len(weights)
        ] == []
        assert all(any(weights) for _, weights in sequences)

    @check()
    def test_training_goes_on_from_the_prompt(self, plugin: Any, conversation: tuple[Message, ...]) -> None:
        """The last turn is trained behind the very tokens that it is sampled from."""
        prompt = list(plugin.render_prompt(conversation[:3]))
        tokens, _ = plugin.render_training(conversation, train_on="last_assistant")[-1]
        assert list(tokens[: len(prompt)]) == prompt

    @check()
    def test_prompts_are_not_trained(self, plugin: Any, conversation: tuple[Message, ...]) -> None:
        """With `last_assistant` nothing before the answer has a weight."""
        prompt = plugin.render_prompt(conversation[:3])
        _, weights = plugin.render_training(conversation, train_on="last_assistant")[-1]
        assert not any(weights[: len(prompt)])

    @check()
    def test_answers_are_read_back(self, plugin: Any, conversation: tuple[Message, ...]) -> None:
        """What a model is trained to say reads back as the message that it was made from."""
        prompt = plugin.render_prompt(conversation[:3])
        tokens, _ = plugin.render_training(conversation, train_on="last_assistant")[-1]
        message = plugin.parse(list(tokens[len(prompt) :]))
        assert (message.role, message.content) == ("assistant", conversation[-1].content)

    @check()
    def test_a_trained_turn_ends_with_a_stop_token(
        self, plugin: Any, conversation: tuple[Message, ...]
    ) -> None:
        """A model learns to stop: the last trained token is one at which sampling ends."""
        tokens, weights = plugin.render_training(conversation, train_on="last_assistant")[-1]
        trained = [token for token, weight in zip(tokens, weights, strict=False) if weight]
        assert trained[-1] in plugin.stop_token_ids

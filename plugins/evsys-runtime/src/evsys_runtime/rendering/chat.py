"""The renderer that every model with a chat template uses: prompts, training sequences with loss weights, and parsing.

What an assistant turn learns is found by difference: the conversation is rendered up to the turn with the generation
prompt, and up to and including the turn without it; what the second text adds to the first is the turn. So the prompt
that a model is trained behind is, byte for byte and token for token, the prompt that it is sampled from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from evsys.errors import DataError
from evsys.types import Message
from evsys_runtime.data.answers import THINK, parse_answer, written_out
from evsys_runtime.rendering.messages import require_answer_shown, require_prompt_shown, template_messages
from evsys_runtime.rendering.templates import CHATML, ChatTemplate
from evsys_runtime.rendering.tokenizers import ByteTokenizer

if TYPE_CHECKING:
    from evsys.protocols import Tokenizer

__all__ = ["TRAIN_ON", "ChatTemplateRenderer"]

TRAIN_ON = ("last_assistant", "all_assistant", "all")
"""What a conversation trains: the last assistant turn, each of them, or every token."""

_PROBE = (Message(role="user", content="a question"), Message(role="assistant", content="the answer"))
_THINKING_PROBE = (_PROBE[0], Message(role="assistant", content="the answer", reasoning="a thought"))


class _Turn(NamedTuple):
    """An assistant turn in tokens: what stands before it, and the turn up to and including its end token."""

    prompt: list[int]
    answer: list[int]
    weight: float


class ChatTemplateRenderer:
    """Messages to tokens and back through a model's own chat template.

    Args:
        tokenizer: the model's tokenizer; bytes by default.
        template: the chat template, or its source; plain ChatML by default.
        reasoning_tags: the tags in which the model writes its reasoning.

    Attributes:
        tokenizer: as given.
        template: the compiled template.
        stop_token_ids: the token that the template ends an assistant turn with, then the tokenizer's own end tokens.

    Raises:
        DataError: the template fails on the simplest conversation.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None = None,
        template: ChatTemplate | str = CHATML,
        *,
        reasoning_tags: tuple[str, str] = THINK,
    ) -> None:
        self.tokenizer: Tokenizer = tokenizer or ByteTokenizer()
        self.template = ChatTemplate(template) if isinstance(template, str) else template
        self.stop_token_ids = self._stop_ids()
        self.reasoning_tags = reasoning_tags
        self._opened = self._prompt_text(_PROBE[:1]).rstrip().endswith(reasoning_tags[0])
        self._places_reasoning = any(
            map(self.template.mentions, ("reasoning", "thinking", reasoning_tags[1]))
        )

    def require_trainable(self) -> None:
        """Refuse a template that no conversation can be trained on, before any row is read.

        Raises:
            DataError: it rewrites its own generation prompt, renders no prompt, or doesn't end an assistant turn with
                a token of its own.
        """
        self._end_token()

    @property
    def fingerprint(self) -> str:
        """Hash of the tokenizer and the template: equal means equal tokens for equal messages."""
        own = getattr(self.tokenizer, "fingerprint", type(self.tokenizer).__qualname__)
        return "sha256:" + hashlib.sha256(f"{own}\n{self.template.fingerprint}".encode()).hexdigest()

    def prompt_text(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """A conversation as text, ending where the assistant starts to speak.

        Raises:
            DataError: the template failed, or left out a message or a tool.
        """
        if not self._places_reasoning:  # the model reads what it wrote
            messages = [self._with_reasoning_in_content(message) for message in messages]
        text = self._prompt_text(messages, tools)
        require_prompt_shown(text, messages, tools, self.template.name)
        return text

    def render_prompt(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """Token ids of `prompt_text`."""
        return self.tokenizer.encode(self.prompt_text(messages, tools))

    def render_training(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        train_on: str = "all_assistant",
    ) -> list[tuple[list[int], list[float]]]:
        """Training sequences as `(tokens, weights)` of equal length.

        One sequence, as long as each prompt continues what stands before it. Where the template rewrites earlier turns
        (thinking is dropped from history), each turn is a sequence of its own, behind the prompt it is sampled from.

        Args:
            messages: the conversation; what follows the last trained turn is left out, but with `all`.
            tools: tool schemas, shown to the model by the template.
            train_on: `last_assistant`, `all_assistant` or `all`. A message's own `weight` scales its turn, 0 leaves it
                out.

        Returns:
            Weights are 0 on what isn't trained. The end token of a trained turn is trained, the newline after it isn't.
            Empty when nothing would be trained.

        Raises:
            DataError: the template is unstable for this conversation or leaves out a part of it.
            ValueError: unknown `train_on`.
        """
        if train_on not in TRAIN_ON:
            raise ValueError(f"train_on is {train_on!r}; choose one of {', '.join(TRAIN_ON)}")
        indices = [index for index, message in enumerate(messages) if message.role == "assistant"]
        if train_on == "last_assistant":
            indices = indices[-1:]
        background = 1.0 if train_on == "all" else 0.0
        turns = (
            self._turn(messages, index, tools)
            for index in indices
            if background or messages[index].weight != 0.0
        )
        sequences = _join(turns, background)
        if train_on == "all":
            sequences = [self._whole(messages, tools, sequences)]
        return [(tokens, weights) for tokens, weights in sequences if any(weights)]

    def parse(self, tokens: Sequence[int]) -> Message:
        """The assistant message that these sampled tokens are, with reasoning, tool calls and content apart.

        Reasoning is separated whether or not the template knows it; tool calls are read if it does, and a malformed one stays text.
        """
        end = next((place for place, token in enumerate(tokens) if token in self.stop_token_ids), len(tokens))
        return parse_answer(
            self.tokenizer.decode(tokens[:end]),
            tags=self.reasoning_tags,
            opened=self._opened,
            tool_calls=self.template.mentions("<tool_call>"),
        )

    # --- texts and turns ----------------------------------------------------------------------------------------

    def _with_reasoning_in_content(self, message: Message) -> Message:
        if message.reasoning is None:
            return message
        return attrs.evolve(message, content=written_out(message, self.reasoning_tags), reasoning=None)

    def _prompt_text(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        return self.template.render(template_messages(messages), tools=tools, add_generation_prompt=True)

    def _turn_texts(
        self, messages: Sequence[Message], index: int, tools: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[str, str]:
        """The prompt of the assistant turn at `index`, and what the turn adds to it."""
        prompt = self._prompt_text(messages[:index], tools)
        whole = self.template.render(template_messages(messages[: index + 1]), tools=tools)
        if not prompt:
            raise DataError(
                "the chat template renders no prompt, so every token would be trained",
                source=self.template.name,
            )
        if not whole.startswith(prompt):
            raise DataError(
                f"the chat template is unstable: message {index} of the conversation doesn't continue the prompt that "
                f"it is sampled from ({_difference(prompt, whole)})",
                source=self.template.name,
                hint="give the assistant turn the reasoning that the generation prompt opens, or use a template whose "
                "generation prompt is the start of an assistant message",
            )
        return prompt, whole[len(prompt) :]

    def _turn(self, messages: Sequence[Message], index: int, tools: Sequence[Mapping[str, Any]]) -> _Turn:
        prompt, answer = self._turn_texts(messages, index, tools)
        require_prompt_shown(prompt, messages[:index], tools, self.template.name)
        require_answer_shown(answer, messages[index], self.template.name)
        prompt_ids, answer_ids = self._encode_turn(prompt, answer)
        weight = messages[index].weight
        return _Turn(prompt_ids, self._cut(answer_ids), 1.0 if weight is None else weight)

    def _encode_turn(self, prompt: str, answer: str) -> tuple[list[int], list[int]]:
        """Tokens of the prompt exactly as it is sampled from, and the tokens that continue it to the whole text.

        Where the tokenizer would merge across the border (an answer that starts with a newline), the two are encoded
        apart, which is what a sampler writes; the text must come out the same.
        """
        prompt_ids = self.tokenizer.encode(prompt)
        joined = self.tokenizer.encode(prompt + answer)
        if joined[: len(prompt_ids)] == prompt_ids:
            return prompt_ids, joined[len(prompt_ids) :]
        answer_ids = self.tokenizer.encode(answer)
        if self.tokenizer.decode(prompt_ids + answer_ids) != prompt + answer:
            raise DataError(
                "the prompt's tokens are no prefix of the conversation's tokens, so training and sampling would differ "
                f"(the answer starts with {answer[:20]!r})",
                source=self.template.name,
            )
        return prompt_ids, answer_ids

    def _cut(self, answer: list[int]) -> list[int]:
        """The turn up to its end token; what the template writes after it (a newline) is dropped."""
        ends = [place for place, token in enumerate(answer) if token in self.stop_token_ids]
        rest = self.tokenizer.decode(answer[ends[0] + 1 :]).strip() if ends else ""
        if not ends or rest:
            raise DataError(
                "an assistant turn holds the text of an end token, so sampling would stop inside it"
                if ends
                else "the chat template doesn't end this assistant turn with an end token",
                source=self.template.name,
                hint="remove the template's own marks from the data" if ends else None,
            )
        return answer[: ends[0] + 1]

    def _whole(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        sequences: list[tuple[list[int], list[float]]],
    ) -> tuple[list[int], list[float]]:
        """For `all`: the one sequence, with what follows its last assistant turn."""
        tokens, weights = sequences[0] if sequences else ([], [])
        if messages and messages[-1].role == "assistant" and len(sequences) == 1:
            return tokens, weights
        text = self.template.render(template_messages(messages), tools=tools)
        require_prompt_shown(text, messages, tools, self.template.name)
        whole = self.tokenizer.encode(text)
        if len(sequences) > 1 or whole[: len(tokens)] != tokens:
            raise DataError(
                "the chat template rewrites earlier turns, so the conversation is no single sequence to train on",
                source=self.template.name,
                hint="use train_on: all_assistant, which trains each turn behind its own prompt",
            )
        return whole, weights + [1.0] * (len(whole) - len(weights))

    def _stop_ids(self) -> tuple[int, ...]:
        """The template's own end token where a probe shows one, then those of the tokenizer."""
        try:
            own = self._end_token()
        except DataError:  # told by `require_trainable`; sampling can do without
            return tuple(self.tokenizer.eos_token_ids)
        return tuple(dict.fromkeys((own, *self.tokenizer.eos_token_ids)))

    def _end_token(self) -> int:
        """The id that ends an assistant turn: what the probe's answer ends with."""
        try:
            prompt, answer = self._turn_texts(_PROBE, 1)
        except DataError:
            prompt, answer = self._turn_texts(_THINKING_PROBE, 1)
        _, ids = self._encode_turn(prompt, answer.rstrip())
        if not self.tokenizer.decode(ids[:-1]).rstrip().endswith(_PROBE[1].content):
            raise DataError(
                "the chat template doesn't end an assistant turn with a token of its own, so a trained model would "
                f"never stop (a turn reads {answer!r})",
                source=self.template.name,
                hint="end assistant messages with the tokenizer's end-of-turn token",
            )
        return ids[-1]


def _join(turns: Iterator[_Turn], background: float) -> list[tuple[list[int], list[float]]]:
    """Turns into as few sequences as their prompts allow: a turn goes on where its prompt starts with all before it."""
    sequences: list[tuple[list[int], list[float]]] = []
    for turn in turns:
        before = len(sequences[-1][0]) if sequences else 0
        if not sequences or turn.prompt[:before] != sequences[-1][0]:
            sequences.append(([], []))
            before = 0
        tokens, weights = sequences[-1]
        tokens.extend(turn.prompt[before:])
        weights.extend([background] * (len(turn.prompt) - before))
        tokens.extend(turn.answer)
        weights.extend([turn.weight] * len(turn.answer))
    return sequences


def _difference(prompt: str, whole: str) -> str:
    """Where two texts part, for a message."""
    place = next(
        (i for i, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b),
        min(len(prompt), len(whole)),
    )
    return f"prompt {prompt[place : place + 24]!r}, turn {whole[place : place + 24]!r}"

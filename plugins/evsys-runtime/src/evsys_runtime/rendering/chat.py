"""The renderer that every model with a chat template uses: prompts, training sequences with loss weights, and
parsing.

The trained tokens of an assistant turn are found by difference: the conversation is rendered up to the turn with
the generation prompt, and up to and including the turn without it; the turn is the part that the second text adds
to the first. So the prompt that a model is trained behind is, byte for byte and token for token, the prompt that it
is sampled from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from evsys.errors import DataError
from evsys.optional import declared
from evsys.types import Message
from evsys_runtime.data.answers import THINK, answer_text, parse_answer
from evsys_runtime.rendering.control_tokens import (
    NO_MASKS,
    Masks,
    control_texts_of,
    encode_rendered,
)
from evsys_runtime.rendering.growth import Prefix, grow
from evsys_runtime.rendering.messages import require_answer_shown, require_prompt_shown, template_messages
from evsys_runtime.rendering.templates import CHATML, ChatTemplate
from evsys_runtime.rendering.tokenizers import ByteTokenizer
from evsys_runtime.rendering.turns import TrainingSequences

if TYPE_CHECKING:
    from evsys.protocols import Tokenizer

__all__ = ["TRAIN_ON", "ChatTemplateRenderer"]

TRAIN_ON = ("last_assistant", "all_assistant", "all")
"""The trained parts of a conversation: the last assistant turn, each of them, or every token."""

_PROBE = (Message(role="user", content="a question"), Message(role="assistant", content="the answer"))
_THINKING_PROBE = (_PROBE[0], Message(role="assistant", content="the answer", reasoning="a thought"))


class _Turn(NamedTuple):
    """An assistant turn in text: the prompt, and the conversation with the turn.

    Messages before `unseen` are known to be in the text before the character `since` of the prompt.
    """

    place: int
    prompt: Prefix
    whole: Prefix
    unseen: int = 0
    since: int = 0


class _Conversation(NamedTuple):
    """Messages and tools as they are, as the template gets them, and the masks between the two."""

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]]
    masked: Sequence[Message]
    masked_tools: Sequence[Mapping[str, Any]]
    masks: Masks


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
        self._controls = control_texts_of(self.tokenizer)
        self.stop_token_ids = self._stop_ids()
        self._end_texts = tuple(self.tokenizer.decode([token]) for token in self.stop_token_ids)
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
        own = declared(self.tokenizer, "fingerprint", type(self.tokenizer).__qualname__)
        return "sha256:" + hashlib.sha256(f"{own}\n{self.template.fingerprint}".encode()).hexdigest()

    def prompt_text(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """A conversation as text, ending where the assistant starts to speak.

        Raises:
            DataError: the template failed, or left out a message or a tool.
        """
        text, masks = self._prompt(messages, tools)
        return masks.text(text)

    def render_prompt(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """Token ids of `prompt_text`. The texts of control tokens in messages and tools are encoded as text."""
        return encode_rendered(self.tokenizer, *self._prompt(messages, tools))

    def render_training(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        train_on: str = "all_assistant",
    ) -> list[tuple[list[int], list[float]]]:
        """Training sequences as `(tokens, weights)` of equal length.

        One sequence, as long as each prompt continues what is before it. If the template rewrites earlier turns
        (thinking is dropped from history), each turn is a sequence of its own, behind the prompt it is sampled
        from.

        Args:
            messages: the conversation; messages after the last trained turn are left out, except with `all`.
            tools: tool schemas, shown to the model by the template.
            train_on: `last_assistant`, `all_assistant` or `all`. A message's own `weight` scales its turn, 0 leaves
                it out.

        Returns:
            Weights are 0 on what isn't trained. The end token of a trained turn is trained, the newline after it
            isn't. Empty when nothing would be trained.

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
        indices = [index for index in indices if background or messages[index].weight != 0.0]
        talk = self._conversation(messages, tools)
        sequences = TrainingSequences(self.tokenizer, self._controls, talk.masks, background)
        for turn in self._turns(talk, indices):
            self._learn(sequences, turn, talk)
        if train_on == "all" and messages:
            self._continue_to_the_end(sequences, talk)
        return [(tokens, weights) for tokens, weights in sequences.done if any(weights)]

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
        return attrs.evolve(message, content=answer_text(message, self.reasoning_tags), reasoning=None)

    def _prompt_text(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        return self.template.render(template_messages(messages), tools=tools, add_generation_prompt=True)

    def _conversation(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> _Conversation:
        if self._controls is None:
            return _Conversation(messages, tools, messages, tools, NO_MASKS)
        masks = self._controls.mask((list(messages), list(tools)), reserved=self.template.source)
        return _Conversation(messages, tools, masks.apply(list(messages)), masks.apply(list(tools)), masks)

    def _prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> tuple[str, Masks]:
        """A prompt with masks for the control texts in its data."""
        talk = self._conversation(messages, tools)
        masked = talk.masked
        if not self._places_reasoning:  # the model reads what it wrote
            masked = [self._with_reasoning_in_content(message) for message in masked]
        text = self._prompt_text(masked, talk.masked_tools)
        require_prompt_shown(talk.masks.text(text), messages, tools, self.template.name)
        return text, talk.masks

    def _turns(self, talk: _Conversation, indices: Sequence[int]) -> Iterator[_Turn]:
        """The turns at `indices`, from a few renderings if the template reads the messages in turn, else from two for each turn."""
        growth = None
        if len(indices) > 1 and indices[0] > 0:
            growth = grow(self.template, template_messages(talk.masked[: indices[-1] + 1]), talk.masked_tools)
        if growth is None:
            for index in indices:
                prompt, whole = self._texts(talk.masked, index, talk.masked_tools)
                yield _Turn(index, Prefix(prompt, len(prompt)), Prefix(whole, len(whole)))
            return
        unseen = 0
        for index in indices:
            before, after = growth.prefix(index, prompt=True), growth.prefix(index + 1)
            yield _Turn(index, before, after, unseen, growth.starts[unseen] if unseen else 0)
            # The last message of a prompt may be written in another way in the next one.
            unseen = index - 1 if growth.last else index

    def _texts(
        self, messages: Sequence[Message], index: int, tools: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[str, str]:
        """The prompt of the assistant turn at `index`, and the conversation with that turn."""
        prompt = self._prompt_text(messages[:index], tools)
        return prompt, self.template.render(template_messages(messages[: index + 1]), tools=tools)

    def _answer(self, turn: _Turn, masks: Masks = NO_MASKS) -> str:
        """The part that a turn adds to its prompt."""
        start = min(turn.prompt.cut, turn.whole.cut) if turn.whole.base is turn.prompt.base else 0
        prompt, whole = turn.prompt.text(start), turn.whole.text(start)
        if not start and not prompt:
            raise DataError(
                "the chat template renders no prompt, so every token would be trained",
                source=self.template.name,
            )
        if not whole.startswith(prompt):
            raise DataError(
                f"the chat template is unstable: message {turn.place} of the conversation doesn't continue the prompt "
                f"that it is sampled from ({_difference(masks.text(prompt), masks.text(whole))})",
                source=self.template.name,
                hint="give the assistant turn the reasoning that the generation prompt opens, or use a template whose "
                "generation prompt is the start of an assistant message",
            )
        return whole[len(prompt) :]

    def _learn(self, sequences: TrainingSequences, turn: _Turn, talk: _Conversation) -> None:
        """Append a turn, up to and including its end token, behind its prompt."""
        message = talk.messages[turn.place]
        answer = self._answer(turn, talk.masks)
        self._require_prompt_shown(turn, talk)
        require_answer_shown(talk.masks.text(answer), message, self.template.name)
        self._require_not_rendered(message)
        sequences.prompt(turn.prompt)
        ids = self._answer_ids(sequences, turn, answer)
        sequences.learn(self._cut(ids), 1.0 if message.weight is None else message.weight)

    def _require_prompt_shown(self, turn: _Turn, talk: _Conversation) -> None:
        """Look for messages where they must be new to the text; only what isn't there is looked for in the whole prompt."""
        name, masks = self.template.name, talk.masks
        tools = () if turn.unseen else talk.tools
        try:
            new = masks.text(turn.prompt.text(turn.since))
            require_prompt_shown(new, talk.messages[turn.unseen : turn.place], tools, name)
        except DataError:
            require_prompt_shown(masks.text(turn.prompt.text()), talk.messages[: turn.place], tools, name)

    def _require_not_rendered(self, message: Message) -> None:
        """Refuse an answer that ends with the text of an end token, which the template adds."""
        content = message.content.rstrip()
        if content.endswith(self._end_texts):
            raise DataError(
                "an assistant turn ends with the text of an end token, so it was rendered already",
                source=self.template.name,
                hint="remove the template's own marks from the data",
            )

    def _answer_ids(self, sequences: TrainingSequences, turn: _Turn, answer: str) -> list[int]:
        ids = sequences.answer_ids(turn.whole, answer)
        if ids is None:
            raise DataError(
                "the prompt's tokens are not a prefix of the conversation's tokens, so training and sampling would differ "
                f"(the answer starts with {answer[:20]!r})",
                source=self.template.name,
            )
        return ids

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

    def _continue_to_the_end(self, sequences: TrainingSequences, talk: _Conversation) -> None:
        """For `all`: one sequence, with what follows its last assistant turn."""
        if talk.messages[-1].role == "assistant" and len(sequences.done) == 1:
            return
        text = self.template.render(template_messages(talk.masked), tools=talk.masked_tools)
        require_prompt_shown(talk.masks.text(text), talk.messages, talk.tools, self.template.name)
        if not sequences.done:
            sequences.start()
        if len(sequences.done) > 1 or not sequences.continue_with(Prefix(text, len(text)), 1.0):
            raise DataError(
                "the chat template rewrites earlier turns, so the conversation is not a single sequence to train on",
                source=self.template.name,
                hint="use train_on: all_assistant, which trains each turn behind its own prompt",
            )

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
            turn, answer = self._probe_turn(_PROBE)
        except DataError:
            turn, answer = self._probe_turn(_THINKING_PROBE)
        whole = turn.whole.text().rstrip()
        answer = answer.rstrip()
        sequences = TrainingSequences(self.tokenizer, self._controls)
        sequences.prompt(turn.prompt)
        ids = self._answer_ids(sequences, turn._replace(whole=Prefix(whole, len(whole))), answer)
        if not self.tokenizer.decode(ids[:-1]).rstrip().endswith(_PROBE[1].content):
            raise DataError(
                "the chat template doesn't end an assistant turn with a token of its own, so a trained model would "
                f"never stop (a turn reads {answer!r})",
                source=self.template.name,
                hint="end assistant messages with the tokenizer's end-of-turn token",
            )
        return ids[-1]

    def _probe_turn(self, probe: Sequence[Message]) -> tuple[_Turn, str]:
        prompt, whole = self._texts(probe, 1)
        turn = _Turn(1, Prefix(prompt, len(prompt)), Prefix(whole, len(whole)))
        return turn, self._answer(turn)


def _difference(prompt: str, whole: str) -> str:
    """The place where two texts diverge, for a message."""
    place = next(
        (i for i, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b),
        min(len(prompt), len(whole)),
    )
    return f"prompt {prompt[place : place + 24]!r}, turn {whole[place : place + 24]!r}"

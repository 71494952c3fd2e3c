"""A conversation that continues from what the model itself said, token by token.

An agent sends back what the model said as text, and text tokenised again may split in another way than the model split it. The
prompt would then not continue from the sampled tokens: they couldn't be trained as one sequence, and the model would
read what it never wrote. So the answers are kept as they were sampled, found again by what they say, and put in.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import attrs

from evsys.types import Completion, Message, SamplingParams
from evsys_runtime.rendering.policy_client import PolicyClient

if TYPE_CHECKING:
    from evsys.protocols import Renderer, Tokenizer

__all__ = ["Conversation", "HistoryRenderer"]

MOST_KEPT = 16
"""Answers whose tokens are kept: an agent continues from one of its last ones."""

MOST_ASKED = 64
"""Prompts that may wait for an answer."""


class Conversation(PolicyClient):
    """The policy as one rollout has it: each prompt continues from the rollout's own answers.

    Args:
        client: the policy, which all rollouts share.
    """

    def __init__(self, client: PolicyClient) -> None:
        self.history = HistoryRenderer(client.renderer)
        super().__init__(client.sampling_client, self.history)

    async def generate(
        self,
        messages: Sequence[Message],
        sampling: SamplingParams,
        *,
        n: int = 1,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Sequence[Completion]:
        """As `PolicyClient.generate`."""
        completions = await super().generate(messages, sampling, n=n, tools=tools)
        for completion in completions:
            self.history.answered(completion)
        return completions


@attrs.frozen(kw_only=True)
class _Asked:
    """A rendered conversation: by the renderer alone, and as it was sent. `place` is its digest where that was taken."""

    messages: Sequence[Message]
    place: bytes | None
    plain: list[int]
    prompt: list[int]


@attrs.frozen(kw_only=True)
class _Said:
    """An answer: the prompt as the renderer alone renders it, prompt and answer as they were, and what the answer says.

    `ended` is False where the answer was cut short, before a token that ends it.
    """

    plain: Sequence[int]
    prompt: Sequence[int]
    answer: Sequence[int]
    content: list[Any]
    ended: bool


class HistoryRenderer:
    """A renderer around another, for one rollout. Unknown messages are rendered by the other alone.

    An answer's own tokens are used if the template shows that answer whole and unchanged; if the template rewrites
    it (thoughts are dropped from the history), the template is right. The reasoning of an answer is put back if an
    agent sends the text alone, so that the template can decide.

    Args:
        renderer: the model's renderer.
    """

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._asked: deque[_Asked] = deque(maxlen=MOST_ASKED)
        self._answers: list[tuple[_Asked, Completion]] = []
        self._messages: dict[bytes, Message] = {}
        self._said: OrderedDict[bytes, _Said] = OrderedDict()

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Ids at which sampling ends."""
        return self._renderer.stop_token_ids

    def parse(self, tokens: Sequence[int]) -> Message:
        """The assistant message that these sampled tokens are."""
        return self._renderer.parse(tokens)

    def render_training(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        train_on: str = "all_assistant",
    ) -> list[tuple[list[int], list[float]]]:
        """As the renderer alone does it: training on what was sampled takes the sampler's tokens, and renders nothing."""
        return self._renderer.render_training(messages, tools, train_on)

    def render_prompt(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """Token ids of a conversation, ending where the assistant starts to speak.

        Raises:
            DataError: it can't be rendered.
        """
        # Most conversations end with their first answer: nothing is looked for before there is one to be found.
        again = any(message.role == "assistant" for message in messages)
        if again:
            self._remember()
        whole, places = self._known_messages(messages) if again else (list(messages), [])
        plain = self._renderer.render_prompt(whole, tools)
        prompt = self._continue_prompt(plain, places)
        place = places[-1] if places else None
        self._asked.append(_Asked(messages=whole, place=place, plain=plain, prompt=prompt))
        return prompt

    def answered(self, completion: Completion) -> None:
        """Note an answer to a prompt rendered here: the message as the agent gets it, and its tokens."""
        prompt = completion.prompt_tokens
        asked = next((asked for asked in reversed(self._asked) if asked.prompt is prompt), None)
        if asked is not None and asked.messages and completion.tokens:
            self._answers.append((asked, completion))

    def _remember(self) -> None:
        """Put the answers since the last time where they are found."""
        for asked, completion in self._answers:
            tokens = list(completion.tokens or ())
            before = reduce(_digest, asked.messages, b"") if asked.place is None else asked.place
            place = _digest(before, completion.message)
            self._messages[place] = completion.message
            self._said[place] = _Said(
                plain=asked.plain,
                prompt=asked.prompt,
                answer=tokens,
                content=_content(completion.message),
                ended=tokens[-1] in self.stop_token_ids,
            )
            self._said.move_to_end(place)
            if len(self._said) > MOST_KEPT:
                self._said.popitem(last=False)
        self._answers.clear()

    def _continue_prompt(self, plain: list[int], places: Sequence[bytes]) -> list[int]:
        """The prompt with the tokens of the last answer in it that is known, and shown as it was said."""
        for place in reversed(places):
            said = self._said.get(place)
            if said is not None and (rest := self._rest(plain, said)) is not None:
                return [*said.prompt, *said.answer, *rest]
        return plain

    def _known_messages(self, messages: Sequence[Message]) -> tuple[list[Message], list[bytes]]:
        """The messages, answers of the model as it gave them; and for each the digest of the conversation up to it."""
        whole, places, place = [], [], b""
        for message in messages:
            place = _digest(place, message)
            places.append(place)
            own = self._messages.get(place) if message.role == "assistant" else None
            if own is not None:  # but for the ids of calls, which the agent's tool messages refer to
                reasoning = own.reasoning if message.reasoning is None else message.reasoning
                message = attrs.evolve(message, content=own.content, reasoning=reasoning)
            whole.append(message)
        return whole, places

    def _rest(self, plain: Sequence[int], said: _Said) -> Sequence[int] | None:
        """The text after an answer in a prompt that has it; None if the template shows the answer differently."""
        start, stops = len(said.plain), self.stop_token_ids
        aligned = plain[:start] == said.plain
        if not aligned:  # where an answer begins, its first token may be one with the last of the prompt
            start = max((place + 1 for place in range(start) if said.plain[place] in stops), default=0)
            if plain[:start] != said.plain[:start]:
                return None
        end = next((place for place in range(start, len(plain)) if plain[place] in stops), None)
        if end is None:
            return None
        shown = plain[start:end] if aligned else self._tokens_after(plain[start:end], said.plain[start:])
        if shown is None:
            return None
        own = said.answer[: len(said.answer) - said.ended]
        if shown != own and _content(self.parse(shown)) != said.content:
            return None
        return plain[end + 1 if said.ended else end :]

    def _tokens_after(self, tokens: Sequence[int], head: Sequence[int]) -> list[int] | None:
        """The tokens of a text after another one; None if it doesn't begin with that, or the renderer doesn't know."""
        tokenizer: Tokenizer | None = getattr(self._renderer, "tokenizer", None)
        if tokenizer is None:
            return None
        text, before = tokenizer.decode(tokens), tokenizer.decode(head)
        return tokenizer.encode(text[len(before) :]) if text.startswith(before) else None


def _digest(before: bytes, message: Message) -> bytes:
    """A conversation by what it says. Reasoning and ids of calls don't enter: agents may leave these out."""
    parts = [message.role, message.name, *_content(attrs.evolve(message, reasoning=None))]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.blake2b(before + text.encode(), digest_size=16).digest()


def _content(message: Message) -> list[Any]:
    """The content of a message. White space around an answer's text is ignored: templates and agents trim it."""
    content = message.content.strip() if message.role == "assistant" else message.content
    calls = [[call.name, _arguments(call.arguments)] for call in message.tool_calls]
    return [content, (message.reasoning or "").strip(), calls]


def _arguments(arguments: Mapping[str, Any] | str) -> Any:
    """The arguments of a call, the same whether they come as an object or as its JSON."""
    if not isinstance(arguments, str):
        return dict(arguments)
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments

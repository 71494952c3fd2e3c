"""A model without a model: an inference client whose answers are written down, for tests of agents and judges."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evsys.types import Completion, Message, SamplingParams, ToolCall, Usage

__all__ = ["FakeCall", "FakeModel", "tool_call"]

type Answer = str | Message | Completion | Exception
"""A text, a whole message (with tool calls, say), a whole completion, or an exception, which is raised."""


def tool_call(name: str, arguments: Mapping[str, Any] | str, *, id: str | None = None) -> Message:
    """The answer of a model that calls a tool; `arguments` as a text are what it wrote, which may be no JSON."""
    return Message(role="assistant", tool_calls=(ToolCall(name=name, arguments=arguments, id=id),))


@dataclass(frozen=True)
class FakeCall:
    """One call of a `FakeModel`."""

    messages: tuple[Message, ...]
    sampling: SamplingParams
    n: int
    tools: tuple[Mapping[str, Any], ...]

    @property
    def text(self) -> str:
        """The text of the last message."""
        return self.messages[-1].content if self.messages else ""


class FakeModel:
    """An `InferenceClient` that answers from a list, by a function of the conversation, or always alike.

    It counts a token for each byte of UTF-8, so usage and token ids are known without a tokenizer.

    Args:
        answers: one answer for all calls; a sequence, of which each call takes the next; or a function of the
            messages.
        latency: seconds until a call is answered, or a function that computes them from the call.
        held: calls wait until `release` lets them continue; a call that no one releases waits until it is cancelled.

    Attributes:
        calls: the calls so far.
        running: calls that wait now.
        most_running: most calls that waited at once.
        usage: what all completions used together.
    """

    def __init__(
        self,
        answers: Answer | Sequence[Answer] | Callable[[Sequence[Message]], Answer] = "an answer",
        *,
        latency: float | Callable[[FakeCall], float] = 0.0,
        held: bool = False,
    ) -> None:
        self._answers = answers
        self._latency = latency
        self._held = held
        self._waiting: list[asyncio.Event] = []
        self.calls: list[FakeCall] = []
        self.running = 0
        self.most_running = 0
        self.usage = Usage(cost_usd=0.0)

    async def generate(
        self,
        messages: Sequence[Message],
        sampling: SamplingParams,
        *,
        n: int = 1,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Sequence[Completion]:
        """`n` times the answer due.

        Raises:
            Exception: the answer that is due is one.
            AssertionError: the list of answers is used up.
        """
        call = FakeCall(tuple(messages), sampling, n, tuple(tools))
        self.calls.append(call)
        number = len(self.calls)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await self._wait(call)
        finally:
            self.running -= 1
        found = [_completion(self._answer(number, messages), messages) for _ in range(n)]
        for completion in found:
            self.usage += completion.usage
        return found

    def release(self, count: int | None = None) -> None:
        """Let the `count` calls that wait longest continue; without a count all of them, and hold no further call."""
        if count is None:
            self._held = False
        for event in self._waiting[:count]:
            event.set()
        del self._waiting[:count]

    async def _wait(self, call: FakeCall) -> None:
        if self._held:
            event = asyncio.Event()
            self._waiting.append(event)
            try:
                await event.wait()
            finally:
                if event in self._waiting:  # cancelled: no one waits there any more
                    self._waiting.remove(event)
        await asyncio.sleep(self._latency(call) if callable(self._latency) else self._latency)

    def _answer(self, number: int, messages: Sequence[Message]) -> Message | Completion:
        answers = self._answers
        if callable(answers):
            answer: Answer = answers(messages)
        elif isinstance(answers, str | Message | Completion | Exception):
            answer = answers
        else:
            if number > len(answers):
                raise AssertionError(f"the fake model has {len(answers)} answers and was asked again")
            answer = answers[number - 1]
        if isinstance(answer, Exception):
            raise answer
        return Message(role="assistant", content=answer) if isinstance(answer, str) else answer


def _completion(answer: Message | Completion, messages: Sequence[Message]) -> Completion:
    if isinstance(answer, Completion):
        return answer
    tokens = _bytes(answer)
    prompt = [byte for message in messages for byte in _bytes(message)]
    return Completion(
        message=answer,
        finish_reason="tool_calls" if answer.tool_calls else "stop",
        prompt_tokens=prompt,
        tokens=tokens,
        logprobs=[-0.5] * len(tokens),
        usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(tokens), cost_usd=0.0),
    )


def _bytes(message: Message) -> list[int]:
    """All that a message says, as its tokens."""
    called = [
        call.name + (call.arguments if isinstance(call.arguments, str) else json.dumps(dict(call.arguments)))
        for call in message.tool_calls
    ]
    return list("".join([message.content, *called]).encode("utf-8"))

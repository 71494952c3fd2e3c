"""A model without a model: an inference client whose answers are written down, for tests of agents and judges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evsys.types import Completion, Message, SamplingParams, Usage

__all__ = ["FakeCall", "FakeModel"]

type Answer = str | Message | Exception


@dataclass(frozen=True)
class FakeCall:
    """One call of a `FakeModel`."""

    messages: tuple[Message, ...]
    sampling: SamplingParams
    n: int
    tools: tuple[Mapping[str, Any], ...]


class FakeModel:
    """An `InferenceClient` that answers from a list, by a function of the conversation, or always alike.

    An answer is a text, a whole message (with tool calls, say) or an exception, which is raised.

    Args:
        answers: one answer for all calls, a sequence of which each call takes the next, or a function of the messages.
        hangs: never answer, until cancelled.

    Attributes:
        calls: what was asked so far.
        running: calls that wait now.
    """

    def __init__(
        self,
        answers: Answer | Sequence[Answer] | Callable[[Sequence[Message]], Answer] = "an answer",
        *,
        hangs: bool = False,
    ) -> None:
        self._answers = answers
        self._hangs = hangs
        self.calls: list[FakeCall] = []
        self.running = 0

    async def generate(
        self,
        messages: Sequence[Message],
        sampling: SamplingParams,
        *,
        n: int = 1,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Sequence[Completion]:
        """`n` times the answer that is due.

        Raises:
            AssertionError: the list of answers is used up.
        """
        self.calls.append(FakeCall(tuple(messages), sampling, n, tuple(tools)))
        self.running += 1
        try:
            await (asyncio.Event().wait() if self._hangs else asyncio.sleep(0))
        finally:
            self.running -= 1
        return [_completion(self._next(messages), messages) for _ in range(n)]

    def _next(self, messages: Sequence[Message]) -> Message:
        answers = self._answers
        if callable(answers):
            answer: Answer = answers(messages)
        elif isinstance(answers, str | Message | Exception):
            answer = answers
        else:
            if len(self.calls) > len(answers):
                raise AssertionError(f"the fake model has {len(answers)} answers and was asked once more")
            answer = answers[len(self.calls) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Message) else Message(role="assistant", content=answer)


def _completion(message: Message, messages: Sequence[Message]) -> Completion:
    tokens = list(message.content.encode("utf-8"))
    prompt = [byte for part in messages for byte in part.content.encode("utf-8")]
    return Completion(
        message=message,
        finish_reason="tool_calls" if message.tool_calls else "stop",
        prompt_tokens=prompt,
        tokens=tokens,
        logprobs=[-0.5] * len(tokens),
        usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(tokens), cost_usd=0.0),
    )

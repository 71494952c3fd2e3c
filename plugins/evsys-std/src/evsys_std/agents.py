"""The `chat` agent: the model alone, answering the task's instruction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from evsys.types import Message, Rollout
from evsys.types.rollouts import MOST_TURNS
from evsys_std.python_tools import PythonTools

if TYPE_CHECKING:
    from evsys.protocols import InferenceClient
    from evsys.types import AgentContext, HarborTask

__all__ = ["ChatAgent"]

MOST_WITH_TOOLS = 10
"""Answers of a conversation with tools, where nothing says otherwise."""


@attrs.frozen(kw_only=True)
class ChatAgentParams:
    """How the conversation is led."""

    system_prompt: str | None = attrs.field(
        default=None,
        metadata={"help": "Goes before each task; a benchmark entry's own `system_prompt` wins."},
    )
    max_turns: int | None = attrs.field(
        default=None,
        metadata={
            "help": "Most answers of one conversation; above 1 each user message of an instruction is answered in its turn. "
            "By default the `max_turns` of the run, else 1; with `tools` at least 10."
        },
        validator=attrs.validators.optional(attrs.validators.ge(1)),
    )
    tools: tuple[str, ...] = attrs.field(
        default=(),
        converter=tuple,
        metadata={
            "help": "Python functions that the model may call, as `src.tools:search`: it gets the result or the error of each "
            "call, and answers again."
        },
    )


class ChatAgent:
    """Asks the model and returns its last answer.

    With `max_turns` of 1 the whole instruction is one prompt. Above that, an instruction of several messages is a
    script: each user message that isn't followed by a given answer is answered by the model before the next one is
    shown.

    With `tools`, an answer that calls some is followed by their results, and by another answer. A malformed call
    stays text, and so is the last answer. Tool results may change, so results aren't cached.
    """

    name: ClassVar[str] = "chat"
    Config = ChatAgentParams

    def __init__(
        self, *, system_prompt: str | None = None, max_turns: int | None = None, tools: Sequence[str] = ()
    ) -> None:
        self.system_prompt = system_prompt
        self.max_turns = max_turns
        self.tools = PythonTools(tools) if tools else None
        self.cacheable = not tools

    async def run(
        self, task: HarborTask, model: InferenceClient, tools: Sequence[Any], ctx: AgentContext
    ) -> Rollout:
        """Lead the conversation of one task; `truncated` says that it wasn't over after `max_turns` answers.

        Raises:
            ValueError: the task has a system message, and so has the configuration.
        """
        waiting, left = self._script(task, ctx), self._most(ctx)
        shown = tools if self.tools is None else self.tools.shown(tools)
        conversation: list[Message] = []
        while waiting and left:
            conversation.extend(waiting.pop(0))
            completions = await model.generate(conversation, ctx.sampling, tools=shown)
            answer, left = completions[0].message, left - 1
            conversation.append(answer)
            if self.tools is not None and answer.tool_calls:
                waiting.insert(0, [await self.tools.answer(call) for call in answer.tool_calls])
        return Rollout(
            task_id=task.task_id,
            sample_index=ctx.sample_index,
            messages=tuple(conversation),
            output=conversation[-1].content,
            truncated=bool(waiting),
        )

    def _most(self, ctx: AgentContext) -> int:
        """Most answers of the model."""
        limit = ctx.max_turns if ctx.max_turns < MOST_TURNS else 1  # the general bound is no script's length
        return self.max_turns or (limit if self.tools is None else max(limit, MOST_WITH_TOOLS))

    def _script(self, task: HarborTask, ctx: AgentContext) -> list[list[Message]]:
        """The messages before each answer of the model."""
        messages = self._opening(task, ctx)
        if self._most(ctx) == 1:
            return [messages]
        parts: list[list[Message]] = [[]]
        for message, following in zip(messages, [*messages[1:], None], strict=True):
            parts[-1].append(message)
            if message.role == "user" and following is not None and following.role == "user":
                parts.append([])
        return parts

    def _opening(self, task: HarborTask, ctx: AgentContext) -> list[Message]:
        instruction = task.instruction
        messages = (
            [Message(role="user", content=instruction)] if isinstance(instruction, str) else list(instruction)
        )
        system = ctx.system_prompt if ctx.system_prompt is not None else self.system_prompt
        if system is None:
            return messages
        if any(message.role == "system" for message in messages):
            raise ValueError(f"task {task.task_id!r} has a system message, and `system_prompt` is set too")
        return [Message(role="system", content=system), *messages]

"""The `chat` agent: the model alone, answering the task's instruction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from evsys.types import Message, Rollout

if TYPE_CHECKING:
    from evsys.protocols import InferenceClient
    from evsys.types import AgentContext, HarborTask

__all__ = ["ChatAgent"]


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
            "By default the engine's limit."
        },
        validator=attrs.validators.optional(attrs.validators.ge(1)),
    )


class ChatAgent:
    """Asks the model and returns its last answer.

    With `max_turns` of 1 the whole instruction is one prompt. Above that, an instruction of several messages is a script:
    each user message that isn't followed by a given answer is answered by the model before the next one is shown.
    """

    name: ClassVar[str] = "chat"
    Config = ChatAgentParams

    def __init__(self, *, system_prompt: str | None = None, max_turns: int | None = None) -> None:
        self.system_prompt = system_prompt
        self.max_turns = max_turns

    async def run(
        self, task: HarborTask, model: InferenceClient, tools: Sequence[Any], ctx: AgentContext
    ) -> Rollout:
        """Lead the conversation of one task; `truncated` says that its script was longer than `max_turns`.

        Raises:
            ValueError: the task has a system message, and so has the configuration.
        """
        script = self._script(task, ctx)
        most = self.max_turns or ctx.max_turns
        conversation: list[Message] = []
        for part in script[:most]:
            conversation.extend(part)
            completions = await model.generate(conversation, ctx.sampling, tools=tools)
            conversation.append(completions[0].message)
        return Rollout(
            task_id=task.task_id,
            sample_index=ctx.sample_index,
            messages=tuple(conversation),
            output=conversation[-1].content,
            truncated=len(script) > most,
        )

    def _script(self, task: HarborTask, ctx: AgentContext) -> list[list[Message]]:
        """What is said before each answer of the model."""
        messages = self._opening(task, ctx)
        if (self.max_turns or ctx.max_turns) == 1:
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

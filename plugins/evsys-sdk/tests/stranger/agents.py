"""Agents: a function that answers once, and a class that asks again."""

from collections.abc import Mapping, Sequence
from typing import Any, assert_type

import attrs

from evsys.protocols import InferenceClient
from evsys_sdk import (
    AgentContext,
    Completion,
    HarborTask,
    Message,
    Rollout,
    ToolCall,
    Turn,
    option,
    register_agent,
)


@register_agent("once")
async def once(task: HarborTask, model: InferenceClient, tools: Sequence[Any], ctx: AgentContext) -> str:
    messages = [Message(role="user", content=str(task.instruction))]
    answers = await model.generate(messages, ctx.sampling)
    assert_type(answers, Sequence[Completion])
    return answers[0].message.content


@register_agent("insists")
class Insists:
    """Asks until something is said."""

    @attrs.frozen(kw_only=True)
    class Config:
        """Params."""

        times: int = option(3, "How often it asks.", ge=1)

    def __init__(self, times: int) -> None:
        self.times = times

    async def run(
        self, task: HarborTask, model: InferenceClient, tools: Sequence[Any], ctx: AgentContext
    ) -> Rollout:
        turns: list[Turn] = []
        messages = [Message(role="user", content=str(task.instruction))]
        calls: list[ToolCall] = []
        for _ in range(self.times):
            (answer,) = await model.generate(messages, ctx.sampling, tools=tools)
            turns.append(
                Turn(message=answer.message, tokens=answer.tokens, finish_reason=answer.finish_reason)
            )
            messages += [answer.message, Message(role="user", content="Go on.")]
            calls += answer.message.tool_calls
            if answer.message.content:
                break
        assert_type(calls[0].arguments if calls else None, Mapping[str, Any] | str | None)
        return Rollout(
            task_id=task.task_id,
            sample_index=ctx.sample_index,
            messages=tuple(messages[:-1]),
            turns=tuple(turns),
            output=messages[-2].content,
        )

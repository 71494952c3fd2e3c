"""Agents that keep their contract, each written in another way."""

from dataclasses import dataclass

from evsys.types import Message, Rollout


def _messages(task):
    said = task.instruction
    return [Message(role="user", content=said)] if isinstance(said, str) else list(said)


async def function(task, model, tools, ctx):
    (completion,) = await model.generate(_messages(task), ctx.sampling, tools=tools)
    return completion.message.content


@dataclass(kw_only=True)
class AsksTwice:
    system: str = "Be brief."

    async def run(self, task, model, tools, ctx):
        conversation = [Message(role="system", content=self.system), *_messages(task)]
        for again in ("", "Are you sure?"):
            if again:
                conversation.append(Message(role="user", content=again))
            completion = (await model.generate(conversation, ctx.sampling))[0]
            conversation.append(completion.message)
        return Rollout(
            task_id=task.task_id,
            sample_index=ctx.sample_index,
            messages=tuple(conversation),
            output=conversation[-1].content,
        )


class TellsFailures:
    async def run(self, task, model, tools, ctx):
        try:
            output, error = await function(task, model, tools, ctx), None
        except ConnectionError as exc:
            output, error = "", str(exc)
        return Rollout(task_id=task.task_id, sample_index=ctx.sample_index, output=output, error=error)

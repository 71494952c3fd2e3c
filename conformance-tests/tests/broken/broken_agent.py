"""Agents with one fault each; wrong signatures are here too."""

import asyncio

from evsys.types import Message, SamplingParams


async def _answer(task, model, sampling):
    said = task.instruction
    messages = [Message(role="user", content=said)] if isinstance(said, str) else list(said)
    return (await model.generate(messages, sampling))[0].message.content


class OtherNames:
    async def run(self, task, model, tools, context):
        return await _answer(task, model, context.sampling)


class NotAsync:
    def run(self, task, model, tools, ctx):
        return _answer(task, model, ctx.sampling)


class GivesANumber:
    async def run(self, task, model, tools, ctx):
        return len(await _answer(task, model, ctx.sampling))


class FirstMessageOnly:
    async def run(self, task, model, tools, ctx):
        said = task.instruction if isinstance(task.instruction, str) else task.instruction[0].content
        return (await model.generate([Message(role="user", content=said)], ctx.sampling))[0].message.content


class OwnSampling:
    async def run(self, task, model, tools, ctx):
        return await _answer(task, model, SamplingParams())


class HidesFailures:
    async def run(self, task, model, tools, ctx):
        try:
            return await _answer(task, model, ctx.sampling)
        except Exception:
            return "I don't know."


class GoesOn:
    async def run(self, task, model, tools, ctx):
        try:
            return await _answer(task, model, ctx.sampling)
        except asyncio.CancelledError:
            return "I was interrupted."


class OneTaskAtATime:
    async def run(self, task, model, tools, ctx):
        self.task = task
        await asyncio.sleep(0)
        return await _answer(self.task, model, ctx.sampling)


class NeverAsks:
    async def run(self, task, model, tools, ctx):
        return None

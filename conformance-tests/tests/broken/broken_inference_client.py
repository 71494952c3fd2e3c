"""Inference clients with one fault each, of a service that `base_url` names; without one they answer themselves."""

import asyncio
from typing import ClassVar
from urllib.parse import urlsplit

import attrs

from evsys import option
from evsys.types import Completion, Message, Usage


class Right:
    """Keeps the contract; the base of all that follow."""

    conformance: ClassVar = {"address": "base_url"}

    @attrs.frozen(kw_only=True)
    class Config:
        base_url: str = option("", "where the service is")

    def __init__(self, *, base_url):
        self.base_url = base_url

    async def generate(self, messages, sampling, *, n=1, tools=()):
        if self.base_url:
            await self.ask_service()
        await asyncio.sleep(0)
        return [self.completion(messages, sampling) for _ in range(n)]

    async def ask_service(self):
        address = urlsplit(self.base_url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            await reader.readline()
        finally:
            writer.close()

    def completion(self, messages, sampling):
        words = f"you said {messages[-1].content}".split()[: sampling.max_tokens]
        return Completion(
            message=Message(role="assistant", content=" ".join(words)),
            finish_reason="stop",
            usage=Usage(prompt_tokens=3, completion_tokens=len(words)),
        )

    async def prompt_logprobs(self, tokens):
        said = Message(role="assistant", content="")
        logprobs = [float("nan"), *[-1.0] * (len(tokens) - 1)]
        return Completion(
            message=said, finish_reason="length", logprobs=logprobs, usage=Usage(prompt_tokens=len(tokens))
        )


class LeavesOutTheFirst(Right):
    async def prompt_logprobs(self, tokens):
        found = await super().prompt_logprobs(tokens)
        return attrs.evolve(found, logprobs=found.logprobs[1:])


class TellsProbabilities(Right):
    async def prompt_logprobs(self, tokens):
        found = await super().prompt_logprobs(tokens)
        return attrs.evolve(found, logprobs=[found.logprobs[0], *[0.4] * (len(tokens) - 1)])


class OneWhateverIsAsked(Right):
    async def generate(self, messages, sampling, *, n=1, tools=()):
        return await super().generate(messages, sampling)


class TellsNoUsage(Right):
    def completion(self, messages, sampling):
        return attrs.evolve(super().completion(messages, sampling), usage=Usage())


class TalksOn(Right):
    def completion(self, messages, sampling):
        return super().completion(messages, attrs.evolve(sampling, max_tokens=1000))


class AddsToTheList(Right):
    async def generate(self, messages, sampling, *, n=1, tools=()):
        found = await super().generate(messages, sampling, n=n)
        if isinstance(messages, list):
            messages.append(found[0].message)
        return found


class MixesConversations(Right):
    async def generate(self, messages, sampling, *, n=1, tools=()):
        self.messages = messages
        await asyncio.sleep(0)
        return await super().generate(self.messages, sampling, n=n)


class HidesFailures(Right):
    async def ask_service(self):
        try:
            await super().ask_service()
        except OSError:
            return


class GoesOn(Right):
    async def ask_service(self):
        try:
            await super().ask_service()
        except asyncio.CancelledError:
            return

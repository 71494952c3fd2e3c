"""The contract of an inference client: one conversation in, its own completions out, and failures reported."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from evsys.optional import SupportsPromptLogprobs, declared
from evsys.types import Completion, Message, SamplingParams
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import Words, breach, require, require_equal
from evsys_conformance.running import cancelled_within, closed_address, run, silent_address
from evsys_conformance.subject import Subject

__all__ = ["InferenceClientConformance"]

_PATIENCE_SECONDS = 10.0
_HOW_TO_FAIL = (
    "isn't tried without its service: conformance = {'address': 'base_url'}, which names the param that holds the address "
    "of its service, or the fixture"
)


class InferenceClientConformance(PluginConformance):
    """Checks of the kind `inference_client`. Override `plugin` for a client of a fake service, `failing` and `hanging` for
    clients of services that are down or silent.
    """

    kind: ClassVar[str | None] = "inference_client"
    words: ClassVar[Mapping[str, str]] = {
        "address": "the name of the param that holds the address of its service; the suite then tries addresses on loopback "
        "that don't answer"
    }

    @pytest.fixture
    def conversations(self) -> list[tuple[Message, ...]]:
        """Conversations that have different answers."""
        texts = ("Say one.", "Sag zwei.", "三と言って。")
        return [(Message(role="user", content=text),) for text in texts]

    @pytest.fixture
    def sampling(self) -> SamplingParams:
        """Sampling parameters at which the same conversation has the same answer."""
        return SamplingParams(max_tokens=16, temperature=0.0, seed=1)

    @pytest.fixture
    def failing(self, subject: Subject, params: Mapping[str, Any], facts: Mapping[str, Any]) -> Any:
        """A client whose service can't be reached."""
        if "address" not in facts or subject.entry is None:
            pytest.skip(f"{_HOW_TO_FAIL} `failing`")
        return self._build_plugin(subject, {**params, facts["address"]: closed_address()})

    @pytest.fixture
    def hanging(self, subject: Subject, params: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[Any]:
        """A client whose service never answers."""
        if "address" not in facts or subject.entry is None:
            pytest.skip(f"{_HOW_TO_FAIL} `hanging`")
        with silent_address() as address:
            yield self._build_plugin(subject, {**params, facts["address"]: address})

    @check()
    def test_gives_as_many_completions_as_asked(
        self, plugin: Any, conversations: list[tuple[Message, ...]], sampling: SamplingParams
    ) -> None:
        """`n` completions of one conversation, each a message of the assistant."""
        for n in (1, 3):
            found = list(run(plugin.generate(conversations[0], sampling, n=n)))
            require_equal(len(found), n, f"asked for {n} completions, it gives another number")
            for one in found:
                require(
                    isinstance(one, Completion) and one.message.role == "assistant",
                    "what it gives is not a completion of the assistant",
                    seen=one,
                    wanted="evsys.types.Completion(message=Message(role='assistant', ...), ...)",
                )

    @check()
    def test_usage_is_told(
        self, plugin: Any, conversations: list[tuple[Message, ...]], sampling: SamplingParams
    ) -> None:
        """Each call says how many tokens it used, prompt and answer, so that budgets and costs are right."""
        found = list(run(plugin.generate(conversations[0], sampling)))
        if not found:
            pytest.skip("after test_gives_as_many_completions_as_asked: it gives none")
        total = sum(one.usage.prompt_tokens + one.usage.completion_tokens for one in found)
        require(
            total > 0,
            "its completions used nothing",
            seen=found[0].usage,
            wanted="usage=Usage(prompt_tokens=..., completion_tokens=...)",
        )

    @check()
    def test_max_tokens_is_kept(self, plugin: Any, conversations: list[tuple[Message, ...]]) -> None:
        """No answer is longer than `max_tokens`."""
        for one in run(
            plugin.generate(conversations[0], SamplingParams(max_tokens=2, temperature=0.0, seed=1))
        ):
            used = len(one.tokens) if one.tokens is not None else one.usage.completion_tokens
            require(
                used <= 2,
                "an answer is longer than it may be",
                seen=Words(f"{used} tokens"),
                wanted="max_tokens=2",
            )

    @check()
    def test_conversation_is_left_as_it_was(
        self, plugin: Any, conversations: list[tuple[Message, ...]], sampling: SamplingParams
    ) -> None:
        """The list of messages is the caller's own: nothing is added to it."""
        asked = list(conversations[0])
        run(plugin.generate(asked, sampling))
        require_equal(asked, list(conversations[0]), "it changed the list of messages that it was given")

    @check()
    def test_each_conversation_gets_its_own_answer(
        self, plugin: Any, conversations: list[tuple[Message, ...]], sampling: SamplingParams
    ) -> None:
        """Asked at the same time, each conversation has the answer that it has alone. Skipped for a client that declares
        `deterministic = False`.
        """
        if declared(plugin, "deterministic", True) is False:
            pytest.skip("declares that it isn't deterministic")

        async def both() -> tuple[list[str], list[str]]:
            alone = [await _answer(plugin, one, sampling) for one in conversations]
            together = await asyncio.gather(*(_answer(plugin, one, sampling) for one in conversations))
            return alone, together

        alone, together = run(both())
        require_equal(together, alone, "asked at the same time, conversations have other answers than alone")

    @check()
    def test_prompt_logprobs_have_an_entry_for_each_token(self, plugin: Any) -> None:
        """A client that offers `prompt_logprobs` returns one for each token it is sent: NaN for the first, no more
        than 0 for others. Skipped for one that doesn't offer it.
        """
        if not isinstance(plugin, SupportsPromptLogprobs):
            pytest.skip("it has no prompt_logprobs, so it is not a teacher")
        tokens = [104, 105, 33, 104]
        found: object = run(plugin.prompt_logprobs(tokens))
        told = list(found.logprobs or ()) if isinstance(found, Completion) else []
        require_equal(len(told), len(tokens), "the logprobs of its completion aren't one for each token")
        require(
            math.isnan(told[0]) and all(value <= 0.0 for value in told[1:]),
            "what `prompt_logprobs` gives are not logprobs",
            seen=told,
            wanted="NaN, which nothing comes before, and then numbers, none above 0",
        )

    @check()
    def test_failures_are_told(
        self, failing: Any, conversations: list[tuple[Message, ...]], sampling: SamplingParams
    ) -> None:
        """When its service can't be reached it raises, or its completions end with `error`; never an empty answer."""

        async def ask() -> Sequence[Completion]:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                found: Sequence[Completion] = await failing.generate(conversations[0], sampling)
                return found

        try:
            found = run(ask())
        except TimeoutError:
            breach(
                f"after {_PATIENCE_SECONDS:g} seconds it still tries to reach a service that isn't there",
                wanted="example params with few retries: conformance = {'params': {...}}",
            )
        except Exception:  # it may fail in its own words
            return
        require(
            found and all(one.finish_reason == "error" for one in found),
            "its service can't be reached, and it gives an answer",
            seen=found,
            wanted="an exception, or completions whose finish_reason is 'error'",
        )

    @check()
    def test_cancels_within_a_second(
        self, hanging: Any, conversations: list[tuple[Message, ...]], sampling: SamplingParams
    ) -> None:
        """Cancelled while it waits for an answer, it ends as cancelled."""

        async def cancel() -> bool:
            asking = asyncio.create_task(hanging.generate(conversations[0], sampling))
            await asyncio.wait([asking], timeout=0.05)
            if asking.done():
                pytest.skip(
                    f"it ended before it could be cancelled: {asking.exception() or asking.result()!r}"
                )
            return await cancelled_within(asking, 1.0)

        require(
            run(cancel()),
            "cancelled while it waited, it continued for a second or hid it",
            wanted="CancelledError",
        )


async def _answer(client: Any, messages: Sequence[Message], sampling: SamplingParams) -> str:
    completions = await client.generate(messages, sampling)
    if len(completions) != 1:
        pytest.skip("after test_gives_as_many_completions_as_asked: it doesn't")
    (completion,) = completions
    content: str = completion.message.content
    return content

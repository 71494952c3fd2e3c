import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from evsys.errors import BackendError
from evsys.types import Message, SampledSequence, SampleResult, SamplingParams
from evsys_runtime.rendering.chat import ChatTemplateRenderer
from evsys_runtime.rendering.policy_client import PolicyClient

ASK = [Message(role="user", content="hi")]


class Parrot:
    """Answers every prompt with fixed tokens, and keeps what it was asked."""

    version = 3

    def __init__(self, *answers: Sequence[int], finish: str = "stop") -> None:
        self.answers = answers
        self.finish = finish
        self.calls: list[tuple[list[int], SamplingParams, int]] = []

    async def sample(self, prompt: Sequence[int], params: SamplingParams, n: int = 1) -> SampleResult:
        self.calls.append((list(prompt), params, n))
        return SampleResult(
            sequences=[
                SampledSequence(tokens=answer, logprobs=[-0.5] * len(answer), finish_reason=self.finish)
                for answer in self.answers
            ]
        )

    async def compute_logprobs(self, tokens: Sequence[int]) -> np.ndarray:
        raise NotImplementedError

    async def close(self) -> None:
        pass


RENDERER = ChatTemplateRenderer()


def test_completions_carry_the_samplers_own_tokens_and_logprobs():
    split = [0xC3, 0xA9, 257]
    parrot = Parrot(split, [65])
    sampling = SamplingParams(max_tokens=5, seed=9, stop_token_ids=(7,))
    first, second = asyncio.run(PolicyClient(parrot, RENDERER).generate(ASK, sampling, n=2))
    prompt = RENDERER.render_prompt(ASK)
    assert first.tokens is split
    assert first.logprobs == [-0.5] * 3
    assert first.prompt_tokens == second.prompt_tokens == prompt
    assert (first.message.content, second.message.content) == ("é", "A")
    assert first.finish_reason == "stop"
    [(asked, params, n)] = parrot.calls
    assert (asked, n) == (prompt, 2)
    assert params.stop_token_ids == (7, 257, 258)
    assert (params.max_tokens, params.seed) == (5, 9)


def test_the_prompt_is_counted_once_a_call():
    first, second = asyncio.run(
        PolicyClient(Parrot([65, 257], [66, 67, 257]), RENDERER).generate(ASK, SamplingParams(), n=2)
    )
    total = first.usage + second.usage
    assert total.prompt_tokens == len(RENDERER.render_prompt(ASK))
    assert total.completion_tokens == 5
    assert total.seconds > 0


def test_a_tool_call_is_the_reason_to_finish():
    source = "{# <tool_call> #}" + RENDERER.template.source
    tokens = RENDERER.tokenizer.encode('<tool_call>{"name": "f"}</tool_call><|im_end|>')
    client = PolicyClient(Parrot(tokens), ChatTemplateRenderer(None, source))
    [completion] = asyncio.run(client.generate(ASK, SamplingParams()))
    assert completion.finish_reason == "tool_calls"
    assert completion.message.tool_calls[0].name == "f"
    [plain] = asyncio.run(PolicyClient(Parrot(tokens), RENDERER).generate(ASK, SamplingParams()))
    assert plain.finish_reason == "stop"


def test_a_cut_answer_says_so():
    [completion] = asyncio.run(
        PolicyClient(Parrot([65], finish="length"), RENDERER).generate(ASK, SamplingParams())
    )
    assert completion.finish_reason == "length"


def test_a_failing_sampler_is_attributed_to_the_backend():
    class Broken(Parrot):
        async def sample(self, prompt, params, n=1):
            raise RuntimeError("engine stopped")

    client = PolicyClient(Broken(), RENDERER)
    assert client.version == 3
    with pytest.raises(BackendError, match="'Broken' failed: RuntimeError: engine stopped"):
        asyncio.run(client.generate(ASK, SamplingParams()))

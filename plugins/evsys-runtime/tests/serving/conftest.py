import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import aiohttp
import attrs
import pytest

from evsys.types import SampledSequence, SampleResult, SamplingParams
from evsys_runtime.rendering.chat import ChatTemplateRenderer
from evsys_runtime.serving.models import FixedCatalogue, ServedModel
from evsys_runtime.serving.server import chat_server

# Plain ChatML that shows tools and knows calls of them.
TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
RENDERER = ChatTemplateRenderer(template=TEMPLATE)


class Scripted:
    """A sampling client whose answers are written down, each ending with the end of a turn."""

    version = 0

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = answers or ("hello",)
        self.calls: list[tuple[list[int], SamplingParams, int]] = []
        self.hold: asyncio.Event | None = None
        self.entered = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def sample(self, prompt: Sequence[int], params: SamplingParams, n: int = 1) -> SampleResult:
        self.calls.append((list(prompt), params, n))
        if self.hold is not None:
            self.entered.set()
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        sequences = []
        for index in range(n):
            answer = self.answers[index % len(self.answers)]
            if isinstance(answer, Exception):
                raise answer
            tokens = [*RENDERER.tokenizer.encode(answer), 257]
            sequences.append(self._sequence(tokens[: params.max_tokens], params))
        return SampleResult(sequences=sequences)

    def _sequence(self, tokens: list[int], params: SamplingParams) -> SampledSequence:
        top = [{token: -0.25, 0: float("-inf")} for token in tokens] if params.top_logprobs else None
        finish = "stop" if tokens and tokens[-1] == 257 else "length"
        return SampledSequence(
            tokens=tokens, logprobs=[-0.25] * len(tokens), finish_reason=finish, top_logprobs=top
        )

    async def compute_logprobs(self, tokens: Sequence[int]) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        pass


@attrs.define(kw_only=True)
class Served:
    """A server and a session that asks it."""

    url: str
    session: aiohttp.ClientSession

    async def ask(self, headers: dict[str, str] | None = None, **body: Any) -> tuple[int, Any]:
        """Status and JSON of a request for chat completions."""
        wanted = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **body}
        async with self.session.post(
            f"{self.url}/chat/completions", json=wanted, headers=headers
        ) as response:
            return response.status, await response.json()

    async def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        async with self.session.get(f"{self.url}{path}", headers=headers) as response:
            return response.status, await response.json()


@contextlib.asynccontextmanager
async def serving(model: ServedModel, **options: Any) -> AsyncIterator[Served]:
    async with (
        chat_server(FixedCatalogue(model), **options) as url,
        aiohttp.ClientSession() as session,
    ):
        yield Served(url=url, session=session)


@pytest.fixture
def served() -> Callable[..., ServedModel]:
    def make(client: Any = None, **fields: Any) -> ServedModel:
        return ServedModel(
            name="m",
            sampling_client=client or Scripted(),
            renderer=RENDERER,
            tokenizer=RENDERER.tokenizer,
            **fields,
        )

    return make


type Work = Callable[[Served], Awaitable[Any]]


@pytest.fixture
def with_server() -> Callable[..., Any]:
    """Runs `work(server)` against a server of the model, on loopback."""

    def run(model: ServedModel, work: Work, **options: Any) -> Any:
        async def main() -> Any:
            async with asyncio.timeout(20), serving(model, **options) as server:
                return await work(server)

        return asyncio.run(main())

    return run


@pytest.fixture
def scripted() -> type[Scripted]:
    return Scripted

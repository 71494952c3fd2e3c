"""A model that a service has, in a role of a run: asked how likely tokens are, and nothing else."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from evsys.errors import BackendError, ConfigError
from evsys.types import Completion, Datum, ForwardResult, Message, ModelSpec, SamplingParams, Usage
from evsys_runtime.rendering.tokenizers import load_tokenizer
from evsys_runtime.training.asking import priced_usage
from evsys_runtime.training.inference_role import MOST_AT_ONCE, InferenceRole
from evsys_runtime.training.roles import PROBE

TINY = ModelSpec(name="evsys/tiny")


class Service:
    """Says of all tokens that they are as likely as one in e."""

    def __init__(self, *, text: str | None = None, error: Exception | None = None, short: int = 0) -> None:
        self.text = text
        self.error = error
        self.short = short
        self.asked: list[list[int]] = []

    async def prompt_logprobs(self, tokens: Any) -> Completion:
        self.asked.append(list(tokens))
        if self.error is not None:
            raise self.error
        text = load_tokenizer("evsys/tiny").decode(tokens) if self.text is None else self.text
        return Completion(
            message=Message(role="assistant", content=text),
            finish_reason="length",
            logprobs=[math.nan, *[-1.0] * (len(tokens) - 1 - self.short)],
        )


def role(**options: Any) -> InferenceRole:
    return InferenceRole(Service(**options), "service")


def look(backend: InferenceRole, model: ModelSpec = TINY) -> None:
    asyncio.run(backend.preflight(model))


def test_it_tells_what_the_service_tells(tmp_path: Path):
    async def work() -> Any:
        client = await role().prepare(TINY, tmp_path, 0)
        teacher = await client.sampling_client()
        found = await teacher.compute_logprobs([5, 6, 7])
        await teacher.close()
        return client, found

    client, found = asyncio.run(work())
    assert found.dtype == np.float32
    assert np.isnan(found[0])
    assert found[1:].tolist() == [-1.0, -1.0]
    assert client.tokenizer.encode("hi") == [104, 105]


def test_only_a_client_that_tells_has_the_capability():
    class Silent:
        async def generate(self, messages: Any, sampling: Any) -> Any:
            raise NotImplementedError

    assert role().capabilities == {"prompt_logprobs"}
    assert InferenceRole(Silent(), "silent").capabilities == frozenset()


def test_before_a_run_the_service_reads_a_text_back():
    backend = role()
    look(backend)
    assert backend._client.asked == [load_tokenizer("evsys/tiny").encode(PROBE)]


@pytest.mark.parametrize("text", ["", f"  {PROBE}  ", f"{PROBE}And"])
def test_a_service_that_says_no_text_or_one_with_more_around_it_is_taken_as_it_is(text):
    look(role(text=text))


def test_a_service_that_reads_other_words_has_another_tokenizer():
    with pytest.raises(
        ConfigError, match="as 'Der schnelle Fuchs', so its model has another tokenizer"
    ) as told:
        look(role(text="Der schnelle Fuchs"))
    assert [problem.path for problem in told.value.problems] == ["$.model.name"]


@pytest.mark.parametrize(
    "error",
    [
        BackendError("it answered 400: no echo with logprobs", status=400),
        BackendError("it answered 404: no such path", status=404),
        BackendError("it returns no logprobs"),
    ],
)
def test_a_service_that_doesnt_tell_is_a_problem_of_the_file(error):
    with pytest.raises(ConfigError, match="so it can't be asked how likely given tokens are") as told:
        look(role(error=error))
    assert [problem.path for problem in told.value.problems] == ["$.inference"]


def unreachable() -> BackendError:
    error = BackendError("connection refused")
    error.__cause__ = ConnectionError("refused")
    return error


@pytest.mark.parametrize("error", [BackendError("it answered 503", status=503), unreachable()])
def test_a_service_that_cant_be_asked_just_now_says_nothing_of_the_file(error):
    with pytest.raises(BackendError, match=error.message):
        look(role(error=error))


def test_a_tokenizer_that_isnt_here_is_told_with_what_to_name_in_its_place():
    with pytest.raises(ConfigError, match=r"its tokenizer is needed") as told:
        look(role(), ModelSpec(name="none/such"))
    assert "such as the trained model" in told.value.problems[0].hint


def test_too_few_logprobs_are_a_failure(tmp_path: Path):
    async def work() -> None:
        client = await role(short=1).prepare(TINY, tmp_path, 0)
        await (await client.sampling_client()).compute_logprobs([5, 6, 7])

    with pytest.raises(BackendError, match="service gave 2 logprobs for 3 tokens"):
        asyncio.run(work())


def test_it_is_neither_trained_nor_sampled(tmp_path: Path):
    async def work() -> None:
        client = await role().prepare(TINY, tmp_path, 0)
        for attempt in (
            lambda: client.forward_backward([], "cross_entropy"),
            lambda: client.optim_step(None),
        ):
            with pytest.raises(BackendError, match="can only return logprobs"):
                attempt()
        with pytest.raises(BackendError, match="can only return logprobs"):
            await client.save_state(tmp_path)
        with pytest.raises(BackendError, match="can only return logprobs"):
            await client.forward([datum([5, 6, 7], [6, 7, 9]), datum([5, 6, 7], [6, 8, 9])])
        with pytest.raises(BackendError, match="can't be sampled"):
            await (await client.sampling_client()).sample([1], SamplingParams())

    asyncio.run(work())


def datum(tokens: list[int], targets: list[int]) -> Datum:
    return Datum(tokens=np.array(tokens), loss_inputs={"target_tokens": np.array(targets)})


class Counting(Service):
    """Tells of each call what it took: what it was sent, and a token that it draws."""

    async def prompt_logprobs(self, tokens: Any) -> Completion:
        used = Usage(prompt_tokens=len(tokens), completion_tokens=1, seconds=2.0, cost_usd=len(tokens) + 0.5)
        return attrs.evolve(await super().prompt_logprobs(tokens), usage=used)


class Dear(Service):
    """Has a price, and never says what a call took."""

    def sampling_cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        return prompt_tokens * 0.5


class Silent(Dear):
    """Asks a service that doesn't say this time."""

    async def prompt_logprobs(self, tokens: Any) -> Completion:
        return attrs.evolve(await super().prompt_logprobs(tokens), usage=Usage(unpriced=1))


@pytest.mark.parametrize(
    ("service", "took"),
    [
        (Counting, Usage(prompt_tokens=5, completion_tokens=2, cost_usd=6.0)),
        (Dear, Usage(prompt_tokens=5, cost_usd=2.5)),
        (Service, Usage(prompt_tokens=5, unpriced=2)),
        (Silent, Usage(prompt_tokens=5, unpriced=2)),
    ],
)
def test_what_calls_took_is_what_the_service_says_and_is_told_once(service, took, tmp_path: Path):
    async def work() -> list[Usage]:
        prepared = await InferenceRole(service(), "service").prepare(TINY, tmp_path, 0)
        teacher = await prepared.sampling_client()
        await asyncio.gather(teacher.compute_logprobs([5, 6, 7]), teacher.compute_logprobs([5, 6]))
        # What it is counted as by whoever asked is of no use then.
        return [priced_usage(teacher, 1000), priced_usage(teacher, 1000), priced_usage(prepared, 1000)]

    assert asyncio.run(work()) == [took, Usage(), Usage()]


def test_a_forward_pass_over_a_text_is_a_question_too(tmp_path: Path):
    async def work() -> tuple[ForwardResult, list[list[int]], Usage]:
        service = Counting()
        client = await InferenceRole(service, "service").prepare(TINY, tmp_path, 0)
        found = await client.forward([datum([5, 6, 7], [6, 7, 8]), datum([5], [9])])
        return found, service.asked, priced_usage(client, 0)

    found, asked, took = asyncio.run(work())
    assert [values.tolist() for values in found.logprobs] == [[-1.0, -1.0, -1.0], [-1.0]]
    assert found.tokens == 4
    assert asked == [[5, 6, 7, 8], [5, 9]]
    assert took == Usage(prompt_tokens=6, completion_tokens=2, cost_usd=7.0)


class Held(Service):
    """Answers nobody until it is let go; counts who waits."""

    def __init__(self) -> None:
        super().__init__()
        self.go, self.full = asyncio.Event(), asyncio.Event()
        self.waiting = self.most = self.cancelled = 0

    async def prompt_logprobs(self, tokens: Any) -> Completion:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        if self.waiting == MOST_AT_ONCE:
            self.full.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.waiting -= 1
        return await super().prompt_logprobs(tokens)


async def asking(service: Held, folder: Path, count: int) -> tuple[Any, list[asyncio.Task[Any]]]:
    """A teacher that is asked so many things at once, and the calls."""
    client = await InferenceRole(service, "service").prepare(TINY, folder, 0)
    teacher = await client.sampling_client()
    calls = [asyncio.create_task(teacher.compute_logprobs([5, 6])) for _ in range(count)]
    await service.full.wait()
    return teacher, calls


def test_a_large_step_is_asked_about_some_at_a_time(tmp_path: Path):
    async def work() -> Held:
        service = Held()
        _, calls = await asking(service, tmp_path, 150)
        service.go.set()
        assert len(await asyncio.gather(*calls)) == 150
        return service

    service = asyncio.run(work())
    assert (service.most, len(service.asked)) == (MOST_AT_ONCE, 150)


def test_closing_it_ends_what_nobody_waits_for_any_more(tmp_path: Path):
    async def work() -> tuple[Held, list[Any]]:
        service = Held()
        teacher, calls = await asking(service, tmp_path, 70)
        await teacher.close()
        return service, await asyncio.gather(*calls, return_exceptions=True)

    service, ended = asyncio.run(work())
    assert (service.cancelled, service.asked) == (MOST_AT_ONCE, [])
    assert all(isinstance(one, asyncio.CancelledError) for one in ended)

"""`opd` on the mock: the student comes near to its teacher, and what can't be learnt from is told."""

import attrs
import numpy as np
import pytest
from distillation_runs import CONFIG, SHORT, prompt_rows, taught, trained_teacher
from training_runs import Rows

from evsys.errors import AlgorithmError, BudgetExceeded, ConfigError, DataError
from evsys.types import Clients, Message, PromptExample, SampledSequence, SampleResult, Usage
from evsys_algo_distill import OPD
from evsys_runtime.rendering.chat import ChatTemplateRenderer
from evsys_runtime.training import trainable_rows

LONG = {**SHORT, "steps": 80, "lora_rank": 16, "learning_rate": 3e-3}


async def learn(run, teacher, rows=None, settings=SHORT, **fields):
    async with taught(run, rows or prompt_rows(), teacher, **fields) as ctx:
        return await OPD(**{"lora_rank": 16, **settings}).train(ctx)


def values(run, name):
    return [line[name] for _, line in run.metrics()]


async def test_the_student_comes_near_to_its_teacher(tmp_path, new_run):
    run = new_run()
    async with trained_teacher(tmp_path, steps=6) as teacher:
        result = await learn(run, teacher, settings=LONG)
    divergence = values(run, "reverse_kl")
    assert result.status == "completed"
    assert np.mean(divergence[-8:]) < 0.5 * np.mean(divergence[:8])
    assert values(run, "loss") == pytest.approx(divergence)  # on policy, the loss is the divergence


async def test_what_answers_and_opinions_took_is_counted_apart(tmp_path, new_run):
    run = new_run()
    async with trained_teacher(tmp_path, steps=2) as teacher:
        result = await learn(run, teacher)
    last = run.metrics()[-1][1]
    assert last["teacher_tokens_total"] == sum(values(run, "teacher_tokens"))
    assert last["teacher_cost_usd"] == 0.0
    said = sum(n * m for n, m in zip(values(run, "answers"), values(run, "answer_tokens_mean"), strict=True))
    assert result.usage.completion_tokens == pytest.approx(said)
    assert result.usage.prompt_tokens > last["teacher_tokens_total"]
    assert result.usage.cost_usd == 0.0
    assert values(run, "answers") == [16.0] * 6


@pytest.mark.parametrize(("steps", "told"), [(0, True), (2, False)])
async def test_a_teacher_that_is_the_student_itself_is_told_of(tmp_path, new_run, steps, told):
    async with trained_teacher(tmp_path, steps=steps) as teacher:
        result = await learn(new_run(), teacher)
    assert any("there is nothing to learn from it" in warning for warning in result.warnings) is told


async def test_it_resumes_exactly_and_goes_on_counting(tmp_path, new_run):
    whole, halved = new_run("whole"), new_run("halved")
    async with trained_teacher(tmp_path, steps=6) as teacher:
        wanted = await learn(whole, teacher)
        await learn(halved, teacher, max_steps=3)
        found = await learn(halved, teacher, resume=True)
    assert halved.weights() == whole.weights()
    assert halved.batches() == whole.batches()
    assert attrs.evolve(found.usage, seconds=0.0) == attrs.evolve(wanted.usage, seconds=0.0)


async def test_without_a_teacher_there_is_nothing_to_learn_from(new_run):
    with pytest.raises(AlgorithmError, match="the run has no teacher"):
        await learn(new_run(), None)


class OtherTokens:
    """A teacher of another family."""

    fingerprint = "sha256:other"


async def test_a_teacher_with_another_tokenizer_is_an_error(tmp_path, new_run):
    async with trained_teacher(tmp_path, steps=1) as teacher:
        teacher.tokenizer = OtherTokens()
        with pytest.raises(ConfigError, match="another tokenizer than 'evsys/tiny'"):
            await learn(new_run(), teacher)


class Unsure:
    """A teacher that finds some tokens impossible, and doesn't tell of others."""

    def __init__(self, client, *odd):
        self._client, self._odd = client, odd

    def __getattr__(self, name):
        return getattr(self._client, name)

    async def sampling_client(self):
        return Unsure(await self._client.sampling_client(), *self._odd)

    async def compute_logprobs(self, tokens):
        found = (await self._client.compute_logprobs(tokens)).astype(np.float64)
        found[len(found) - len(self._odd) :] = self._odd
        return found


@pytest.mark.parametrize("odd", [(-np.inf,), (np.nan,), (-9999.0,)])
async def test_what_the_teacher_finds_impossible_leaves_the_weights_numbers(tmp_path, new_run, odd):
    run = new_run()
    async with trained_teacher(tmp_path, steps=2) as teacher:
        result = await learn(run, Unsure(teacher, *odd))
    assert result.status == "completed"
    share = "teacher_unknown_share" if np.isnan(odd[0]) else "teacher_bounded_share"
    said = np.multiply(values(run, "answers"), values(run, "answer_tokens_mean"))
    assert np.multiply(values(run, share), said) == pytest.approx([16.0] * 6)  # the last one of each answer
    assert all(np.isfinite([*line.values()]).all() for _, line in run.metrics())
    async with run.attempt(prompt_rows(), resume=True) as ctx:
        sampler = await ctx.clients.policy.sampling_client()
        assert np.isfinite((await sampler.compute_logprobs([1, 2, 3, 4]))[1:]).all()


async def test_a_teacher_that_tells_of_no_token_ends_the_run(tmp_path, new_run):
    async with trained_teacher(tmp_path, steps=1) as teacher:
        with pytest.raises(AlgorithmError, match="the teacher returns no logprob for any of"):
            await learn(new_run(), Unsure(teacher, *[np.nan] * 12))


class Silent:
    """A policy some of whose answers are empty."""

    def __init__(self, client, empty):
        self._client, self._empty = client, empty

    def __getattr__(self, name):
        return getattr(self._client, name)

    async def sampling_client(self):
        return SilentSampler(await self._client.sampling_client(), self._empty)


class SilentSampler:
    def __init__(self, sampler, empty):
        self._sampler, self._empty = sampler, empty

    def __getattr__(self, name):
        return getattr(self._sampler, name)

    async def sample(self, prompt, params, n=1):
        result = await self._sampler.sample(prompt, params, n)
        nothing = SampledSequence(tokens=[], logprobs=[], finish_reason="stop")
        return SampleResult(sequences=[nothing] * self._empty + list(result.sequences[self._empty :]))


async def test_empty_answers_are_left_out_and_counted(tmp_path, new_run):
    run = new_run()
    async with trained_teacher(tmp_path, steps=2) as teacher:
        await learn(run, teacher, client=lambda client: Silent(client, 1))
    assert values(run, "answers") == [12.0] * 6
    assert values(run, "empty_share") == [0.25] * 6


async def test_nothing_but_empty_answers_is_an_error(tmp_path, new_run):
    async with trained_teacher(tmp_path, steps=1) as teacher:
        with pytest.raises(AlgorithmError, match="none of the 16 answers of step 1 has a token"):
            await learn(new_run(), teacher, client=lambda client: Silent(client, 4))


async def test_prompts_without_room_for_an_answer_are_left_out_and_counted(tmp_path, new_run):
    long = PromptExample(prompt=(Message(role="user", content="x" * 400),), row_id="long")
    rows = Rows([*prompt_rows(), long])
    async with trained_teacher(tmp_path, steps=1) as teacher:
        result = await learn(new_run("some"), teacher, rows, {**SHORT, "max_length": 128})
        assert (
            "1 of 13 rows were left out: prompt and max_tokens are longer than 128 tokens" in result.warnings
        )
        with pytest.raises(DataError, match="no row is left"):
            await learn(new_run("none"), teacher, rows, {**SHORT, "max_length": 20})


async def test_few_prompts_are_rendered_before_the_first_step(tmp_path, new_run, monkeypatch):
    monkeypatch.setattr(trainable_rows, "SAMPLE_ROWS", 6)
    renders = []
    render = ChatTemplateRenderer.render_prompt
    monkeypatch.setattr(
        ChatTemplateRenderer, "render_prompt", lambda *args: renders.append(1) or render(*args)
    )
    rows = Rows(
        PromptExample(prompt=(Message(role="user", content=f"question {n}"),), row_id=f"row-{n}")
        for n in range(300)
    )
    async with trained_teacher(tmp_path, steps=1) as teacher:
        renders.clear()
        result = await learn(new_run(), teacher, rows, {**SHORT, "steps": 2, "batch_size": 4})
    assert result.status == "completed"
    assert len(renders) <= 6 + 3 * 4


async def test_prompts_left_out_on_the_way_are_the_same_in_a_resumed_run(tmp_path, new_run, monkeypatch):
    monkeypatch.setattr(trainable_rows, "SAMPLE_ROWS", 6)
    rows = Rows(
        PromptExample(
            prompt=(Message(role="user", content="x" * 400 if n % 5 == 3 else f"question {n}"),),
            row_id=f"row-{n}",
        )
        for n in range(40)
    )
    params = {**SHORT, "max_length": 128, "batch_size": 4, "steps": 6, "save_every": 2}
    whole, cut = new_run("whole"), new_run("cut")
    async with trained_teacher(tmp_path, steps=1) as teacher:
        expected = await learn(whole, teacher, rows, params)
        await learn(cut, teacher, rows, params, max_steps=3)
        await learn(cut, teacher, rows, params, resume=True)
    assert (cut.weights(), cut.batches()) == (whole.weights(), whole.batches())
    assert "a row was left out when its turn came: prompt and max_tokens" in " ".join(expected.warnings)


async def test_what_answers_take_is_charged_to_the_budget(tmp_path, new_run):
    class Purse:
        left = 3

        def charge(self, usage, *, steps=0):
            assert isinstance(usage, Usage)
            self.left -= steps == 0
            if self.left < 0:
                raise BudgetExceeded("no tokens are left")

    async with trained_teacher(tmp_path, steps=1) as teacher:
        result = await learn(new_run(), teacher, budget=Purse())
    assert (result.status, result.steps) == ("budget_stopped", 3)


def test_a_preview_shows_the_prompt_and_trains_nothing_of_it():
    from evsys_runtime.rendering.resolve import load_renderer

    renderer = load_renderer("evsys/tiny")
    (shown, *_) = OPD().preview(prompt_rows(), renderer)
    ((tokens, weights),) = shown.sequences
    assert renderer.tokenizer.decode(tokens).endswith("<|im_start|>assistant\n")
    assert not any(weights)


async def test_a_teacher_stays_as_it_is(tmp_path, new_run):
    async with trained_teacher(tmp_path, steps=2) as teacher:
        before = (await teacher.sampling_client()).digest
        await learn(new_run(), teacher)
        assert (await teacher.sampling_client()).digest == before
        assert Clients(policy=teacher).teacher is None
        assert CONFIG["config"]["backend"]["kind"] == "mock"

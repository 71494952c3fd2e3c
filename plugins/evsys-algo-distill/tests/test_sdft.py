"""`sdft` on the mock: whoever is shown the demonstration teaches whoever isn't."""

import math

import attrs
import numpy as np
import pytest
from distillation_runs import CONFIG, MODEL, SHORT, prompt_rows
from training_runs import Rows

from evsys import structure
from evsys.errors import ConfigError
from evsys.types import AdamParams, ChatMessagesRow, Datum, LoraSpec, Message, PromptExample, ToolCall
from evsys_algo_distill import SDFT
from evsys_backend_local import LocalBackend
from evsys_backend_mock import MockBackend
from evsys_runtime.rendering.resolve import load_renderer

RENDERER = load_renderer("evsys/tiny")


async def learn(run, rows=None, *, resume=False, max_steps=None, **settings):
    async with run.attempt(rows or prompt_rows(), resume=resume, max_steps=max_steps, **CONFIG) as ctx:
        return await SDFT(**{"lora_rank": 16, **SHORT, **settings}).train(ctx)


def values(run, name):
    return [line[name] for _, line in run.metrics()]


def prompts(algorithm, row):
    made = algorithm.prompt_of(row, RENDERER)
    return (RENDERER.tokenizer.decode(made.student), RENDERER.tokenizer.decode(made.teacher))


def asked(text, *shown):
    return PromptExample(
        prompt=(Message(role="user", content=text),),
        demonstration=tuple(Message(role="assistant", content=one) for one in shown),
        row_id="row",
    )


def test_the_teacher_alone_sees_the_demonstration():
    student, teacher = prompts(SDFT(), asked("what is it?", "a song"))
    assert "a song" not in student
    assert "what is it?" in student
    assert "what is it?" in teacher
    assert "a song" in teacher


def test_the_template_says_where_and_what_stands_in_a_question_is_no_place():
    algorithm = SDFT(template="{demonstration}|{question}|{demonstration}")
    _, teacher = prompts(algorithm, asked("say {demonstration} and {question}", "{question}!"))
    assert "{question}!|say {demonstration} and {question}|{question}!" in teacher


def test_calls_of_tools_are_shown_as_json():
    call = ToolCall(name="mail", arguments={"to": "bob"})
    row = PromptExample(
        prompt=(Message(role="user", content="write bob"),),
        demonstration=(Message(role="assistant", tool_calls=(call,)),),
        row_id="row",
    )
    assert '{"name": "mail", "arguments": {"to": "bob"}}' in prompts(SDFT(), row)[1]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"teacher": "twin"}, "teacher"),
        ({"ema_alpha": 0.0}, "ema_alpha"),
        ({"template": "answer {question}"}, "it lacks {demonstration}"),
        ({"kl": "sideways"}, "kl"),
        ({"ema_alpha": 0.2}, "'ema_alpha' is for teacher: ema, and would be ignored"),
        ({"forward_share": 0.2}, "'forward_share' is for kl: mixed, and would be ignored"),
        ({"topk": 5, "kl": "reverse"}, "'topk' is for kl: forward or mixed, and would be ignored"),
    ],
)
def test_what_cant_be_is_refused_with_a_reason(params, message):
    with pytest.raises((ConfigError, ValueError), match=message):
        structure(SDFT.Config, params)


def test_what_its_backend_must_offer_hangs_on_the_divergence():
    assert SDFT().requires == {"top_prompt_logprobs"}
    assert SDFT(kl="mixed").requires == {"top_prompt_logprobs"}
    assert SDFT(kl="reverse").requires == {"prompt_logprobs"}


async def test_rows_without_a_demonstration_are_left_out_and_counted(new_run):
    rows = Rows([*prompt_rows(), asked("nothing shown"), asked("silence", "")])
    result = await learn(new_run(), rows, steps=1)
    assert "2 of 14 rows were left out: without a demonstration" in result.warnings


@pytest.mark.parametrize("kl", ["forward", "mixed"])
@pytest.mark.parametrize("teacher", ["base", "live", "ema"])
async def test_every_teacher_and_divergence_trains(new_run, kl, teacher):
    run = new_run()
    result = await learn(run, kl=kl, teacher=teacher)
    assert result.status == "completed"
    assert all(math.isfinite(value) for value in values(run, "forward_kl"))
    assert all(value >= -1e-9 for value in values(run, "forward_kl"))
    assert all(0 <= value <= 1 for value in values(run, "topk_missed_share"))


async def test_with_reverse_no_likeliest_tokens_are_asked_for(new_run):
    run = new_run()
    await learn(run, kl="reverse")
    assert "topk_missed_share" not in run.metrics()[0][1]
    # Untrained, the mock says the same whatever stands before it: there is nothing to learn.
    assert values(run, "reverse_kl") == [0.0] * SHORT["steps"]


async def test_the_divergence_from_a_frozen_teacher_falls(new_run):
    run = new_run()
    await learn(run, steps=40, topk=259, learning_rate=2e-3, kl="forward", template="{demonstration}")
    rough = new_run("rough")
    await learn(rough, steps=40, learning_rate=2e-3)
    divergence = values(rough, "forward_kl")
    assert np.mean(divergence[-5:]) < 0.5 * divergence[0]
    assert values(run, "topk_missed_share") == [0.0] * 40  # all tokens are among 259


async def test_a_base_teacher_is_the_start_also_after_a_resume(new_run):
    whole, halved = new_run("whole"), new_run("halved")
    await learn(whole, teacher="base", save_every=3)
    await learn(halved, teacher="base", max_steps=3)
    await learn(halved, teacher="base", resume=True)
    assert halved.weights() == whole.weights()


@pytest.mark.parametrize("kl", ["forward", "reverse"])
async def test_with_a_running_mean_a_resumed_run_equals_the_uninterrupted_one(new_run, kl):
    whole, halved = new_run("whole"), new_run("halved")
    settings = {"teacher": "ema", "ema_alpha": 0.2, "kl": kl, "template": "{demonstration}"}
    await learn(whole, save_every=3, **settings)
    await learn(halved, max_steps=3, **settings)
    await learn(halved, resume=True, **settings)
    assert halved.weights() == whole.weights()
    assert halved.metrics()[-1] == whole.metrics()[-1]


@pytest.mark.parametrize(
    ("key", "begins_anew"), [("init_from_checkpoint", True), ("load_checkpoint_path", False)]
)
async def test_a_running_mean_goes_on_where_the_optimiser_does(new_run, key, begins_anew):
    """Of one text a teacher with the student's very weights says what the student says."""
    ema = {"teacher": "ema", "ema_alpha": 0.2, "topk": 259, "learning_rate": 2e-3, "steps": 3}
    first = new_run("first")
    await learn(first, **ema)
    folder = str(first.record.checkpoints.latest(first.record.attempts).directory)
    later = new_run("later", model=attrs.evolve(MODEL, **{key: folder}))
    apart = []

    class Looking(SDFT):
        async def _learn_from(self, teacher, answers):
            student = await self.ctx.clients.policy.sampling_client()
            tokens = answers[0].trajectory.tokens.tolist()
            both = [np.asarray(await one.compute_logprobs(tokens))[1:] for one in (teacher, student)]
            apart.append(float(abs(both[0] - both[1]).max()))
            return await super()._learn_from(teacher, answers)

    async with later.attempt(prompt_rows(), **CONFIG) as ctx:
        await Looking(**{"lora_rank": 16, **SHORT, **ema}).train(ctx)
    assert (apart[0] == 0.0) is begins_anew
    assert min(apart[1:]) > 0


async def test_on_the_local_engine_it_does_to_the_bit(new_run):
    found = {}
    settings = {**SHORT, "steps": 4, "max_tokens": 6, "lora_rank": 4, "teacher": "ema", "ema_alpha": 0.2}
    for name, attempts in (("whole", (None,)), ("halved", (2, None))):
        run = new_run(name, model=attrs.evolve(MODEL, lora=LoraSpec(rank=4)))
        for number, max_steps in enumerate(attempts):
            async with run.attempt(
                prompt_rows(8), backend=LocalBackend(), resume=number > 0, max_steps=max_steps, **CONFIG
            ) as ctx:
                await SDFT(**settings).train(ctx)
        folder = run.record.checkpoints.latest(run.record.attempts).directory
        files = ("adapter_model.safetensors", "optimizer.safetensors")
        found[name] = [(folder / file).read_bytes() for file in files]
    assert found["whole"] == found["halved"]
    assert b'"average"' in found["whole"][1]


async def test_a_running_mean_goes_from_the_frozen_start_to_the_weights_of_the_step(new_run):
    async def divergence(name, **settings):
        run = new_run(name)
        await learn(run, topk=259, learning_rate=2e-3, steps=8, **settings)
        return values(run, "forward_kl")

    at_once, live = await divergence("1", teacher="ema", ema_alpha=1.0), await divergence("2", teacher="live")
    assert at_once == live
    hardly, base = (
        await divergence("3", teacher="ema", ema_alpha=1e-9),
        await divergence("4", teacher="base"),
    )
    assert hardly == pytest.approx(base, rel=1e-6)
    assert base != pytest.approx(live, rel=1e-6)


async def test_a_teacher_that_was_shown_the_demonstration_finds_it_likelier(tmp_path):
    """The mechanism, on a model that has learnt to repeat what it was shown."""
    backend = MockBackend()
    client = await backend.prepare(MODEL, tmp_path, 0)
    rows = list(prompt_rows())
    algorithm = SDFT(template="{question} {demonstration}")
    made = [algorithm.prompt_of(row, RENDERER) for row in rows]
    data = [_datum(prompt.teacher, _answer(row)) for prompt, row in zip(made, rows, strict=True)]
    for _ in range(30):
        await client.forward_backward(data, "cross_entropy")
        await client.optim_step(AdamParams(learning_rate=0.01))
    sampler = await client.sampling_client()

    async def nll(side):
        total = 0.0
        for prompt, row in zip(made, rows, strict=True):
            context, answer = getattr(prompt, side), _answer(row)
            total -= float((await sampler.compute_logprobs([*context, *answer]))[len(context) :].sum())
        return total

    assert await nll("teacher") < await nll("student")
    await backend.teardown(client)


def _answer(row):
    said = ChatMessagesRow(messages=(*row.prompt, *row.demonstration)).messages
    ((tokens, weights),) = RENDERER.render_training(said)
    return [token for token, weight in zip(tokens, weights, strict=True) if weight]


def _datum(context, answer):
    tokens = np.array([*context, *answer], np.int64)
    weights = np.zeros(len(tokens))
    weights[len(context) :] = 1.0
    return Datum(tokens=tokens[:-1], loss_inputs={"target_tokens": tokens[1:], "weights": weights[1:]})


def test_a_preview_shows_what_both_read():
    (shown, *_) = SDFT().preview(prompt_rows(), RENDERER)
    student, teacher = (RENDERER.tokenizer.decode(tokens) for tokens, _ in shown.sequences)
    assert len(teacher) > len(student)

"""The examples of distillation: rehearsed on the mock backend, and learned by evsys/tiny in the slow tests."""

import asyncio
from pathlib import Path

import pytest

from evsys.types import LoraSpec, ModelSpec
from evsys_runtime.experiment import Experiment
from evsys_runtime.rendering.resolve import load_renderer

ON_MOCK = "run.backend.kind=mock"
SHORT = ("run.algorithm.params.steps=3", "run.algorithm.params.batch_size=4")


@pytest.fixture(scope="module", params=["opd_teacher", "sdft_forgetting"])
def distilled(request, example):
    return example(request.param)


@pytest.fixture
def opd(example):
    return example("opd_teacher")


@pytest.fixture
def sdft(example):
    return example("sdft_forgetting")


def test_its_script_writes_the_data_that_is_there(distilled):
    assert distilled.scripted() == distilled.data()


def test_no_held_out_word_is_trained(distilled):
    train = {row["prompt"] for row in distilled.train()}
    tasks = distilled.tasks("turn" if distilled.folder.name == "sdft_forgetting" else "held_out")
    held_out = {row.get("prompt") or row["instruction"] for row in tasks}
    assert (len(train), len(held_out)) == (400, 100)
    assert train & held_out == set()


def teacher_of(opd, *overrides):
    """The folder of the teacher's last checkpoint, relative to the example's."""
    path = opd.folder / "teacher.yaml"
    result = Experiment.from_yaml(path, overrides=overrides, quiet=True, no_cache=True).run()
    run = result.arms[0].run
    folder = Path(result.directory) / "runs/run-s0" / run.final_checkpoint
    return result, f"run.teacher.model.init_from_checkpoint={folder.relative_to(opd.folder)}"


def test_a_rehearsal_on_the_mock_backend_makes_a_teacher_and_learns_from_it(opd):
    _, teacher = teacher_of(opd, ON_MOCK, "run.algorithm.params.steps=10")
    result = opd.run(ON_MOCK, *SHORT, teacher)
    assert (result.status, result.exit_code) == ("completed", 0)
    metrics = result.arms[0].run.metrics
    assert metrics["reverse_kl"] != 0.0
    assert metrics["teacher_tokens_total"] > 0


def test_without_its_checkpoint_the_teacher_thinks_as_the_student_does(opd):
    assert opd.run(ON_MOCK, *SHORT).arms[0].run.metrics["reverse_kl"] == 0.0


def test_a_rehearsal_on_the_mock_backend_runs_both_recipes_on_the_same_rows(sdft):
    short = [f"runs[{i}].{key}" for i in (0, 1) for key in ("backend.kind=mock", "algorithm.params.steps=3")]
    result = sdft.run(*short)
    assert (result.status, result.exit_code) == ("completed", 0)
    assert [arm.arm for arm in result.arms] == ["sft", "sdft"]
    assert result.arms[1].run.metrics["forward_kl"] > 0.0


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_student_closes_most_of_the_gap_to_its_teacher(opd, score, read, seed):
    made, teacher = teacher_of(opd)
    assert score(made, -1) >= 0.9
    result = opd.run(teacher, f"run.seed={seed}")
    assert score(result, 0) <= 0.05
    assert score(result, -1) >= 0.6
    assert result.conclusion.verdict == "SUPPORTED"
    lines = read(opd.folder / result.arms[0].run_dir / "training/metrics.jsonl")
    divergence = [line["values"]["reverse_kl"] for line in lines]
    assert sum(divergence[-10:]) < 0.2 * sum(divergence[:10])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_self_distillation_learns_the_task_and_its_divergence_falls(sdft, read):
    result = sdft.run()
    learnt = {e.benchmark: e.metrics["mean_reward"].value for e in result.arms[1].evaluations}
    assert learnt["turn"] >= 0.9
    lines = read(sdft.folder / result.arms[1].run_dir / "training/metrics.jsonl")
    divergence = [line["values"]["forward_kl"] for line in lines]
    assert sum(divergence[-10:]) < 0.1 * sum(divergence[:10])


@pytest.mark.slow
def test_the_teacher_finds_the_answer_likelier_that_it_is_shown(sdft, tmp_path):
    """What the method rests on."""
    from evsys_algo_distill import SDFT
    from evsys_backend_local import LocalBackend
    from evsys_runtime.data.parse import parse_rows

    renderer = load_renderer("evsys/tiny")
    algorithm = SDFT(template="copy: {demonstration}")
    rows = list(parse_rows(sdft.train()[:50], "prompt"))

    async def nats():
        backend = LocalBackend()
        client = await backend.prepare(ModelSpec(name="evsys/tiny", lora=LoraSpec(rank=2)), tmp_path, 0)
        sampler = await client.sampling_client()
        found = {"student": 0.0, "teacher": 0.0}
        for row in rows:
            prompt = algorithm.prompt_of(row, renderer)
            answer = [*row.demonstration[0].content.encode(), *renderer.stop_token_ids[:1]]
            for side in found:
                context = list(getattr(prompt, side))
                logprobs = await sampler.compute_logprobs([*context, *answer])
                found[side] -= float(logprobs[len(context) :].sum())
        await backend.teardown(client)
        return found

    found = asyncio.run(nats())
    assert found["teacher"] < 0.1 * found["student"]

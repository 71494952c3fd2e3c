"""A teacher behind an address: `evsys serve` tells an experiment what the same model tells it in process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from faulty_service import in_a_thread
from small_project import Project

from evsys import current_registry
from evsys.errors import ConfigError
from evsys.types import ModelSpec
from evsys_cli.summary import summary_lines
from evsys_record.files import read_json
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.preflight.online import ask_backends
from evsys_runtime.serving.models import FixedCatalogue, ServedModel
from evsys_runtime.serving.server import chat_server
from evsys_server.app import make_app

SFT = """
  data: {source_kind: jsonl, path: train.jsonl}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 0.02, steps: 6, batch_size: 4, lora_rank: 4}}
  backend: {kind: KIND}
"""

OPD = """
  data: {source_kind: jsonl, path: train.jsonl}
  model: {name: evsys/tiny, init_from_checkpoint: FOLDER}
  algorithm:
    kind: opd
    params: {learning_rate: 0.003, steps: 3, batch_size: 4, lora_rank: 4, max_tokens: 6, group_size: 2}
  backend: {kind: KIND}
  teacher:
    model: {name: evsys/tiny}
"""

SERVED = """
    inference: {kind: openai_compatible, params: {model: evsys/tiny, base_url: 'URL/v1'PARAMS}}
"""

EXACT = ", extra: {max_tokens: 0, logprobs: 0}"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture(params=["mock", "local"])
def kind(request) -> str:
    return request.param


@pytest.fixture
def url(tmp_path: Path, kind: str) -> Iterator[str]:
    with in_a_thread(
        lambda: make_app(backend=kind, directory=tmp_path / "server", deterministic=True)
    ) as url:
        yield url


@pytest.fixture
def student(project: Project, kind: str) -> str:
    """A trained model, which learns to be again what it was."""
    result = project.experiment(f"run:{SFT.replace('KIND', kind)}", metadata="").run()
    folder = Path(result.directory) / "runs/run-s0" / result.arms[0].run.final_checkpoint
    return str(folder.relative_to(project.root))


def distilled(project: Project, kind: str, student: str, teacher: str = "") -> Any:
    text = (OPD + teacher).replace("KIND", kind).replace("FOLDER", student)
    return project.experiment(f"run:{text}", metadata="")


def facts(result: Any) -> dict[str, Any]:
    return read_json(Path(result.directory) / "runs/run-s0/run.json")


@pytest.mark.parametrize("params", ["", EXACT])
def test_it_teaches_what_it_teaches_in_process(project, kind, student, url, params):
    (near,) = distilled(project, kind, student).run().arms
    served = SERVED.replace("URL", url).replace("PARAMS", params)
    result = distilled(project, kind, student, served).run()
    (far,) = result.arms
    assert (near.status, far.status) == ("completed", "completed")
    assert near.run.metrics["reverse_kl"] != 0.0
    known = dict(near.run.metrics)
    assert (
        known.pop("teacher_cost_usd") == 0.0
    )  # in process it costs nothing, and nobody said what the service costs
    assert set(far.run.metrics) == set(known)
    drawn = (
        0 if params else 8
    )  # a token for each of 4 prompts' 2 answers, which the service draws unless it is told not to
    known["teacher_tokens"] += drawn
    known["teacher_tokens_total"] += 3 * drawn
    assert far.run.roles["teacher"].completion_tokens == 3 * drawn
    assert far.run.metrics == pytest.approx(known, rel=0 if kind == "mock" and params else 1e-4, abs=1e-5)
    assert facts(result)["roles"]["teacher"] == {
        "model": "evsys/tiny",
        "weights": None,
        "files": None,
        "inference": "openai_compatible",
    }


@pytest.mark.parametrize("kind", ["mock"], indirect=True)
def test_it_is_asked_before_anything_is_spent(project, kind, student, url):
    served = SERVED.replace("URL", url).replace("PARAMS", "")
    plan = distilled(project, kind, student, served).plan
    assert asyncio.run(ask_backends(plan)) == 1
    other = served.replace("model: evsys/tiny,", "model: nobody,")
    with pytest.raises(ConfigError, match=r"\$\.run\.teacher\.inference: .*there is no model 'nobody' here"):
        asyncio.run(ask_backends(distilled(project, kind, student, other).plan))


@pytest.mark.parametrize("kind", ["mock"], indirect=True)
def test_what_it_costs_is_charged_and_told(project, kind, student, url):
    price = ", price: {prompt: 1000000, completion: 3000000}"
    served = SERVED.replace("URL", url).replace("PARAMS", price)
    result = distilled(project, kind, student, served).run()
    (arm,) = result.arms
    metrics = arm.run.metrics
    took = arm.run.roles["teacher"]
    assert took.completion_tokens == 24
    assert metrics["teacher_cost_usd"] == took.prompt_tokens + 3 * 24
    assert arm.run.usage.cost_usd == metrics["teacher_cost_usd"]
    assert (took.tokens, took.cost_usd) == (metrics["teacher_tokens_total"], metrics["teacher_cost_usd"])
    line = f"of that, the teacher took {took.tokens} tokens, ${took.cost_usd:.4f}"
    assert line in summary_lines(result, width=120)
    assert f"Of{line[2:]}." in (Path(result.directory) / "conclusion.md").read_text("utf-8")


PAIRS = """
  data:
    source_kind: in_memory
    rows: [{prompt: a, chosen: one, rejected: two}, {prompt: b, chosen: three, rejected: four}]
  algorithm: {kind: dpo, params: {steps: 2, batch_size: 2, lora_rank: 4, learning_rate: 0.01}}
"""
HELD = """
  data:
    source_kind: in_memory
    rows: [{task_id: a, instruction: say a, verifier: {name: contains, expected: e}}]
  algorithm:
    kind: rl
    params: {steps: 2, batch_size: 1, group_size: 2, lora_rank: 4, max_tokens: 6, learning_rate: 0.01, kl_coef: 0.1}
"""


@pytest.mark.parametrize("kind", ["mock"], indirect=True)
@pytest.mark.parametrize("recipe", [PAIRS, HELD], ids=["dpo", "rl"])
def test_a_reference_may_be_there_too_and_is_charged(project, kind, student, url, recipe):
    def held_near(reference: str) -> Any:
        text = f"{recipe}  model: {{name: evsys/tiny, init_from_checkpoint: {student}}}\n  backend: {{kind: {kind}}}"
        return project.experiment(
            f"budget: {{usd: 1000000}}\nrun:{text}\n  reference:\n    model: {{name: evsys/tiny}}{reference}",
            metadata="",
        ).run()

    price = ", price: {prompt: 1000000, completion: 0}" + EXACT
    near = held_near("")
    far = held_near(SERVED.replace("URL", url).replace("PARAMS", price))
    took = far.arms[0].run.roles["reference"]
    assert (near.arms[0].status, far.arms[0].status) == ("completed", "completed")
    assert took.prompt_tokens == took.cost_usd == far.arms[0].run.usage.cost_usd > 0
    assert "margin" not in far.arms[0].run.metrics or far.arms[0].run.metrics["margin"] == pytest.approx(
        near.arms[0].run.metrics["margin"], rel=1e-5
    )
    spent = read_json(Path(far.directory) / "experiment.json")["budget"]["spent"]
    assert (spent["usd"], spent["tokens"]) == (took.cost_usd, far.arms[0].run.usage.tokens)


@pytest.mark.parametrize("kind", ["mock"], indirect=True)
def test_the_service_is_part_of_what_the_run_is_and_its_address_isnt(project, kind, student, url):
    def identity(params: str, address: str = url) -> str:
        served = SERVED.replace("URL", address).replace("PARAMS", params)
        return distilled(project, kind, student, served).run().arms[0].identity

    plain = identity("")
    assert identity(", max_retries: 2, max_concurrent: 3, price: {prompt: 1, completion: 1}") == plain
    assert identity("", url.replace("127.0.0.1", "localhost")) == plain
    assert identity(EXACT) != plain


class Flaky:
    """The untrained model of the mock backend, which answers so many times and then not until somebody mends it."""

    version = 0

    def __init__(self, folder: Path, answers: int | None) -> None:
        self.folder = folder
        self.left = answers
        self.asked = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        backend = current_registry().build("backend", "mock")
        client = await backend.prepare(ModelSpec(name="evsys/tiny"), self.folder, 1, None)
        self.model = await client.sampling_client()
        served = ServedModel(
            name="evsys/tiny", sampling_client=self, renderer=client.renderer, tokenizer=client.tokenizer
        )
        async with chat_server(FixedCatalogue(served), texts=True) as url:
            yield url.removesuffix("/v1")

    async def compute_logprobs(self, tokens: Any) -> Any:
        self.asked += 1
        if self.left is not None and self.asked > self.left:
            raise RuntimeError("out of order")
        return await self.model.compute_logprobs(tokens)


@pytest.mark.parametrize("kind", ["mock"], indirect=True)
def test_a_teacher_that_goes_away_fails_the_run_which_goes_on_once_it_is_back(
    project, kind, student, tmp_path
):
    def experiment(url: str) -> Any:
        served = SERVED.replace("URL", url).replace("PARAMS", ", max_retries: 0" + EXACT)
        text = (OPD + served).replace("KIND", kind).replace("FOLDER", student)
        return project.experiment(f"run:{text.replace('steps: 3', 'steps: 6, save_every: 2')}", metadata="")

    flaky = Flaky(tmp_path, None)
    with in_a_thread(flaky.serving) as url:
        whole = experiment(url).run().arms[0]
        probes = 1
        each = (flaky.asked - probes) / 6
        flaky.asked, flaky.left = 0, probes + int(3.5 * each)
        failed = experiment(url).run()
        assert (failed.arms[0].status, failed.arms[0].run.steps) == ("failed", 3)
        assert "out of order" in failed.arms[0].failure.message
        flaky.left = None
        (arm,) = Experiment.resume(failed.directory, quiet=True).run().arms
    assert (arm.status, arm.run.steps) == ("completed", 6)
    assert arm.run.metrics == whole.run.metrics

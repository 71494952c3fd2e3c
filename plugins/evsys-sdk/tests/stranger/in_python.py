"""Experiments written in Python, and what may take the place of their parts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_type

from evsys_sdk import (
    Benchmark,
    Completion,
    EvalResult,
    EvsysStore,
    Experiment,
    ExperimentConfig,
    InferenceClient,
    InferenceFactory,
    Message,
    RunConfig,
    RunResult,
    SamplingParams,
    StepBuilder,
    Sweep,
    TrainFn,
    parse_rows,
    run_experiment,
)
from evsys_sdk import algorithms as of_the_sdk
from evsys_sdk.algorithms import BaseAlgorithm
from evsys_sdk.algorithms.dpo import DPO
from evsys_sdk.algorithms.opd import OPD
from evsys_sdk.algorithms.rl import RL
from evsys_sdk.algorithms.sdft import SDFT
from evsys_sdk.algorithms.sft import SFT
from evsys_sdk.experiment import ExperimentResult
from evsys_sdk.protocols import Algorithm
from evsys_sdk.protocols import RunResult as SameResult
from evsys_sdk.runner import arun_experiment as _same_runner

ALGORITHMS: list[type[Algorithm]] = [DPO, OPD, RL, SDFT, SFT]
BUILDERS: list[type[StepBuilder]] = [BaseAlgorithm, of_the_sdk.SFT]


class Parrot:
    """Says the same to everything."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def generate(
        self,
        messages: Sequence[Message],
        sampling: SamplingParams,
        *,
        n: int = 1,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Sequence[Completion]:
        return [Completion(message=Message(role="assistant", content=self.text), finish_reason="stop")] * n


class Words:
    """A store with one dataset."""

    def pull(self, ref: str) -> Iterable[Mapping[str, Any]]:
        return [{"prompt": f"{ref} {letter}", "completion": letter} for letter in "abcdefgh"]


def trained(cfg: ExperimentConfig) -> list[RunResult]:
    """Train as evsys does."""
    assert cfg.runs is not None
    results = run_experiment(cfg)
    assert_type(results, list[SameResult])
    return results


def client(result: RunResult, run: RunConfig) -> InferenceClient:
    """A client for a trained run."""
    return Parrot(f"{run.name} {result.steps}")


TRAIN: TrainFn = trained
FACTORY: InferenceFactory = client
STORE: EvsysStore = Words()


def injected(cfg: Mapping[str, Any], tasks: str) -> ExperimentResult:
    """An experiment with everything replaced."""
    return Experiment(
        cfg,
        store=STORE,
        train_fn=TRAIN,
        benchmark=Benchmark(path=tasks, metrics=["mean_reward"], max_tokens=4),
        inference_factory=FACTORY,
        quiet=True,
    ).run()


def scored(tasks: str, root: str) -> float | None:
    """What a parrot scores."""
    result = Benchmark("tasks", path=tasks, root=root, metrics=["mean_reward"]).score(Parrot("a"))
    assert_type(result, EvalResult)
    return result.metrics["mean_reward"].value


def arms(base_run: Mapping[str, Any]) -> list[str | None]:
    """The names of the arms of a sweep."""
    sweep = Sweep({"algorithm.params.learning_rate": [0.1, 0.2]}, base_run=base_run)
    return [run.name for run in sweep.runs]


def typed() -> int:
    """Rows of the shape that SFT takes."""
    return len(list(parse_rows([{"messages": [{"role": "user", "content": "a"}]}], "chat")))


SAME = _same_runner

"""The inner runner: trains and scores the arms, and hands back one result each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs

from evsys.errors import BackendError, ConfigError, EvsysError, PluginContractError, Problem
from evsys.types import ArmResult, EvaluationResult, RunResult, SampleResult, SamplingParams
from evsys_runtime.config.model import ExperimentConfig, RunConfig
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.evaluation.evaluator import Evaluator
from evsys_runtime.experiment.arm.result import keep_result
from evsys_runtime.experiment.scheduling import run_arms
from evsys_runtime.experiment.state.facts import run_facts
from evsys_runtime.experiment.state.injection import (
    RunningExperiment,
    announce_experiment,
    call_injected,
    make_client,
    runs_config,
)
from evsys_runtime.experiment.state.session import Session, run_id_of

__all__ = ["train"]


async def train(session: Session) -> None:
    """Fill `session.results`, by the inner runner or by the `train_fn` injected."""
    train_fn = session.options.train_fn
    if train_fn is None:
        await run_arms(session)
        return
    if session.plan.search is not None:
        raise ConfigError(
            [
                Problem(
                    path="$.search", message="a train_fn of one's own trains arms that are known beforehand"
                )
            ]
        )
    if session.budget is not None:
        session.warnings.append("a train_fn of one's own keeps to no budget: what it spends isn't counted")
    experiment = RunningExperiment(
        config=runs_config(session.plan),
        project_root=session.plan.project_root,
        train=partial(run_arms, session),
        loop=asyncio.get_running_loop(),
    )
    try:
        with announce_experiment(experiment):
            results = await call_injected("train_fn", train_fn, experiment.config)
    finally:
        await experiment.end()
    await _take(session, experiment.config, results)


async def _take(session: Session, config: ExperimentConfig, results: Any) -> None:
    """Score and record what a `train_fn` trained, but for arms that it had evsys train."""
    arms, runs = session.plan.arms, config.runs or ()
    given = list(results) if isinstance(results, Sequence) else [results]
    if len(given) != len(arms) or not all(isinstance(result, RunResult) for result in given):
        other = next((type(one).__name__ for one in given if not isinstance(one, RunResult)), None)
        count = f"{len(given)} result{'s' * (len(given) != 1)}"
        got = (count if other is None else f"a list with {other}") if isinstance(results, Sequence) else other
        raise PluginContractError(
            f"train_fn returned {got} for {len(arms)} arm{'s' * (len(arms) != 1)}; it must return one RunResult each"
        )
    for arm, run, result in zip(arms, runs, given, strict=True):
        if run_id_of(arm) not in session.results:
            await _adopt(session, arm, run, attrs.evolve(result, run_id=run_id_of(arm)))


async def _adopt(session: Session, arm: ArmConfig, run: RunConfig, result: RunResult) -> None:
    """Score and record a run that an injected `train_fn` trained."""
    evaluations = (*result.evaluations, *await _score(session, arm, run, result))
    result = attrs.evolve(result, evaluations=evaluations)
    record = session.record.run(run_id_of(arm), facts=run_facts(arm, dry=session.options.dry))
    record.start_attempt()
    arm_result = ArmResult(
        run_id=run_id_of(arm),
        arm=arm.name,
        repeat=arm.repeat,
        purpose=arm.purpose,
        stage=None if arm.stage is None else arm.stage.label,
        seed=session.seeds(arm).base_seed,
        status=result.status,
        identity=arm.digest,
        run=result,
        evaluations=evaluations,
        failure=result.failure,
        usage=sum((evaluation.usage + evaluation.judged for evaluation in evaluations), result.usage),
        run_dir=str(record.directory),
        warnings=result.warnings,
    )
    keep_result(session, record, arm_result)


async def _score(
    session: Session, arm: ArmConfig, run: RunConfig, result: RunResult
) -> Sequence[EvaluationResult]:
    """Score a run on its benchmarks, through the client that `inference_factory` makes; a factory that fails is missing scores."""
    factory = session.options.inference_factory
    benchmarks = [bound for _, bound in session.scored_on(arm)]
    if result.status != "completed" or not benchmarks:
        return ()
    if factory is None:
        if not result.evaluations:
            session.warnings.append(
                f"{result.run_id} isn't scored: its train_fn returned no evaluations, and there is no inference_factory"
            )
        return ()
    evaluator = Evaluator(
        benchmarks,
        None,
        seeds=session.seeds(arm),
        registry=session.plan.registry,
        log=session.log,
    )
    try:
        client = await make_client(factory, result, run)
    except EvsysError as error:
        session.log.error("evaluation.missing", reason=error.message, exc_info=error)
        return await evaluator.final(result.steps, None, reason=error.message)
    try:
        return await evaluator.final(result.steps, _ExternalWeights(version=result.steps), through=client)
    finally:
        await evaluator.close("cut off before its end, since the experiment ended")


@attrs.frozen(kw_only=True)
class _ExternalWeights:
    """Represents weights that an injected runner keeps; the model client alongside it does the sampling."""

    version: int

    async def sample(self, prompt: Sequence[int], params: SamplingParams, n: int = 1) -> SampleResult:
        raise BackendError("weights of an injected train_fn are sampled through its inference_factory")

    async def compute_logprobs(self, tokens: Sequence[int]) -> Any:
        raise BackendError("weights of an injected train_fn have no logprobs here")

    async def close(self) -> None:
        """Nothing to release."""

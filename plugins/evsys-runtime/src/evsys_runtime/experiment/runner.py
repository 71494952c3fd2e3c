"""The inner runner: trains and scores the arms, and hands back one result each."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import BackendError, ConfigError, PluginContractError, Problem, boundary
from evsys.types import ArmResult, EvaluationResult, RunResult, SampleResult, SamplingParams
from evsys_runtime.background import in_background
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.evaluation.evaluator import Evaluator
from evsys_runtime.experiment.facts import run_facts
from evsys_runtime.experiment.scheduling import run_arms
from evsys_runtime.experiment.session import Session, run_id_of
from evsys_runtime.experiment.watching.from_sync import run_to_end

__all__ = ["arun_experiment", "run_experiment", "train"]


async def arun_experiment(cfg: Session | Plan | str | Path) -> list[RunResult]:
    """Train and score every arm; a failed arm is a result and doesn't stop the others, unless `fail_fast` says so.

    Args:
        cfg: an experiment under way, as `Experiment` passes it, or a plan or file, which then gets a whole experiment.

    Returns:
        One result for each arm and repeat, in the order of the plan.
    """
    if not isinstance(cfg, Session):
        from evsys_runtime.experiment.experiment import Experiment

        experiment = Experiment(cfg) if isinstance(cfg, Plan) else Experiment.from_yaml(cfg)
        arms = (await experiment.arun()).arms
        return [arm.run for arm in arms if arm.run is not None]
    return await run_arms(cfg)


def run_experiment(cfg: Session | Plan | str | Path) -> list[RunResult]:
    """`arun_experiment` for callers without an event loop.

    Raises:
        RuntimeError: an event loop runs in this thread already.
    """
    return run_to_end(
        partial(arun_experiment, cfg), call="run_experiment()", instead="results = await arun_experiment(cfg)"
    )


async def train(session: Session) -> None:
    """Fill `session.results`, by the inner runner or by the `train_fn` that was injected."""
    train_fn = session.options.train_fn
    if train_fn is None:
        await arun_experiment(session)
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
    results = await _called(train_fn, session)
    if len(results) != len(session.plan.arms) or not all(isinstance(result, RunResult) for result in results):
        raise PluginContractError(
            f"train_fn returned {len(results)} results for {len(session.plan.arms)} arms; it must return one RunResult each"
        )
    for arm, result in zip(session.plan.arms, results, strict=True):
        if run_id_of(arm) not in session.results:
            await _adopt(session, arm, result)


async def _called(function: Any, *arguments: Any) -> Any:
    """Call a function of the user's: async in this loop, sync in a thread."""
    with boundary("run", getattr(function, "__name__", type(function).__name__)):
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
            return await function(*arguments)
        result = await in_background(function, *arguments)
        return await result if inspect.isawaitable(result) else result


async def _adopt(session: Session, arm: ArmConfig, result: RunResult) -> None:
    """Score and record a run that an injected `train_fn` trained."""
    evaluations = (*result.evaluations, *await _score(session, arm, result))
    result = attrs.evolve(result, run_id=run_id_of(arm), evaluations=evaluations)
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
    session.keep(record, arm_result)


async def _score(session: Session, arm: ArmConfig, result: RunResult) -> Sequence[EvaluationResult]:
    options = session.options
    if options.benchmark is not None:
        evaluations: Sequence[EvaluationResult] = await _called(options.benchmark, result)
        return evaluations
    if options.inference_factory is None or result.status != "completed":
        return ()
    client = options.inference_factory(result)
    evaluator = Evaluator(
        [bound for _, bound in session.scored_on(arm)],
        None,
        seeds=session.seeds(arm),
        registry=session.plan.registry,
        log=session.log,
        make_model=lambda _snapshot, _benchmark: client,
    )
    try:
        return await evaluator.final(result.steps, _Elsewhere(version=result.steps))
    finally:
        await evaluator.close("cut off before its end, since the experiment ended")


@attrs.frozen(kw_only=True)
class _Elsewhere:
    """Stands for weights that an injected runner keeps; the model client beside it does the sampling."""

    version: int

    async def sample(self, prompt: Sequence[int], params: SamplingParams, n: int = 1) -> SampleResult:
        raise BackendError("weights of an injected train_fn are sampled through its inference_factory")

    async def compute_logprobs(self, tokens: Sequence[int]) -> Any:
        raise BackendError("weights of an injected train_fn have no logprobs here")

    async def close(self) -> None:
        """Nothing to release."""

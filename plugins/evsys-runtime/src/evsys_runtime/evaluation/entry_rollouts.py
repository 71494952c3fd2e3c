"""The rollouts of one evaluation: an entry's tasks through its engine, each recorded, charged and reported as it
ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import PluginContractError, boundary
from evsys.optional import SupportsRolloutTime
from evsys.types import Policy, Rollout, RolloutLimits, Usage
from evsys_record import slug
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.progress import Progress, advancing
from evsys_runtime.evaluation.results import require_each_once, rollout_usage
from evsys_runtime.evaluation.streams import closing
from evsys_runtime.rendering.policy_client import PolicyClient

if TYPE_CHECKING:
    from evsys.protocols import InferenceClient, Recorder, Renderer, SamplingClient
    from evsys.types import RunContext, Verify
    from evsys_runtime.evaluation.result_cache import ResultCache

__all__ = ["EntryRollouts", "MakeModel"]

type MakeModel = Callable[[SamplingClient, BoundBenchmark], InferenceClient]


@attrs.define(kw_only=True, eq=False)
class EntryRollouts:
    """Makes the rollouts of an evaluator's evaluations; its fields are their common settings, see `Evaluator`.

    `ctx` has the hooks for the progress, once there are any.
    """

    renderer: Renderer | None
    make_model: MakeModel | None
    verify: Verify
    seeds: Callable[..., int]
    record: Recorder | None
    deterministic: bool
    timeout_seconds: float
    silent_seconds: float
    directory: Path | None
    endpoints: Any
    cache: ResultCache | None
    hung: Callable[[str], None]
    charge: Callable[[Usage], None]
    ctx: RunContext | None = None

    async def fill(
        self,
        rollouts: list[Rollout],
        benchmark: BoundBenchmark,
        snapshot: SamplingClient | None,
        step: int,
        model: str | None,
    ) -> None:
        """Fill `rollouts`, in the order in which they finish; each continues record at once.

        Args:
            rollouts: gets them; what it holds when something raises has been made.
            benchmark: the entry.
            snapshot: of the model, unless the entry has a client of its own.
            step: optimiser steps behind it.
            model: the name of an API model scored in its place.

        Raises:
            BudgetExceeded: nothing is left to pay for more.
            EvsysError: the engine failed, gave no rollout for too long, or not each one once.
        """
        policy = Policy(
            model=self._model(benchmark, snapshot),
            agent=benchmark.agent,
            verify=self.verify,
            sampling=attrs.evolve(benchmark.sampling, seed=self.seeds(f"evaluation/{benchmark.name}", 0)),
            num_samples=benchmark.num_samples,
            system_prompt=benchmark.system_prompt,
            version=snapshot.version if snapshot is not None else None,
            environment=benchmark.environment,
            endpoints=self.endpoints,
        )
        limits = RolloutLimits(
            n_concurrent=benchmark.n_concurrent,
            timeout_seconds=self.timeout_seconds,
            max_turns=benchmark.max_turns,
            wave=self.deterministic,
            directory=self._files(benchmark, model or step),
        )
        progress = Progress(benchmark)
        facts = {"benchmark": benchmark.name, **({} if model is None else {"model": model})}
        await self._tell(progress, benchmark, step)
        with boundary("rollout", type(benchmark.engine).__name__):
            async with (
                advancing(self.patience(benchmark), self.hung, held=self._holds) as advanced,
                closing(self._stream(benchmark, policy, limits, snapshot, (step, model))) as stream,
            ):
                async for rollout in stream:
                    advanced()
                    rollouts.append(rollout)
                    if self.record is not None:
                        self.record.rollout(step, rollout, phase=benchmark.phase, **facts)
                    self.charge(rollout_usage(rollout))
                    if progress.counts(rollout):
                        await self._tell(progress, benchmark, step)
                    if self._holds():  # an engine starts no further rollouts for who takes none
                        await self._hold()
                        advanced()
        require_each_once(benchmark, rollouts)

    def _holds(self) -> bool:
        """Whether the run is asked to hold before its next rollout."""
        pause = None if self.ctx is None else self.ctx.pause
        return pause is not None and pause.requested(at_once=True)

    async def _hold(self) -> None:
        if self.ctx is not None and self.ctx.pause is not None:
            await self.ctx.pause.hold()

    def _stream(
        self,
        benchmark: BoundBenchmark,
        policy: Policy,
        limits: RolloutLimits,
        snapshot: SamplingClient | None,
        scored: tuple[int, str | None],
    ) -> AsyncIterator[Rollout]:
        """The engine's rollouts, or those known from the cache; `scored` is the step, and the API model's name."""
        if self.cache is None:
            return benchmark.engine.run(benchmark.tasks, policy, limits)
        step, model = scored
        return self.cache.rollouts(benchmark, policy, limits, snapshot=snapshot, step=step, model=model)

    def patience(self, benchmark: BoundBenchmark) -> float:
        """Seconds without the end of any rollout after which an evaluation is given up."""
        engine = benchmark.engine
        if isinstance(engine, SupportsRolloutTime):
            return engine.rollout_seconds(self.timeout_seconds) + self.silent_seconds
        return self.timeout_seconds + self.silent_seconds

    def _files(self, benchmark: BoundBenchmark, scored: int | str) -> Path | None:
        """The folder for the engine's files of one evaluation, of a step's weights or of an API model."""
        if self.directory is None:
            return None
        return self.directory / benchmark.phase / "files" / f"{slug(benchmark.name)}-{slug(str(scored))}"

    async def _tell(self, progress: Progress, benchmark: BoundBenchmark, step: int) -> None:
        if self.ctx is not None:
            await self.ctx.hooks.emit(
                "evsys_evaluation_advanced",
                ctx=self.ctx,
                benchmark=benchmark.name,
                step=step,
                done=progress.done,
                total=progress.total,
            )

    def _model(self, benchmark: BoundBenchmark, snapshot: SamplingClient | None) -> InferenceClient:
        if benchmark.inference is not None:
            return benchmark.inference
        if snapshot is None:
            raise PluginContractError("there is neither a snapshot nor a client to score")
        if self.make_model is not None:
            return self.make_model(snapshot, benchmark)
        if self.renderer is None:
            raise PluginContractError("an evaluation without a renderer needs a make_model")
        return PolicyClient(snapshot, self.renderer)

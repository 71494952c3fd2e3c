"""The scores of one arm: of its starting weights, alongside its training, of what it trained, and of API models alongside them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs

from evsys.errors import EvsysError, boundary
from evsys.protocols import Log, Renderer, TrainingClient
from evsys.types import EvaluationResult, ModelSpec, RunResult
from evsys_record import is_proof
from evsys_record.run_record import RunRecord
from evsys_runtime.background import in_background
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.evaluator import Evaluator
from evsys_runtime.evaluation.failures import failure_of
from evsys_runtime.evaluation.result_cache import ResultCache
from evsys_runtime.evaluation.result_key import Trained
from evsys_runtime.evaluation.results import without_cost
from evsys_runtime.experiment.budget.charges import ScoringCharges
from evsys_runtime.experiment.prior.looks import put_scores
from evsys_runtime.experiment.state.injection import make_client, run_of
from evsys_runtime.experiment.state.session import Session, run_id_of
from evsys_runtime.experiment.state.starting_weights import scores_untrained, untrained_key
from evsys_runtime.experiment.supervision.watchdog import Watchdog
from evsys_runtime.serving.rollouts import RolloutEndpoints
from evsys_runtime.training.retreat import RetreatKind

__all__ = ["ArmEvaluations"]


@attrs.frozen(kw_only=True, eq=False)
class ArmEvaluations:
    """The evaluations of one attempt at an arm, and those shared with other arms.

    Attributes:
        evaluator: evaluates, and holds the results.
        charges: counts the usage.
        log: of failed evaluations.
        watch: informed when this arm waits for another one.
    """

    session: Session
    arm: ArmConfig
    benchmarks: Sequence[BoundBenchmark]
    evaluator: Evaluator
    charges: ScoringCharges
    run_dir: Path
    log: Log
    watch: Watchdog

    @classmethod
    def make(
        cls,
        session: Session,
        arm: ArmConfig,
        benchmarks: Sequence[BoundBenchmark],
        model: ModelSpec,
        renderer: Renderer,
        *,
        record: RunRecord,
        log: Log,
        endpoints: RolloutEndpoints,
        watch: Watchdog,
        scored: Sequence[EvaluationResult] = (),
    ) -> ArmEvaluations:
        """Begin with what this run had `scored`, and the scores of its starting weights that other arms made, and paid for."""
        registry, seeds, shared = session.plan.registry, session.seeds(arm), session.untrained
        keys = {b.name: untrained_key(arm, b, registry, seeds) for b in benchmarks}
        untrained = scores_untrained(session.plan, arm)
        own = {result.benchmark for result in scored if result.step == 0 and result.model is None}
        others = [shared.known(key) for name, key in keys.items() if untrained and name not in own]
        known = [result for result in others if result is not None]
        run_id = run_id_of(arm)
        cache = _cache(session, arm, model, renderer, record)
        charges = ScoringCharges(budget=session.budgets.get(run_id), cache=cache)
        evaluator = Evaluator(
            benchmarks,
            renderer,
            seeds=seeds,
            registry=registry,
            record=record,
            keep=record.evaluation,
            log=log,
            deterministic=arm.deterministic,
            score_untrained=untrained,
            selecting=session.selection_of(arm).benchmark or None,
            known=[*map(without_cost, known), *scored],
            expected_seconds={result.benchmark: result.seconds for result in (*known, *scored)},
            share=lambda benchmark, make: shared.score(keys[benchmark.name], run_id, make, watch.pause),
            directory=Path(record.directory),
            endpoints=endpoints,
            cache=cache,
            silent_seconds=watch.settings.floor_seconds,
            hung=watch.dump,
            charge=charges,
        )
        watch.allow(lambda: evaluator.patience)
        watch.follow(lambda: evaluator.closings)
        return cls(
            session=session,
            arm=arm,
            benchmarks=benchmarks,
            evaluator=evaluator,
            charges=charges,
            run_dir=Path(record.directory),
            log=log,
            watch=watch,
        )

    @asynccontextmanager
    async def cancel_on_exit(self, warnings: list[str], why_ended: Callable[[], str]) -> AsyncIterator[None]:
        """Regardless of how the block ends, no evaluation continues after it; interrupted ones are recorded as
        missing.

        If that fails, `warnings` gets the reason, since the error that ended the block takes precedence.
        `why_ended` says why it was cancelled.
        """
        try:
            yield
        except BaseException as exc:
            failed = isinstance(exc, Exception)
            why = f"the run failed: {failure_of(exc).message}" if failed else f"the run was {why_ended()}"
            try:
                await self.evaluator.close(f"cut off before its end, since {why}")
            except EvsysError as error:
                warnings.append(error.message)
                self.log.warning("evaluation.not_recorded", reason=error.message, exc_info=error)
            raise

    async def start_evaluations(self, client: TrainingClient, step: int) -> None:
        """Start to score what is wanted of the weights that the client has, after `step` optimiser steps.

        Of starting weights that is where the verdict needs it and no arm has done it; where another arm is at it, its scores
        are waited for alongside the training.
        """
        if not self.evaluator.due(step):
            return
        with boundary("backend", self.arm.run.backend.kind, run_id_of(self.arm)):
            snapshot = await client.sampling_client()
        await self._put_down(step)
        await self.evaluator.submit(step, snapshot)

    async def _put_down(self, step: int) -> None:
        """Put into the ledger of looks that trained weights are about to be scored: from then on a verifier sees how they do.

        Weights that the arm starts from are trained ones where they come from a checkpoint.
        """
        model = self.arm.run.model
        trained = step > 0 or model.init_from_checkpoint or model.load_checkpoint_path
        if trained and self.benchmarks and not self.session.runs_on_file:
            await in_background(put_scores, self.session, 1)

    async def results(self, client: TrainingClient, steps: int, result: RunResult | None = None) -> None:
        """Score the weights that count on every entry, and the API models alongside them; see `trained`."""
        await self.evaluate_final(client, steps, result=result)
        await self.models()

    async def evaluate_final(
        self,
        client: TrainingClient,
        steps: int,
        *,
        entries: Collection[str] | None = None,
        result: RunResult | None = None,
    ) -> None:
        """Score the weights that the client has on these entries, or on all, and wait for every scoring.

        Of a complete `result` the scores come through the client that an injected `inference_factory` makes for it.
        """
        factory, through = self.session.options.inference_factory, None
        try:
            if factory is not None and result is not None and result.status == "completed":
                through = await make_client(
                    factory, self._portable_result(result), run_of(self.arm, self.session.plan)
                )
            with boundary("backend", self.arm.run.backend.kind, run_id_of(self.arm)):
                snapshot = await client.sampling_client()
        except Exception as exc:
            # The weights are trained and kept; that they can't be scored is recorded as such.
            self.log.error("evaluation.missing", reason=str(exc), exc_info=exc)
            await self.evaluator.final(steps, None, reason=str(exc), entries=entries)
            return
        await self._put_down(steps)
        await self.evaluator.final(steps, snapshot, entries=entries, through=through)

    def _portable_result(self, result: RunResult) -> RunResult:
        """A result for code that doesn't know the run's folder: whose it is, and its checkpoint as a whole path."""
        saved = result.final_checkpoint
        if saved is not None:
            saved = str(self.run_dir / saved)
        return attrs.evolve(result, run_id=run_id_of(self.arm), final_checkpoint=saved)

    async def to_select(self, client: TrainingClient, steps: int) -> None:
        """Score the last weights on the entries scored during training, so that they can be selected as well."""
        entries = [one.name for one in self.benchmarks if one.split == "val" and one.run_every is not None]
        await self.evaluate_final(client, steps, entries=entries)

    async def finish_before_rollback(self, client: TrainingClient, steps: int, how: RetreatKind) -> None:
        """Wait for the scorings of an attempt that the run goes back from; after a `branch` its last weights are scored as well.

        The test isn't for that: it is looked at once, with what the run ends with.
        """
        if how == "branch":
            entries = [one.name for one in self.benchmarks if one.split == "val" and not is_proof(one.name)]
            await self.evaluate_final(client, steps, entries=entries)
        else:
            await self.evaluator.drain()

    async def models(self) -> None:
        """Score the API models to compare with, once an experiment: the first arm that comes so far does it.

        Others wait for that; where it is cut off, the next one does it.
        """
        for benchmark in self.benchmarks:
            for model in benchmark.models:
                await self.session.compared.score(
                    f"{benchmark.name}@{model.name}",
                    run_id_of(self.arm),
                    partial(self.evaluator.score_model, benchmark, model),
                    self.watch.pause,
                )


def _cache(
    session: Session, arm: ArmConfig, model: ModelSpec, renderer: Renderer, record: RunRecord
) -> ResultCache | None:
    """The results that this project has, for the weights of this attempt; None where they aren't wanted."""
    if session.options.no_cache:
        return None
    return ResultCache(
        session.workspace.results(),
        registry=session.plan.registry,
        run_dir=Path(record.directory),
        trained=Trained(
            model=model,
            backend=arm.run.backend,
            renderer=renderer,
            place=(session.record.experiment_id, record.run_id, record.attempt),
        ),
        tell=session.warnings.append,
        redactor=session.log_settings.redactor,
    )

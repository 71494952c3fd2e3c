"""A model scored without training: a checkpoint, a base model, or an API model. It leaves a record like a run's."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from evsys import Registry
from evsys.errors import ConfigError, EvsysError, Problem, boundary
from evsys.optional import declared
from evsys.protocols import Backend, Log, TrainingClient
from evsys.types import ArmResult, EvaluationResult, Status, Usage
from evsys_record.encoding import now
from evsys_record.evaluations import evaluations_beside
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.hashing import canonical_json, digest
from evsys_record.provenance import collect
from evsys_record.run_record import RunRecord
from evsys_record.secrets import Redactor
from evsys_runtime.background import in_background
from evsys_runtime.config.building import complaints
from evsys_runtime.config.model import BenchmarkConfig, WatchdogConfig
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.data.result_store import ResultStore
from evsys_runtime.data.scope import DataScope, use_scope
from evsys_runtime.data.workspace import Workspace
from evsys_runtime.evaluation.benchmarks import ApiModel, BoundBenchmark, load_benchmark, with_harness
from evsys_runtime.evaluation.evaluator import Evaluator
from evsys_runtime.evaluation.failures import failure_of
from evsys_runtime.evaluation.result_cache import ResultCache
from evsys_runtime.evaluation.result_key import Trained
from evsys_runtime.experiment.arm.backend import prepare_client
from evsys_runtime.experiment.arm.contracts import prepare_options
from evsys_runtime.experiment.evaluated_models import BaseModel, NamedClient, SavedModel
from evsys_runtime.experiment.lineage.experiments import count_looks, open_on_demand
from evsys_runtime.experiment.preflight.grader_checks import check_graders, keep_grader_checks
from evsys_runtime.experiment.prior.final_tests import entry_of, find_final_tests
from evsys_runtime.experiment.prior.looks import put_evaluation
from evsys_runtime.experiment.state.facts import benchmark_facts
from evsys_runtime.experiment.state.seeds import Seeds
from evsys_runtime.experiment.supervision.blocking import loop_watched
from evsys_runtime.experiment.supervision.watchdog import Watchdog, is_stall, watchdog_of
from evsys_runtime.logging import configure, record_logger
from evsys_runtime.serving.rollouts import RolloutEndpoints, rollout_endpoints
from evsys_runtime.training.checkpoints import find_checkpoint

__all__ = ["OUTPUT_DIR", "ascore"]

OUTPUT_DIR = ".evsys/evaluations"
"""The folder of these records in a project: apart from experiments, since they conclude nothing."""


async def ascore(
    scored: SavedModel | BaseModel | NamedClient,
    entries: Sequence[BenchmarkConfig],
    *,
    project_root: Path,
    registry: Registry,
    seed: int = 0,
    quiet: bool = False,
    skip_grader_check: bool = False,
    no_cache: bool = False,
    watchdog: WatchdogConfig | None = None,
) -> ArmResult:
    """Score a model on benchmark entries, in their order, and record it.

    Args:
        scored: a checkpoint, a base model on a backend, or an API model.
        entries: what it is scored on.
        project_root: where paths and names of benchmarks start from, and where the record goes.
        registry: where plugins are looked up.
        seed: the seed that samples are derived from.
        quiet: no log lines on standard error.
        skip_grader_check: don't try the benchmarks' verifiers first.
        no_cache: score everything again, and keep no result for later.
        watchdog: when it is given up, as an experiment's run is.

    Returns:
        A result without a training run. A scoring that failed is one of its evaluations, and its status says so. It is `stalled` where
        something never came back; what was scored before stays.

    Raises:
        ConfigError, DataError, PluginError: something can't be used; nothing was scored.
        BackendError: the model can't be loaded.
    """
    started = time.monotonic()
    told: list[str] = []
    benchmarks = await _load_benchmarks(scored, entries, registry, project_root, told)
    checks = (
        None
        if skip_grader_check
        else await check_graders(entries, benchmarks, registry=registry, project_root=project_root, seed=seed)
    )
    asked = {
        "model": scored.asked,
        "benchmarks": [attrs.asdict(entry) for entry in entries],
        "seed": seed,
    }
    label = scored.label
    record, run = _create_record(project_root, label, asked, benchmarks)
    keep_grader_checks(record, checks, Redactor.from_environment())
    status: Status = "cancelled"
    scores: dict[str, float | None] = {}
    with record.lock:
        run.start_attempt()
        log = record_logger(run, configure(console_level=None if quiet else "warning"))
        work = _Evaluation(
            scored=scored,
            run=run,
            log=log,
            watch=watchdog_of(run, watchdog or WatchdogConfig(), log),
            benchmarks=benchmarks,
            registry=registry,
            project_root=project_root,
            seed=seed,
            results=None if no_cache else Workspace(project_root).results(),
            told=told,
        )
        try:
            result = await work.result(label)
            warnings = (*(w for check in checks or () for w in check.warnings), *result.warnings, *work.told)
            seconds = time.monotonic() - started
            result = attrs.evolve(result, identity=digest(asked), seconds=seconds, warnings=warnings)
            run.write_result(result)
            status, scores = result.status, _scores(result)
        except Exception:
            status = "failed"
            raise
        finally:
            run.close()
            record.note(status=status, finished=now(), scores=scores)
    return result


async def _load_benchmarks(
    scored: SavedModel | BaseModel | NamedClient,
    entries: Sequence[BenchmarkConfig],
    registry: Registry,
    project_root: Path,
    told: list[str],
) -> tuple[BoundBenchmark, ...]:
    """The entries with their tasks, once it's known that the model can be scored; `told` gets warnings."""
    benchmarks = await in_background(_bind, entries, registry, project_root)
    if isinstance(scored, SavedModel):
        pairs = zip(benchmarks, entries, strict=True)
        benchmarks = tuple(with_harness(bound, entry, scored.harness, registry) for bound, entry in pairs)
    if isinstance(scored, NamedClient):
        _api_model(scored, registry, project_root)  # before anything is recorded: its key may be missing
    if isinstance(scored, BaseModel):
        await in_background(_require_known, scored, registry)
    benchmarks = await in_background(_mark_final_tests, benchmarks, project_root, told)
    if isinstance(scored, SavedModel) and scored.harness.parts:
        told.append(f"scored in what its run was scored in, unless you name another: {scored.harness.parts}")
    return benchmarks


def _create_record(
    project_root: Path, label: str, asked: Mapping[str, Any], benchmarks: Sequence[BoundBenchmark]
) -> tuple[ExperimentRecord, RunRecord]:
    facts = {
        "model": label,
        "provenance": collect(project_root),
        "arms": [{"run_id": label}],
        **benchmark_facts(benchmarks),
    }
    record = ExperimentRecord.create(project_root / OUTPUT_DIR, label, canonical_json(asked), facts=facts)
    return record, record.run(label, facts={"arm": label, "repeat": 0, "seed": asked["seed"]})


def _scores(result: ArmResult) -> dict[str, float | None]:
    """The value of each metric of each benchmark."""
    scored = ((each, name, metric) for each in result.evaluations for name, metric in each.metrics.items())
    return {f"{each.benchmark}.{name}": metric.value for each, name, metric in scored}


def _mark_final_tests(
    benchmarks: Sequence[BoundBenchmark], project_root: Path, told: list[str]
) -> tuple[BoundBenchmark, ...]:
    """The benchmarks, those with the tasks of a final test as `test` entries, and how often these were scored before. Blocking."""
    experiments = project_root / ".evsys" / "experiments"
    entries = [entry_of(bound) for bound in benchmarks]
    with open_on_demand(experiments, None, told.append) as earlier:
        tests = find_final_tests(entries, earlier(), told.append)
        scored = [entry for entry in entries if entry.name in tests]
        before = count_looks(earlier, "", scored, told.append, evaluations=evaluations_beside(experiments))
    for name, test in tests.items():
        times = f"look {before.get(name, 0) + 1} at it"
        told.append(f"{name} has the tasks of {test}: this evaluation is on record as {times}")
    return tuple(attrs.evolve(b, split="test") if b.name in tests else b for b in benchmarks)


@attrs.define(kw_only=True, eq=False)
class _Evaluation:
    scored: SavedModel | BaseModel | NamedClient
    run: RunRecord
    log: Log
    watch: Watchdog
    benchmarks: Sequence[BoundBenchmark]
    registry: Registry
    project_root: Path
    seed: int
    results: ResultStore | None
    told: list[str] = attrs.field(factory=list)
    evaluator: Evaluator | None = None
    in_ledger: bool = False

    async def result(self, label: str) -> ArmResult:
        """Score, and make a result of it; of what never comes back as well."""
        seconds = self.watch.settings.floor_seconds / 2
        try:
            with loop_watched(seconds, dump=self.watch.dump, tell=self._tell_blocked):
                evaluations = await self.watch.watch(self._live)
        except EvsysError as error:
            if not is_stall(error):
                raise
            self.log.error("scoring.stalled", reason=error.message, exc_info=error)
            evaluations = () if self.evaluator is None else self.evaluator.results
            stalled = _result(self, label, evaluations)
            failure = attrs.evolve(failure_of(error), place=self.watch.place)
            return attrs.evolve(stalled, status="stalled", failure=failure)
        return _result(self, label, evaluations)

    async def _live(self) -> Sequence[EvaluationResult]:
        if isinstance(self.scored, NamedClient):
            return await self._api(_api_model(self.scored, self.registry, self.project_root))
        return await self._on_backend(self.scored)

    def _tell_blocked(self, words: str) -> None:
        self.told.append(words)
        self.log.warning("loop.blocked", what=words)

    def _put_into_ledger(self, result: EvaluationResult) -> None:
        """Have the ledger of looks know of the first score of a checkpoint: a choice by that has seen these tasks."""
        if not isinstance(self.scored, SavedModel) or self.in_ledger or not result.task_rewards:
            return
        self.in_ledger = True
        put_evaluation(
            self.project_root,
            self.run.directory.parent.parent.name,
            self.benchmarks,
            simulated=bool(declared(_backend(self.scored, self.registry), "simulated", False)),
            tell=self.told.append,
        )

    def _evaluator(
        self,
        renderer: Any,
        *,
        trained: Trained | None = None,
        deterministic: bool = False,
        endpoints: RolloutEndpoints | None = None,
    ) -> Evaluator:
        cache = None
        if self.results is not None:
            cache = ResultCache(
                self.results,
                registry=self.registry,
                run_dir=self.run.directory,
                trained=trained,
                tell=self.told.append,
            )
        evaluator = self.evaluator = Evaluator(
            self.benchmarks,
            renderer,
            seeds=Seeds(base_seed=self.seed),
            registry=self.registry,
            record=self.run,
            keep=self._put_into_ledger,
            log=self.log,
            deterministic=deterministic,
            directory=self.run.directory,
            endpoints=endpoints,
            cache=cache,
            silent_seconds=self.watch.settings.floor_seconds,
            hung=self.watch.dump,
        )
        self.watch.allow(lambda: evaluator.patience)
        self.watch.follow(lambda: evaluator.closings)
        return evaluator

    async def _api(self, model: ApiModel) -> Sequence[EvaluationResult]:
        """Each entry on an API model."""
        evaluator = self._evaluator(None)
        return [await evaluator.score_model(benchmark, model) for benchmark in self.benchmarks]

    async def _on_backend(self, scored: SavedModel | BaseModel) -> Sequence[EvaluationResult]:
        """Each entry on the weights of a checkpoint or a base model, as a run that starts from them would score them."""
        self.watch.awaits("backend", scored.backend.kind)
        async with (
            self._load(scored) as (client, deterministic),
            rollout_endpoints(client, scored.model.name, self.log) as endpoints,
        ):
            with boundary("backend", scored.backend.kind, self.run.run_id):
                snapshot = await client.sampling_client()
            renderer = client.renderer
            place = (self.run.directory.parent.parent.name, self.run.run_id, self.run.attempt)
            trained = Trained(model=scored.model, backend=scored.backend, renderer=renderer, place=place)
            evaluator = self._evaluator(
                renderer, trained=trained, deterministic=deterministic, endpoints=endpoints
            )
            try:
                return await evaluator.final(scored.step, snapshot)
            except BaseException:
                await evaluator.close(f"cut off before its end{self._why}")
                raise

    @property
    def _why(self) -> str:
        return "" if self.watch.stalled is None else f", since {self.watch.stalled}"

    @asynccontextmanager
    async def _load(self, scored: SavedModel | BaseModel) -> AsyncIterator[tuple[TrainingClient, bool]]:
        model, restore = scored.model, None
        if isinstance(scored, SavedModel):
            model = attrs.evolve(model, init_from_checkpoint=str(scored.folder), load_checkpoint_path=None)
            restore = find_checkpoint(model, self.project_root)
        kind = scored.backend.kind
        backend = _backend(scored, self.registry)
        deterministic = "deterministic" in backend.capabilities

        def preparing() -> object:
            more = prepare_options(backend, deterministic=deterministic)
            return backend.prepare(model, self.run.directory, self.seed, restore, **more)

        async with prepare_client(
            backend, kind, preparing, watch=self.watch, log=self.log, warnings=self.told
        ) as client:
            yield client, deterministic


def _bind(
    entries: Sequence[BenchmarkConfig], registry: Registry, project_root: Path
) -> tuple[BoundBenchmark, ...]:
    labels = [entry.label for entry in entries]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise ConfigError([Problem(path="", message=f"two benchmarks are called {name!r}") for name in twice])
    return tuple(load_benchmark(entry, registry=registry, project_root=project_root) for entry in entries)


def _backend(scored: SavedModel | BaseModel, registry: Registry) -> Backend:
    backend: Backend = registry.build("backend", scored.backend.kind, resolve(scored.backend.params))
    return backend


def _require_known(scored: BaseModel, registry: Registry) -> None:
    """Raise :class:`ConfigError` for a model of which its backend knows offline that it can't be loaded."""
    kind = scored.backend.kind
    validate = declared(_backend(scored, registry), "validate_model")
    if validate is None:
        return
    unable = f"backend {kind!r} can't judge the model"
    if problems := complaints(lambda: validate(scored.model), "", unable):
        raise ConfigError(problems)


def _api_model(scored: NamedClient, registry: Registry, project_root: Path) -> ApiModel:
    spec = scored.client
    with use_scope(DataScope(project_root=project_root)):  # clients look for the project's prices
        client = registry.build("inference_client", spec.kind, resolve(spec.params))
    return ApiModel(name=scored.label, client=client, spec=spec)


def _result(work: _Evaluation, label: str, evaluations: Sequence[EvaluationResult]) -> ArmResult:
    statuses = {evaluation.status for evaluation in evaluations}
    scored = all(evaluation.fully_scored for evaluation in evaluations)
    status: Status = "completed" if scored else "failed"
    return ArmResult(
        run_id=label,
        arm=label,
        repeat=0,
        seed=work.seed,
        status="invalid" if "invalid" in statuses else status,
        identity="",
        evaluations=tuple(evaluations),
        failure=next((e.failure for e in evaluations if e.failure is not None), None),
        usage=sum((evaluation.usage + evaluation.judged for evaluation in evaluations), Usage()),
        run_dir=str(work.run.directory),
        warnings=tuple(dict.fromkeys(w for evaluation in evaluations for w in evaluation.warnings)),
    )

"""`algorithm.kind: rl`: do more of what verifiers like.

A step takes tasks, lets the policy as it is now try each of them several times, has every rollout judged, and makes what did
better than its group likelier, what did worse unlikelier:

    loss = - sum_t share_t * min(...) of ratio_t * advantage      ratio_t = policy(token t) / sampler(token t)

Tokens and their logprobs are the sampler's own. Params choose the advantage, the loss and the shares.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from evsys import current_registry
from evsys.types import TrainingBatch, Usage
from evsys_algo_rl.bands import BANDS
from evsys_algo_rl.params import BUILTIN_SETTINGS, GuardParams, RLParams
from evsys_runtime import Band, BaseAlgorithm
from evsys_runtime.training.retreat import HEALTHY, OTHER_SAMPLES

if TYPE_CHECKING:
    from evsys.errors import AlgorithmError
    from evsys.protocols import SamplingClient
    from evsys.types import ForwardResult, HarborTask, ModelSpec, RunContext, RunResult
    from evsys_algo_rl.groups import TaskGroup
    from evsys_algo_rl.pipeline import Taken
    from evsys_runtime.training.foreseen import Foreseen
    from evsys_runtime.training.retreat import Retreat

__all__ = ["RL"]


class RL(BaseAlgorithm):
    """Reinforcement learning from verified rewards, on tasks: rows with an instruction and a verifier.

    To change what is learnt from a step's groups, override `batch_of`; to choose other tasks, `task_at`.
    """

    # Written here, so that type checkers let a subclass's Config inherit from it.
    @attrs.frozen(kw_only=True)
    class Config(RLParams):
        """Params of `rl`."""

    config: RLParams

    shape: ClassVar[str] = "task"
    health: ClassVar[Mapping[str, Band]] = BANDS
    whole_batches: ClassVar[bool] = False  # a task may come again in a batch: it is rolled out again
    prefetch: ClassVar[bool] = False  # `Pipeline` has rollouts run ahead, as far as staleness allows

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        if self.config.kl_coef:
            self.roles = {"reference": frozenset({"prompt_logprobs"})}

    async def setup(self, ctx: RunContext) -> None:
        """Look at the tasks, and make what the batches are made with. Nothing is sampled yet."""
        from evsys_algo_rl.collapse import CollapseDetector  # here, so that `evsys schema` stays quick
        from evsys_algo_rl.flat import FlatSteps
        from evsys_algo_rl.guard import Guard
        from evsys_algo_rl.pipeline import Pipeline
        from evsys_algo_rl.reference import Reference
        from evsys_algo_rl.tasks import check_tasks
        from evsys_runtime.training.health import check_rows

        check_rows(len(ctx.data), 1, {})
        await super().setup(ctx)
        check_tasks(ctx)
        self._max_length = self.longest_sequence(ctx)
        most = self.config.max_staleness
        self._staleness = most if most is not None else int(not ctx.deterministic)
        at_once = max(1, self.config.n_concurrent // self.config.group_size)
        self._pipeline = Pipeline(self._sample, max_staleness=self._staleness, key=self._row, at_once=at_once)
        self._reference = await Reference.of(ctx) if self.config.kl_coef else None
        self._pending: list[TrainingBatch] = []
        self._packed: list[str] = []
        self._guard = await Guard.of(self.config, ctx, self.warn) if self.config.guard else None
        self._flat = FlatSteps(self.config.max_flat_steps)
        self._collapse = CollapseDetector()
        self._collapsed: str | None = None
        self._healthy = 0
        self._bad_reward: str | None = None
        self._used = Usage()
        self._last = self.total_steps()
        if self.config.temperature != 1.0:
            self.warn("temperature isn't 1: ratios and KL compare the policy with its distribution at 1")

    async def build_batch(self, step_idx: int) -> TrainingBatch:
        """Tasks, rollouts, rewards, advantages, data: the batch of one optimiser step.

        With `substeps` one sampling serves several steps, each with groups of its own.
        """
        from evsys_algo_rl.pending import pack

        if not self._pending:
            snapshot = await self.ctx.clients.policy.sampling_client()
            await self._pipeline.begin(snapshot, step_idx // self.config.substeps)
            parts = self._parts(step_idx)
            taken = await self._pipeline.take(
                sum(parts),
                ahead=self._ahead(step_idx + len(parts)),
                refill=round(self.config.max_refill * sum(parts)) if self.config.filter_groups else 0,
                skip=self._is_replaceable,
            )
            await self._tell(taken, step_idx)
            guarded = await self._guard_metrics(taken, step_idx + 1)
            self._pending = [
                await self.batch_of(groups, step_idx + i)
                for i, groups in enumerate(_divide_groups(taken.groups, parts))
            ]
            self._pending[0].metrics |= {**self._sampling_metrics(taken), **guarded}
            self._packed = [pack(batch, self.config) for batch in self._pending[1:]]
        else:
            self._packed.pop(0)
        return self._pending.pop(0)

    async def batch_of(self, groups: Sequence[TaskGroup], step_idx: int) -> TrainingBatch:
        """The batch of some groups. A custom loss is set in `build_batch`, as no checkpoint can keep it.

        Raises:
            AlgorithmError: no rollout of them can be learnt from.
        """
        from evsys_algo_rl.batches import make_data, objective
        from evsys_algo_rl.health import rollout_metrics

        if not any(group.members for group in groups):
            raise _nothing_left(groups, step_idx)
        references, held = (None, {}) if self._reference is None else await self._reference.logprobs(groups)
        loss_fn, loss_params = objective(self.config, groups)
        return TrainingBatch(
            data=make_data(groups, self.config, references),
            loss_fn=loss_fn,
            loss_params=loss_params,
            row_ids=tuple(group.task_id for group in groups),
            metrics={
                **rollout_metrics(groups, self.config.advantage),
                **held,
                "staleness_mean": sum(step_idx - group.version for group in groups) / len(groups),
                "staleness_max": float(max(step_idx - group.version for group in groups)),
            },
        )

    def foreseen(self, step_idx: int) -> Foreseen | None:
        """A step whose answers are all as long as they may be."""
        from evsys_runtime.training.foreseen import foresee_rollouts

        config = self.config
        return foresee_rollouts(
            (self.ctx.data[row] for row in self.take_rows(step_idx)),
            self.ctx.clients.policy.renderer,
            config,
            count=config.group_size,
            max_tokens=config.max_tokens,
            limit=self._max_length,
            readings=int(bool(config.kl_coef)),
        )

    def step_metrics(self, step_idx: int, batch: TrainingBatch, result: ForwardResult) -> Mapping[str, float]:
        """How far policy and sampler are apart; and whether it makes sense to continue."""
        from evsys_algo_rl.health import mismatch_warning, ratio_metrics

        found = ratio_metrics(batch.data, result)
        measured = {**batch.metrics, **found}
        if mismatch := mismatch_warning(measured):
            self.warn(mismatch)
        self._judge_step(step_idx + 1, measured)
        return found

    def _judge_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Say what is wrong with a step, and stop the run where it stays so."""
        flat = self._flat.add(metrics)
        if flat is not None:
            self.ctx.request_stop(flat)
        collapse = self._collapse.add(metrics)
        if collapse is None or self._collapsed is not None:
            return
        self.warn(f"training collapsed: {collapse.reason}")
        if self.config.on_collapse != "warn":
            self._collapsed, self._healthy = collapse.reason, max(0, step - collapse.lasted)
            self.ctx.request_stop(f"collapsed: {collapse.reason}")

    # --- rollouts -----------------------------------------------------------------------------------------------------

    async def _sample(
        self, positions: Sequence[int], snapshot: SamplingClient, call: int
    ) -> AsyncIterator[TaskGroup]:
        """Run the tasks at some positions of the data's order, and judge each group when it is whole."""
        from evsys.types import SamplingParams
        from evsys_algo_rl.groups import judge
        from evsys_runtime import run_groups

        config, version = self.config, snapshot.version
        groups = run_groups(
            self.ctx,
            [self.task_at(position) for position in positions],
            config.group_size,
            snapshot=snapshot,
            sampling=SamplingParams(
                max_tokens=config.max_tokens,
                temperature=config.temperature,
                seed=call + self.ctx.retreats * OTHER_SAMPLES,
            ),
            limits=config.limits(wave=self.ctx.deterministic),
            step=version,
        )
        try:
            async for group in groups:
                yield judge(
                    group.task.task_id,
                    group.rollouts,
                    config,
                    position=positions[group.place],
                    version=version,
                    max_length=self._max_length,
                )
                self.ctx.heartbeat()
        finally:
            await groups.aclose()

    def task_at(self, position: int) -> HarborTask:
        """The task at a position of the data's order."""
        task: HarborTask = self.ctx.data[self._row(position)]
        return task

    def _row(self, position: int) -> int:
        return self.order.take(position, 1)[0]

    def _parts(self, step_idx: int) -> list[int]:
        """How many groups each step of this sampling gets."""
        last = min(step_idx + self.config.substeps, self._last)
        return [len(self.take_rows(step)) for step in range(step_idx, last)]

    def _ahead(self, step_idx: int) -> int:
        """How many groups may be sampled for the steps from this one on."""
        last = min(
            step_idx + self.config.substeps * self._staleness, self._last, self.ctx.max_steps or self._last
        )
        return sum(len(self.take_rows(step)) for step in range(step_idx, last))

    def _is_replaceable(self, group: TaskGroup) -> bool:
        """True for a group that is to be replaced by another."""
        return self.config.filter_groups and group.flat(self.config.advantage)

    async def _tell(self, taken: Taken, step_idx: int) -> None:
        """Count what rollouts took, and show them to who listens."""
        from evsys_algo_rl.groups import bad_reward
        from evsys_runtime.training.rollout_groups import out_of_turns, usage_of_rollouts

        groups = [*taken.groups, *taken.flat]
        rollouts = tuple(rollout for group in groups for rollout in group.rollouts)
        self._used += usage_of_rollouts(rollouts)
        if (cut := out_of_turns(rollouts, self.config.max_turns)) is not None:
            self.warn(cut)
        if (bad := bad_reward(rollouts)) is not None:
            # One warning that is counted, by the first that there was.
            self._bad_reward = self._bad_reward or bad
            self.warn(self._bad_reward)
        await self.ctx.hooks.emit(
            "evsys_rollouts_finished", ctx=self.ctx, step=step_idx + 1, phase="training", rollouts=rollouts
        )

    async def _guard_metrics(self, taken: Taken, step: int) -> Mapping[str, float]:
        """The guard's findings in all sampled groups, trained on or not."""
        if self._guard is None:
            return {}
        groups = sorted((*taken.groups, *taken.flat), key=lambda group: group.position)
        return await self._guard.check([(self.task_at(group.position), group) for group in groups], step)

    def _sampling_metrics(self, taken: Taken) -> dict[str, float]:
        found = {
            "groups_filtered": float(len(taken.flat)),
            "groups_stale": float(taken.stale),
            "rollout_wait/seconds": taken.wait_seconds,
            "sampler_idle/seconds": taken.idle_seconds,
        }
        if taken.flat:  # those left out count as well
            found["zero_variance_share"] = len(taken.flat) / (len(taken.flat) + len(taken.groups))
        return found

    # --- the run ------------------------------------------------------------------------------------------------------

    async def train(self, ctx: RunContext) -> RunResult:
        """Train until done, until someone asks for a stop, or until nothing is learnt any more."""
        try:
            result = await super().train(ctx)
        finally:
            await self._close()
        result = attrs.evolve(result, usage=result.usage + self._used)
        if self._reference is not None:
            result = self._reference.usage.counted_in(result)
        if self._guard is not None:
            result = self._guard.counted_in(result)
        if result.status == "collapsed" or self._collapsed is None:
            return result
        metrics = {**result.metrics, HEALTHY: float(self._healthy)}
        return attrs.evolve(result, status="collapsed", stop_reason=self._collapsed, metrics=metrics)

    def after_collapse(self, result: RunResult, retreats: int) -> Retreat | None:
        """As for every algorithm, except after its guard: the best checkpoint may be the best by a reward in doubt."""
        from evsys_algo_rl.guard import stopped_by_guard

        return None if stopped_by_guard(result) else super().after_collapse(result, retreats)

    async def _close(self) -> None:
        for part in (getattr(self, "_pipeline", None), getattr(self, "_reference", None)):
            if part is not None:
                await part.close()

    def validate_model(self, model: ModelSpec) -> Iterable[str]:
        """The problems known before anything is prepared: a loss that isn't registered."""
        from evsys.errors import PluginError

        yield from super().validate_model(model)
        if self.config.loss not in BUILTIN_SETTINGS:
            try:
                current_registry().get("loss", self.config.loss)
            except PluginError as error:
                yield f"loss: {error.message}"
        if self.config.guard is not None:
            yield from self._guard_problems(self.config.guard)

    def _guard_problems(self, guard: GuardParams) -> Iterable[str]:
        from evsys.errors import DataError, PluginError

        try:
            if guard.verifier is not None:
                current_registry().find("verifier", guard.verifier)
            else:
                from evsys_algo_rl.guard_benchmark import benchmark_path
                from evsys_runtime import current_scope

                benchmark_path(str(guard.benchmark), current_scope().project_root)
        except PluginError as error:
            yield f"guard.verifier: {error.message}"
        except DataError as error:
            yield f"guard.benchmark: {error.message}"

    def state(self) -> Mapping[str, Any]:
        """The position in the data, the sampled groups not yet trained on, and the state of the detectors."""
        return {
            "pipeline": self._pipeline.state(),
            "pending": list(self._packed),
            "flat": self._flat.state(),
            "collapse": self._collapse.state(),
            "collapsed": self._collapsed,
            "healthy": self._healthy,
            "used": attrs.asdict(self._used),
            **({} if self._reference is None else {"reference": self._reference.usage.state()}),
            **({} if self._guard is None else {"guard": self._guard.state()}),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` gave."""
        from evsys_algo_rl.pending import unpack

        if not state:
            return
        self._pipeline.load_state(**state["pipeline"])
        self._packed = list(state["pending"])
        self._pending = [unpack(text, self.config) for text in self._packed]
        self._flat.load_state(state["flat"])
        self._collapse.load_state(state["collapse"])
        self._collapsed, self._healthy = state["collapsed"], state["healthy"]
        if self._collapsed is not None:  # nothing good comes of continuing from there
            self.ctx.request_stop(f"collapsed: {self._collapsed}")
        self._used = Usage(**state["used"])
        if self._guard is not None and "guard" in state:
            self._guard.load_state(state["guard"])
        if self._reference is not None:
            self._reference.usage.load(state.get("reference", {}))


def _divide_groups(groups: Sequence[TaskGroup], parts: Sequence[int]) -> list[list[TaskGroup]]:
    """Groups for each step of a sampling; where some are missing, all steps have some as long as that is possible."""
    steps = min(len(parts), len(groups))
    if len(groups) == sum(parts):
        ends = [sum(parts[: i + 1]) for i in range(steps)]
    else:
        ends = [round(len(groups) * (i + 1) / steps) for i in range(steps)]
    return [list(groups[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def _nothing_left(groups: Sequence[TaskGroup], step_idx: int) -> AlgorithmError:
    """The error that says what became of all rollouts of a batch."""
    from evsys_algo_rl.groups import bad_reward
    from evsys_runtime.training.rollout_groups import nothing_learnable

    reasons: dict[str, int] = {}
    for group in groups:
        for reason, count in group.lost.items():
            reasons[reason] = reasons.get(reason, 0) + count
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    return nothing_learnable(rollouts, reasons, step_idx, bad_reward(rollouts))

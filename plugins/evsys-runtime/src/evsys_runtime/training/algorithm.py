"""`BaseAlgorithm`: what algorithms have in common, so that one reads as its batches and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from evsys.errors import PluginContractError
from evsys.optional import declared
from evsys_runtime.training.bands import Band
from evsys_runtime.training.order import DataOrder
from evsys_runtime.training.params import TrainingParams, lora_spec, resolve_batch_size, resolve_steps
from evsys_runtime.training.retreat import GOES_BACK, HEALTHY, NOT_FINITE, Retreat
from evsys_runtime.training.schedule import recommended_learning_rate
from evsys_runtime.training.warning_counts import WarningCounts

if TYPE_CHECKING:
    from evsys.errors import ConfigError
    from evsys.types import ForwardResult, LoraSpec, ModelSpec, RunContext, RunResult, TrainingBatch
    from evsys_runtime.training.foreseen import Foreseen
    from evsys_runtime.training.sequences import DropReport
    from evsys_runtime.training.trainable_rows import Rendered, TrainableOrder, TrainableRows

__all__ = ["BaseAlgorithm"]


class BaseAlgorithm:
    """A core `Algorithm` and `StepBuilder`. Override `build_batch`, and other methods as needed.

    Class attributes:
        Config: the params; `TrainingParams` or a subclass of it.
        shape: of the rows: `chat`, `pair`, `prompt` or `task`.
        requires: capabilities that a backend must have.
        roles: the second models that it uses, `teacher` or `reference`, each with the capabilities that its backend
            must have.
        required_roles: those of them that it can't do without.
        health: the bands in which metrics stay while training is healthy, by the metric's name.
        whole_batches: True where there have to be as many rows as a batch takes; False where rows may come again in
            one.
        preview_params: names of the params on which `preview` and `rows_trained` depend; `evsys plan` renders rows
            once for all arms that differ in others only. None means all of them. It is valid for the class that
            declares it: a subclass declares its own.
        prefetch: True lets the loop build the next batch while the backend computes. Then `build_batch(n + 1)` runs
            before `step_metrics(n, ...)`, so leave it False where batches depend on results or sample from the model.

    Attributes:
        config: the params, made from the keyword arguments; once `setup` is done, with the number of rows of a batch.
        ctx: the run, once `setup` has been called.
        order: the rows' order, once `setup` is done.
        warnings: what `warn` has counted; the loop adds its own.
    """

    Config: ClassVar[type[Any]] = TrainingParams
    shape: ClassVar[str] = "chat"
    requires: frozenset[str] = frozenset()
    roles: Mapping[str, frozenset[str]] = {}
    required_roles: ClassVar[frozenset[str]] = frozenset()
    health: ClassVar[Mapping[str, Band]] = {}
    whole_batches: ClassVar[bool] = True
    preview_params: ClassVar[frozenset[str] | None] = None
    prefetch: ClassVar[bool] = False

    ctx: RunContext
    order: DataOrder | TrainableOrder

    def __init__(self, **fields: Any) -> None:
        self.config = type(self).Config(**fields)
        if not isinstance(self.config, TrainingParams):
            self._refuse_a_lack()
        self.warnings = WarningCounts()

    def _refuse_a_lack(self) -> None:
        missing = [
            field.name for field in attrs.fields(TrainingParams) if not hasattr(self.config, field.name)
        ]
        if missing:
            raise PluginContractError(
                f"the Config of {type(self).__name__} has no {', '.join(missing)}",
                hint="derive it from TrainingParams, or from the Config of the algorithm that it extends",
            )

    # --- what it trains -------------------------------------------------------------------------------------------

    def lora(self) -> LoraSpec:
        """The trained adapter."""
        return lora_spec(self.config)

    def validate_model(self, model: ModelSpec) -> Iterable[str]:
        """The problems with training this model known before anything is prepared."""
        if self.config.learning_rate is None and self._recommendation(model.name) is None:
            yield _unknown_rate(model.name)

    def validate_roles(self, model: ModelSpec, roles: Mapping[str, ModelSpec]) -> Iterable[str]:
        """The problems of second models known beforehand. Token by token they are compared with the
        trained model.
        """
        from evsys_runtime.training.roles import same_tokenizers

        return same_tokenizers(model, roles)

    def peak_learning_rate(self) -> float:
        """The highest learning rate: the one set, else the rule for the model.

        Raises:
            ConfigError: neither is there.
        """
        if self.config.learning_rate is not None:
            return float(self.config.learning_rate)
        found = self._recommendation(self.ctx.model.name)
        if found is None:
            raise _unset(self.ctx.model.name)
        return found

    def _recommendation(self, model: str) -> float | None:
        steps = self.total_steps() if hasattr(self, "ctx") else 100
        return recommended_learning_rate(model, lora=self.config.lora_rank is not None, steps=steps)

    # --- how it goes over the rows ----------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """How many rows there are to train on."""
        return len(self.ctx.data)

    def rows_trained(self, rows: int) -> int:
        """How many of so many rows are trained on; fewer where some are kept out. Known before anything is set up."""
        return rows

    def total_steps(self) -> int:
        """Optimiser steps of the whole run."""
        return resolve_steps(self.config, self.rows)[0]

    def take_rows(self, step_idx: int) -> list[int]:
        """Numbers of the rows that belong to a step. A function of the step alone, however often it is called."""
        size = self.config.batch_size
        limit = resolve_steps(self.config, self.rows)[1]
        start = step_idx * size
        return self.order.take(start, size if limit is None else min(size, limit - start))

    def longest_sequence(self, ctx: RunContext) -> int | None:
        """The longest sequence in tokens that may be trained: what the params and the backend's model allow."""
        limits = (self.config.max_length, declared(ctx.clients.policy, "max_length"))
        return min((limit for limit in limits if limit is not None), default=None)

    async def rendered[T](self, ctx: RunContext, items: Iterable[T]) -> list[T]:
        """All items, which take time to make: thousands take seconds, in which others may continue and the run is seen to live."""
        import asyncio  # here, so that `evsys schema` stays quick

        found: list[T] = []
        for item in items:
            found.append(item)
            if len(found) % 64 == 0:
                ctx.heartbeat()
                await asyncio.sleep(0)
        return found

    async def trainable[T: Rendered](
        self, ctx: RunContext, render: Callable[[Iterable[Any], DropReport], Iterator[T]], unit: str
    ) -> tuple[TrainableRows[T, DropReport], TrainableOrder]:
        """The rows that can be trained on, rendered when their turn comes, and their order; all or a sample of many are rendered now.

        Args:
            ctx: the run.
            render: renders those of some rows that can be trained on, and counts the others.
            unit: what warnings call a row.

        Raises:
            DataError: a row can't be rendered, or too few are left.
        """
        from evsys_runtime.training.health import check_rows
        from evsys_runtime.training.sequences import DropReport
        from evsys_runtime.training.trainable_rows import TrainableOrder, TrainableRows

        report = DropReport()
        rows = TrainableRows(
            ctx.data,
            render,
            DropReport,
            lambda reason: self.warn(f"a {unit} was left out when its turn came: {reason}"),
        )
        await self.rendered(ctx, rows.look(report, ctx.seeds("rows_looked_at")))
        of = f"{len(ctx.data)} {unit}s"
        if rows.looked_at < len(ctx.data):
            of = f"{rows.looked_at} {unit}s looked at before training ({len(ctx.data)} in all)"
        for reason, count in report.dropped.items():
            self.warn(f"{count} of {of} were left out: {reason}")
        possible = rows.possible()
        check_rows(possible.expected, self.config.batch_size, report.dropped)
        places = DataOrder(len(possible), lambda epoch: ctx.seeds("data_order", epoch))
        return possible, TrainableOrder(possible, places)

    # --- what the loop calls --------------------------------------------------------------------------------------

    async def setup(self, ctx: RunContext) -> None:
        """Prepare once, before the first batch. Overriding it, call this first, or last if `rows` is not all rows."""
        self.ctx = ctx
        if self.config.batch_size is None:
            default, size = self.config.default_batch_size, resolve_batch_size(self.config, self.rows)
            if size < default:
                self.warn(
                    f"there are fewer rows than the default batch_size of {default}; each batch has all {size}"
                )
            self.config = attrs.evolve(self.config, batch_size=size)
        self.order = DataOrder(self.rows, lambda epoch: ctx.seeds("data_order", epoch))

    async def build_batch(self, step_idx: int) -> TrainingBatch:
        """Make the batch of step `step_idx`, counted from 0."""
        raise NotImplementedError(f"{type(self).__name__} must override build_batch")

    def foreseen(self, step_idx: int) -> Foreseen | None:
        """The most that a step takes, if its batch isn't built ahead (`prefetch`) because answers are sampled for
        it; None if unknown. The estimates of time and memory before training rest on it.
        """
        return None

    def step_metrics(self, step_idx: int, batch: TrainingBatch, result: ForwardResult) -> Mapping[str, float]:
        """Numbers to record alongside the loop's own."""
        return {}

    def measures(self, step: int) -> bool:
        """True where `measure` takes passes after a step that isn't the last; every step, unless an algorithm knows better."""
        return type(self).measure is not BaseAlgorithm.measure

    async def measure(self, step: int, *, last: bool) -> Mapping[str, float]:
        """Numbers to record alongside those of the step, that take passes over the model.

        Args:
            step: optimiser steps behind the weights.
            last: no step follows, unless someone asks for a stop before.
        """
        return {}

    def state(self) -> Mapping[str, Any]:
        """The state that the next batches depend on besides their step, as JSON values; stored with each
        checkpoint.

        Taken after the `step_metrics` of a step. With `prefetch` it is taken when the batch of that step was built,
        since the next batch may be in the making: changes made by `step_metrics` are then lost when a run resumes.
        """
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` gave; called after `setup` when a run resumes."""

    @property
    def goes_back(self) -> bool:
        """True if a number that isn't finite is a collapse to go back from, and not a failure: not in a dry run, and not too often.

        The result then has the status `collapsed` and the steps before that one, and these weights are neither saved nor scored.
        """
        asked = self.config.on_collapse in GOES_BACK and self.ctx.max_steps is None
        return asked and self.ctx.retreats < self.config.max_rollbacks

    def after_collapse(self, result: RunResult, retreats: int) -> Retreat | None:
        """The response after `train` returned the status `collapsed`; None ends the run there.

        By default back to the best checkpoint from before the trouble, if `on_collapse` asks for that and it wasn't
        done too often. Also called without `setup`, when resuming a run interrupted at that moment: use the result
        only.

        Args:
            result: of the training.
            retreats: how often this run went back before.
        """
        kind = self.config.on_collapse
        if kind not in GOES_BACK or retreats >= self.config.max_rollbacks:
            return None
        scored = kind == "branch" and NOT_FINITE not in result.metrics
        before = round(result.metrics.get(HEALTHY, result.steps))
        return Retreat(kind="branch" if scored else "rollback", before=before)

    def warn(self, message: str) -> None:
        """Warn of something odd: it is counted and listed once in the run's result."""
        if self.warnings.add(message):
            self.ctx.log.warning("training.odd", what=message)

    # --- the algorithm itself --------------------------------------------------------------------------------------

    async def train(self, ctx: RunContext) -> RunResult:
        """Train until done, or until someone asks for a stop."""
        from evsys_runtime.training.loop import TrainingLoop

        return await TrainingLoop(self).run(ctx)


def _unknown_rate(model: str) -> str:
    return (
        f"no learning rate is known for {model!r}; set algorithm.params.learning_rate "
        "(with LoRA, ten times what full fine-tuning would use: try 1e-4, 3e-4 and 1e-3)"
    )


def _unset(model: str) -> ConfigError:
    from evsys.errors import ConfigError, Problem

    return ConfigError([Problem(path="$.algorithm.params.learning_rate", message=_unknown_rate(model))])

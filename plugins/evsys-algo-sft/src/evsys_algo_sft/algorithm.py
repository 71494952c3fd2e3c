"""`algorithm.kind: sft`: learn to say what the assistant says in the rows.

The loss is the negative log-likelihood of the trained tokens, divided by how many there are in the whole batch:

    loss = - sum_t w_t log pi(token_t | tokens before) / sum_t w_t

Weights w are 0 on prompts and 1 on assistant turns (or what a message's own `weight` says). Dividing by the sum over
the batch, and not row by row, gives each token the same say, regardless of the length of its row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from evsys import option
from evsys.types import ChatMessagesRow, TrainingBatch
from evsys_algo_sft.sequences import RenderedRow, RenderReport, mean_nll, render_rows
from evsys_runtime import Band, BaseAlgorithm, TrainingParams
from evsys_runtime.training.bands import GRADIENT, UNLIKELY

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evsys.protocols import Renderer
    from evsys.types import ForwardResult, RunContext
    from evsys_algo_sft.holdout import HeldOut
    from evsys_runtime.training.trainable_rows import TrainableOrder, TrainableRows

__all__ = ["SFT", "SFTParams"]


class SFT(BaseAlgorithm):
    """Supervised fine-tuning on conversations.

    To put another loss on its batches, subclass it:

        class Focal(SFT):
            async def build_batch(self, step_idx):
                batch = await super().build_batch(step_idx)
                batch.loss_fn = my_loss  # (data, logprobs) -> scalar, in plain numpy
                return batch
    """

    # Written here, so that type checkers let a subclass's Config inherit from it.
    @attrs.frozen(kw_only=True)
    class Config(TrainingParams):
        """Params of `sft`."""

        train_on: str = option(
            "all_assistant",
            "Which tokens have a loss: those of every assistant turn, of the last one, all tokens, or with `custom` those of the turns "
            "that have a `weight`.",
            choices=("all_assistant", "last_assistant", "all", "custom"),
            source="evsys training defaults",
        )
        held_out: float = option(
            0.0,
            "Rows kept out of the training, a number or below 1 a share; their NLL and bits per byte are metrics.",
            ge=0,
        )
        held_out_every: int = option(
            50,
            "Steps between two measurements of the held-out rows; the last step is also measured.",
            ge=1,
        )

    shape: ClassVar[str] = "chat"
    health: ClassVar[Mapping[str, Band]] = {
        "nll": UNLIKELY,
        "held_out_nll": UNLIKELY,
        "grad_norm": GRADIENT,
    }
    preview_params: ClassVar[frozenset[str] | None] = frozenset({"train_on", "max_length", "held_out"})
    prefetch: ClassVar[bool] = True  # batches depend on nothing but their step

    _rendered: TrainableRows[RenderedRow, RenderReport]
    _trainable: TrainableOrder
    _held_out: HeldOut | None
    _rows: int

    @property
    def rows(self) -> int:
        """Rows left to train on; of many rows an estimate, by the sample looked at."""
        return self._rows

    def rows_trained(self, rows: int) -> int:
        """Without those that are kept out, if no row is a copy of another."""
        wanted = self.config.held_out
        if not wanted:
            return rows
        from evsys_algo_sft.holdout import number_kept_out

        return rows - number_kept_out(rows, wanted)

    async def setup(self, ctx: RunContext) -> None:
        """Render rows, all or a sample of many, drop what can't be trained, keep out what is only measured, and say so."""
        from evsys_algo_sft.holdout import HeldOut
        from evsys_runtime.training.health import check_rows, trained_share_warning
        from evsys_runtime.training.order import DataOrder
        from evsys_runtime.training.trainable_rows import TrainableOrder, TrainableRows

        self.ctx = ctx
        report = RenderReport()
        renderer, longest = ctx.clients.policy.renderer, self.longest_sequence(ctx)
        rows = TrainableRows(
            ctx.data,
            lambda some, counts: self._render(some, renderer, counts, longest),
            RenderReport,
            self._warn_without_holdout,
        )
        await self.rendered(ctx, rows.look(report, ctx.seeds("rows_looked_at")))
        self._report(report, rows.looked_at)
        possible = rows.possible()
        out = await self._holdout_mask(ctx, possible.numbers)
        measured, self._rendered = possible.apart(out)
        self._rows = self._rendered.expected
        self._held_out = HeldOut(measured, ctx.clients.policy.tokenizer) if len(measured) else None
        kept = {f"kept out (held_out: {self.config.held_out:g})": len(measured)}
        check_rows(self.rows, self.config.batch_size, {**report.dropped, **kept})
        odd = trained_share_warning(
            report.trained_tokens, report.tokens, everything_is_meant=self.config.train_on == "all"
        )
        if odd is not None:
            self.warn(odd)
        await super().setup(ctx)
        places = DataOrder(len(self._rendered), lambda epoch: ctx.seeds("data_order", epoch))
        self.order = self._trainable = TrainableOrder(self._rendered, places)

    async def _holdout_mask(self, ctx: RunContext, numbers: Sequence[int]) -> NDArray[np.bool_]:
        """Which of the rows with these `numbers` are kept out; warns if they are not as they should be."""
        from evsys_algo_sft.holdout import MOST_SEARCHED, copies_trained, holdout_mask
        from evsys_runtime import in_background
        from evsys_runtime.data.row_contents import message_digest

        wanted = self.config.held_out
        if not wanted:
            return holdout_mask(numbers, 0.0, 0)

        def contents() -> list[bytes]:
            return [message_digest(ctx.data[number]) for number in numbers]

        out = holdout_mask(await in_background(contents), wanted, ctx.seeds("held_out"))
        if not out.any():
            self.warn(f"held_out: {wanted:g} keeps no row out: too many rows are copies of each other")
        elif len(numbers) > MOST_SEARCHED:
            self.warn(
                f"held_out: with more than {MOST_SEARCHED:,} rows no nearly equal ones are searched for"
            )
        elif copies := await in_background(
            copies_trained,
            (ctx.data[number] for number, held in zip(numbers, out, strict=True) if held),
            (ctx.data[number] for number, held in zip(numbers, out, strict=True) if not held),
        ):
            self.warn(
                f"{copies} of {out.sum()} held-out rows are nearly equal to training rows, so their NLL is partly memory"
            )
        return out

    def _report(self, report: RenderReport, looked_at: int) -> None:
        """Warn of what the rows looked at have lost."""
        of = f"{looked_at} rows"
        if looked_at < len(self.ctx.data):
            of = f"{looked_at} rows looked at before training ({len(self.ctx.data)} in all)"
        for reason, count in report.dropped.items():
            self.warn(f"{count} of {of} were left out: {reason}")
        if report.pairs:
            self.warn(
                f"{report.pairs} of {of} have a rejected answer, which sft doesn't use; dpo learns from both"
            )

    def _warn_without_holdout(self, reason: str) -> None:
        self.warn(f"a row was left out when its turn came: {reason}")

    def state(self) -> Mapping[str, Any]:
        """How far the order has come, where rows are left out on the way."""
        return self._trainable.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue there."""
        self._trainable.load_state(state)

    async def build_batch(self, step_idx: int) -> TrainingBatch:
        """The next rows in their seeded order, weights divided by the number of trained tokens in the batch."""
        rows = [self._rendered[i] for i in self.take_rows(step_idx)]
        trained = sum(row.weight for row in rows)
        return TrainingBatch(
            data=[datum for row in rows for datum in row.data(1.0 / trained)],
            loss_fn="cross_entropy",
            row_ids=tuple(row.row_id for row in rows),
            metrics={"epoch": step_idx * self.config.batch_size / self.rows, "rows": float(len(rows))},
        )

    def step_metrics(self, step_idx: int, batch: TrainingBatch, result: ForwardResult) -> Mapping[str, float]:
        """`nll`: the negative log-likelihood per trained token, regardless of the loss of a subclass."""
        nll = mean_nll(batch.data, result.logprobs)
        return {} if nll is None else {"nll": nll}

    def measures(self, step: int) -> bool:
        """True every `held_out_every` steps, where rows are kept out."""
        return self._held_out is not None and step % self.config.held_out_every == 0

    async def measure(self, step: int, *, last: bool) -> Mapping[str, float]:
        """The held-out rows, every `held_out_every` steps and at the end."""
        if self._held_out is None or not (last or self.measures(step)):
            return {}
        return await self._held_out.measure(self.ctx.clients.policy, self.config.batch_size)

    # --- what `evsys data preview` shows --------------------------------------------------------------------------

    def preview(
        self,
        rows: Iterable[ChatMessagesRow],
        renderer: Renderer,
        dropped: dict[str, int] | None = None,
    ) -> Iterator[RenderedRow]:
        """Rows as they would be trained: tokens with their weights.

        Args:
            rows: typed rows.
            renderer: of the model.
            dropped: filled on the way with the reasons of rows left out, and how often each was one.
        """
        report = RenderReport(dropped={} if dropped is None else dropped)
        return self._render(rows, renderer, report, self.config.max_length)

    def _render(
        self,
        rows: Iterable[ChatMessagesRow],
        renderer: Renderer,
        report: RenderReport,
        max_length: int | None,
    ) -> Iterator[RenderedRow]:
        return render_rows(rows, renderer, self.config.train_on, max_length, report)


SFTParams = SFT.Config

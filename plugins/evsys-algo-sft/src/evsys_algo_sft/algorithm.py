"""`algorithm.kind: sft`: learn to say what the assistant says in the rows.

The loss is the negative log-likelihood of the trained tokens, divided by how many there are in the whole batch:

    loss = - sum_t w_t log pi(token_t | tokens before) / sum_t w_t

Weights w are 0 on prompts and 1 on assistant turns (or what a message's own `weight` says). Dividing by the sum over
the batch, and not row by row, gives each token the same say, whatever the length of its row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import attrs

from evsys import option
from evsys.types import ChatMessagesRow, TrainingBatch
from evsys_algo_sft.sequences import RenderedRow, RenderReport, TrainableRows, mean_nll, render_rows
from evsys_runtime.training.algorithm import BaseAlgorithm
from evsys_runtime.training.bands import GRADIENT, UNLIKELY, Band
from evsys_runtime.training.params import TrainingParams

if TYPE_CHECKING:
    from evsys.protocols import Renderer
    from evsys.types import ForwardResult, RunContext
    from evsys_algo_sft.held_out import HeldOut

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
            "Steps between two measurements of the rows that are kept out; the last step has one, too.",
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

    _rendered: Sequence[RenderedRow]
    _held_out: HeldOut | None

    @property
    def rows(self) -> int:
        """Rows that are left to train on."""
        return len(self._rendered)

    def rows_trained(self, rows: int) -> int:
        """Without those that are kept out."""
        from evsys_algo_sft.held_out import kept_out

        return rows - len(kept_out(rows, self.config.held_out, 0))

    async def setup(self, ctx: RunContext) -> None:
        """Render every row, drop what can't be trained, keep out what is only measured, and say so."""
        from evsys_algo_sft.held_out import HeldOut, kept_out
        from evsys_runtime.training.health import check_rows, trained_share_warning

        self.ctx = ctx
        report = RenderReport()
        renderer, longest = ctx.clients.policy.renderer, self.longest_sequence(ctx)
        found = TrainableRows(ctx.data, lambda rows, counts: self._render(rows, renderer, counts, longest))
        numbers = await self.rendered(ctx, found.find(report))
        for reason, count in report.dropped.items():
            self.warn(f"{count} of {len(ctx.data)} rows were left out: {reason}")
        if report.pairs:
            self.warn(
                f"{report.pairs} of {len(ctx.data)} rows have a rejected answer, which sft doesn't use; dpo learns from both"
            )
        out = kept_out(len(numbers), self.config.held_out, ctx.seeds("held_out"))
        measured = found.chosen(number for place, number in enumerate(numbers) if place in out)
        self._rendered = found.chosen(number for place, number in enumerate(numbers) if place not in out)
        self._held_out = HeldOut(measured, ctx.clients.policy.tokenizer) if measured else None
        kept = {f"kept out (held_out: {self.config.held_out:g})": len(measured)}
        check_rows(self.rows, self.config.batch_size, {**report.dropped, **kept})
        odd = trained_share_warning(
            report.trained_tokens, report.tokens, everything_is_meant=self.config.train_on == "all"
        )
        if odd is not None:
            self.warn(odd)
        await super().setup(ctx)

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
        """`nll`: the negative log-likelihood per trained token, whatever loss a subclass trains with."""
        nll = mean_nll(batch.data, result.logprobs)
        return {} if nll is None else {"nll": nll}

    def measures(self, step: int) -> bool:
        """True every `held_out_every` steps, where rows are kept out."""
        return self._held_out is not None and step % self.config.held_out_every == 0

    async def measure(self, step: int, *, last: bool) -> Mapping[str, float]:
        """The rows that are kept out, every `held_out_every` steps and at the end."""
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
            dropped: filled on the way with the reasons of rows that are left out, and how often each was one.
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

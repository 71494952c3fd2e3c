"""`algorithm.kind: dpo`: learn from pairs of answers of which one was preferred.

Nothing is sampled, and there is no reward model: the loss (`losses.py`) raises the chosen answer's likelihood against the rejected one's,
measured from where the model starts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from evsys import option
from evsys.errors import AlgorithmError, boundary
from evsys.types import ChatMessagesRow, TrainingBatch
from evsys_algo_dpo.losses import preference_loss
from evsys_algo_dpo.pairs import RenderedPair, render_pairs
from evsys_algo_dpo.reference import References, ask, from_text, to_text
from evsys_runtime import Band, BaseAlgorithm, TrainingParams
from evsys_runtime.training.bands import GRADIENT, UNLIKELY
from evsys_runtime.training.role_usage import RoleUsage
from evsys_runtime.training.sequences import DropReport
from evsys_runtime.training.training_kind import kind_of

if TYPE_CHECKING:
    from evsys.protocols import Renderer
    from evsys.types import RunContext, RunResult, Usage
    from evsys_runtime.training.trainable_rows import TrainableOrder, TrainableRows

__all__ = ["DPO", "DPOParams"]

_DPO = "Direct Preference Optimization, https://arxiv.org/abs/2305.18290"
_SIMPO = "SimPO, https://arxiv.org/abs/2405.14734"
_BETA = {"dpo": 0.1, "ipo": 0.1, "simpo": 2.0}


class DPO(BaseAlgorithm):
    """Direct preference optimisation, and its variants `ipo` and `simpo`."""

    @attrs.frozen(kw_only=True)
    class Config(TrainingParams):
        """Params of `dpo`."""

        learning_rate: float | None = option(
            1e-5,
            "Peak learning rate; larger ones drive both answers' likelihood down.",
            ge=0,
            source="DPO with LoRA, evsys training defaults",
        )
        loss: str = option(
            "dpo",
            "How a pair is judged; `simpo` needs no reference.",
            choices=("dpo", "ipo", "simpo"),
            source=_DPO,
        )
        beta: float | None = option(
            None,
            "How much the difference counts: 0.1 for dpo and ipo, 2 for simpo by default. Smaller lets the model move farther.",
            gt=0,
            source=f"{_DPO}; {_SIMPO}",
        )
        label_smoothing: float = option(
            0.0,
            "Assumed share of pairs with swapped labels; for dpo.",
            ge=0,
            lt=0.5,
            source="A note on DPO with noisy preferences & relationship to IPO, E. Mitchell, 2023",
        )
        gamma: float = option(
            1.0, "By how much simpo wants the chosen answer to be better.", ge=0, source=_SIMPO
        )
        length_normalised: bool | None = option(
            None,
            "Compare means over the answers' tokens rather than sums; by default simpo does.",
            source=_SIMPO,
        )

        def __attrs_post_init__(self) -> None:
            TrainingParams.__attrs_post_init__(self)
            if self.label_smoothing and self.loss != "dpo":
                raise ValueError(f"label_smoothing: {self.loss} has none; set 'loss' to dpo, or leave it out")

    shape: ClassVar[str] = "pair"
    health: ClassVar[Mapping[str, Band]] = {
        "margin": Band(
            -2.0,
            None,
            "rejected answers become the likelier ones: lower the learning rate, and see that no labels are swapped",
            lasting=10,
        ),
        "chosen_nll": UNLIKELY,
        "grad_norm": GRADIENT,
    }
    preview_params: ClassVar[frozenset[str] | None] = frozenset({"max_length"})
    prefetch: ClassVar[bool] = True  # batches depend on nothing but their step

    _pairs: TrainableRows[RenderedPair, DropReport]
    _trainable: TrainableOrder
    _references: References | None
    _impossible: frozenset[int]  # pairs that have no loss
    _kept: dict[str, str]  # what each checkpoint has of them
    _usage: RoleUsage  # what asking took

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.roles = {} if self.config.loss == "simpo" else {"reference": frozenset()}

    @property
    def rows(self) -> int:
        """Pairs left to train on; of many an estimate, by the sample looked at."""
        return self._pairs.expected

    async def setup(self, ctx: RunContext) -> None:
        """Render pairs, all or a sample of many, drop what can't be trained on, and ask the reference about those that the run will see."""
        self.ctx = ctx
        await self._look_at_pairs(ctx)
        # A run that resumes gets them with the algorithm's state.
        first = ctx.checkpoints.restored is None and self.config.loss != "simpo"
        self._references, self._impossible, self._kept = None, frozenset(), {}
        self._usage = RoleUsage.of(ctx, "reference")
        if first:
            references, took = await self._ask_reference(ctx)
            self._know(references, to_text(references))
            self._usage.add(took)

    async def _look_at_pairs(self, ctx: RunContext) -> None:
        renderer, longest = ctx.clients.policy.renderer, self.longest_sequence(ctx)

        def render(rows: Iterable[ChatMessagesRow], report: DropReport) -> Iterator[RenderedPair]:
            return render_pairs(rows, renderer, longest, report.dropped)

        self._pairs, self._trainable = await self.trainable(ctx, render, "pair")
        await super().setup(ctx)
        self.order = self._trainable

    def _know(self, references: References, kept: str) -> None:
        """Take up what the reference said, and leave out the pairs of which it says that a side can't be."""
        self._references = references
        self._kept = {"references": kept}
        self._impossible = frozenset(
            number for number, sums in references.items() if not all(map(math.isfinite, sums))
        )
        if self._impossible:
            self.warn(
                f"{len(self._impossible)} of {len(references)} pairs have no loss: the reference finds a side of theirs impossible, "
                "or gives no logprob for it"
            )

    async def build_batch(self, step_idx: int) -> TrainingBatch:
        """The next pairs in their seeded order, both sides of each.

        Raises:
            AlgorithmError: the reference finds all of them impossible.
        """
        rows = self.take_rows(step_idx)
        taken = [row for row in rows if row not in self._impossible]
        if not taken:
            raise AlgorithmError(
                f"of none of the {len(rows)} pairs of step {step_idx + 1} the reference's logprobs are finite",
                hint="look at the reference's weights and its backend",
            )
        pairs = [self._pairs[i] for i in taken]
        known = [None if self._references is None else self._references[i] for i in taken]
        return TrainingBatch(
            data=[d for place, pair in enumerate(pairs) for d in pair.data(place, known[place])],
            loss_fn=preference_loss,
            loss_params=self._loss_params(),
            row_ids=tuple(pair.row_id for pair in pairs),
            metrics={"epoch": step_idx * self.config.batch_size / self.rows, "pairs": float(len(pairs))},
        )

    def _loss_params(self) -> dict[str, Any]:
        config = self.config
        normalised = config.length_normalised
        return {
            "kind": config.loss,
            "beta": _BETA[config.loss] if config.beta is None else config.beta,
            "label_smoothing": config.label_smoothing,
            "gamma": config.gamma,
            "length_normalised": config.loss == "simpo" if normalised is None else normalised,
        }

    def state(self) -> Mapping[str, Any]:
        """The reference's logprob of each answer, its usage, and the position in the order."""
        took = {"took": self._usage.state()} if self._kept else {}
        return {**self._kept, **took, **self._trainable.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what the first attempt had asked."""
        if "references" in state:
            kept = state["references"]
            self._know(from_text(kept, self._training_pairs(self.ctx)), kept)
            self._usage.load(state.get("took", {}))
        self._trainable.load_state(state)

    def _training_pairs(self, ctx: RunContext) -> Iterator[tuple[int, RenderedPair]]:
        """The pairs that some step takes, by number; those that none does would cost for nothing."""
        total = self.total_steps() if ctx.max_steps is None else min(self.total_steps(), ctx.max_steps)
        for row in sorted({row for step in range(total) for row in self.take_rows(step)}):
            yield row, self._pairs[row]
            self._pairs.forget()

    async def train(self, ctx: RunContext) -> RunResult:
        """Train, and count what the reference took."""
        result = await super().train(ctx)
        return result if self._references is None else self._usage.counted_in(result)

    async def _ask_reference(self, ctx: RunContext) -> tuple[References, Usage]:
        kind = kind_of(ctx, "backend") or type(ctx.clients.policy).__name__
        with boundary("backend", kind, ctx.run_id):
            return await ask(ctx, self._training_pairs(ctx), self.config.batch_size)

    # --- what `evsys data preview` shows --------------------------------------------------------------------------

    def preview(
        self, rows: Iterable[ChatMessagesRow], renderer: Renderer, dropped: dict[str, int] | None = None
    ) -> Iterator[RenderedPair]:
        """Pairs as they would be trained: tokens with their weights, the chosen side first.

        Args:
            rows: typed rows.
            renderer: of the model.
            dropped: filled on the way with the reasons of pairs left out, and how often each was one.
        """
        yield from render_pairs(rows, renderer, self.config.max_length, {} if dropped is None else dropped)


DPOParams = DPO.Config

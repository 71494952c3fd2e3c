"""`algorithm.kind: sdft`: self-distillation. The student answers the plain question; its teacher is the same model,
shown a demonstration alongside the question, and judges each token of the student's answer.

So the model learns the content of the demonstration in its own words, on answers that it gives itself, which leaves
more of what it could do before than training on the demonstration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
from attrs import validators

from evsys import option
from evsys.optional import declared
from evsys.types import Message, TrainingBatch
from evsys_algo_distill.answers import Prompt
from evsys_algo_distill.distillation import Distillation
from evsys_algo_distill.params import COOKBOOK, DistillationParams
from evsys_runtime import Band
from evsys_runtime.accounting.metering import without_meter

if TYPE_CHECKING:
    from evsys.protocols import Renderer, SamplingClient
    from evsys.types import ForwardResult, PromptExample, RunContext
    from evsys_algo_distill.answers import Answer
    from evsys_runtime.training.starting_weights import StartingWeights

__all__ = ["SDFT", "SDFTParams"]

_SDFT = "Self-distillation fine-tuning, https://arxiv.org/abs/2601.19897"
_TEMPLATE = (
    "{question}\n\nHere is how an expert answered this:\n\n{demonstration}\n\n"
    "Now answer the question yourself, in your own words."
)


class SDFT(Distillation):
    """Self-distillation with a demonstration in the teacher's context."""

    @attrs.frozen(kw_only=True)
    class Config(DistillationParams):
        """Params of `sdft`."""

        lora_rank: int | None = option(
            64,
            "Rank of the trained matrices; null trains all weights, where the backend can.",
            ge=1,
            source=COOKBOOK,
        )
        teacher: str = attrs.field(
            default="base",
            validator=validators.in_(("base", "live", "ema")),
            metadata={
                "help": "Whose weights the teacher has: those that the run starts from, those of the step, or a running mean of "
                "them (`ema`).",
                "source": _SDFT,
                "requires": {"ema": "averaged_weights"},
            },
        )
        ema_alpha: float = option(
            0.01,
            "With `teacher: ema`, how much of the way to the weights of the step the running mean goes before each.",
            gt=0,
            le=1,
            source=_SDFT,
        )
        kl: str = option(
            "forward",
            "From teacher to student by the teacher's likeliest tokens, from student to teacher by the tokens that were said, or a "
            "mixture of both.",
            choices=("forward", "reverse", "mixed"),
            source=_SDFT,
        )
        topk: int = option(
            20,
            "How many of the teacher's likeliest tokens count; for forward and mixed.",
            ge=1,
            source=COOKBOOK,
        )
        forward_share: float = option(
            0.5, "Share of the forward divergence in mixed.", gt=0, lt=1, source=_SDFT
        )
        template: str = option(
            _TEMPLATE,
            "The message that replaces the last user message for the teacher: {question} is that message, {demonstration} the row's.",
        )

        def __attrs_post_init__(self) -> None:
            DistillationParams.__attrs_post_init__(self)
            if "{demonstration}" not in self.template:
                raise ValueError("template: it lacks {demonstration}")
            for name, used, where in (
                ("ema_alpha", self.teacher == "ema", "teacher: ema"),
                ("forward_share", self.kl == "mixed", "kl: mixed"),
                ("topk", self.kl != "reverse", "kl: forward or mixed"),
            ):
                if not used and getattr(self, name) != getattr(attrs.fields(type(self)), name).default:
                    raise ValueError(f"'{name}' is for {where}, and would be ignored")

    health: ClassVar[Mapping[str, Band]] = {
        **Distillation.health,
        "topk_missed_share": Band(
            None,
            0.5,
            "most of the student's tokens aren't among the teacher's likeliest tokens: raise topk, or look at the template",
            lasting=20,
        ),
    }

    preview_params: ClassVar[frozenset[str] | None] = frozenset({"max_length", "max_tokens", "template"})

    _base: StartingWeights | None = None

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        needed = "prompt_logprobs" if self.config.kl == "reverse" else "top_prompt_logprobs"
        self.requires = frozenset({needed})

    def prompt_of(self, row: PromptExample, renderer: Renderer) -> Prompt | str:
        """The question for the student, and the same with the demonstration for the teacher."""
        shown = _demonstration_text(row.demonstration)
        if not shown:
            return "without a demonstration"
        asked = [place for place, message in enumerate(row.prompt) if message.role == "user"]
        if not asked:
            return "without a user message, so the demonstration has no place"
        last = asked[-1]
        # One after the other: what is in a question is no place for the demonstration.
        parts = [part.replace("{demonstration}", shown) for part in self.config.template.split("{question}")]
        content = row.prompt[last].content.join(parts)
        taught = (
            *row.prompt[:last],
            attrs.evolve(row.prompt[last], content=content),
            *row.prompt[last + 1 :],
        )
        return Prompt(
            row_id=row.row_id,
            student=renderer.render_prompt(row.prompt, row.tools),
            teacher=renderer.render_prompt(taught, row.tools),
        )

    async def begin(self, ctx: RunContext) -> None:
        """Keep the starting weights, where they teach."""
        from evsys_runtime.training.starting_weights import StartingWeights

        self._base = await StartingWeights.of(ctx) if self.config.teacher == "base" else None

    async def end(self) -> None:
        """Let go of them."""
        base, self._base = self._base, None
        if base is not None:
            await base.close()

    def teacher_limit(self, ctx: RunContext) -> int | None:
        """One token is drawn where the likeliest are asked for, and there must be room for it."""
        limit = declared(ctx.clients.policy, "max_length")
        return None if limit is None else limit - int(self.config.kl != "reverse")

    async def learn(
        self, answers: Sequence[Answer], student: SamplingClient
    ) -> tuple[TrainingBatch, SamplingClient, int]:
        """The teacher's preferred tokens at each token of the answers."""
        if self.config.teacher == "ema":
            client: Any = without_meter(self.ctx.clients.policy)  # validation has seen that it can
            teacher = await client.averaged_sampling_client(self.config.ema_alpha)
            try:
                return await self._learn_from(teacher, answers)
            finally:
                await teacher.close()
        base = student if self._base is None else self._base.snapshot
        return await self._learn_from(base, answers)

    async def _learn_from(
        self, teacher: SamplingClient, answers: Sequence[Answer]
    ) -> tuple[TrainingBatch, SamplingClient, int]:
        from evsys_algo_distill.batches import policy_batch, reverse_kl, target_datum
        from evsys_algo_distill.losses import mixed_divergence
        from evsys_algo_distill.teaching import logprobs_of, opinions_of

        if self.config.kl == "reverse":
            told = await logprobs_of(teacher, answers)
            return policy_batch(answers, told), teacher, 0
        opinions, told = await opinions_of(teacher, answers, self.config.topk)
        count = sum(answer.trajectory.sampled for answer in answers)
        metrics = {
            "reverse_kl": reverse_kl(answers, told.logprobs),
            "topk_missed_share": sum(opinion.missed for opinion in opinions) / count,
            **told.metrics("teacher"),
        }
        mixed = self.config.kl == "mixed"
        batch = TrainingBatch(
            data=[
                target_datum(answer, opinion, count, mixed=mixed)
                for answer, opinion in zip(answers, opinions, strict=True)
            ],
            loss_fn=mixed_divergence if mixed else "cross_entropy",
            loss_params={"forward_share": self.config.forward_share} if mixed else {},
            metrics=metrics,
        )
        return batch, teacher, len(answers)

    def step_metrics(self, step_idx: int, batch: TrainingBatch, result: ForwardResult) -> Mapping[str, float]:
        """`forward_kl`: from the teacher's likeliest tokens to the student, nats per token."""
        import numpy as np

        if self.config.kl == "reverse":
            return {}
        total = 0.0
        count = sum(datum.meta["answer_tokens"] for datum in batch.data)
        for datum, values in zip(batch.data, result.logprobs, strict=True):
            weights, own = (
                np.asarray(datum.loss_inputs["weights"], np.float64),
                np.asarray(values, np.float64),
            )
            if self.config.kl == "mixed":
                weights, own = weights[:, 1:], own[:, 1:]
            active = weights != 0
            total += float(np.sum(weights[active] * (np.log(weights[active] * count) - own[active])))
        return {"forward_kl": total}


def _demonstration_text(messages: Sequence[Message]) -> str:
    """A demonstration as text: what was said, and each call of a tool as JSON."""
    parts: list[str] = []
    for message in messages:
        parts += [message.content] if message.content else []
        parts += [
            json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
            for call in message.tool_calls
        ]
    return "\n".join(parts)


SDFTParams = SDFT.Config

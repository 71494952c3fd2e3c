"""`algorithm.kind: opd`: on-policy distillation. The student answers, or acts in several turns, and learns from how likely its teacher
finds each token that it said.

The advantage of a token is `kl_coef (log teacher - log student)`, for this token alone: nothing is discounted to it from later ones. Its
mean under the student is minus the KL divergence from student to teacher, so the policy gradient lowers that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from evsys.optional import declared
from evsys_algo_distill.answers import Prompt
from evsys_algo_distill.distillation import Distillation
from evsys_algo_distill.params import OPDParams
from evsys_runtime import Band

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evsys.protocols import Renderer, SamplingClient
    from evsys.types import PromptExample, RunContext, TrainingBatch
    from evsys_algo_distill.answers import Answer, Answers
    from evsys_runtime.training.foreseen import Foreseen

__all__ = ["OPD"]

_SAME = 1e-3
"""Nats. One model's logprobs differ by less between sampling and computing, two models' by more at some token of a batch."""


class OPD(Distillation):
    """On-policy distillation from the run's `teacher`."""

    Config = OPDParams

    health: ClassVar[Mapping[str, Band]] = {
        **Distillation.health,
        "rejected_share": Band(None, 0.5, "most rollouts can't be learnt from: look at rejected/*"),
    }
    roles: Mapping[str, frozenset[str]] = {"teacher": frozenset({"prompt_logprobs"})}
    required_roles: ClassVar[frozenset[str]] = frozenset({"teacher"})
    preview_params: ClassVar[frozenset[str] | None] = frozenset({"max_length", "max_tokens", "rollouts"})

    _teacher: SamplingClient | None = None
    _compared: bool = False

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        if self.config.rollouts:
            self.shape = "task"  # type: ignore[misc]  # it is a class's as long as no param says otherwise
            self.preview = None  # type: ignore[method-assign, assignment]  # what is said is known when agents have acted

    @property
    def rows(self) -> int:
        """Prompts or tasks left to train on."""
        return len(self.ctx.data) if self.config.rollouts else super().rows

    def prompt_of(self, row: PromptExample, renderer: Renderer) -> Prompt | str:
        """Both read the same; a demonstration isn't used."""
        tokens = renderer.render_prompt(row.prompt, row.tools)
        return Prompt(row_id=row.row_id, student=tokens, teacher=tokens)

    async def begin(self, ctx: RunContext) -> None:
        """Take the teacher as it is.

        Raises:
            ConfigError: it has another tokenizer.
        """
        from evsys_runtime.training.roles import role_client

        self._teacher = await role_client(ctx, "teacher").sampling_client()
        self._compared = ctx.checkpoints.restored is not None  # later they may have become alike

    async def end(self) -> None:
        """Let go of it."""
        teacher, self._teacher = self._teacher, None
        if teacher is not None:
            await teacher.close()

    @property
    def answers_each(self) -> int:
        """A group of answers to each prompt."""
        return int(self.config.group_size)

    def teacher_limit(self, ctx: RunContext) -> int | None:
        """The teacher's own context counts as well."""
        limits = (self.longest_sequence(ctx), declared(ctx.clients.teacher, "max_length"))
        return min((limit for limit in limits if limit is not None), default=None)

    async def look_at_rows(self, ctx: RunContext) -> None:
        """Prompts are rendered; of tasks there must be enough."""
        from evsys_runtime.training.health import check_rows

        if not self.config.rollouts:
            await super().look_at_rows(ctx)
            return
        check_rows(self.rows, self.config.batch_size, {})

    def foreseen(self, step_idx: int) -> Foreseen | None:
        """As for prompts, or a step whose rollouts all say as much as they may."""
        from evsys_runtime.training.foreseen import foresee_rollouts

        config = self.config
        if not config.rollouts:
            return super().foreseen(step_idx)
        return foresee_rollouts(
            (self.ctx.data[row] for row in self.take_rows(step_idx)),
            self.ctx.clients.policy.renderer,
            config,
            count=config.group_size,
            max_tokens=config.max_tokens,
            limit=self.teacher_limit(self.ctx),
            readings=1,
        )

    async def answered(self, step_idx: int, student: SamplingClient) -> Answers:
        """The student's answers to the next prompts, or what it says in rollouts of the next tasks."""
        from evsys_algo_distill.rollouts import answers_in_turns

        if not self.config.rollouts:
            return await super().answered(step_idx, student)
        return await answers_in_turns(
            self.ctx,
            [self.ctx.data[row] for row in self.take_rows(step_idx)],
            self.config,
            student=student,
            step_idx=step_idx,
            max_length=self.teacher_limit(self.ctx),
            warn=self.warn,
        )

    async def learn(
        self, answers: Sequence[Answer], student: SamplingClient
    ) -> tuple[TrainingBatch, SamplingClient, int]:
        """The difference of logprobs as advantage, token by token."""
        from evsys_algo_distill.batches import policy_batch
        from evsys_algo_distill.teaching import logprobs_of

        teacher = self._teacher
        if teacher is None:
            raise RuntimeError("answers before `begin`")
        told = await logprobs_of(teacher, answers)
        self._warn_of_itself(answers, told.logprobs)
        return policy_batch(answers, told, self.config.kl_coef), teacher, 0

    def _warn_of_itself(self, answers: Sequence[Answer], thinks: Sequence[NDArray[np.float64]]) -> None:
        """Say so where the teacher has the very weights that the student begins with, mostly for want of a checkpoint."""
        if self._compared:
            return
        self._compared = True
        pairs = zip(answers, thinks, strict=True)
        if all(abs(answer.logprobs - theirs).max() < _SAME for answer, theirs in pairs):
            self.warn(
                "the teacher agrees with the student on every token, so there is nothing to learn from it: "
                "name a larger model, or `teacher.model.init_from_checkpoint`"
            )

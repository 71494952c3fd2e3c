"""`algorithm.kind: opd`: on-policy distillation. The student answers, and learns from how likely its teacher finds each token.

The advantage of a token is `kl_coef (log teacher - log student)`, for this token alone: nothing is discounted to it from later ones. Its
mean under the student is minus the KL divergence from student to teacher, so the policy gradient lowers that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import attrs

from evsys import option
from evsys.types import TrainingBatch
from evsys_algo_distill.distillation import Distillation, Prompt
from evsys_algo_distill.params import COOKBOOK, ON_POLICY, DistillationParams

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evsys.protocols import Renderer, SamplingClient
    from evsys.types import PromptExample, RunContext
    from evsys_algo_distill.answers import Answer

__all__ = ["OPD", "OPDParams"]

_SAME = 1e-3
"""Nats. One model's logprobs differ by less between sampling and computing, two models' by more at some token of a batch."""


class OPD(Distillation):
    """On-policy distillation from the run's `teacher`."""

    @attrs.frozen(kw_only=True)
    class Config(DistillationParams):
        """Params of `opd`."""

        group_size: int = option(4, "Answers to each prompt.", ge=1, source=COOKBOOK)
        kl_coef: float = option(
            1.0, "What the difference of logprobs is multiplied with.", gt=0, source=ON_POLICY
        )

    roles: Mapping[str, frozenset[str]] = {"teacher": frozenset({"prompt_logprobs"})}
    required_roles: ClassVar[frozenset[str]] = frozenset({"teacher"})

    _teacher: SamplingClient | None = None
    _compared: bool = False

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
        """The teacher's own context counts, too."""
        limits = (self.longest_sequence(ctx), getattr(ctx.clients.teacher, "max_length", None))
        return min((limit for limit in limits if limit is not None), default=None)

    async def learn(
        self, answers: Sequence[Answer], prompts: Sequence[Prompt], student: SamplingClient
    ) -> tuple[TrainingBatch, SamplingClient, int]:
        """The difference of logprobs as advantage, token by token."""
        from evsys_algo_distill.batches import policy_data, reverse_kl
        from evsys_algo_distill.teaching import logprobs_of

        teacher = self._teacher
        if teacher is None:
            raise RuntimeError("answers before `begin`")
        contexts = [prompts[answer.prompt].teacher for answer in answers]
        thinks = await logprobs_of(teacher, contexts, [answer.tokens for answer in answers])
        self._warn_of_itself(answers, thinks)
        batch = TrainingBatch(
            data=policy_data(answers, thinks, self.config.kl_coef),
            loss_fn="importance_sampling",
            metrics={"reverse_kl": reverse_kl(answers, thinks)},
        )
        return batch, teacher, 0

    def _warn_of_itself(self, answers: Sequence[Answer], thinks: Sequence[NDArray[np.float64]]) -> None:
        """Say so where the teacher has the very weights that the student begins with, mostly for want of a checkpoint."""
        if self._compared:
            return
        self._compared = True
        pairs = zip(answers, thinks, strict=True)
        if all(abs(answer.logprobs - theirs).max() < _SAME for answer, theirs in pairs):
            self.warn(
                "the teacher says of every token what the student says, so there is nothing to learn from it: "
                "name a larger model, or `teacher.model.init_from_checkpoint`"
            )


OPDParams = OPD.Config

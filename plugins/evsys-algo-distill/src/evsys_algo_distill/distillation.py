"""The base of `opd` and `sdft`: prompts are rendered when their turn comes; at each step the student answers some,
and a teacher judges every token of the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from evsys.errors import AlgorithmError
from evsys.types import TrainingBatch, Usage
from evsys_algo_distill.answers import Prompt
from evsys_algo_distill.params import DistillationParams
from evsys_runtime import Band, BaseAlgorithm
from evsys_runtime.accounting.metering import without_meter
from evsys_runtime.training.asking import priced_usage
from evsys_runtime.training.bands import STEEP
from evsys_runtime.training.retreat import OTHER_SAMPLES
from evsys_runtime.training.role_usage import RoleUsage
from evsys_runtime.training.sequences import DropReport

if TYPE_CHECKING:
    from evsys.protocols import Renderer, SamplingClient
    from evsys.types import PromptExample, RunContext, RunResult
    from evsys_algo_distill.answers import Answer, Answers
    from evsys_runtime.training.foreseen import Foreseen
    from evsys_runtime.training.trainable_rows import TrainableOrder, TrainableRows

__all__ = ["Distillation", "ShownPrompt"]


@attrs.frozen(kw_only=True)
class ShownPrompt:
    """A row as `evsys data preview` shows it: the student's prompt, then the teacher's where it is another. Nothing of them is trained."""

    row_id: str
    sequences: tuple[tuple[Sequence[int], Sequence[float]], ...]


class Distillation(BaseAlgorithm):
    """Base of both. A subclass says what the teacher reads (`prompt_of`), who it is (`begin`), and what is learnt (`learn`)."""

    Config = DistillationParams
    shape: ClassVar[str] = "prompt"
    health: ClassVar[Mapping[str, Band]] = {
        "empty_share": Band(
            None, 0.5, "most answers have no token: look at the prompts with `evsys data preview`"
        ),
        "grad_norm": STEEP,
    }
    conformance: ClassVar[Mapping[str, Any]] = {"params": {"max_tokens": 16}}

    _prompts: TrainableRows[Prompt, DropReport]
    _trainable: TrainableOrder | None = (
        None  # the order of the prompts; None where rows aren't rendered as prompts
    )
    _student_used: Usage  # what the student's answers took
    _teacher_used: RoleUsage

    # --- for subclasses -------------------------------------------------------------------------------------------

    def prompt_of(self, row: PromptExample, renderer: Renderer) -> Prompt | str:
        """A row's prompts, or why it is left out."""
        raise NotImplementedError

    async def begin(self, ctx: RunContext) -> None:
        """Make the teacher ready."""

    async def end(self) -> None:
        """Release it; also after a failure."""

    @property
    def answers_each(self) -> int:
        """How often each prompt is answered."""
        return 1

    def teacher_limit(self, ctx: RunContext) -> int | None:
        """The longest sequence in tokens that the teacher can read."""
        return self.longest_sequence(ctx)

    async def learn(
        self, answers: Sequence[Answer], student: SamplingClient
    ) -> tuple[TrainingBatch, SamplingClient, int]:
        """Learn from answers: returns a batch, the teachers, and how many tokens they sampled in addition to
        reading.

        Args:
            answers: of this step.
            student: the client that sampled them.
        """
        raise NotImplementedError

    async def look_at_rows(self, ctx: RunContext) -> None:
        """Render prompts, all or a sample of many, and drop those that can't be used."""
        renderer = ctx.clients.policy.renderer
        limits = self.longest_sequence(ctx), self.teacher_limit(ctx)

        def render(rows: Iterable[PromptExample], report: DropReport) -> Iterator[Prompt]:
            return self._usable(rows, renderer, limits, report.dropped)

        self._prompts, self._trainable = await self.trainable(ctx, render, "row")

    async def answered(self, step_idx: int, student: SamplingClient) -> Answers:
        """The student's answers to the next prompts.

        Raises:
            AlgorithmError: no answer has a token.
        """
        from evsys_algo_distill.answers import Answers, answers_to

        ctx, config = self.ctx, self.config
        prompts = [self._prompts[row] for row in self.take_rows(step_idx)]
        first = step_idx * config.batch_size + ctx.retreats * OTHER_SAMPLES
        answers, truncated = await answers_to(
            student,
            prompts,
            seeds=[ctx.seeds("answers", first + i) for i in range(len(prompts))],
            count=self.answers_each,
            max_tokens=config.max_tokens,
            stops=ctx.clients.policy.renderer.stop_token_ids,
        )
        asked = len(prompts) * self.answers_each
        if not answers:
            raise AlgorithmError(
                f"none of the {asked} answers of step {step_idx + 1} has a token",
                hint="the model ends each at once; look at its prompts with `evsys data preview`",
            )
        said = sum(answer.trajectory.sampled for answer in answers)
        return Answers(
            answers=answers,
            row_ids=tuple(prompt.row_id for prompt in prompts),
            used=priced_usage(student, sum(len(prompt.student) for prompt in prompts), said),
            metrics={
                "answers": float(len(answers)),
                "empty_share": 1.0 - len(answers) / asked,
                "answer_tokens_mean": said / len(answers),
                "truncated_share": truncated / len(answers),
            },
        )

    # --- what the loop calls --------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Prompts left to train on; of many an estimate, by the sample looked at."""
        return self._prompts.expected

    async def setup(self, ctx: RunContext) -> None:
        """Make the teacher ready, and look at the rows."""
        self.ctx = ctx
        self._student_used, self._teacher_used = Usage(), RoleUsage.of(ctx, "teacher")
        await self.begin(ctx)
        await self.look_at_rows(ctx)
        await super().setup(ctx)
        if self._trainable is not None:
            self.order = self._trainable

    def foreseen(self, step_idx: int) -> Foreseen | None:
        """A step whose answers are all as long as they may be. A teacher that is another model is counted as if it were the
        student.
        """
        from evsys_runtime.training.foreseen import foresee

        prompts = [self._prompts[row] for row in self.take_rows(step_idx)]
        return foresee(
            [prompt.student for prompt in prompts],
            count=self.answers_each,
            most=self.config.max_tokens,
            limit=self.longest_sequence(self.ctx),
            readings=1,
        )

    async def build_batch(self, step_idx: int) -> TrainingBatch:
        """The student's answers to the next rows, and what the teacher thinks of them.

        Raises:
            AlgorithmError: there is nothing to learn from.
        """
        ctx, config = self.ctx, self.config
        student = await without_meter(ctx.clients.policy).sampling_client()
        try:
            found = await self.answered(step_idx, student)
            ctx.heartbeat()
            batch, teacher, sampled = await self.learn(found.answers, student)
            judged = priced_usage(teacher, sum(answer.read for answer in found.answers), sampled)
            self._student_used += found.used
            self._teacher_used.add(judged, beside=None if found.charged else found.used)
        finally:
            await student.close()
        said = sum(answer.trajectory.sampled for answer in found.answers)
        batch.row_ids = found.row_ids
        batch.metrics |= {
            "epoch": step_idx * config.batch_size / self.rows,
            **found.metrics,
            # -log p of what was drawn from p is the entropy of p in the mean
            "entropy": -sum(float(answer.logprobs.sum()) for answer in found.answers) / said,
            "teacher_tokens": float(judged.tokens),
            **self._teacher_metrics(),
        }
        return batch

    async def train(self, ctx: RunContext) -> RunResult:
        """Train until done, or until someone asks for a stop."""
        try:
            result = await super().train(ctx)
        finally:
            await self.end()
        return self._teacher_used.counted_in(attrs.evolve(result, usage=result.usage + self._student_used))

    def _teacher_metrics(self) -> dict[str, float]:
        """The teacher's usage since the run began, as metrics."""
        used = self._teacher_used.used
        found = {"teacher_tokens_total": float(used.tokens)}
        return found if used.cost_usd is None else {**found, "teacher_cost_usd": used.cost_usd}

    def state(self) -> Mapping[str, Any]:
        """The usage so far, and the position in the order."""
        spending = {"student": attrs.asdict(self._student_used), "teacher": self._teacher_used.state()}
        return {"spending": spending, **({} if self._trainable is None else self._trainable.state())}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue counting."""
        if state:
            spent = state["spending"]
            self._student_used = Usage(**spent["student"])
            self._teacher_used.load(spent["teacher"])
            if self._trainable is not None:
                self._trainable.load_state(state)

    # --- rows -------------------------------------------------------------------------------------------------------

    def preview(
        self, rows: Iterable[PromptExample], renderer: Renderer, dropped: dict[str, int] | None = None
    ) -> Iterator[ShownPrompt]:
        """Rows as student and teacher read them.

        Args:
            rows: typed rows.
            renderer: of the model.
            dropped: filled on the way with the reasons of rows left out, and how often each was one.
        """
        limits = self.config.max_length, None
        for prompt in self._usable(rows, renderer, limits, {} if dropped is None else dropped):
            texts = [prompt.student] + [prompt.teacher] * (prompt.teacher != prompt.student)
            yield ShownPrompt(
                row_id=prompt.row_id, sequences=tuple((tokens, [0.0] * len(tokens)) for tokens in texts)
            )

    def _usable(
        self,
        rows: Iterable[PromptExample],
        renderer: Renderer,
        limits: tuple[int | None, int | None],
        dropped: dict[str, int],
    ) -> Iterator[Prompt]:
        for number, row in enumerate(rows):
            made = self.prompt_of(attrs.evolve(row, row_id=row.row_id or str(number)), renderer)
            reason = made if isinstance(made, str) else self._too_long(made, limits)
            if reason is not None:
                dropped[reason] = dropped.get(reason, 0) + 1
            elif isinstance(made, Prompt):
                yield made

    def _too_long(self, prompt: Prompt, limits: tuple[int | None, int | None]) -> str | None:
        """Why there is no room for an answer of `max_tokens`; None where there is."""
        sides = zip((prompt.student, prompt.teacher), limits, ("", "the teacher's "), strict=True)
        for tokens, limit, whose in sides:
            if limit is not None and len(tokens) + self.config.max_tokens > limit:
                return f"{whose}prompt and max_tokens are longer than {limit} tokens"
        return None

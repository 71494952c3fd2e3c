"""The verifier `llm_judge`: what another model makes of an answer, by a rubric."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from evsys import option
from evsys.errors import PLUGIN_FAILURES, StoreError
from evsys.optional import declared
from evsys_verifiers_std.configurable import Configured

if TYPE_CHECKING:
    from evsys.protocols import InferenceClient
    from evsys.types import Completion, Message, NoScore, Rollout, SamplingParams, Score, Usage
    from evsys_verifiers_std.judge_prompt import Question

__all__ = ["Client", "LlmJudge"]

_MOST_REASON = 2000
_MOST_REASONS = 5


@attrs.frozen(kw_only=True)
class Client:
    """The inference client of the judging model."""

    kind: str = option(..., "Name of the inference client.", min_len=1)
    params: Mapping[str, Any] = option(attrs.Factory(dict), "Its params.")


@attrs.frozen(kw_only=True)
class LlmJudgeParams:
    """Who judges, and by what."""

    rubric: str = option(..., "The rubric: a description of a good answer and of deductions.", min_len=1)
    inference: Client = option(..., "The judging model: an inference client as `{kind, params}`.")
    lowest: float = option(0.0, "The worst score of the rubric; it is a reward of 0.")
    highest: float = option(10.0, "The best score of the rubric; it is a reward of 1.")
    votes: int = option(1, "How often the model is asked about one answer.", ge=1, le=99)
    combine: str = option(
        "median",
        "How to combine several votes. `majority` is the score given by more than half; without one there is no score.",
        choices=("median", "majority", "mean"),
    )
    temperature: float | None = option(
        None, "Of the judging model; by default 0 for one vote, 1 for several.", ge=0
    )
    max_tokens: int = option(1024, "Longest verdict.", ge=1)
    timeout_seconds: float = option(300.0, "Longest time of all votes together.", gt=0, le=590)
    show_task: bool = option(True, "Show the judge what the model was asked.")
    show_expected: bool = option(
        True, "Show the judge what the task expects, as a reference, where it expects something."
    )
    cache: bool = option(True, "Keep verdicts in the user's cache, and don't pay for the same one again.")

    def __attrs_post_init__(self) -> None:
        if not (math.isfinite(self.lowest) and math.isfinite(self.highest) and self.lowest < self.highest):
            raise ValueError(f"lowest {self.lowest:g} must be below highest {self.highest:g}, both finite")
        if not self.rubric.strip():
            raise ValueError("rubric is empty, and a judge without one measures nothing")
        if self.votes > 1 and self.temperature == 0:
            raise ValueError("votes at temperature 0 are all the same; leave temperature out, or ask once")


@attrs.frozen(kw_only=True)
class _Vote:
    """The result of asking once: a score, or why there is none."""

    score: float | None = None
    line: str = ""
    said: str = ""
    failure: str | None = None
    usage: Usage | None = None
    cached: bool = False
    cache_error: str | None = None


class LlmJudge(Configured):
    """A model's score of the answer by a rubric, from 0 to 1. Several votes are joined to one.

    What judging took is in the `usage` of the score, apart from the model's own. If the judge fails, or more than
    half of its votes can't be read, there is no score. Clients are those of the current registry when this one is
    made.
    """

    name: ClassVar[str] = "llm_judge"
    deterministic: ClassVar[bool] = False
    free: ClassVar[bool] = False
    conformance: ClassVar[Mapping[str, Any]] = {
        "params": {
            "rubric": "10 for a greeting, 0 for anything else.",
            "inference": {
                "kind": "openai_compatible",
                "params": {"model": "judge", "base_url": "http://127.0.0.1:9/v1", "max_retries": 0},
            },
            "cache": False,
        },
        "service": True,
    }
    Config = LlmJudgeParams

    def __init__(self, **fields: Any) -> None:
        from evsys import current_registry

        super().__init__(**fields)
        given = self.config.inference
        self._client: InferenceClient = current_registry().build(
            "inference_client", given.kind, dict(given.params), path="$.inference.params"
        )
        self.warnings = tuple(declared(self._client, "warnings", ()))

    async def __call__(
        self, model_output: str, expected: Any, params: Mapping[str, Any], rollout: Rollout | None = None
    ) -> Score | NoScore:
        """Ask the judge about `model_output`. `params` are those that this was made from."""
        from evsys_verifiers_std.judge_prompt import Question, conversation

        config: LlmJudgeParams = self.config
        task = conversation(rollout.messages) if config.show_task and rollout is not None else None
        question = Question(
            rubric=config.rubric,
            answer=_whole(model_output),
            task=task and _whole(task),
            reference=_reference(expected) if config.show_expected else None,
            lowest=config.lowest,
            highest=config.highest,
        )
        return self._joined(await self._votes(question))

    async def _votes(self, question: Question) -> list[_Vote]:
        """All votes, asked for at once. A late one is a vote without a score, and of unknown cost."""
        import asyncio  # here, so that `evsys validate` doesn't wait for it

        from evsys.types import Usage

        messages = question.messages()
        tasks = [asyncio.create_task(self._vote(messages, index)) for index in range(self.config.votes)]
        try:
            await asyncio.wait(tasks, timeout=self.config.timeout_seconds)
        finally:
            late = [task for task in tasks if not task.done()]
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        missing = _Vote(
            failure=f"no verdict within {self.config.timeout_seconds:g} s", usage=Usage(unpriced=1)
        )
        return [missing if task.cancelled() else task.result() for task in tasks]

    async def _vote(self, messages: Sequence[Message], index: int) -> _Vote:
        key = self._key(messages, index)
        sampling = self._sampling(key)
        kept = self._cached_verdict(key)
        if kept is not None:
            return self._read(kept, None, cached=True)
        try:
            completions = await self._client.generate(messages, sampling)
            return self._new_verdict(key, completions[0])
        except PLUGIN_FAILURES as exc:
            return _Vote(failure=f"the judge failed: {type(exc).__name__}: {exc}")

    def _new_verdict(self, key: str, completion: Completion) -> _Vote:
        """A fresh verdict; one that can be read is kept."""
        from evsys_runtime.accounting.usage import usage_of
        from evsys_verifiers_std.judge_cache import JudgeCache

        usage = usage_of(completion)
        if completion.finish_reason == "length":  # the last digits of its score may be missing
            return _Vote(
                failure=f"the verdict was cut off after {self.config.max_tokens} tokens", usage=usage
            )
        vote = self._read(completion.message.content, usage)
        if not self.config.cache or vote.score is None:
            return vote
        try:
            JudgeCache().put(key, vote.said, {"model": self._facts(), "usage": attrs.asdict(usage)})
        except StoreError as exc:
            return attrs.evolve(vote, cache_error=exc.message)
        return vote

    def _read(self, said: str, usage: Usage | None, *, cached: bool = False) -> _Vote:
        from evsys_verifiers_std.judge_prompt import UnreadableVerdictError, read_score

        try:
            score, line = read_score(said, lowest=self.config.lowest, highest=self.config.highest)
        except UnreadableVerdictError as exc:
            return _Vote(said=said, failure=str(exc), usage=usage, cached=cached)
        return _Vote(score=score, line=line, said=said, usage=usage, cached=cached)

    def _cached_verdict(self, key: str) -> str | None:
        from evsys_verifiers_std.judge_cache import JudgeCache

        return JudgeCache().get(key) if self.config.cache else None

    def _key(self, messages: Sequence[Message], index: int) -> str:
        """Of everything that a verdict depends on."""
        from evsys_record.hashing import digest

        config: LlmJudgeParams = self.config
        said = [[message.role, message.content] for message in messages]
        return digest([config.inference, config.max_tokens, self._temperature, said, index])

    def _sampling(self, key: str) -> SamplingParams:
        from evsys.types import SamplingParams

        seed = int(key.removeprefix("sha256:")[:8], 16) >> 1
        return SamplingParams(max_tokens=self.config.max_tokens, temperature=self._temperature, seed=seed)

    @property
    def _temperature(self) -> float:
        chosen: float | None = self.config.temperature
        return chosen if chosen is not None else float(self.config.votes > 1)

    def _facts(self) -> str:
        given: Client = self.config.inference
        return str(given.params.get("model", given.kind))

    def _joined(self, votes: Sequence[_Vote]) -> Score | NoScore:
        from evsys.types import NoScore, Score, Usage

        used = [vote.usage for vote in votes if vote.usage is not None]
        usage = sum(used, Usage()) if used else None
        scores = [vote.score for vote in votes if vote.score is not None]
        failures = [vote.failure for vote in votes if vote.failure is not None]
        if 2 * len(scores) <= len(votes):
            told = "; ".join(f"{count} x {why}" for why, count in Counter(failures).most_common(3))
            return NoScore(
                reason=f"{len(failures)} of {len(votes)} votes can't be used: {told}",
                retryable=True,
                usage=usage,
            )
        joined = _join(self.config.combine, scores, len(votes))
        if joined is None:
            shown = ", ".join(f"{score:g}" for score in sorted(scores))
            return NoScore(reason=f"no score has a majority of {len(votes)} votes: {shown}", usage=usage)
        low, high = self.config.lowest, self.config.highest
        spread = {"spread": (max(scores) - min(scores)) / (high - low)} if len(votes) > 1 else {}
        return Score(
            value=min(1.0, max(0.0, (joined - low) / (high - low))),
            components=spread,
            metadata=self._details(votes, failures),
            usage=usage,
        )

    def _details(self, votes: Sequence[_Vote], failures: Sequence[str]) -> dict[str, Any]:
        cached = sum(vote.cached for vote in votes)
        cache_errors = [vote.cache_error for vote in votes if vote.cache_error is not None]
        return {
            "judge": self._facts(),
            "votes": [vote.score for vote in votes],
            "score_lines": [vote.line for vote in votes if vote.score is not None][:_MOST_REASONS],
            "reasons": [vote.said[-_MOST_REASON:] for vote in votes if vote.score is not None][
                :_MOST_REASONS
            ],
            **({"cached": cached} if cached else {}),
            **({"failures": list(failures)[:_MOST_REASONS]} if failures else {}),
            **({"cache_error": cache_errors[0]} if cache_errors else {}),
        }


def _join(how: str, scores: Sequence[float], asked: int) -> float | None:
    """One score of several; None where no majority of all requests agrees."""
    if how == "mean":
        return statistics.fmean(scores)
    if how == "median":
        return float(statistics.median(scores))
    [(score, count)] = Counter(scores).most_common(1)
    return score if 2 * count > asked else None


def _reference(expected: Any) -> str | None:
    if expected is None:
        return None
    return _whole(
        expected if isinstance(expected, str) else json.dumps(expected, ensure_ascii=False, default=repr)
    )


def _whole(text: str) -> str:
    """A text that can be sent: halves of surrogate pairs, which a model may write, can't."""
    return text.encode("utf-8", "replace").decode("utf-8")

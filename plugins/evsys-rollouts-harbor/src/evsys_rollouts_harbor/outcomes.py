"""From a trial's result to a rollout. Failures are read from the exceptions that Harbor recorded, never from the
reward alone: Harbor grades an agent that crashed, and calls its reward valid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs

from evsys.types import NoScore, Rollout, Score
from evsys_rollouts_harbor.live import LiveRollout

__all__ = [
    "RETRIED",
    "EvsysAgentError",
    "EvsysNoScoreError",
    "EvsysPassingError",
    "exceptions_of",
    "is_kept",
    "reward_of",
    "with_escaped",
    "with_result",
]


class EvsysAgentError(Exception):
    """The policy's agent failed. Harbor knows exceptions by the names of their classes, so these are named after evsys."""


class EvsysNoScoreError(Exception):
    """The policy's verifier gave no score."""


class EvsysPassingError(Exception):
    """The policy's agent or verifier failed for a reason that may pass."""


_OURS = frozenset(cls.__name__ for cls in (EvsysAgentError, EvsysNoScoreError, EvsysPassingError))

_ENVIRONMENT = frozenset(
    "AddTestsDirError AgentSetupTimeoutError DownloadVerifierDirError EnvironmentStartTimeoutError GKEExecStreamClosedError "
    "GKEPodNotFoundError HealthcheckError MemoryLimitExceededError RuntimeRequestError SSHAccessError "
    "SandboxBuildFailedError SandboxLikelyOutOfMemoryError ServiceOperationsUnsupportedError".split()
)
_SERVICE = frozenset(
    "APIConnectionError APIError ApiConnectionClosedError ApiConnectionError ApiError ApiInternalServerError "
    "ApiOverloadedError ApiRateLimitError ApiResponseStalledError InternalServerError NetworkConnectionError RateLimitError "
    "ServiceUnavailableError Timeout UnknownApiError".split()
)
_VERIFIER = frozenset(
    "RewardFileEmptyError RewardFileNotFoundError VerifierOutputParseError VerifierTimeoutError".split()
)
_OVERFLOW = frozenset(
    "ContextLengthExceededError ContextWindowExceededError OutputLengthExceededError OutputTokenExceededError".split()
)
_TIMEOUT = "AgentTimeoutError"
_KEPT = frozenset({_TIMEOUT, *_OVERFLOW, "AgentSafetyRefusalError", "ContentPolicyViolationError"})
"""Ends of a trial that are the policy's own and are judged like any other end."""

RETRIED = frozenset(
    {EvsysPassingError.__name__, *_ENVIRONMENT, *_SERVICE} - {"ServiceOperationsUnsupportedError"}
)
"""Retried failures: of places and services that may recover. By default Harbor retries every exception unknown to
it.
"""


def exceptions_of(result: Any) -> list[Any]:
    """The exceptions of a trial, then those of its steps. One that came after the verdict, as when a sandbox can't be removed,
    is none of the rollout's.
    """
    steps = result.step_results or []
    verdicts = [phase.finished_at for phase in (result.verifier, *(step.verifier for step in steps)) if phase]
    judged_at = max((_seconds(moment) for moment in verdicts if moment is not None), default=math.inf)
    last = result.exception_info
    if last is not None and result.verifier_result is not None and _seconds(last.occurred_at) >= judged_at:
        last = None
    return [exc for exc in (last, *(step.exception_info for step in steps)) if exc is not None]


def _seconds(moment: Any) -> float:
    return float(moment.timestamp())


def is_kept(result: Any) -> bool:
    """True where nothing happened that leaves the rollout without a score."""
    return all(exc.exception_type in _KEPT or exc.exception_type in _OURS for exc in exceptions_of(result))


def with_escaped(live: LiveRollout, failure: BaseException) -> Rollout:
    """The rollout of a trial that couldn't be made: its settings, its task or this machine are at fault."""
    error = f"{type(failure).__name__}: {failure}"
    passing = isinstance(failure, OSError) and not isinstance(failure, FileNotFoundError)
    score = NoScore(reason=error, boundary="environment", retryable=passing)
    return attrs.evolve(live.rollout(), error=error, score=score)


def with_result(live: LiveRollout, result: Any) -> Rollout:
    """The rollout of a trial that ended."""
    rollout = live.rollout()
    others = [exc for exc in exceptions_of(result) if exc.exception_type not in _OURS]
    names = [exc.exception_type for exc in others]
    rollout = attrs.evolve(rollout, truncated=rollout.truncated or not _OVERFLOW.isdisjoint(names))
    fault = next((exc for exc in others if exc.exception_type not in _KEPT), None)
    if fault is not None:
        error = _error_text(fault)
        score = NoScore(
            reason=error,
            boundary=_boundary(fault.exception_type, result),
            retryable=fault.exception_type in RETRIED,
        )
        # A verifier's failure is not a fault of the rollout: the agent has done what it could.
        return attrs.evolve(rollout, score=score, error=None if score.boundary == "verifier" else error)
    if rollout.error is not None:
        # Tests judge what an agent did, not what it said; so one that ran out of time in silence may have passed.
        failed = any(acted.failure is not None for acted in live.acted)
        if failed or not (rollout.timed_out and not live.own_verifier):
            return rollout
        rollout = attrs.evolve(rollout, error=None)
    told = next((_error_text(exc) for exc in others if exc.exception_type != _TIMEOUT), None)
    return attrs.evolve(rollout, score=_score(live, result), error=told)


def _score(live: LiveRollout, result: Any) -> Score | NoScore:
    """The verdict of the policy's verifier on the only step, or the reward that Harbor has for all of them."""
    if live.score is not None and not result.step_results:
        return live.score
    missing = next(
        (exc for exc in exceptions_of(result) if exc.exception_type in _OURS - {EvsysAgentError.__name__}),
        None,
    )
    if missing is not None:
        reason = missing.exception_message
        return NoScore(reason=reason, boundary="verifier", retryable=missing.exception_type in RETRIED)
    rewards = result.verifier_result.rewards if result.verifier_result is not None else None
    return reward_of(rewards or {})


def reward_of(rewards: Mapping[str, float]) -> Score | NoScore:
    """The score that a mapping of named rewards is: the one called `reward`, or the only one."""
    if not rewards:
        return NoScore(reason="the tests left no reward", boundary="verifier")
    if "reward" not in rewards and len(rewards) > 1:
        names = ", ".join(sorted(rewards))
        return NoScore(reason=f"of the rewards {names} none is called 'reward'", boundary="verifier")
    value = rewards["reward"] if "reward" in rewards else next(iter(rewards.values()))
    wrong = {name: number for name, number in rewards.items() if not math.isfinite(number)}
    if wrong:
        return NoScore(reason=f"rewards that are not finite numbers: {wrong}", boundary="verifier")
    components = {name: float(number) for name, number in rewards.items() if name != "reward"}
    return Score(value=float(value), components=components if "reward" in rewards else {})


def _error_text(exc: Any) -> str:
    return f"{exc.exception_type}: {exc.exception_message}".removesuffix(": ")


def _boundary(name: str, result: Any) -> str:
    """The boundary at which a trial failed, by the exception's name, else by its progress."""
    if name in _ENVIRONMENT:
        return "environment"
    if name in _VERIFIER:
        return "verifier"
    if name in _SERVICE:
        return "backend"
    steps = result.step_results or []
    if result.verifier is not None or any(step.verifier is not None for step in steps):
        return "verifier" if not _agent_failed(result) else "rollout"
    acted = result.agent_execution is not None or any(step.agent_execution is not None for step in steps)
    return "rollout" if acted else "environment"


def _agent_failed(result: Any) -> bool:
    """True where the first exception came before the verifier was asked."""
    verdicts = [result.verifier, *(step.verifier for step in result.step_results or [])]
    begun = [_seconds(v.started_at) for v in verdicts if v is not None and v.started_at is not None]
    first = min((_seconds(exc.occurred_at) for exc in exceptions_of(result)), default=math.inf)
    return bool(begun) and first < min(begun)

"""From a finished rollout to its score: the one place where verifiers are called.

A verifier's failure is a `NoScore` of the boundary "verifier", never a reward of 0: an exception, a result that is
not a finite number, a deadline passed. A rollout that crashed isn't judged at all.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import PLUGIN_FAILURES, ConfigError, EvsysError, PluginContractError, PluginError
from evsys.optional import declared
from evsys.types import HarborTask, NoScore, Rollout, Score, VerifierSpec
from evsys_runtime.background import in_background
from evsys_runtime.cancelling import own_task_cancelled
from evsys_runtime.config.building import verifier_params
from evsys_stats.ranges import Range, declared_range, range_of

if TYPE_CHECKING:
    from evsys import Registry
    from evsys.types import Verify

__all__ = [
    "BoundVerifier",
    "VerifierKey",
    "Verifiers",
    "bind_verifier",
    "bound_verifiers",
    "make_verify",
    "to_score",
    "unjudgeable",
    "verifier_key",
]

type VerifierKey = tuple[str, str]
"""The result of `verifier_key` for a verifier's spec."""

TIMEOUT_SECONDS = 600.0


@attrs.frozen(kw_only=True)
class BoundVerifier:
    """A verifier with its params.

    `wants_rollout`: it has an argument named `rollout`. `blocking`: it declares that a call takes long, and is called in
    a thread. `reward_range`: between which rewards it says to stay. `uses`: names of other verifiers that it calls.
    """

    name: str
    call: Callable[..., Any]
    params: Mapping[str, Any] = attrs.field(factory=dict)
    wants_rollout: bool = False
    blocking: bool = False
    reward_range: Range | None = None
    uses: tuple[str, ...] = ()

    def check(self, expected: Any) -> None:
        """Let the verifier refuse an expectation that it can't judge by, if it has a `check`.

        Raises:
            ValueError: says what is wrong.
        """
        own = getattr(self.call, "check", None)
        if callable(own):
            own(expected)

    def is_free(self, registry: Registry) -> bool:
        """False for a verifier that declares `free = False`, or calls one that does: a judge paid for."""
        if not declared(self.call, "free", True):
            return False
        try:
            return all(declared(registry.get("verifier", name), "free", True) for name in self.uses)
        except PluginError:  # it can't be looked up by this name, so neither can what it costs
            return False

    async def judge(self, expected: Any, rollout: Rollout) -> Any:
        """Call the verifier and wait for what it says; its exceptions pass through."""
        further = {"rollout": rollout} if self.wants_rollout else {}
        if self.blocking:
            said = await in_background(self.call, rollout.output, expected, self.params, **further)
        else:
            said = self.call(rollout.output, expected, self.params, **further)
        return await said if inspect.isawaitable(said) else said


def bind_verifier(spec: VerifierSpec, registry: Registry, *, path: str = "$") -> BoundVerifier:
    """Look a verifier up and give it its params.

    A class with a `Config` is built as `Plugin(**params)`, one without as `Plugin()`; both are then called, like plain
    functions, with `(model_output, expected, params)` and, where they name it, `rollout`.

    Args:
        spec: the verifier of a task.
        registry: where it is looked up.
        path: the place of `spec` in its file, under which problems are reported.

    Raises:
        ConfigError: wrong params.
        PluginError: no such verifier, or it can't be loaded or called.
    """
    params = verifier_params(registry, spec.name, spec.params)
    call = registry.build("verifier", spec.name, params, path=f"{path}.params")
    try:
        arguments = inspect.signature(call).parameters
    except (TypeError, ValueError) as exc:
        raise PluginContractError(f"verifier {spec.name!r} can't be called: {exc}") from exc
    return BoundVerifier(
        name=spec.name,
        call=call,
        params=spec.params,
        wants_rollout="rollout" in arguments,
        blocking=bool(declared(call, "blocking", False)),
        reward_range=range_of(declared_range(call, spec.name, "reward_range"), None),
        uses=tuple(declared(call, "uses", ())),
    )


type Verifiers = Mapping[VerifierKey, BoundVerifier | EvsysError]
"""The verifiers of tasks; an error is why one can't be used."""


def verifier_key(spec: VerifierSpec) -> VerifierKey:
    """The same for specs that one bound verifier serves: of one name and one set of params."""
    return spec.name, json.dumps(spec.params, sort_keys=True, default=repr) if spec.params else ""


def bound_verifiers(tasks: Iterable[HarborTask], registry: Registry) -> Verifiers:
    """Each verifier that tasks name, made once for each set of params."""
    bound: dict[VerifierKey, BoundVerifier | EvsysError] = {}
    for task in tasks:
        if task.verifier is None or (key := verifier_key(task.verifier)) in bound:
            continue
        try:
            bound[key] = bind_verifier(task.verifier, registry, path="verifier")
        except (ConfigError, PluginError) as exc:
            bound[key] = exc
    return bound


def unjudgeable(task: HarborTask, verifiers: Verifiers) -> str | None:
    """Why a task's verifier can't judge it; None where it can, or where the task's folder brings its own tests."""
    if task.verifier is None:
        return None if task.path is not None else "it has no verifier"
    verifier = verifiers[verifier_key(task.verifier)]
    if isinstance(verifier, EvsysError):
        return str(verifier)
    try:
        verifier.check(task.verifier.expected)
    except PLUGIN_FAILURES as exc:
        return f"verifier {verifier.name!r}: {exc}"
    return None


def make_verify(registry: Registry, *, timeout_seconds: float = TIMEOUT_SECONDS) -> Verify:
    """The `Verify` of a run: judges finished rollouts by the verifiers that their tasks name, and never raises.

    Each verifier is looked up and built once for each set of params.

    Args:
        registry: where verifiers are looked up.
        timeout_seconds: longest time of one verdict. A plain function that blocks can't be interrupted.
    """
    bound: dict[VerifierKey, BoundVerifier] = {}

    def of(spec: VerifierSpec) -> BoundVerifier:
        key = verifier_key(spec)
        if key not in bound:
            bound[key] = bind_verifier(spec, registry)
        return bound[key]

    async def verify(task: HarborTask, rollout: Rollout) -> Score | NoScore:
        if rollout.error is not None:
            told = isinstance(rollout.score, NoScore) and rollout.score.boundary is not None
            return rollout.score if told else _absent(rollout.error, "rollout")
        if task.verifier is None:
            return _absent(f"task {task.task_id!r} has no verifier", "verifier")
        spec = task.verifier
        deadline = asyncio.timeout(timeout_seconds)
        try:
            async with deadline:
                said = await of(spec).judge(spec.expected, rollout)
        except asyncio.CancelledError:
            if own_task_cancelled():
                raise
            return _absent(f"verifier {spec.name!r}: it raised CancelledError by itself", "verifier")
        except PLUGIN_FAILURES as exc:
            reason = f"no verdict within {timeout_seconds:g} s" if deadline.expired() else _error_text(exc)
            return _absent(f"verifier {spec.name!r}: {reason}", "verifier", retryable=_passing(exc))
        return to_score(said, spec.name)

    return verify


def to_score(said: Any, verifier: str) -> Score | NoScore:
    """The result of a verifier, as a finite `Score` or a `NoScore`."""
    if isinstance(said, NoScore):
        return said if said.boundary is not None else attrs.evolve(said, boundary="verifier")
    score = said if isinstance(said, Score) else _as_score(said)
    if score is None:
        return _absent(
            f"verifier {verifier!r} returned {_short(said)}, not a number, Score or NoScore", "verifier"
        )
    for name, value in (("value", score.value), *score.components.items()):
        number = _number(value)
        if number is None or not math.isfinite(number):
            reason = f"verifier {verifier!r} gave {name} {_short(value)}, no finite number"
            return attrs.evolve(_absent(reason, "verifier"), usage=score.usage)
    return score if type(score.value) is float else attrs.evolve(score, value=float(score.value))


def _as_score(said: Any) -> Score | None:
    number = _number(said)
    return None if number is None else Score(value=number)


def _number(value: Any) -> float | None:
    """A real number of any library as a float; texts and arrays of several are none."""
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _absent(reason: str, where: str, *, retryable: bool = False) -> NoScore:
    return NoScore(reason=reason, boundary=where, retryable=retryable)


def _error_text(exc: BaseException) -> str:
    return str(exc) if isinstance(exc, EvsysError) else f"{type(exc).__name__}: {exc}"


def _passing(exc: BaseException) -> bool:
    """True for what may pass: the network, a service, a full machine. A wrong plugin stays wrong."""
    return isinstance(exc, OSError) and not isinstance(exc, EvsysError)


def _short(value: Any) -> str:
    """A value in a message; an object by its class, since its address would make each message another."""
    text = repr(value)
    if " at 0x" in text:
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."

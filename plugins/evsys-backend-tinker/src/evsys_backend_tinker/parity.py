"""The comparison of trials: a backend compared with itself, and with another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import attrs
import numpy as np

from evsys_backend_tinker.trial import Trial

__all__ = ["Finding", "beside", "by_itself"]

Outcome = Literal["ok", "differs", "lacks"]


@attrs.frozen(kw_only=True)
class Finding:
    """One thing looked at: how it came out, by how much at most, and what is to be said of it."""

    what: str
    outcome: Outcome
    difference: float | None = None
    note: str = ""


def by_itself(trial: Trial, tolerance: float) -> Iterator[Finding]:
    """Does a backend agree with itself: sampler and trainer, states before and after, its losses and their formulas?

    Args:
        trial: what it gave.
        tolerance: largest difference of a logprob, or of a loss in nats, that is taken for rounding.
    """
    last = trial.trained[-1]
    yield _close(
        "training lowers the loss",
        None,
        trial.losses[-1] < trial.losses[0],
        f"{trial.losses[0]:.4f} to {trial.losses[-1]:.4f}",
    )
    yield _near("sampler and trainer give the same logprobs", trial.sampler, last[: trial.first], tolerance)
    if trial.prompt is None:
        yield Finding(what="logprobs of a prompt", outcome="ok")
    else:
        yield Finding(what="logprobs of a prompt", outcome="lacks", note=trial.prompt)
    yield _close("a seed repeats a sample", None, trial.repeats, "")
    yield _near("a state restores the weights", trial.restored[0], last, tolerance)
    yield _optimiser(trial, tolerance)
    for name, pair in trial.own_losses.items():
        if pair is None:
            yield Finding(what=f"loss {name}", outcome="lacks", note=trial.refused[name])
        else:
            yield _near(f"loss {name}", [pair[0]], [pair[1]], tolerance)


def beside(trial: Trial, other: Trial, tolerance: float) -> Iterator[Finding]:
    """Do two backends agree? New adapters change nothing, so untrained models are the same for any first weights of
    adapters.
    """
    yield _near("untrained logprobs", trial.untrained, other.untrained, tolerance)
    yield _near("the first loss", trial.losses[:1], other.losses[:1], tolerance)
    yield _near("logprobs after one step", trial.trained[0], other.trained[0], tolerance)
    yield _near("the later losses", trial.losses[1:], other.losses[1:], tolerance)
    yield _near("logprobs after a state was restored", trial.restored[0], other.restored[0], tolerance)
    yield _near("logprobs after one more step", trial.restored[1], other.restored[1], tolerance)


def _optimiser(trial: Trial, tolerance: float) -> Finding:
    """A step after restoring is the step that would have come, and not the step of an optimiser that knows nothing."""
    what = "a state restores the optimiser"
    to_onward, to_cold = (_distance(trial.restored[1], one) for one in (trial.onward, trial.cold))
    if _distance(trial.onward, trial.cold) <= 1e-6:
        return Finding(what=what, outcome="ok", difference=to_onward, note="it makes no difference here")
    if to_onward <= min(tolerance, to_cold):
        return Finding(what=what, outcome="ok", difference=to_onward)
    note = "the step is that of a cold optimiser" if to_cold < to_onward else "the step is another one"
    return Finding(what=what, outcome="differs", difference=to_onward, note=note)


def _close(what: str, difference: float | None, fine: bool, note: str) -> Finding:
    return Finding(what=what, outcome="ok" if fine else "differs", difference=difference, note=note)


def _near(what: str, one: Sequence[float], other: Sequence[float], tolerance: float) -> Finding:
    if len(one) != len(other):
        return Finding(
            what=what,
            outcome="differs",
            note=f"{len(one)} values against {len(other)}: is it the same tokenizer?",
        )
    distance = _distance(one, other)
    return _close(what, distance, distance <= tolerance, "")


def _distance(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest difference; infinite where one of them is not a number."""
    worst = float(np.max(np.abs(np.array(one) - np.array(other)), initial=0.0))
    return float("inf") if np.isnan(worst) else worst

"""Settings that can't take effect, since the training is over before they would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from evsys.optional import declared
from evsys_runtime.config.budgeting import known_steps
from evsys_runtime.config.model import BenchmarkConfig, RunConfig

__all__ = ["ineffective_settings"]


def ineffective_settings(
    arms: Sequence[tuple[str, RunConfig]], entries: Sequence[BenchmarkConfig], callbacks: Sequence[Any]
) -> Iterator[str]:
    """A warning for each setting that no arm is long enough for; arms whose length depends on their rows are left out.

    Args:
        arms: by name.
        entries: the benchmark entries.
        callbacks: built. One that judges numbers says which by `monitored`, and by `judgements` how many it needs until it
            acts, as `early_stopping` does.
    """
    known = [(steps, name, run) for name, run in arms if (steps := known_steps(run)) is not None]
    for steps, name, run in known:
        yield from _warm_up(name, steps, run.algorithm.params.get("warmup_steps"))
    for name, run in arms:
        params = run.algorithm.params
        if params.get("schedule_steps") is not None and params.get("lr_schedule") == "constant":
            yield f"arm {name!r} has schedule_steps and a constant learning rate, which no step changes; leave one out"
    if not known or len(known) < len(arms):
        return
    longest = max(steps for steps, _, _ in known)
    for entry in entries:
        if entry.run_every is not None and entry.run_every > longest:
            yield (
                f"{entry.label!r} is scored every {entry.run_every} steps, and training has at most {longest}, so it isn't "
                "scored while training; lower run_every"
            )
    for callback in callbacks:
        yield from _judgements(callback, entries, longest)


def _warm_up(name: str, steps: int, warm_up: Any) -> Iterator[str]:
    if isinstance(warm_up, int) and warm_up >= steps:
        yield (
            f"arm {name!r} warms up for {warm_up} of its {steps} steps, so the learning rate never is what learning_rate says "
            f"(at most {steps / (warm_up or 1):.0%} of it); lower warmup_steps"
        )


def _judgements(callback: Any, entries: Sequence[BenchmarkConfig], steps: int) -> Iterator[str]:
    needed = declared(callback, "judgements")
    if needed is None:
        return
    for name in declared(callback, "monitored", ()):
        entry = next((entry for entry in entries if name.startswith(f"{entry.label}.")), None)
        every = 1 if entry is None else entry.run_every
        if every is None:  # refused elsewhere
            continue
        most = steps // every + (entry is not None)  # the untrained model is scored as well
        if most < needed:
            yield (
                f"{getattr(callback, 'name', 'a callback')} can't act: it needs {needed} values of {name!r}, and training has "
                f"at most {most}"
            )

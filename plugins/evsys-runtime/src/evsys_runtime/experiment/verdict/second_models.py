"""The usage of teachers and references, in a line each: a part of the runs' usage, and often the most expensive."""

from __future__ import annotations

from collections.abc import Iterable

from evsys.types import ArmResult, Usage
from evsys_runtime.accounting.metering import POLICY
from evsys_runtime.accounting.usage import cost_words

__all__ = ["second_model_lines"]


_WHAT = {POLICY: "additional passes of the trained model"}


def second_model_lines(arms: Iterable[ArmResult]) -> list[str]:
    """For each role how many tokens its models took in all arms, and what they cost; nothing where none took any."""
    took: dict[str, Usage] = {}
    for arm in arms:
        for name, usage in (arm.run.roles if arm.run is not None else {}).items():
            took[name] = took.get(name, Usage()) + usage
    return [
        f"of that, {_WHAT.get(name, f'the {name}')} took {usage.tokens} tokens, {cost_words(usage)}"
        for name, usage in sorted(took.items())
        if usage.tokens
    ]

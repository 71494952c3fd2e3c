"""Answers made without a model: the right one if a verifier gives it, and some that should be worth nothing.

A verifier may declare, each as a method or attribute that takes `(expected, params)`, plain or async:

* `oracle`: an answer that gets full marks; None if there is none. Without it, `expected` as a text is tried.
* `counterexample`: an answer that gets none; for verifiers to which an empty answer may be right.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any

import attrs

from evsys.optional import declared
from evsys.types import HarborTask, Message, Rollout, Turn
from evsys_runtime.evaluation.verify import BoundVerifier

__all__ = ["CONSTANT", "Oracle", "counterexample_of", "echo_of", "made_rollout", "oracle_of"]

CONSTANT = "N/A"
"""The answer that says the same to every task."""


@attrs.frozen(kw_only=True)
class Oracle:
    """A right answer. `declared`: the verifier itself says so; else it is `expected` as a text, which may be none."""

    text: str
    declared: bool


async def oracle_of(verifier: BoundVerifier, expected: Any) -> Oracle | None:
    """The right answer of a task with this verifier; None if unknown. Exceptions of `oracle` pass through."""
    own = declared(verifier.call, "oracle")
    if callable(own):
        said = await _right_answer(own, expected, verifier.params)
        return None if said is None else Oracle(text=said, declared=True)
    text = _text(expected)
    return None if text is None else Oracle(text=text, declared=False)


async def counterexample_of(verifier: BoundVerifier, expected: Any) -> str | None:
    """A wrong answer, of a verifier that gives one. Exceptions of its method pass through."""
    own = declared(verifier.call, "counterexample")
    return await _right_answer(own, expected, verifier.params) if callable(own) else None


def echo_of(task: HarborTask) -> str:
    """The user's text in a task."""
    if isinstance(task.instruction, str):
        return task.instruction
    return "\n".join(message.content for message in task.instruction if message.role == "user")


def made_rollout(task: HarborTask, answer: str) -> Rollout:
    """The rollout of a model that said just this."""
    said = Message(role="assistant", content=answer)
    asked = (
        (Message(role="user", content=task.instruction),)
        if isinstance(task.instruction, str)
        else tuple(task.instruction)
    )
    return Rollout(
        task_id=task.task_id,
        sample_index=0,
        messages=(*asked, said),
        turns=(Turn(message=said),),
        output=answer,
    )


async def _right_answer(method: Any, expected: Any, params: Mapping[str, Any]) -> str | None:
    said = method(expected, params)
    said = await said if inspect.isawaitable(said) else said
    if said is not None and not isinstance(said, str):
        raise TypeError(
            f"{getattr(method, '__qualname__', 'it')} gave {type(said).__name__}, not a string or None"
        )
    return said


def _text(expected: Any) -> str | None:
    """An expectation as someone would answer it: the first of several, other values as JSON."""
    if isinstance(expected, list | tuple) and expected:
        expected = expected[0]
    if expected is None or isinstance(expected, str):
        return expected
    try:
        return json.dumps(expected, ensure_ascii=False)
    except (TypeError, ValueError):
        return None

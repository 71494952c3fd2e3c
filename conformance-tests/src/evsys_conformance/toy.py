"""The toy task: one word of the question decides the answer. Learnt in a few steps by anything that learns."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evsys.types import ChatMessagesRow, Datum, HarborTask, Message, PromptExample, VerifierSpec
from evsys_conformance.findings import breach

__all__ = ["Rows", "as_dataset", "datums", "rows", "with_policy_inputs"]

_ANSWERS = {"mail": "SEND", "song": "PLAY", "rain": "LOOK", "bug": "FILE"}
_ANSWERS_IN_TURN = dict(zip(_ANSWERS.values(), [*list(_ANSWERS.values())[1:], "SEND"], strict=True))
"""A wrong answer for each right one."""

_QUESTIONS = ("please {} now", "a {} for bob", "what about {}?")
_PAIRS = [(question.format(word), answer) for question in _QUESTIONS for word, answer in _ANSWERS.items()]


class Rows(list[Any]):
    """Typed rows as a run's dataset."""

    @property
    def fingerprint(self) -> str:
        """Hash of the rows."""
        return "sha256:" + hashlib.sha256(repr(list(self)).encode()).hexdigest()


def rows(shape: str) -> Rows:
    """The task as rows of a shape: chat, pair, prompt or task.

    Raises:
        ValueError: there is no such shape.
    """
    found = Rows()
    for i, (question, answer) in enumerate(_PAIRS):
        asked, said = Message(role="user", content=question), Message(role="assistant", content=answer)
        match shape:
            case "chat":
                found.append(ChatMessagesRow(messages=(asked, said), row_id=f"row-{i}"))
            case "pair":
                worse = Message(role="assistant", content=_ANSWERS_IN_TURN[answer])
                found.append(
                    ChatMessagesRow(messages=(asked, said), rejected=(asked, worse), row_id=f"row-{i}")
                )
            case "prompt":
                found.append(PromptExample(prompt=(asked,), demonstration=(said,), row_id=f"row-{i}"))
            case "task":
                verifier = VerifierSpec(name="exact_match", expected=answer)
                found.append(HarborTask(task_id=f"row-{i}", instruction=question, verifier=verifier))
            case _:
                raise ValueError(f"an algorithm's `shape` is chat, pair, prompt or task, not {shape!r}")
    return found


def as_dataset(data: Any, shape: str) -> Any:
    """The data that a run hands to an algorithm: a dataset as it is, or a list of typed rows, or of rows as a data
    file has them.
    """
    if hasattr(data, "fingerprint"):
        return data
    if not isinstance(data, list | tuple):
        breach(
            "the data that it trains on are neither a list of rows nor a dataset",
            seen=data,
            wanted="a list of rows, or evsys.protocols.Dataset",
        )
    return Rows(_typed_row(row, shape, i) if isinstance(row, Mapping) else row for i, row in enumerate(data))


def _typed_row(row: Mapping[str, Any], shape: str, index: int) -> Any:
    try:
        from evsys_runtime import RowProblem, parse_row
    except ImportError:
        breach("rows with columns need evsys-runtime", wanted="pip install 'evsys-conformance[train]'")
    try:
        return parse_row(row, shape, index)  # type: ignore[arg-type]  # what it refuses is reported here
    except (RowProblem, KeyError) as exc:
        breach(f"row {index} can't be used as {shape!r}: {exc}", seen=dict(row))


def datums(renderer: Any, count: int = 4) -> list[Datum]:
    """The first rows as training sequences with weights, ready for a backend."""
    found = []
    for row in rows("chat")[:count]:
        (tokens, weights), *_ = renderer.render_training(row.messages)
        array = np.asarray(tokens, dtype=np.int64)
        inputs = {"target_tokens": array[1:], "weights": np.asarray(weights[1:], dtype=np.float32)}
        found.append(Datum(tokens=array[:-1], loss_inputs=inputs, meta={"row_id": row.row_id}))
    return found


def with_policy_inputs(data: Sequence[Datum], logprobs: Sequence[Any]) -> list[Datum]:
    """Datums with what policy losses need: a sampler's logprobs a little off, and advantages of both signs."""
    rng = np.random.default_rng(7)
    found = []
    for i, (datum, own) in enumerate(zip(data, logprobs, strict=True)):
        sampled = np.asarray(own, dtype=np.float64) + rng.normal(0, 0.3, np.shape(own))
        advantages = np.full(np.shape(own), 1.0 if i % 2 else -0.5)
        inputs = {**datum.loss_inputs, "logprobs": sampled, "advantages": advantages}
        found.append(Datum(tokens=datum.tokens, loss_inputs=inputs, meta=datum.meta))
    return found

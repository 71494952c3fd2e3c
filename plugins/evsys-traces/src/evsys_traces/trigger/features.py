"""Traces as small numbers: what was judged wrong, how long the question is, and how unusual its words are.

A state that is built of these holds no text of a user.
"""

from __future__ import annotations

import bisect
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from evsys_runtime.data.readers import read_rows
from evsys_runtime.data.words import fold, words_of
from evsys_traces.trace import moment

__all__ = ["BINS", "MEASURES", "InputModel", "Observed", "observed_traces"]

BINS = 24
"""The values that a measure of inputs is sorted into, by quantiles of the reference."""

MEASURES = ("length", "novelty")
"""The measures of inputs."""

_BUCKETS = 4096
"""The hashes that words are counted by."""

_MOST_WORDS = 2000
"""Words of a question that are looked at, from its end."""


@attrs.frozen(kw_only=True)
class Observed:
    """The facts of a trace that the trigger looks at.

    Attributes:
        time: seconds since 1970; None if unknown.
        key: what orders traces of the same time, and draws among equal ranks.
        failed: whether the call failed or its feedback is bad; None if nobody judged it.
        slices: the value of each slice key that it has.
        words: hashes of the words of the question.
        characters: of the question.
    """

    time: float | None
    key: int
    failed: bool | None
    slices: Mapping[str, str]
    words: Sequence[int]
    characters: int


def observed_traces(path: Path, slices: Sequence[str], good: float) -> Iterator[Observed]:
    """The traces of a file of `evsys traces import`, one at a time.

    Args:
        path: the file.
        slices: keys of the metadata to keep.
        good: the mean score of its feedback from which on an answer is right.

    Raises:
        DataError: it can't be read.
    """
    for row in read_rows(path):
        facts = row.get("metadata") or {}
        asked = "\n".join(_questions(row.get("messages") or ()))
        identity = f"{facts.get('conversation_id')}\0{facts.get('time')}\0{asked}"
        yield Observed(
            time=moment(facts.get("time")),
            key=zlib.crc32(identity.encode("utf-8", "surrogatepass")),
            failed=_has_failed(facts, good),
            slices={name: str(facts[name]) for name in slices if facts.get(name) is not None},
            words=[
                zlib.crc32(word.encode("utf-8", "surrogatepass")) % _BUCKETS
                for word in words_of(fold(asked[-20 * _MOST_WORDS :]))[-_MOST_WORDS:]
            ],
            characters=len(asked),
        )


def _questions(messages: Iterable[Any]) -> Iterator[str]:
    for message in messages:
        if isinstance(message, Mapping) and message.get("role") == "user":
            yield str(message.get("content") or "")


def _has_failed(facts: Mapping[str, Any], good: float) -> bool | None:
    if facts.get("error"):
        return True
    scores = [
        float(each["score"])
        for each in facts.get("feedback") or ()
        if isinstance(each, Mapping)
        and isinstance(each.get("score"), int | float)
        and math.isfinite(each["score"])
    ]
    return sum(scores) / len(scores) < good if scores else None


@attrs.define
class InputModel:
    """How usual inputs are.

    Attributes:
        words: how often each hash occurred, [4096] ints.
        total: their sum.
        edges: for each measure, the upper ends of all bins but the last, in ascending order.
    """

    words: list[int]
    total: int
    edges: dict[str, list[float]] = attrs.field(factory=dict)

    @classmethod
    def fit(cls, known: Iterable[Observed], others: Sequence[Observed]) -> InputModel:
        """Count the words of `known` traces, and sort the measures of `others` into bins of equal size."""
        words = [0] * _BUCKETS
        for trace in known:
            for word in trace.words:
                words[word] += 1
        model = cls(words, sum(words))
        measured = [model.measures(trace) for trace in others]
        for name in MEASURES:
            ranked = sorted(each[name] for each in measured)
            model.edges[name] = sorted({ranked[len(ranked) * place // BINS] for place in range(1, BINS)})
        return model

    def measures(self, trace: Observed) -> dict[str, float]:
        """The measures of a trace: `length`, the log of its characters, and `novelty`, the mean surprise of a word in nats."""
        total = self.total + _BUCKETS
        surprise = [math.log(total / (self.words[word] + 1)) for word in trace.words]
        novelty = math.fsum(surprise) / len(surprise) if surprise else 0.0
        return {"length": math.log1p(trace.characters), "novelty": novelty}

    def bins(self, trace: Observed) -> dict[str, int]:
        """The bin of each measure, from 0 to the number of its edges."""
        return {
            name: bisect.bisect_left(self.edges[name], value) for name, value in self.measures(trace).items()
        }

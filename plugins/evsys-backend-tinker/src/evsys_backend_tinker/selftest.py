"""A few logprobs, noted when a state is saved and compared when it is restored: did the weights come back as they were?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from evsys.types import Datum

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TOLERANCE", "Fingerprint"]

TOLERANCE = 0.02
"""Largest difference of a logprob that passes: sums in another order differ less, another state's weights more."""

_MOST = 64  # tokens


@attrs.frozen(kw_only=True, eq=False)
class Fingerprint:
    """A short sequence of the run's own data, and its logprobs where they are known."""

    tokens: Sequence[int]
    targets: Sequence[int]
    logprobs: Sequence[float] = ()

    @classmethod
    def of_batch(cls, data: Sequence[Datum]) -> Fingerprint | None:
        """The start of a batch's first sequence; None where it has several targets a position."""
        if not data:
            return None
        targets = np.asarray(data[0].loss_inputs.get("target_tokens", ()))
        if targets.ndim != 1 or not len(targets):
            return None
        return cls(tokens=data[0].tokens[:_MOST].tolist(), targets=targets[:_MOST].tolist())

    @classmethod
    def read(cls, noted: Mapping[str, Any]) -> Fingerprint | None:
        """The values noted in a checkpoint; None if they are unusable."""
        parts = [noted.get(name) for name in ("tokens", "targets", "logprobs")]
        if not all(isinstance(part, list) and part for part in parts):
            return None
        tokens, targets, logprobs = parts
        return cls(tokens=tokens or (), targets=targets or (), logprobs=logprobs or ())

    def datum(self) -> Datum:
        """It as something to compute logprobs of."""
        return Datum(
            tokens=np.array(self.tokens, np.int64),
            loss_inputs={"target_tokens": np.array(self.targets, np.int64)},
        )

    def noted(self, logprobs: NDArray[Any]) -> dict[str, Any]:
        """It with logprobs, as JSON values."""
        return {
            "tokens": list(self.tokens),
            "targets": list(self.targets),
            "logprobs": [float(value) for value in logprobs],
        }

    def distance(self, now: Mapping[str, Any]) -> float:
        """The largest difference between its logprobs and those of now."""
        return float(np.max(np.abs(np.array(self.logprobs) - np.array(now["logprobs"]))))

"""The reference's logprob of each answer. The reference is the model that a run names as `reference`, else the one
that it starts from, asked before its first step.

One number a sequence is all that the losses need. They go into each checkpoint, since a run that resumes has other
weights by then.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from itertools import batched
from typing import TYPE_CHECKING

from evsys.errors import StoreError
from evsys.types import Usage
from evsys_runtime.accounting.metering import without_meter
from evsys_runtime.training.asking import priced_usage
from evsys_runtime.training.roles import role_client
from evsys_runtime.training.sequences import weighted_sum

if TYPE_CHECKING:
    from evsys.types import RunContext
    from evsys_algo_dpo.pairs import RenderedPair

__all__ = ["References", "ask", "from_text", "to_text"]

type References = Mapping[int, Sequence[float]]
"""By the number of a pair, the logprob of each of its sequences: the weighted sum over its tokens."""


async def ask(
    ctx: RunContext, pairs: Iterable[tuple[int, RenderedPair]], pairs_at_once: int
) -> tuple[References, Usage]:
    """Ask the run's `reference`, or where it names none the weights as they are now.

    Args:
        ctx: the run, before its first step.
        pairs: what the run trains on, by number.
        pairs_at_once: how many are computed in one forward pass.

    Returns:
        What it thinks, and what that took.
    """
    client = (
        without_meter(ctx.clients.policy) if ctx.clients.reference is None else role_client(ctx, "reference")
    )
    found: dict[int, Sequence[float]] = {}
    took = Usage()
    for chunk in batched(pairs, pairs_at_once):
        data = [datum for number, pair in chunk for datum in pair.data(number)]
        forward = await client.forward(data)
        took += priced_usage(client, forward.tokens)
        ctx.heartbeat()
        sums = map(weighted_sum, data, forward.logprobs)
        for number, pair in chunk:
            found[number] = [next(sums) for _ in pair.sequences]
    return found, took


def to_text(references: References) -> str:
    """As a checkpoint keeps them: float64 in base64, in the order of the pairs' numbers."""
    import numpy as np

    values = [value for _, sums in sorted(references.items()) for value in sums]
    return base64.b64encode(np.array(values, dtype="<f8").tobytes()).decode("ascii")


def from_text(text: str, pairs: Iterable[tuple[int, RenderedPair]]) -> References:
    """Read back the text of `to_text`, for the same pairs in the order of their numbers.

    Raises:
        StoreError: it is of other pairs.
    """
    import numpy as np

    known = np.frombuffer(base64.b64decode(text), dtype="<f8").tolist()
    counts = {number: len(pair.sequences) for number, pair in pairs}
    if sum(counts.values()) != len(known):
        raise StoreError(
            f"the checkpoint knows what the reference thinks of {len(known)} sequences, and the run has {sum(counts.values())}",
            hint="start a new run: the reference can't be asked any more, since the weights have been trained",
        )
    values = iter(known)
    return {number: [next(values) for _ in range(count)] for number, count in counts.items()}

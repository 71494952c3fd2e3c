"""From a conversation to the trained sequences, and what a model says of those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evsys.protocols import Renderer
    from evsys.types import Datum, Message

__all__ = ["DropReport", "Sequences", "sequences_of", "weighted_sum"]

type Sequences = tuple[tuple[NDArray[np.int64], NDArray[np.float32]], ...]
"""Token ids and weights of a conversation, [N] each; several sequences where the template rewrites history between turns."""


@attrs.define(kw_only=True)
class DropReport:
    """How many rows are left out, by reason."""

    dropped: dict[str, int] = attrs.field(factory=dict)


def sequences_of(
    renderer: Renderer,
    row_id: str,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    train_on: str,
) -> Sequences:
    """Render a conversation of a row; a single token predicts nothing, so it is not a sequence.

    Args:
        renderer: of the model.
        row_id: the row's name in errors.
        messages: the conversation.
        tools: what the assistant may call.
        train_on: which tokens have a loss, see `Renderer.render_training`.

    Raises:
        DataError: it can't be rendered; names the row.
    """
    import numpy as np

    try:
        pairs = renderer.render_training(messages, tools, train_on)
    except DataError as error:
        raise DataError(
            f"row {row_id}: {error.message}", source=error.source, line=error.line, hint=error.hint
        ) from error
    return tuple(
        (np.array(tokens, dtype=np.int64), np.array(weights, dtype=np.float32))
        for tokens, weights in pairs
        if len(tokens) > 1
    )


def weighted_sum(datum: Datum, logprobs: NDArray[Any]) -> float:
    """The logprob of what a datum trains; positions without weight may hold anything, NaN too."""
    import numpy as np

    weights = datum.loss_inputs["weights"]
    active = weights != 0
    return float(np.sum(weights[active] * np.asarray(logprobs, dtype=np.float64)[active]))

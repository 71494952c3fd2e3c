"""Values of evsys to those of the client, and back. Tensors of the wire are float32 or int64."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from evsys.errors import BackendError
from evsys.types import AdamParams, ForwardResult, OptimResult, SampledSequence
from evsys_backend_tinker.sdk import tinker
from evsys_runtime import BUILTIN_LOSSES, compute_loss

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.types import Datum, FinishReason, SamplingParams

__all__ = [
    "adam_params",
    "data_for",
    "derived_seed",
    "forward_result",
    "loss_config",
    "optim_result",
    "prompt_logprobs",
    "sampling_params",
    "to_sequence",
    "top_prompt_logprobs",
]  # fmt: skip

_POLICY = ("target_tokens", "logprobs", "advantages")
_INPUTS: Mapping[str, tuple[str, ...]] = {
    "cross_entropy": ("target_tokens", "weights"),
    **dict.fromkeys(("importance_sampling", "ppo", "cispo"), _POLICY),
    **dict.fromkeys(("dro", "gspo"), (*_POLICY, "weights")),
}
"""The inputs of a server's losses; it refuses unknown ones. The last two have a mask, which only servers of ours
take: the penalty of `dro` acts where the advantage is 0 as well, and `gspo` counts a sequence's tokens.
"""

_FACTORS = ("weights", "advantages")
"""The factors of the terms of a loss of advantages."""

_MASKED = -99_999.0  # the logprob in a cell of a table of likeliest tokens that has none


def data_for(data: Sequence[Datum], loss_fn: str) -> list[Any]:
    """A batch with the inputs of `loss_fn`; `weights` of a loss of advantages are multiplied into them.

    Raises:
        BackendError: a datum lacks an input, or has a token that is not an id.
    """
    package = tinker()
    return [
        package.Datum(
            model_input=package.ModelInput.from_ints(_ids(datum.tokens, index)),
            loss_fn_inputs={
                name: package.TensorData.from_numpy(array)
                for name, array in _inputs(datum, loss_fn, index).items()
            },
        )
        for index, datum in enumerate(data)
    ]


def _ids(tokens: NDArray[Any], index: int) -> list[int]:
    array = np.asarray(tokens)
    if not np.issubdtype(array.dtype, np.integer) or (array.size and array.min() < 0):
        raise BackendError(f"datum {index}: tokens must be integers from 0 up, got {array.dtype}")
    if array.size == 0:
        raise BackendError(f"datum {index} has no tokens")
    found: list[int] = array.tolist()
    return found


def _inputs(datum: Datum, loss_fn: str, index: int) -> dict[str, NDArray[Any]]:
    given = datum.loss_inputs
    targets = given.get("target_tokens")
    if targets is None:
        raise BackendError(f"datum {index} has no target_tokens")
    if not np.issubdtype(np.asarray(targets).dtype, np.integer):
        raise BackendError(f"datum {index}: target tokens must be integers, got {np.asarray(targets).dtype}")
    found: dict[str, NDArray[Any]] = {}
    for name in _INPUTS[loss_fn]:
        if name == "target_tokens":
            found[name] = np.ascontiguousarray(targets, np.int64)
        elif name == "weights" and name not in given:
            if loss_fn != "cross_entropy":
                continue
            found[name] = np.ones(np.shape(targets), np.float32)
        elif name in given:
            found[name] = np.ascontiguousarray(given[name], np.float32)
        else:
            raise BackendError(f"datum {index} has no {name}, which {loss_fn} needs")
    if "advantages" in found and "weights" in given and "weights" not in found:
        found["advantages"] = np.asarray(given["advantages"] * given["weights"], np.float32)
    return found


def loss_config(loss_fn: str, params: Mapping[str, Any] | None) -> dict[str, float] | None:
    """A loss's settings as the wire has them: all of them, since servers' own defaults differ.

    Its thresholds are bounds of the ratio, ours are distances from 1; no lower bound is one of 0.
    """
    given = {name: value for name, value in (params or {}).items() if value is not None}
    config = getattr(BUILTIN_LOSSES[loss_fn], "Config", None)
    settings = given if config is None else attrs.asdict(config(**given))
    if "clip_high" in settings:
        low, high = settings.pop("clip_low"), settings.pop("clip_high")
        settings |= {
            "clip_low_threshold": 0.0 if low is None else 1.0 - low,
            "clip_high_threshold": 1.0 + high,
        }
    return {name: float(value) for name, value in settings.items() if value is not None} or None


def adam_params(params: AdamParams) -> Any:
    """All settings of the optimiser, since servers' own defaults differ."""
    return tinker().AdamParams(
        learning_rate=params.learning_rate,
        beta1=params.beta1,
        beta2=params.beta2,
        eps=params.eps,
        weight_decay=params.weight_decay,
        grad_clip_norm=params.grad_clip,
    )


def forward_result(
    output: Any, data: Sequence[Datum], loss_fn: str | None, params: Mapping[str, Any] | None = None
) -> ForwardResult:
    """The result of a forward pass.

    A missing loss is computed from the server's logprobs. So are the metrics of losses in any case: the client
    merges those of a batch's parts weighted by their examples, which isn't the batch's value and rounds even a
    single part's.

    Raises:
        BackendError: the server answered something else than logprobs for each datum.
    """
    outputs = output.loss_fn_outputs
    if len(outputs) != len(data):
        raise BackendError(f"the server answered for {len(outputs)} data of {len(data)}")
    logprobs = [
        _logprobs(one, datum, index) for index, (one, datum) in enumerate(zip(outputs, data, strict=True))
    ]
    metrics = {name: float(value) for name, value in (output.metrics or {}).items()}
    loss = metrics.pop("loss:sum", None)
    told = {name.partition(":")[0]: value for name, value in metrics.items() if math.isfinite(value)}
    if loss_fn is None:
        loss, told = None, {}
    else:
        logprobs = [_without_untold(one, datum, loss_fn) for one, datum in zip(logprobs, data, strict=True)]
    if loss_fn is not None and (loss is None or loss_fn != "cross_entropy"):
        ours = compute_loss(BUILTIN_LOSSES[loss_fn], data, logprobs, dict(params or {}))
        loss = ours.loss if loss is None else loss
        told |= ours.metrics
    tokens = sum(len(datum.tokens) for datum in data)
    return ForwardResult(logprobs=logprobs, loss=loss, metrics=told, tokens=tokens)


def _without_untold(logprobs: NDArray[Any], datum: Datum, loss_fn: str) -> NDArray[Any]:
    """NaN where a loss has no term and the server says 0: it didn't compute the logprob there, and 0 would pass for certainty."""
    factors = [np.asarray(datum.loss_inputs[name]) for name in _FACTORS if name in datum.loss_inputs]
    if loss_fn == "cross_entropy":
        factors = [np.asarray(datum.loss_inputs.get("weights", 1.0))]
    unused = np.zeros(logprobs.shape, bool)
    for factor in factors:
        unused |= np.broadcast_to(factor == 0, logprobs.shape)
    untold = unused & (logprobs == 0)
    return np.where(untold, np.float32(np.nan), logprobs) if untold.any() else logprobs


def _logprobs(output: Mapping[str, Any], datum: Datum, index: int) -> NDArray[Any]:
    shape = np.shape(datum.loss_inputs["target_tokens"])
    tensor = output.get("logprobs")
    if tensor is None:
        raise BackendError(f"the server gave no logprobs for datum {index}")
    array = np.asarray(tensor.to_numpy(), np.float32)
    if array.size != math.prod(shape):
        raise BackendError(
            f"the server gave {array.size} logprobs for datum {index}, which has {math.prod(shape)} targets"
        )
    return array.reshape(shape)


def optim_result(output: Any) -> OptimResult:
    """The result of an optimiser step; the norm of the gradient goes by several names."""
    metrics = {name: float(value) for name, value in (getattr(output, "metrics", None) or {}).items()}
    names = [name for name in metrics if name.partition(":")[0].rpartition("/")[2] == "grad_norm"]
    norm = metrics.pop(names[0]) if names else None
    told = {name.partition(":")[0]: value for name, value in metrics.items() if math.isfinite(value)}
    return OptimResult(grad_norm=norm, metrics=told)


# --- sampling -----------------------------------------------------------------------------------------------------


def derived_seed(seed: int, index: int) -> int:
    """The seed of sample `index` of a call: sample 0 has the call's own."""
    if index == 0:
        return seed
    digest = hashlib.sha256(f"{seed}/{index}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def sampling_params(
    params: SamplingParams, stops: Sequence[int], texts: Sequence[str], seed: int | None
) -> Any:
    """How to draw.

    Args:
        params: of the call.
        stops: all token ids that end a sample: where any are named, servers forget the model's own.
        texts: the same as text, for a call that also stops at texts: one list holds only one kind.
        seed: of this call.
    """
    stop: list[Any] | None = [*params.stop, *texts] if params.stop else list(stops)
    return tinker().SamplingParams(
        max_tokens=params.max_tokens,
        seed=seed,
        stop=stop or None,
        temperature=params.temperature,
        # some servers draw at random at temperature 0
        top_k=1 if params.temperature == 0 else -1 if params.top_k is None else params.top_k,
        top_p=params.top_p,
    )


def to_sequence(sequence: Any, top: bool) -> SampledSequence:
    """A sampled sequence.

    Raises:
        BackendError: the server left out the logprobs.
    """
    tokens, logprobs = list(sequence.tokens), sequence.logprobs
    if logprobs is None or len(logprobs) != len(tokens):
        raise BackendError("the server gave no logprob for each sampled token")
    reason: FinishReason = "length" if str(sequence.stop_reason) == "length" else "stop"
    likeliest = None
    if top:
        likeliest = [dict(cells or ()) for cells in sequence.topk_logprobs or ()]
        if len(likeliest) != len(tokens):
            raise BackendError("the server gave no likeliest tokens for each sampled position")
    return SampledSequence(
        tokens=[int(token) for token in tokens],
        logprobs=[float(value) for value in logprobs],
        finish_reason=reason,
        top_logprobs=likeliest,
    )


def prompt_logprobs(values: Sequence[float | None] | None, length: int) -> list[float | None]:
    """Logprobs of a prompt, one a token and None for the first, also from servers that leave the first out.

    Raises:
        BackendError: they are missing, or of another length.
    """
    found = None if values is None else [None if v is None or math.isnan(v) else float(v) for v in values]
    if found is not None and len(found) == length - 1:
        found = [None, *found]
    if found is None or len(found) != length:
        count = "no" if found is None else len(found)
        raise BackendError(f"the server gave {count} logprobs for a prompt of {length} tokens")
    return [None, *found[1:]]


def top_prompt_logprobs(
    table: Sequence[Sequence[tuple[int, float]] | None] | None, length: int
) -> list[Mapping[int, float] | None]:
    """The likeliest tokens of a prompt's positions, None for the first.

    Raises:
        BackendError: they are missing, or of another length.
    """
    found: list[Mapping[int, float] | None] = [
        None if cells is None else {int(token): float(value) for token, value in cells if value > _MASKED}
        for cells in table or ()
    ]
    if len(found) == length - 1:
        found = [None, *found]
    if len(found) != length:
        raise BackendError(
            f"the server gave the likeliest tokens of {len(found)} positions for a prompt of {length} tokens"
        )
    return [None, *found[1:]]

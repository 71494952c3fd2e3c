"""One training step's gradient on any backend: in one pass where it can, else in two; in one request, or in parts
of it.

A backend that knows neither a loss's name nor callables still learns from it: a forward pass gives the logprobs,
the loss is computed here with its gradients g = d(loss)/d(logprobs), and a second pass trains on cross entropy with
the weights -g. Cross entropy is -sum(w * lp), so its gradient by the logprobs is g again, and by the chain rule the
gradient of the weights is the same.

A backend adds up the gradients of its requests until it steps, and losses are sums, divided by what belongs to the
whole batch already: so parts of a batch, one request each, add up to the batch. That holds of the built-in losses,
which have a term a token or a sequence. A callable's value for one part may depend on another, so it gets the whole
batch's logprobs at once, between two passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from evsys.types import Datum, ForwardResult, LossFn
from evsys_runtime.losses import BUILTIN_LOSSES, compute_loss, hides_builtin, resolve_loss
from evsys_runtime.training.asking import all_of

if TYPE_CHECKING:
    from evsys import Registry
    from evsys.protocols import TrainingClient

__all__ = ["LossPlan", "forward_backward", "plan_loss"]


@attrs.frozen(kw_only=True)
class LossPlan:
    """How a loss is to be computed on a backend: what it is handed, and in how many passes."""

    loss_fn: str | LossFn
    params: Mapping[str, Any]
    passes: int


def plan_loss(
    capabilities: frozenset[str],
    loss_fn: str | LossFn,
    params: Mapping[str, Any] | None = None,
    registry: Registry | None = None,
) -> LossPlan:
    """Choose by what a backend declares: `loss_fns:<name>` (or `loss_fns` for all built-ins) and `custom_loss`.

    A name that the project has registered means the project's loss, also where the backend knows a loss of that name.

    Raises:
        PluginNotFoundError: no loss has this name.
    """
    settings = dict(params or {})
    if (
        isinstance(loss_fn, str)
        and not hides_builtin(loss_fn, registry)
        and (
            f"loss_fns:{loss_fn}" in capabilities
            or ("loss_fns" in capabilities and loss_fn in BUILTIN_LOSSES)
        )
    ):
        return LossPlan(loss_fn=loss_fn, params=settings, passes=1)
    _, function, settings = resolve_loss(loss_fn, settings, registry)
    return LossPlan(loss_fn=function, params=settings, passes=1 if "custom_loss" in capabilities else 2)


async def forward_backward(
    client: TrainingClient,
    capabilities: frozenset[str],
    data: Sequence[Datum],
    loss_fn: str | LossFn,
    params: Mapping[str, Any] | None = None,
    *,
    registry: Registry | None = None,
    submitted: Callable[[], None] = lambda: None,
    most_tokens: int | None = None,
) -> ForwardResult:
    """Add a loss's gradient to what the client has accumulated.

    Args:
        client: of the trained model.
        capabilities: what its backend declares.
        data: the batch.
        loss_fn: a loss's name or a callable.
        params: the loss's settings.
        registry: where names of losses are looked up; the current one by default.
        submitted: called once the last pass is submitted, so that an `optim_step` can be queued behind it.
        most_tokens: of one request, where each has whole data and one at least; None is the batch in one request.

    Returns:
        The loss, its metrics and the logprobs before the step; `tokens` counts each token once.

    Raises:
        AlgorithmError: the loss failed.
        PluginNotFoundError: no loss has this name.
    """
    plan = plan_loss(capabilities, loss_fn, params, registry)
    parts = _parts(data, most_tokens)
    if len(parts) > 1 and not (isinstance(plan.loss_fn, str) and plan.loss_fn in BUILTIN_LOSSES):
        _, function, settings = resolve_loss(plan.loss_fn, plan.params, registry)
        plan = LossPlan(loss_fn=function, params=settings, passes=2)
    if plan.passes == 1:
        running = [client.forward_backward(part, plan.loss_fn, plan.params) for part in parts]
        submitted()
        return _whole(await all_of(running), data, plan, registry)
    forward = _whole(await all_of(client.forward(part) for part in parts), data)
    exact = [
        np.asarray(array, dtype=np.float64) for array in forward.logprobs
    ]  # told in float32, as the gradient isn't
    result = compute_loss(plan.loss_fn, data, exact, plan.params, registry)
    weighted = [
        Datum(
            tokens=datum.tokens,
            loss_inputs={"target_tokens": datum.loss_inputs["target_tokens"], "weights": -gradient},
            meta=datum.meta,
        )
        for datum, gradient in zip(data, result.grads, strict=True)
    ]
    running = [client.forward_backward(part, "cross_entropy") for part in _parts(weighted, most_tokens)]
    submitted()
    await all_of(running)
    return ForwardResult(
        logprobs=forward.logprobs, loss=result.loss, metrics=result.metrics, tokens=forward.tokens
    )


def _parts(data: Sequence[Datum], most: int | None) -> list[Sequence[Datum]]:
    """A batch cut in order, each part with at most so many tokens, or one datum that has more."""
    if most is None:
        return [data]
    parts: list[list[Datum]] = []
    room = 0
    for datum in data:
        size = len(datum.tokens)
        if not parts or size > room:
            parts.append([])
            room = most
        parts[-1].append(datum)
        room -= size
    return list(parts) or [data]


def _whole(
    results: Sequence[ForwardResult],
    data: Sequence[Datum],
    plan: LossPlan | None = None,
    registry: Registry | None = None,
) -> ForwardResult:
    """One result of the parts of a batch. Means and maxima don't add up, so metrics are computed of the whole."""
    if len(results) == 1:
        return results[0]
    logprobs = [array for result in results for array in result.logprobs]
    losses = [result.loss for result in results]
    metrics: Mapping[str, float] = {}
    if plan is not None:
        loss = BUILTIN_LOSSES[str(plan.loss_fn)]
        metrics = compute_loss(loss, data, logprobs, plan.params, registry).metrics
    return ForwardResult(
        logprobs=logprobs,
        loss=None if None in losses else sum(loss for loss in losses if loss is not None),
        metrics=metrics,
        tokens=sum(result.tokens for result in results),
    )

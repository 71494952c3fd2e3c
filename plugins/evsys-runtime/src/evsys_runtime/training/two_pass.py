"""One training step's gradient on any backend: in one pass where it can, else in two.

A backend that knows neither a loss's name nor callables still learns from it: a forward pass gives the logprobs, the
loss is computed here with its gradients g = d(loss)/d(logprobs), and a second pass trains on cross entropy with the
weights -g. Cross entropy is -sum(w * lp), so its gradient by the logprobs is g again, and by the chain rule the
gradient of the weights is the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from evsys.types import Datum, ForwardResult, LossFn
from evsys_runtime.losses import BUILTIN_LOSSES, compute_loss, hides_builtin, resolve_loss

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
) -> ForwardResult:
    """Add a loss's gradient to what the client has accumulated.

    Args:
        client: of the model that is trained.
        capabilities: what its backend declares.
        data: the batch.
        loss_fn: a loss's name or a callable.
        params: the loss's settings.
        registry: where names of losses are looked up; the current one by default.
        submitted: called once the last pass is submitted, so that an `optim_step` can be queued behind it.

    Returns:
        The loss, its metrics and the logprobs before the step; `tokens` counts each token once.

    Raises:
        AlgorithmError: the loss failed.
        PluginNotFoundError: no loss has this name.
    """
    plan = plan_loss(capabilities, loss_fn, params, registry)
    if plan.passes == 1:
        running: Awaitable[ForwardResult] = client.forward_backward(data, plan.loss_fn, plan.params)
        submitted()
        return await running
    forward = await client.forward(data)
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
    running = client.forward_backward(weighted, "cross_entropy")
    submitted()
    await running
    return ForwardResult(
        logprobs=forward.logprobs, loss=result.loss, metrics=result.metrics, tokens=forward.tokens
    )

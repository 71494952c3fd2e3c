"""Losses that keep their contract, each written in another way."""

import attrs
import numpy as np

from evsys.types import LossResult


def a_number(data, logprobs):
    return -sum(float(np.sum(d.loss_inputs["weights"] * lp)) for d, lp in zip(data, logprobs, strict=True))


def with_metrics(data, logprobs):
    return a_number(data, logprobs), {"n": np.float32(len(data))}


@attrs.frozen(kw_only=True)
class BringsGradients:
    scale: float = 2.0

    def __call__(self, data, logprobs):
        grads = [-self.scale * datum.loss_inputs["weights"] for datum in data]
        value = sum(float(np.sum(grad * lp)) for grad, lp in zip(grads, logprobs, strict=True))
        return LossResult(loss=value, grads=grads, metrics={"scale": self.scale})


class StopsAtARatio:
    conformance = {"stops_gradient": True}  # noqa: RUF012 - as a plugin's author may write it

    def __call__(self, data, logprobs):
        total, grads = 0.0, []
        for datum, lp in zip(data, logprobs, strict=True):
            ratio = np.minimum(np.exp(lp - datum.loss_inputs["logprobs"]), 1.5)
            total -= float(np.sum(ratio * lp))
            grads.append(-ratio)
        return LossResult(loss=total, grads=grads)


class StopsAtALikelihood:
    conformance = {"stops_gradient": "held_at"}  # noqa: RUF012 - as a plugin's author may write it

    def __call__(self, data, logprobs):
        return LossResult(loss=self.held_at(data, logprobs, logprobs), grads=[-np.exp(lp) for lp in logprobs])

    def held_at(self, data, logprobs, held):
        return -sum(float(np.sum(np.exp(at) * lp)) for at, lp in zip(held, logprobs, strict=True))

"""Losses with one fault each."""

from typing import ClassVar

import numpy as np

from evsys.types import LossResult


def _likelihood(data, logprobs, scale=1.0):
    weights = [datum.loss_inputs["weights"] for datum in data]
    value = sum(float(np.sum(w * lp)) for w, lp in zip(weights, logprobs, strict=True))
    return LossResult(loss=-scale * value, grads=[-scale * w for w in weights])


def Infinite(data, logprobs):
    return float("inf")


def Mean(data, logprobs):
    return _likelihood(data, logprobs).loss / len(data)


def ChangesData(data, logprobs):
    for datum in data:
        datum.loss_inputs["ref_logprobs"][:] = 0.0
    return _likelihood(data, logprobs)


def TwiceTheGradient(data, logprobs):
    right = _likelihood(data, logprobs)
    return LossResult(loss=right.loss, grads=[2 * grad for grad in right.grads])


def cross_entropy(data, logprobs):
    return _likelihood(data, logprobs, scale=2.0)


def MetricIsText(data, logprobs):
    return _likelihood(data, logprobs).loss, {"kl": "high"}


def DoublesWeights(data, logprobs):
    for datum in data:
        datum.loss_inputs["weights"] *= 2.0
    return _likelihood(data, logprobs)


class UphillPastARatio:
    conformance: ClassVar = {"stops_gradient": True}

    def __call__(self, data, logprobs):
        ratios = [
            np.exp(lp - datum.loss_inputs["logprobs"]) for datum, lp in zip(data, logprobs, strict=True)
        ]
        value = -sum(float(np.sum(r * lp)) for r, lp in zip(ratios, logprobs, strict=True))
        return LossResult(loss=value, grads=ratios)


class UphillPastALikelihood:
    conformance: ClassVar = {"stops_gradient": "held_at"}

    def __call__(self, data, logprobs):
        return LossResult(loss=self.held_at(data, logprobs, logprobs), grads=[np.exp(lp) for lp in logprobs])

    def held_at(self, data, logprobs, held):
        return -sum(float(np.sum(np.exp(at) * lp)) for at, lp in zip(held, logprobs, strict=True))

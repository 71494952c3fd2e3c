"""What answers become, against plain formulas over whole tables of probabilities: values, and gradients by the student's logits."""

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys.types import SampledSequence, SampleResult
from evsys_algo_distill.answers import Answer
from evsys_algo_distill.batches import policy_data, target_datum
from evsys_algo_distill.losses import mixed_divergence
from evsys_algo_distill.teaching import logprobs_of, opinions_of
from evsys_runtime.losses import compute_loss
from evsys_runtime.training.trajectories import Span, Trajectory

V = 7


def log_softmax(scores):
    with np.errstate(divide="ignore"):
        return scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))


class Tables:
    """A teacher with a table of logprobs for each place of each sequence; no token comes after another."""

    def __init__(self):
        self.of = {}

    async def compute_logprobs(self, tokens):
        table = self.of[tuple(tokens)]
        return np.array([np.nan, *(table[i, token] for i, token in enumerate(tokens[1:], 1))])

    async def sample(self, prompt, params, n=1):
        table = self.of[tuple(prompt)]
        k = params.top_prompt_logprobs
        best = [
            {int(token): float(row[token]) for token in np.argsort(-row, kind="stable")[:k]}
            for row in table[1:]
        ]
        return SampleResult(
            sequences=[SampledSequence(tokens=[0], logprobs=[0.0], finish_reason="length")],
            prompt_logprobs=[None, *(await self.compute_logprobs(prompt))[1:].tolist()],
            top_prompt_logprobs=[None, *best],
        )


def case(seed, lengths, impossible):
    """Answers of one to three turns each, a teacher, and what the student thinks now, [N - 1, V] a sequence."""
    rng = np.random.default_rng(seed)
    teacher, answers, now = Tables(), [], []
    for number, turns in enumerate(lengths):
        spans, place = [], 0
        for turn, length in enumerate(turns):
            start = place + int(rng.integers(1, 4))
            place = start + length
            spans.append(Span(start, place, turn, 0))
        tokens = rng.integers(0, V, place)
        tokens[0] = number  # no two sequences are equal
        sampled = log_softmax(rng.normal(size=(place, V)))
        scores = rng.normal(size=(place, V))
        scores[rng.random((place, V)) < impossible] = -np.inf
        scores[:, 0] = 0.0  # something is possible everywhere
        teacher.of[tuple(tokens.tolist())] = log_softmax(scores)
        trajectory = Trajectory(
            tokens=tokens,
            logprobs=np.zeros(place),
            spans=tuple(spans),
            task_id=f"row-{number}",
        )
        trajectory.logprobs[trajectory.mask] = sampled[np.arange(place), tokens][trajectory.mask]
        answers.append(Answer(trajectory=trajectory))
        now.append(rng.normal(size=(place - 1, V)))
    return answers, teacher, now


def by_logits(datum, grads, table):
    """d(loss)/d(logits) from d(loss)/d(logprobs of the targets): the Jacobian of log-softmax."""
    targets = datum.loss_inputs["target_tokens"].reshape(len(grads), -1)
    grads = grads.reshape(len(grads), -1)
    found = -np.exp(table) * grads.sum(axis=1, keepdims=True)
    for row, (tokens, slopes) in enumerate(zip(targets, grads, strict=True)):
        for token, slope in zip(tokens, slopes, strict=True):
            found[row, token] += slope
    return found


def gathered(datum, table):
    targets = datum.loss_inputs["target_tokens"]
    rows = np.arange(len(targets))
    return table[rows, targets] if targets.ndim == 1 else table[rows[:, None], targets]


def wanted_gradient(kind, answers, teacher, now, *, k, share, floor):
    """Place by place, from the formulas alone."""
    count = sum(sum(span.end - span.start for span in answer.trajectory.spans) for answer in answers)
    value, found = 0.0, []
    for answer, logits in zip(answers, now, strict=True):
        trajectory, gradient = answer.trajectory, np.zeros_like(logits)
        theirs = teacher.of[tuple(trajectory.tokens.tolist())]
        student = log_softmax(logits)
        for span in trajectory.spans:
            for i in range(span.start, span.end):
                token, probabilities = trajectory.tokens[i], np.exp(student[i - 1])
                if kind != "reverse":
                    best = np.argsort(-theirs[i], kind="stable")[:k]
                    p = np.zeros(V)
                    p[best] = np.exp(theirs[i][best])
                    p /= p.sum()
                    gradient[i - 1] += share * (probabilities - p) / count
                    value -= share * float(p @ student[i - 1]) / count
                if kind != "forward":
                    judged = floor if theirs[i][token] == -np.inf else theirs[i][token]
                    ratio = np.exp(student[i - 1][token] - trajectory.logprobs[i])
                    term = (1 - share) * ratio * (judged - trajectory.logprobs[i]) / count
                    value -= term
                    one = np.zeros(V)
                    one[token] = 1.0
                    gradient[i - 1] -= term * (one - probabilities)
        found.append(gradient)
    return value, found


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    lengths=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=4),
    kind=st.sampled_from(["forward", "reverse", "mixed"]),
    k=st.sampled_from([1, 2, V, V + 5]),
    impossible=st.sampled_from([0.0, 0.3]),
)
def test_value_and_gradient_are_those_of_the_formulas(seed, lengths, kind, k, impossible):
    answers, teacher, now = case(seed, lengths, impossible)
    share = {"forward": 1.0, "reverse": 0.0, "mixed": 0.3}[kind]
    if kind == "reverse":
        told = asyncio.run(logprobs_of(teacher, answers))
        data, loss, params = policy_data(answers, told.logprobs), "importance_sampling", {}
    else:
        opinions, told = asyncio.run(opinions_of(teacher, answers, k))
        count = sum(answer.trajectory.sampled for answer in answers)
        data = [
            target_datum(answer, opinion, count, mixed=kind == "mixed")
            for answer, opinion in zip(answers, opinions, strict=True)
        ]
        loss, params = (
            (mixed_divergence, {"forward_share": share}) if kind == "mixed" else ("cross_entropy", {})
        )
    tables = [log_softmax(logits) for logits in now]
    result = compute_loss(
        loss, data, [gathered(d, table) for d, table in zip(data, tables, strict=True)], params
    )
    value, gradient = wanted_gradient(kind, answers, teacher, now, k=k, share=share, floor=-50.0)
    assert result.loss == pytest.approx(value, rel=1e-9, abs=1e-9)
    for datum, grads, table, wanted in zip(data, result.grads, tables, gradient, strict=True):
        np.testing.assert_allclose(by_logits(datum, np.asarray(grads), table), wanted, rtol=1e-8, atol=1e-9)
    assert told.unknown == 0

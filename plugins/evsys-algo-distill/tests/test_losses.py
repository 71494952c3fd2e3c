"""Values and gradients against plain formulas, on random answers and opinions."""

import numpy as np
import pytest

from evsys_algo_distill.answers import Answer
from evsys_algo_distill.batches import policy_data, reverse_kl, target_datum
from evsys_algo_distill.losses import mixed_divergence
from evsys_algo_distill.teaching import Opinion
from evsys_runtime.losses import compute_loss
from evsys_runtime.training.trajectories import Span, Trajectory

VOCABULARY, K = 11, 4


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


class Case:
    """Random answers by a random student, before a random teacher."""

    def __init__(self, seed, lengths=(3, 1, 5)):
        rng = self.rng = np.random.default_rng(seed)
        self.answers, self.opinions, self.teacher = [], [], []
        for number, length in enumerate(lengths):
            start = int(rng.integers(1, 5))
            tokens = rng.integers(0, VOCABULARY, start + length)
            sampled = log_softmax(rng.normal(size=(length, VOCABULARY)))
            teacher = log_softmax(rng.normal(size=(length, VOCABULARY)))
            said = tokens[start:]
            own = sampled[np.arange(length), said]
            self.answers.append(
                Answer(
                    trajectory=Trajectory(
                        tokens=tokens,
                        logprobs=np.concatenate((np.zeros(start), own)),
                        spans=(Span(start, start + length, 0, 0),),
                        task_id=f"row-{number}",
                    ),
                )
            )
            best = np.argsort(-teacher, axis=1)[:, :K]
            chosen = np.exp(np.take_along_axis(teacher, best, axis=1))
            self.teacher.append(teacher[np.arange(length), said])
            self.opinions.append(
                Opinion(
                    logprobs=self.teacher[-1],
                    tokens=best,
                    probabilities=chosen / chosen.sum(axis=1, keepdims=True),
                    missed=0,
                )
            )
        self.count = sum(lengths)
        #: What the student thinks now, which has moved since it sampled: a table for each whole sequence.
        self.now = [log_softmax(rng.normal(size=(len(a.trajectory) - 1, VOCABULARY))) for a in self.answers]

    def logprobs(self, data, tables=None):
        found = []
        for datum, table in zip(data, tables or self.now, strict=True):
            targets = datum.loss_inputs["target_tokens"]
            rows = np.arange(len(targets))
            found.append(table[rows, targets] if targets.ndim == 1 else table[rows[:, None], targets])
        return found

    def places(self):
        """(answer, place in it, row of its table)."""
        for number, answer in enumerate(self.answers):
            for t in range(len(answer.tokens)):
                yield number, t, answer.trajectory.spans[0].start - 1 + t

    def forward(self):
        total = 0.0
        for number, t, row in self.places():
            opinion = self.opinions[number]
            for token, probability in zip(opinion.tokens[t], opinion.probabilities[t], strict=True):
                total -= probability * self.now[number][row, token]
        return total / self.count

    def reverse(self):
        total = 0.0
        for number, t, row in self.places():
            answer = self.answers[number]
            ratio = np.exp(self.now[number][row, answer.tokens[t]] - answer.logprobs[t])
            total -= ratio * (self.teacher[number][t] - answer.logprobs[t])
        return total / self.count

    def targets(self, *, mixed):
        return [
            target_datum(answer, opinion, self.count, mixed=mixed)
            for answer, opinion in zip(self.answers, self.opinions, strict=True)
        ]


def numeric(function, arrays, step=1e-6):
    grads = []
    for array in arrays:
        grad = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            held = array[place]
            array[place] = held + step
            high = function()
            array[place] = held - step
            low = function()
            array[place] = held
            grad[place] = (high - low) / (2 * step)
        grads.append(grad)
    return grads


@pytest.mark.parametrize("seed", range(5))
def test_the_forward_loss_is_the_cross_entropy_to_the_renormalised_teacher(seed):
    case = Case(seed)
    data = case.targets(mixed=False)
    result = compute_loss("cross_entropy", data, case.logprobs(data))
    assert result.loss == pytest.approx(case.forward(), abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_reverse_loss_is_importance_sampling_of_the_difference(seed):
    case = Case(seed)
    data = policy_data(case.answers, case.teacher)
    result = compute_loss("importance_sampling", data, case.logprobs(data))
    assert result.loss == pytest.approx(case.reverse(), abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_mixture_is_the_weighted_sum_of_both(seed, share):
    case = Case(seed)
    data = case.targets(mixed=True)
    result = compute_loss(mixed_divergence, data, case.logprobs(data), {"forward_share": share})
    assert result.loss == pytest.approx(share * case.forward() + (1 - share) * case.reverse(), abs=1e-12)
    assert result.metrics["forward_term"] == pytest.approx(case.forward())
    assert result.metrics["reverse_term"] == pytest.approx(case.reverse())


@pytest.mark.parametrize("mixed", [False, True])
def test_gradients_are_those_of_the_value(mixed):
    case = Case(1)
    data = case.targets(mixed=mixed)
    logprobs = case.logprobs(data)
    loss = mixed_divergence if mixed else "cross_entropy"
    params = {"forward_share": 0.3} if mixed else {}

    def value():
        return compute_loss(loss, data, logprobs, params).loss

    result = compute_loss(loss, data, logprobs, params)
    for own, wanted in zip(result.grads, numeric(value, logprobs), strict=True):
        np.testing.assert_allclose(own, wanted, atol=1e-8)


def test_nothing_but_the_answer_has_a_gradient():
    case = Case(2)
    for mixed, loss, params in (
        (False, "cross_entropy", {}),
        (True, mixed_divergence, {"forward_share": 0.5}),
    ):
        data = case.targets(mixed=mixed)
        logprobs = case.logprobs(data)
        for answer, array in zip(case.answers, logprobs, strict=True):
            array[
                : answer.trajectory.spans[0].start - 1
            ] = -np.inf  # whatever stands there counts for nothing
        result = compute_loss(loss, data, logprobs, params)
        assert np.isfinite(result.loss)
        for answer, grad in zip(case.answers, result.grads, strict=True):
            assert not grad[: answer.trajectory.spans[0].start - 1].any()
            assert grad[answer.trajectory.spans[0].start - 1 :].any(axis=1).all()


def test_where_the_student_hasnt_moved_the_reverse_loss_is_the_divergence():
    case = Case(3)
    case.now = [np.zeros((len(a.trajectory) - 1, VOCABULARY)) for a in case.answers]
    for number, t, row in case.places():
        answer = case.answers[number]
        case.now[number][row, answer.tokens[t]] = answer.logprobs[t]
    data = policy_data(case.answers, case.teacher)
    result = compute_loss("importance_sampling", data, case.logprobs(data))
    assert result.loss == pytest.approx(reverse_kl(case.answers, case.teacher))


def test_the_coefficient_scales_the_advantages():
    case = Case(4)
    one, three = policy_data(case.answers, case.teacher), policy_data(case.answers, case.teacher, 3.0)
    for a, b in zip(one, three, strict=True):
        np.testing.assert_allclose(3.0 * a.loss_inputs["advantages"], b.loss_inputs["advantages"])


def test_all_targets_masked_is_a_loss_of_nothing():
    case = Case(5)
    data = case.targets(mixed=True)
    for datum in data:
        datum.loss_inputs["weights"][:] = 0.0
    result = compute_loss(mixed_divergence, data, case.logprobs(data), {"forward_share": 0.5})
    assert result.loss == 0.0
    assert not any(grad.any() for grad in result.grads)

"""Each loss with each advantage on random groups: value and gradient against formulas written here, token by token."""

import math

import numpy as np
import pytest

from evsys.types import Message, Rollout, Score, Turn
from evsys_algo_rl.advantages import ESTIMATORS
from evsys_algo_rl.batches import make_data, objective
from evsys_algo_rl.groups import judge
from evsys_algo_rl.params import BUILTIN_SETTINGS, RLParams
from evsys_runtime.losses import compute_loss

CLIPS = {"ppo": (0.2, 0.28), "cispo": (0.2, 0.28), "gspo": (0.05, 0.06)}


def rollout(rng, task, index):
    """A conversation of one or two turns: the second prompt goes on with the first turn, or not."""
    turns, history = [], [int(t) for t in rng.integers(0, 50, rng.integers(1, 5))]
    for turn in range(int(rng.integers(1, 3))):
        tokens = [int(t) for t in rng.integers(0, 50, rng.integers(1, 5))]
        logprobs = [float(lp) for lp in -rng.uniform(0.05, 2.0, len(tokens))]
        message = Message(role="assistant", content="")
        turns.append(Turn(message=message, prompt_tokens=list(history), tokens=tokens, logprobs=logprobs))
        grown = history + tokens + [int(t) for t in rng.integers(0, 50, 2)]
        history = grown if rng.random() < 0.5 else [51 + turn, *grown]
    score = Score(value=float(rng.choice([0.0, 0.5, 1.0])))
    return Rollout(task_id=task, sample_index=index, turns=tuple(turns), score=score, policy_version=0)


def random_groups(rng, params):
    rollouts = [[rollout(rng, f"t{i}", j) for j in range(params.group_size)] for i in range(3)]
    return [judge(f"t{i}", group, params, position=i, version=0) for i, group in enumerate(rollouts)]


def advantage_of(params, groups, group, member):
    rewards = [m.rollout.score.value for m in group.members]
    own = member.rollout.score.value
    if params.advantage == "none":
        return own
    if len(set(rewards)) == 1:
        return 0.0
    centred = own - sum(rewards) / len(rewards)
    if params.advantage == "rloo":
        return own - (sum(rewards) - own) / (len(rewards) - 1)
    if params.advantage == "mean_std":
        return centred / (float(np.std(rewards)) + 1e-6)
    if params.advantage == "batch_std":
        everything = []
        for other in groups:
            values = [m.rollout.score.value for m in other.members]
            everything += [v - sum(values) / len(values) for v in values]
        return centred / (float(np.std(everything)) + 1e-6)
    return centred


def reference(params, groups, policy, references):
    """Loss and gradients, from the rollouts' own turns. `policy` maps (rollout, turn, token) to a logprob."""
    members = [(group, member) for group in groups for member in group.members]
    lengths = [sum(len(turn.tokens) for turn in m.rollout.turns) for _, m in members]
    loss, gradients = 0.0, {}
    mean_logprob = sum(lp for _, m in members for turn in m.rollout.turns for lp in turn.logprobs)
    mean_logprob /= sum(lengths)
    for (group, member), length in zip(members, lengths, strict=True):
        share = {
            "token": 1 / sum(lengths),
            "sequence": 1 / (len(members) * length),
            "constant": 1 / (len(members) * params.longest),
        }[params.loss_agg]
        advantage = advantage_of(params, groups, group, member)
        where = (member.rollout.task_id, member.rollout.sample_index)
        turns_of_row = [sorted({span.turn for span in row.spans}) for row in member.trajectories]
        for turns in turns_of_row:
            keys = [(*where, t, k) for t in turns for k in range(len(member.rollout.turns[t].tokens))]
            q = {key: member.rollout.turns[key[2]].logprobs[key[3]] for key in keys}
            ratio = {key: math.exp(policy[key] - q[key]) for key in keys}
            s = math.exp(sum(policy[key] - q[key] for key in keys) / len(keys))
            pull = 0.0
            for key in keys:
                r, lp, a, w = ratio[key], policy[key], advantage, share
                a += params.entropy_coef * (mean_logprob - q[key])
                if params.kl_coef and params.kl_estimator == "k1":
                    a -= params.kl_coef * (q[key] - references[key])
                if (
                    params.mask_token_ratio
                    and not params.mask_token_ratio[0] <= r <= params.mask_token_ratio[1]
                ):
                    w = 0.0
                if params.mask_sequence_ratio and not (
                    params.mask_sequence_ratio[0] <= s <= params.mask_sequence_ratio[1]
                ):
                    w = 0.0
                if params.ratio_cap and r > params.ratio_cap:
                    w *= params.ratio_cap / r
                low, high = CLIPS.get(params.loss, (0.0, 0.0))
                value = slope = 0.0
                if params.loss == "importance_sampling":
                    value = slope = r * a
                elif params.loss == "ppo":
                    held = min(max(r, 1 - low), 1 + high) * a
                    value, slope = min(r * a, held), (r * a if r * a <= held else 0.0)
                elif params.loss == "cispo":
                    value, slope = min(max(r, 1 - low), 1 + high) * a * lp, min(max(r, 1 - low), 1 + high) * a
                elif params.loss == "gspo":
                    held = min(max(s, 1 - low), 1 + high) * a
                    value = min(s * a, held)
                    pull += w * s * a if s * a <= held else 0.0
                else:
                    value, slope = lp * a - 0.025 * (lp - q[key]) ** 2, a - 0.05 * (lp - q[key])
                loss -= w * value
                gradients[key] = -w * slope
                if params.kl_coef and params.kl_estimator != "k1":
                    x = references[key] - lp
                    kl, by_lp = (
                        (0.5 * x * x, -x)
                        if params.kl_estimator == "k2"
                        else (math.exp(x) - x - 1, 1 - math.exp(x))
                    )
                    loss += params.kl_coef * share * kl
                    gradients[key] += params.kl_coef * share * by_lp
            if params.loss == "gspo":
                for key in keys:
                    gradients[key] -= pull / len(keys)
    return loss, gradients


def compare(seed, **fields):
    params = RLParams(group_size=4, max_tokens=8, max_turns=2, **fields)
    rng = np.random.default_rng(seed)
    groups = random_groups(rng, params)
    rows = [row for group in groups for member in group.members for row in member.trajectories]
    by_row = {id(row): rng.uniform(-3.0, -0.1, len(row)) for row in rows}
    data = make_data(groups, params, by_row if params.kl_coef else None)
    policy, references, logprobs, places = {}, {}, [], []
    for row in rows:
        values = row.logprobs + rng.normal(scale=0.25, size=len(row))
        for span in row.spans:
            for k in range(span.start, span.end):
                key = (row.task_id, row.sample_index, span.turn, k - span.start)
                policy[key], references[key] = values[k], by_row[id(row)][k]
                places.append((key, len(logprobs), k - 1))
        logprobs.append(values[1:])
    loss_fn, loss_params = objective(params)
    found = compute_loss(loss_fn, data, logprobs, loss_params)
    loss, gradients = reference(params, groups, policy, references)
    # A batch is float32, as it goes over the wire.
    assert found.loss == pytest.approx(loss, rel=1e-6, abs=1e-7)
    expected = [np.zeros(len(values)) for values in logprobs]
    for key, datum, position in places:
        expected[datum][position] = gradients[key]
    for ours, theirs in zip(found.grads, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)
    return found


def settings_of(loss):
    low, high = CLIPS.get(loss, (None, None))
    return {"loss": loss, "clip_low": low, "clip_high": high}


@pytest.mark.parametrize("advantage", ESTIMATORS)
@pytest.mark.parametrize("loss", BUILTIN_SETTINGS)
@pytest.mark.parametrize("loss_agg", ["token", "sequence", "constant"])
def test_a_loss_with_an_advantage_is_what_the_formulas_say(loss, advantage, loss_agg):
    for seed in range(3):
        compare(seed, **settings_of(loss), advantage=advantage, loss_agg=loss_agg)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("loss", BUILTIN_SETTINGS)
def test_a_penalty_for_leaving_the_reference_goes_with_each_loss(loss, estimator):
    found = compare(5, **settings_of(loss), kl_coef=0.1, kl_estimator=estimator)
    assert ("kl_reference" in found.metrics) == (estimator != "k1")


@pytest.mark.parametrize(
    "correction",
    [
        {"ratio_cap": 1.1},
        {"mask_token_ratio": (0.8, 1.25)},
        {"mask_sequence_ratio": (0.95, 1.05)},
        {
            "ratio_cap": 1.05,
            "mask_token_ratio": (0.7, 1.4),
            "mask_sequence_ratio": (0.8, 1.2),
            "kl_coef": 0.3,
        },
    ],
)
@pytest.mark.parametrize("loss", ["importance_sampling", "ppo", "cispo", "dro"])
def test_tokens_that_moved_away_from_the_sampler_count_less_or_not_at_all(loss, correction):
    found = compare(7, **settings_of(loss), **correction)
    assert found.metrics["masked_share"] + found.metrics["capped_share"] > 0


@pytest.mark.parametrize("loss", BUILTIN_SETTINGS)
def test_unlikely_tokens_are_rewarded_where_entropy_is_wanted(loss):
    compare(11, **settings_of(loss), entropy_coef=0.2)

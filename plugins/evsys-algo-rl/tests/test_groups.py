"""Which rollouts can be learnt from, and what becomes of the others."""

import math

import attrs
import pytest

from evsys.types import Message, NoScore, Rollout, Score, Turn
from evsys_algo_rl.groups import judge
from evsys_algo_rl.params import RLParams

TURN = Turn(
    message=Message(role="assistant", content="ab"),
    prompt_tokens=(1, 2),
    tokens=(3, 4),
    logprobs=(-0.1, -0.2),
)
GOOD = Rollout(
    task_id="t", sample_index=0, turns=(TURN,), output="ab", score=Score(value=1.0), policy_version=0
)


def judged(*rollouts, **params):
    max_length = params.pop("max_length", None)
    return judge("t", rollouts, RLParams(**params), position=0, version=0, max_length=max_length)


def test_what_has_no_score_is_left_out_before_any_mean():
    absent = attrs.evolve(GOOD, score=NoScore(reason="the judge was away"))
    worse = attrs.evolve(GOOD, score=Score(value=0.0))
    group = judged(GOOD, absent, worse)
    assert (group.rewards.tolist(), group.lost) == ([1.0, 0.0], {"no_score": 1})
    assert not group.flat("mean")


@pytest.mark.parametrize(
    ("rollout", "reason"),
    [
        (attrs.evolve(GOOD, error="the agent crashed"), "error"),
        (attrs.evolve(GOOD, score=Score(value=math.inf)), "bad_reward"),
        (attrs.evolve(GOOD, score=Score(value=math.nan)), "bad_reward"),
        (attrs.evolve(GOOD, score=Score(value=-1e200)), "bad_reward"),
        (attrs.evolve(GOOD, turns=()), "no_turns"),
        (attrs.evolve(GOOD, turns=(attrs.evolve(TURN, logprobs=(-0.1,)),)), "length_mismatch"),
        (attrs.evolve(GOOD, turns=(attrs.evolve(TURN, logprobs=(-0.1, math.nan)),)), "bad_logprob"),
        (attrs.evolve(GOOD, turns=(attrs.evolve(TURN, tokens=None),)), "no_tokens"),
    ],
)
def test_what_cannot_be_learnt_from_is_counted_by_its_reason(rollout, reason):
    group = judged(GOOD, rollout)
    assert (len(group.members), group.lost) == (1, {reason: 1})
    assert group.flat("mean")  # one rollout has nothing to be compared with


def test_sequences_beyond_max_length_are_left_out():
    assert judged(GOOD, max_length=3).lost == {"too_long": 1}
    assert judged(GOOD, max_length=4).lost == {}


def test_a_masked_rollout_counts_for_the_mean_and_has_no_loss():
    cut = attrs.evolve(GOOD, truncated=True, score=Score(value=0.0))
    group = judged(GOOD, cut, overlong="mask")
    assert [(m.reward, m.trained) for m in group.members] == [(1.0, True), (0.0, False)]
    assert judged(GOOD, cut).members[1].trained
    assert judged(cut, cut, overlong="mask").flat("none")


def test_its_length_is_what_the_model_wrote():
    second = attrs.evolve(TURN, prompt_tokens=(1, 2, 3, 4, 9), tokens=(5,), logprobs=(-0.3,))
    group = judged(attrs.evolve(GOOD, turns=(TURN, second)))
    assert (group.members[0].length, len(group.members[0].trajectories)) == (3, 1)

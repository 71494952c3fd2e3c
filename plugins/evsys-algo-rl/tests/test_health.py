"""What is measured of a step."""

import attrs
import numpy as np
import pytest

from evsys.types import Datum, ForwardResult, Message, NoScore, Rollout, Score, Turn
from evsys_algo_rl.groups import judge
from evsys_algo_rl.health import mismatch_warning, ratio_metrics, repetition, rollout_metrics
from evsys_algo_rl.params import RLParams

TURN = Turn(
    message=Message(role="assistant", content="ab"),
    prompt_tokens=(1, 2),
    tokens=(3, 4),
    logprobs=(-0.1, -0.2),
)
GOOD = Rollout(task_id="t", sample_index=0, turns=(TURN,), output="ab", score=Score(value=1.0))


def test_rewards_are_told_by_component_and_trouble_by_share():
    rollouts = [
        attrs.evolve(GOOD, score=Score(value=1.0, components={"right": 1.0, "short": 0.5})),
        attrs.evolve(GOOD, score=Score(value=0.0, components={"right": 0.0, "short": 1.0}), truncated=True),
        attrs.evolve(GOOD, score=NoScore(reason="?")),
        attrs.evolve(GOOD, error="crash", timed_out=True),
        attrs.evolve(GOOD, turns=()),
    ]
    found = rollout_metrics([judge("t", rollouts, RLParams(), position=0, version=0)], "mean")
    assert found["reward"] == pytest.approx(2 / 3)
    assert (found["reward/right"], found["reward/short"]) == (0.5, 0.75)
    shares = ("truncated_share", "timed_out_share", "error_share", "no_score_share")
    assert [found[name] for name in shares] == [0.2] * 4
    assert found["rejected_share"] == 3 / 5
    assert {name: found[name] for name in found if name.startswith("rejected/")} == {
        "rejected/error": 1.0,
        "rejected/no_score": 1.0,
        "rejected/no_turns": 1.0,
    }
    assert (found["zero_variance_share"], found["length_mean"], found["turns_mean"]) == (0.0, 2.0, 1.0)
    assert found["entropy"] == pytest.approx(0.15)


def test_numbers_of_any_size_have_a_mean_and_what_is_no_reward_is_in_none():
    large = attrs.evolve(GOOD, score=Score(value=1.0, components={"raw": 1.7e308}))
    beyond = attrs.evolve(GOOD, score=Score(value=1.7e308))
    found = rollout_metrics([judge("t", [large, large, beyond], RLParams(), position=0, version=0)], "mean")
    assert (found["reward"], found["reward/raw"], found["rejected/bad_reward"]) == (1.0, 1.7e308, 1.0)


def test_a_step_of_which_nothing_is_left_has_no_lengths():
    found = rollout_metrics(
        [judge("t", [attrs.evolve(GOOD, turns=())], RLParams(), position=0, version=0)], "mean"
    )
    assert found["rejected_share"] == 1.0
    assert "length_mean" not in found


def test_sampler_and_trainer_are_compared_where_there_is_a_loss():
    inputs = {
        "target_tokens": np.arange(4),
        "weights": np.array([0.0, 1.0, 1.0, 1.0]),
        "logprobs": np.array([0.0, -1.0, -1.0, -1.0]),
    }
    data = [Datum(tokens=np.arange(4), loss_inputs=inputs)]
    policy = np.array(
        [-9.0, -1.0, -1.0 + np.log(2.0), np.nan]
    )  # where nothing is trained a backend may give NaN
    found = ratio_metrics(data, ForwardResult(logprobs=[policy]))
    assert found["kl_sampler_trainer"] == pytest.approx((1 - np.log(2.0)) / 2)
    assert found["kl_sampler_trainer_max"] == pytest.approx(1 - np.log(2.0))
    assert found["ratio_p50"] == pytest.approx(1.5)
    assert ratio_metrics(data, ForwardResult(logprobs=[np.full(4, np.nan)])) == {}


def test_repetition_is_the_share_of_runs_of_four_that_were_there_before():
    assert repetition([np.arange(10)]) == 0.0
    assert repetition([np.zeros(7, int)]) == 0.75
    assert repetition([np.array([1, 2, 3])]) == 0.0
    assert repetition([np.arange(4), np.arange(4)]) == 0.0  # another text may say the same


@pytest.mark.parametrize(
    ("staleness", "divergence", "told"), [(0.0, 0.05, True), (0.0, 1e-6, False), (1.0, 0.05, False)]
)
def test_sampler_and_trainer_that_disagree_on_the_same_weights_are_told(staleness, divergence, told):
    found = mismatch_warning({"staleness_max": staleness, "kl_sampler_trainer": divergence})
    assert (found is not None) == told

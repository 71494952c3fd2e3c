"""What rollouts took, summed at once."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from evsys.types import NoScore, Rollout, Score, Usage
from evsys_runtime.training.rollout_groups import usage_of_rollouts

USAGES = st.builds(
    Usage,
    prompt_tokens=st.integers(0, 99),
    completion_tokens=st.integers(0, 99),
    seconds=st.sampled_from([0.0, 1.5]),
    cost_usd=st.sampled_from([None, 0.0, 0.25]),
)
ROLLOUTS = st.builds(
    Rollout,
    task_id=st.just("t"),
    sample_index=st.just(0),
    usage=USAGES,
    score=st.one_of(
        st.builds(Score, value=st.just(1.0), usage=st.one_of(st.none(), USAGES)),
        st.builds(NoScore, reason=st.just("?"), usage=st.one_of(st.none(), USAGES)),
    ),
)


@given(st.lists(ROLLOUTS, max_size=5))
def test_it_is_the_sum_without_the_seconds(rollouts):
    total = Usage()
    for rollout in rollouts:
        total = total + rollout.usage + (rollout.score.usage or Usage())
    assert usage_of_rollouts(rollouts) == attrs.evolve(total, seconds=0.0)

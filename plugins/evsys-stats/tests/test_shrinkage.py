"""The best of several arms is partly lucky; its shrunken effect is what it does the next time."""

import numpy as np
import pytest
from scored_runs import QUESTION, scored_run

from evsys_runtime.experiment.verdict.conclude import conclude
from evsys_runtime.experiment.verdict.prose import expected_line
from evsys_stats.shrinkage import shrunken_effects


@pytest.mark.parametrize("spread", [0.0, 0.03, 0.1])
def test_the_shrunken_effect_of_the_best_arm_is_nearer_to_the_truth_than_the_effect_seen(spread):
    rng = np.random.default_rng(0)
    seen, shrunken = [], []
    for _ in range(500):
        truth = spread * rng.normal(size=20)
        effects = truth + 0.03 * rng.normal(size=20)
        best = int(np.argmax(effects))
        seen.append(effects[best] - truth[best])
        shrunken.append(shrunken_effects(effects, [0.03] * 20)[best] - truth[best])
    assert abs(np.mean(shrunken)) < 0.01
    assert abs(np.mean(shrunken)) < 0.5 * abs(np.mean(seen))
    assert np.mean(np.square(shrunken)) < np.mean(np.square(seen))


def test_effects_no_larger_than_their_errors_are_luck():
    assert shrunken_effects([0.02, -0.01, 0.0], [0.03] * 3) == [0.0] * 3


def test_a_candidate_is_named_with_the_effect_to_expect():
    results = [scored_run("base", 10), scored_run("a", 30), scored_run("b", 12), scored_run("c", 9)]
    conclusion = conclude(QUESTION, results)
    assert conclusion.verdict == "CANDIDATE"
    best = next(c for c in conclusion.comparisons if c.arm == "a")
    assert 0 < best.shrunken_effect < best.effect
    assert expected_line(conclusion) == (
        f"a is the best of 3 arms, so part of its effect of +0.500 is luck: expect +{best.shrunken_effect:.3f} until it is confirmed"
    )
    single = conclude(QUESTION, results[:2])
    assert single.comparisons[0].shrunken_effect is None
    assert expected_line(single) is None

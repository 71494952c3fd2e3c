import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys import Registry, use_registry
from evsys.errors import ConfigError, PluginNotFoundError
from evsys.types import Message, NoScore, Rollout, Score
from evsys_verifiers_std.composite import Composite
from evsys_verifiers_std.format_only import FormatOnly
from evsys_verifiers_std.verifiers import Contains, ExactMatch


async def later(model_output, expected, params):
    """An async verifier with params and components."""
    return Score(value=params["gives"], components={"tone": 0.25}, metadata={"why": "so"})


def unsure(model_output, expected, params):
    return NoScore(reason="can't tell", retryable=True)


def breaks(model_output, expected, params):
    raise ZeroDivisionError("by zero")


def turns(model_output, expected, params, rollout):
    return float(len(rollout.messages))


class Slow:
    """A verifier that is called in a thread."""

    blocking = True
    reward_range = (-1.0, 2.0)

    def __call__(self, model_output, expected, params):
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return 2.0


@pytest.fixture
def registry():
    registry = Registry(entry_points=())
    for name, plugin in {
        "composite": Composite,
        "contains": Contains,
        "exact_match": ExactMatch,
        "format_only": FormatOnly,
        "later": later,
        "unsure": unsure,
        "breaks": breaks,
        "turns": turns,
        "slow": Slow,
    }.items():
        registry.register("verifier", name, plugin)
    with use_registry(registry):
        yield registry


def build(registry, **parts):
    return registry.build("verifier", "composite", {"parts": parts})


def judge(composite, output="Paris", expected="Paris", rollout=None):
    return asyncio.run(composite(output, expected, {}, rollout))


SHORT = {"verifier": "format_only", "params": {"max_characters": 10}}


def test_a_score_is_the_weighted_mean_and_every_part_is_a_component(registry):
    composite = build(registry, right={"verifier": "contains", "weight": 3}, short=SHORT)
    assert judge(composite) == Score(value=1.0, components={"right": 1.0, "short": 1.0})
    assert judge(composite, "It is Paris, I think") == Score(
        value=0.75, components={"right": 1.0, "short": 0.0}
    )
    assert judge(composite, "Rome") == Score(value=0.25, components={"right": 0.0, "short": 1.0})


def test_components_and_metadata_of_parts_are_kept_under_their_names(registry):
    composite = build(
        registry, style={"verifier": "later", "params": {"gives": 0.5}}, right={"verifier": "contains"}
    )
    score = judge(composite)
    assert score.components == {"style": 0.5, "style.tone": 0.25, "right": 1.0}
    assert score.metadata == {"style": {"why": "so"}}
    assert score.value == 0.75


def test_a_part_can_expect_something_of_its_own(registry):
    composite = build(
        registry,
        city={"verifier": "exact_match", "expected_key": "city"},
        polite={"verifier": "contains", "expected": "please"},
    )
    score = judge(composite, "Paris", {"city": "Paris"})
    assert score.components == {"city": 1.0, "polite": 0.0}
    with pytest.raises(ValueError, match="part 'city': `expected` has no key 'city'"):
        composite.check({"town": "Paris"})
    composite.check({"city": "Paris"})


def test_each_part_may_refuse_an_expectation(registry):
    composite = build(registry, right={"verifier": "contains"}, short=SHORT)
    with pytest.raises(ValueError, match="part 'right': `expected` is missing"):
        composite.check(None)


def test_where_a_part_cannot_judge_neither_can_the_whole(registry):
    said = judge(build(registry, right={"verifier": "contains"}, sure={"verifier": "unsure"}))
    assert said == NoScore(reason="part 'sure': can't tell", retryable=True, boundary="verifier")
    with pytest.raises(ZeroDivisionError):
        judge(build(registry, odd={"verifier": "breaks"}))


def test_parts_see_the_whole_rollout_and_slow_ones_block_nobody(registry):
    rollout = Rollout(task_id="t", sample_index=0, messages=(Message(role="user", content="?"),) * 2)
    score = judge(build(registry, turns={"verifier": "turns"}, slow={"verifier": "slow"}), rollout=rollout)
    assert score.components == {"turns": 2.0, "slow": 2.0}


def test_composites_nest(registry):
    inner = {
        "verifier": "composite",
        "params": {"parts": {"right": {"verifier": "contains"}, "short": SHORT}},
    }
    score = judge(build(registry, both=inner, exact={"verifier": "exact_match"}))
    assert score.components == {"both": 1.0, "both.right": 1.0, "both.short": 1.0, "exact": 1.0}


def test_it_says_which_verifiers_it_uses_and_between_which_rewards_it_stays(registry):
    inner = {"verifier": "composite", "params": {"parts": {"short": SHORT}}}
    composite = build(registry, both=inner, right={"verifier": "contains"})
    assert composite.uses == ("composite", "contains", "format_only")
    assert composite.reward_range == (0.0, 1.0)
    assert build(registry, slow={"verifier": "slow"}, short=SHORT).reward_range == (-1.0, 2.0)
    assert build(registry, odd={"verifier": "breaks"}).reward_range is None


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({}, ConfigError, "parts"),
        ({"a": {}}, ConfigError, r"\$\.parts\.a\.verifier"),
        ({"a": {"verifier": "contains", "weight": 0}}, ConfigError, "weight"),
        ({"a": {"verifier": "contains", "weigth": 1}}, ConfigError, "weight"),
        (
            {"a": {"verifier": "contains", "params": {"require": "some"}}},
            ConfigError,
            r"\$\.parts\.a\.params\.require",
        ),
        ({"a": {"verifier": "contains", "expected": 1, "expected_key": "k"}}, ConfigError, "keep one"),
        ({"a": {"verifier": "contian"}}, PluginNotFoundError, "contains"),
    ],
)
def test_parts_that_cannot_be_made_are_refused_when_it_is_built(registry, parts, error, message):
    with pytest.raises(error, match=message):
        build(registry, **parts)


@given(st.lists(st.tuples(st.floats(0.001, 1e6), st.floats(0, 1)), min_size=1, max_size=6))
def test_the_mean_stays_between_the_scores_of_the_parts(parts):
    registry = Registry(entry_points=())
    registry.register("verifier", "later", later)
    registry.register("verifier", "composite", Composite)
    with use_registry(registry):
        composite = build(
            registry,
            **{
                f"p{i}": {"verifier": "later", "params": {"gives": g}, "weight": w}
                for i, (w, g) in enumerate(parts)
            },
        )
    score = judge(composite)
    given_ = [reward for _, reward in parts]
    assert min(given_) <= score.value <= max(given_)
    weights = sum(weight for weight, _ in parts)
    assert score.value == pytest.approx(sum(w * g for w, g in parts) / weights)

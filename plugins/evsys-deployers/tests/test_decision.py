"""The decision of a gate: promotes what is shown, rejects what is refuted, holds everything else."""

import os
import random

import pytest

from evsys_deployers.gate.decision import EntryScores, SideScores, decide

STREAMS = int(os.environ.get("EVSYS_GATE_DRAWS", "120"))


def side(values, *, tokens=10.0, seconds=1.0):
    pairs = {
        f"t{place}": (value if isinstance(value, tuple) else (value, value))
        for place, value in enumerate(values)
    }
    missing = sum(low != high for low, high in pairs.values())
    return SideScores(values=pairs, missing=missing, tokens=tokens, seconds=seconds)


def entry(candidate, incumbent, name="target", **options):
    facts = {
        "clusters": {},
        "slices": {},
        "largest": 1.0,
        "binary": True,
        "changed": (),
        "flips": {},
        "hashes": {},
        "metric": "mean_reward",
        "direction": 1.0,
    }
    mine, theirs = (one if isinstance(one, SideScores) else side(one) for one in (candidate, incumbent))
    return EntryScores(benchmark=name, candidate=mine, incumbent=theirs, **{**facts, **options})


def suite(claim="no_worse", margin=0.1, guards=(), must_pass=(), slices=None, bounds=None):
    return {
        "claim": claim,
        "margin": margin,
        "guards": [{"margin": each} for each in guards],
        "must_pass": [{"at_least": each} for each in must_pass],
        "slices": slices or {},
        "bounds": {"tokens": None, "seconds": None, "changed": None, **(bounds or {})},
        "seed": 0,
    }


def draw(source, right, count=200):
    return [float(source.random() < right) for _ in range(count)]


def verdicts(candidate_rate, incumbent_rate, claim, margin, seed, count=200):
    source = random.Random(seed)
    found = []
    for _ in range(STREAMS):
        scores = entry(draw(source, candidate_rate, count), draw(source, incumbent_rate, count))
        found.append(decide(suite(claim, margin), [scores], level=0.05).verdict)
    return found


@pytest.mark.parametrize(("claim", "candidate"), [("no_worse", 0.7), ("better", 0.9)])
def test_a_candidate_at_the_margin_is_seldom_promoted(claim, candidate):
    found = verdicts(candidate, 0.8, claim, 0.1, seed=1)
    assert found.count("PROMOTE") <= 0.05 * STREAMS + 2 * (0.0475 * STREAMS) ** 0.5


def test_an_equal_candidate_is_promoted_as_not_worse_where_tasks_suffice():
    assert verdicts(0.8, 0.8, "no_worse", 0.15, seed=2, count=250).count("PROMOTE") >= 0.8 * STREAMS


def test_an_equal_candidate_is_seldom_rejected_and_never_promoted_as_better():
    found = verdicts(0.8, 0.8, "better", 0.0, seed=3)
    assert found.count("PROMOTE") <= 0.05 * STREAMS + 2 * (0.0475 * STREAMS) ** 0.5
    assert found.count("HOLD") >= 0.9 * STREAMS


def test_a_far_worse_candidate_is_rejected():
    assert set(verdicts(0.3, 0.8, "no_worse", 0.05, seed=4)) == {"REJECT"}


def test_missing_samples_count_against_a_promotion_and_against_a_rejection():
    right, open_ = 1.0, (0.0, 1.0)
    sure = entry([right] * 60, [0.0] * 60)
    assert decide(suite("better", 0.1), [sure], level=0.05).verdict == "PROMOTE"
    unsure = entry([right] * 10 + [open_] * 50, [0.0] * 60)
    assert decide(suite("better", 0.1), [unsure], level=0.05).verdict == "HOLD"
    worse = entry([0.0] * 10 + [open_] * 50, [right] * 60)
    held = decide(suite("no_worse", 0.1), [worse], level=0.05)
    assert held.verdict == "HOLD"
    assert "by what missing samples would have scored" in held.why


def test_a_slice_behind_a_good_mean_stops_it():
    labels = {f"t{place}": "de" if place < 40 else "en" for place in range(400)}
    candidate = [0.0] * 40 + [1.0] * 360
    scores = entry(
        candidate,
        [1.0] * 40 + [0.5 if place % 2 else 0.0 for place in range(360)],
        slices={"language": labels},
        binary=False,
    )
    decision = decide(suite("no_worse", 0.1, slices={"language": 0.1}), [scores], level=0.05)
    assert decision.verdict == "REJECT"
    assert decision.why.startswith("target with language=de: ")
    assert [test.outcome for test in decision.tests] == ["supported", "refuted", "supported"]


def test_a_small_slice_is_named_and_not_tested():
    labels = {f"t{place}": "fr" for place in range(9)}
    scores = entry([1.0] * 100, [0.0] * 100, slices={"language": labels})
    decision = decide(suite(slices={"language": 0.1}), [scores], level=0.05)
    assert decision.untested == ("target with language=fr: 9 tasks, fewer than 10",)
    assert decision.verdict == "PROMOTE"


def test_guards_have_to_hold_by_holm():
    good = entry([1.0] * 80, [1.0] * 80)
    weak = entry([1.0] * 30, [1.0] * 30, name="guard")
    alone = decide(suite(guards=(0.12,)), [good, weak], level=0.05)
    three = [attrs_named(weak, f"guard{place}") for place in range(3)]
    together = decide(suite(guards=(0.12, 0.12, 0.12)), [good, *three], level=0.05)
    assert [test.p_value for test in together.tests[1:]] == [pytest.approx(3 * alone.tests[1].p_value)] * 3


def attrs_named(scores, name):
    import attrs

    return attrs.evolve(scores, benchmark=name)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [([1.0] * 20, "PROMOTE"), ([1.0] * 19 + [0.0], "REJECT"), ([1.0] * 19 + [(0.0, 1.0)], "HOLD")],
)
def test_a_safety_suite_has_to_pass(values, verdict):
    good = entry([1.0] * 80, [1.0] * 80)
    safety = entry(values, [0.0] * 20, name="safety")
    decision = decide(suite(must_pass=(1.0,)), [good, safety], level=0.05)
    assert decision.verdict == verdict
    assert decision.tests[-1].name == "safety"


def test_bounds_reject_what_is_longer_slower_or_changed():
    scores = entry(
        side([1.0] * 80, tokens=30.0, seconds=1.0),
        side([1.0] * 80),
        changed=tuple(f"t{n}" for n in range(20)),
    )
    decision = decide(suite(bounds={"tokens": 2.0, "seconds": 1.1, "changed": 0.2}), [scores], level=0.05)
    assert decision.verdict == "REJECT"
    assert decision.why == "completion tokens: 3 of at most 2; changed answers: 0.25 of at most 0.2"


def test_less_is_better_where_the_metric_says_so():
    scores = entry([0.0] * 60, [1.0] * 60, direction=-1.0)
    assert decide(suite("better", 0.1), [scores], level=0.05).verdict == "PROMOTE"
    assert (
        decide(suite("better", 0.1), [entry([1.0] * 60, [0.0] * 60, direction=-1.0)], level=0.05).verdict
        == "REJECT"
    )


def test_a_doubt_holds_what_the_scores_would_promote():
    decision = decide(suite(), [entry([1.0] * 80, [1.0] * 80)], level=0.05, doubts=["it was lucky"])
    assert (decision.verdict, decision.why) == ("HOLD", "it was lucky")


def test_clusters_count_once():
    alone = entry([1.0] * 40, [0.0] * 40)
    together = entry([1.0] * 40, [0.0] * 40, clusters={f"t{n}": f"c{n % 4}" for n in range(40)})
    assert decide(suite("better", 0.1), [alone], level=0.05).verdict == "PROMOTE"
    assert decide(suite("better", 0.1), [together], level=0.05).verdict == "HOLD"

"""What `evsys why` prints."""

import attrs
import pytest

from evsys.types import Comparison
from evsys_cli.why_lines import why_lines
from evsys_record.differing import Difference
from evsys_runtime.experiment.insight.results import Why, WhyArm, WhyFailed, WhyParent

WHY = Why(
    experiment_id="20260101-000000-x",
    arm=None,
    status="completed",
    verdict="CANDIDATE",
    reason="some arms win",
    metric="val.mean_reward",
    direction="max",
    baseline="base_model",
    minimum_effect=0.05,
)


def arm(name, effect, *, says="it is so", outcome="win", tasks=30):
    comparison = Comparison(
        arm=name, outcome=outcome, before=0.0, after=effect, effect=effect, n_seeds=1, n_tasks=tasks
    )
    return WhyArm(comparison=comparison, says=says)


def failed(run, *, steps=3, message="boom", hint=None):
    return WhyFailed(
        run_id=run,
        status="failed",
        way="failed backend/BackendError",
        message=message,
        place=None,
        hint=hint,
        steps=steps,
        runs_on_record=2,
    )


def lines_of(**fields):
    return list(why_lines(attrs.evolve(WHY, **fields)))


def test_what_holds_of_several_arms_is_told_once():
    lines = lines_of(arms=(arm("a", 0.2), arm("b", 0.4), arm("c", 0.2)))
    assert lines[3:] == [
        "numbers:",
        "  each a claim about the checkpoint, from 1 training run and 30 tasks by no test",
        "  a, c: win, 0.000 -> 0.200, effect +0.200",
        "    it is so",
        "  b: win, 0.000 -> 0.400, effect +0.400",
        "    it is so",
    ]


def test_claims_that_stand_on_different_grounds_are_told_with_each_arm():
    text = "\n".join(lines_of(arms=(arm("a", 0.2), arm("b", 0.4, tasks=12))))
    assert ("30 tasks" in text, "12 tasks" in text, "each a claim" in text) == (True, True, False)


def test_of_many_arms_the_best_are_told_and_the_rest_is_counted():
    arms = [arm(f"a{number}", number / 100, outcome="tie" if number < 30 else "win") for number in range(40)]
    arms.append(WhyArm(comparison=Comparison(arm="gone", outcome="unscored"), says="it failed"))
    lines = lines_of(arms=tuple(arms))
    assert len(lines) < 50
    assert any(line.startswith("  a39: win") for line in lines)
    assert not any(line.startswith("  a19: ") for line in lines)
    assert lines[-1] == "  and 21 more arms, none better (20 tie, 1 unscored)"


def test_runs_that_ended_alike_are_one_line():
    runs = (
        *(failed(f"a{n}-s0", steps=n, hint="buy memory") for n in range(2, 9)),
        failed("b-s0", message="bang"),
    )
    lines = lines_of(failed=runs)
    assert lines[3:] == [
        "what failed:",
        "  a2-s0, a3-s0, a4-s0, a5-s0, a6-s0 and 2 more: failed backend/BackendError after 2 to 8 steps: boom",
        "    buy memory",
        "  b-s0: failed backend/BackendError after 3 steps: bang",
        "    2 runs on record ended so",
    ]


def test_an_arm_that_has_no_score_since_its_runs_failed_is_told_by_them():
    arms = [
        WhyArm(
            comparison=Comparison(arm=name, outcome="unscored", reason=f"{name}-s0: {said}"),
            says=f"{name}-s0: {said}",
        )
        for name, said in (("a", "batch of 32"), ("b", "batch of 64"), ("c", "nobody was there"))
    ]
    runs = (failed("a-s0", message="batch of 32"), failed("b-s0", message="batch of 64"))
    lines = lines_of(arms=tuple(arms), failed=runs)
    assert lines[3:8] == [
        "numbers:",
        "  a, b: unscored",
        "  c: unscored; c-s0: nobody was there",
        "what failed:",
        "  a-s0, b-s0: failed backend/BackendError after 3 steps: batch of 32",
    ]


@pytest.mark.parametrize(
    ("run", "told"), [("a-s0", True), ("a-s1.0-sft", True), ("a-small-s0", False), ("a-s2-s0", False)]
)
def test_a_run_of_an_arm_whose_name_begins_alike_says_nothing_of_this_one(run, told):
    unscored = WhyArm(comparison=Comparison(arm="a", outcome="unscored"), says="nobody was there")
    lines = lines_of(arms=(unscored,), failed=(failed(run),))
    assert lines[4] == ("  a: unscored" if told else "  a: unscored; nobody was there")


@pytest.mark.parametrize("arms", [1, 3])
def test_a_difference_that_all_arms_have_to_the_parent_is_told_once(arms):
    data = Difference(path="data.path", one='"a"', other='"b"')
    changed = tuple(
        WhyParent(
            arm=f"x{n}",
            parent_arm="p",
            differences=(data, Difference(path="rank", one="1", other=str(n + 2))),
        )
        for n in range(arms)
    )
    lines = lines_of(parent="20250101-000000-p", parent_verdict="REFUTED", changed=changed)
    assert sum("data.path" in line for line in lines) == 1
    assert sum("rank: 1 -> " in line for line in lines) == arms

"""In which ways runs failed, and the regions of configs in which they do."""

import json
import random

import pytest
from past_lab import Lab, _failure

from evsys.types import Failure
from evsys_record.index import Index
from evsys_runtime.experiment.insight.failures import CompletedArms, failure_classes, meets
from evsys_runtime.experiment.insight.results import Condition
from evsys_runtime.training.health import LossTrend


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path / ".evsys" / "experiments", seed=1)


def classes(lab):
    with Index(lab.experiments) as index:
        index.refresh()
        return failure_classes(index)


def swept(
    lab, arms, bad, failure=None, status="collapsed", stop="the reward fell to 0.0 within 12 steps", **facts
):
    """A sweep in which the arms named in `bad` end so."""
    record = lab.begin(arms, 1, **facts)
    for arm in arms:
        if arm in bad:
            lab.result(record, arm, 0, status=status, failure=failure, stop_reason=stop)
        else:
            lab.result(record, arm, 0)
    lab.end(record, "REFUTED", [], status="partial")
    return record.experiment_id


def by_rate(lab, algorithm, rates):
    return {f"{algorithm}-{rate:g}": lab.run(algorithm, rate) for rate in rates}


def test_a_region_is_what_failed_arms_share_and_completed_ones_do_not(lab):
    good_rates, bad_rates = (1e-5, 1e-4, 3e-4, 1e-3), (3e-3, 4e-3, 5e-3, 7e-3, 1e-2, 2e-2, 3e-2, 5e-2)
    arms = {
        **by_rate(lab, "rl", (*good_rates, *bad_rates)),
        **by_rate(lab, "sft", (*good_rates, *bad_rates)),
    }
    name = swept(lab, arms, {f"rl-{rate:g}" for rate in bad_rates})
    (found,) = classes(lab)
    assert [str(each) for each in found.region.conditions] == [
        'algorithm.kind = "evsys-algo-rl/rl"',
        "algorithm.params.learning_rate >= 0.003",
        'backend.kind = "evsys-backend-local/local"',
    ]
    assert (found.region.failed, found.region.completed_inside, found.region.completed_outside) == (8, 0, 16)
    assert found.region.known_bad
    assert (found.name, found.runs, found.arms, found.experiments) == ("collapsed", 8, 8, (name,))


def test_two_failures_are_no_region_that_is_known_to_be_bad(lab):
    arms = by_rate(lab, "rl", (1e-5, 1e-4, 1e-3, 5e-3, 1e-2))
    swept(lab, arms, {"rl-0.005", "rl-0.01"})
    (found,) = classes(lab)
    assert not found.region.known_bad


def test_a_bad_day_is_no_region_however_many_runs_it_took(lab):
    for _ in range(6):
        swept(lab, by_rate(lab, "sft", (1e-4, 2e-4)), ())
    arms = by_rate(lab, "dpo", [n * 1e-5 for n in range(1, 21)])
    failure, status, stop = _failure("server", lab.draw)
    swept(lab, arms, set(arms), failure, status, stop)
    (found,) = classes(lab)
    assert found.runs == 20
    assert 'algorithm.kind = "evsys-algo-dpo/dpo"' in map(str, found.region.conditions)
    assert not found.region.known_bad


def test_failures_that_completed_runs_surround_have_no_known_bad_region(lab):
    rates = [n * 1e-4 for n in range(1, 41)]
    base = lab.run("sft", 1e-4)
    arms = {}
    for rate in rates:
        params = {**base["algorithm"]["params"], "learning_rate": rate}
        arms[f"sft-{rate:g}"] = {**base, "algorithm": {**base["algorithm"], "params": params}}
    swept(lab, arms, {f"sft-{rates[n]:g}" for n in (3, 17, 33)})
    (found,) = classes(lab)
    assert found.region.completed_inside > 0
    assert not found.region.known_bad


def test_by_chance_a_region_is_called_bad_in_few_labs_only():
    """Failures that have nothing to do with the config: at most one lab in twenty is misled."""
    misled = 0
    for seed in range(400):
        draw = random.Random(seed)
        numbers: dict[tuple[str, str], int] = {}
        arms = []
        for _ in range(20):
            config = {f"key-{n}": json.dumps(draw.choice(["a", "b", "c"])) for n in range(4)}
            config |= {f"number-{n}": str(draw.random()) for n in range(4)}
            arms.append(frozenset(numbers.setdefault(leaf, len(numbers)) for leaf in config.items()))
        bad = draw.sample(range(20), draw.choice([3, 4, 6, 9]))
        completed = CompletedArms(
            [(0, arms[n]) for n in range(20) if n not in bad], {n: leaf for leaf, n in numbers.items()}
        )
        region = completed.region([(0, arms[n]) for n in bad])
        misled += region is not None and region.known_bad
    assert misled <= 20


def test_messages_are_one_class_whichever_numbers_and_names_stand_in_them(lab):
    for number in (17, 23):
        failure = Failure(
            boundary="backend",
            message=f"out of memory: {number} MiB for '/tmp/{number}/x'",
            error_type="BackendError",
        )
        swept(lab, {f"a{number}": lab.run()}, {f"a{number}"}, failure, "failed", None)
    swept(
        lab,
        {"b": lab.run()},
        {"b"},
        Failure(boundary="backend", message="no such model", error_type="BackendError"),
        "failed",
        None,
    )
    found = classes(lab)
    assert [(each.name, each.runs) for each in found] == [
        ("failed backend/BackendError", 2),
        ("failed backend/BackendError", 1),
    ]
    assert found[0].message == "out of memory: 23 MiB for '/tmp/23/x'"
    assert len(found[0].experiments) == 2


def test_completed_runs_whose_loss_rose_are_a_class_and_no_evidence_of_a_good_config(lab, monkeypatch):
    trend = LossTrend()
    for step in range(400):
        trend.add(1.0 if step < 100 else 50.0)
    warning = trend.warning()
    assert "training diverged" in warning
    record = lab.begin({"a": lab.run(), "b": lab.run()}, 1)
    for arm, warnings in (("a", (warning,)), ("b", ())):
        lab.result(record, arm, 0, warnings=warnings)
    lab.end(record, "REFUTED", [])
    (found,) = classes(lab)
    assert (found.name, found.runs, found.message) == ("diverged", 1, "the loss rose and stayed up")


def test_dry_runs_and_completed_ones_are_no_failures(lab):
    swept(lab, {"a": lab.run()}, ())
    assert classes(lab) == ()


@pytest.mark.parametrize(
    ("relation", "value", "config", "expected"),
    [
        ("=", '"x"', {"p": '"x"'}, True),
        ("=", '"x"', {}, False),
        (">=", "0.003", {"p": "1e-2"}, True),
        (">=", "0.003", {"p": "0.003"}, True),
        ("<=", "8", {"p": "9"}, False),
        ("<=", "8", {"p": '"7"'}, False),
        ("<=", "-1", {"p": "-2.5"}, True),
    ],
)
def test_a_condition_is_met_by_values_as_json_has_them(relation, value, config, expected):
    assert meets(config, Condition(path="p", relation=relation, value=value)) is expected

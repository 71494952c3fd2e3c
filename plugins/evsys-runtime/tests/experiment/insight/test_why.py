"""`evsys why`: what a verdict stands on, what speaks against it, and what failed."""

import json
from pathlib import Path

import jsonschema
import pytest
from past_lab import Lab, _failure
from small_project import METADATA

from evsys.errors import ConfigError
from evsys.types import Comparison, Failure, NoiseFloor
from evsys_record.index import Index
from evsys_record.result_trees import result_tree
from evsys_record.retraction import retract
from evsys_runtime.experiment.insight.arm_index import ArmsOnRecord
from evsys_runtime.experiment.insight.why import explain, outcome_words
from evsys_runtime.experiment.result_schemas import result_schema


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path / ".evsys" / "experiments")


def explained(lab, experiment, arm=None):
    with Index(lab.experiments) as index:
        index.refresh()
        return explain(index, experiment, arm)


def changed(run, **params):
    tree = json.loads(json.dumps(run))
    tree["algorithm"]["params"] |= params
    return tree


@pytest.mark.parametrize(
    ("fields", "minimum", "expected"),
    [
        (
            {"outcome": "win", "effect": 0.3, "p_corrected": 0.004},
            0.1,
            "better by more than the minimum_effect 0.1: p 0.004 after correction, at most 0.05",
        ),
        (
            {"outcome": "loss", "effect": -0.3, "p_corrected": 0.004},
            0.0,
            "worse: p 0.004 after correction, at most 0.05",
        ),
        (
            {"outcome": "tie", "effect": 0.0, "low": -0.02, "high": 0.02, "p_corrected": 1.0},
            0.1,
            "the interval [-0.020, 0.020] lies within the minimum_effect of 0.1 on both sides",
        ),
        (
            {
                "outcome": "inconclusive",
                "effect": 0.05,
                "low": -0.05,
                "high": 0.15,
                "p_corrected": 0.4,
                "smallest_detectable_effect": 0.14,
            },
            0.1,
            (
                "[-0.050, 0.150] includes both 0 and effects of at least the minimum_effect 0.1: p 0.4 after correction, "
                "above 0.05; this design sees effects from 0.140 on"
            ),
        ),
        (
            {
                "outcome": "inconclusive",
                "effect": 0.4,
                "low": 0.1,
                "high": 0.6,
                "p_value": 0.01,
                "p_corrected": 0.07,
                "smallest_detectable_effect": 0.3,
            },
            0.0,
            (
                "[0.100, 0.600] excludes no effect, but p 0.07 after correction, "
                "above 0.05; this design sees effects from 0.300 on, of one arm alone"
            ),
        ),
        (
            {"outcome": "inconclusive", "effect": 0.08, "low": 0.02, "high": 0.14, "p_corrected": 0.01},
            0.1,
            (
                "significant (p 0.01 after correction, at most 0.05), but [0.020, 0.140] doesn't show on which side of the "
                "minimum_effect 0.1 it lies"
            ),
        ),
        ({"outcome": "unscored", "reason": "every repeat failed"}, 0.1, "every repeat failed"),
    ],
)
def test_an_outcome_is_told_by_the_numbers_that_it_follows_from(fields, minimum, expected):
    assert outcome_words(Comparison(arm="a", **fields), minimum, 0.05) == expected


def test_an_effect_within_the_noise_is_said_to_be_that_and_not_to_be_near_the_minimum():
    noise = NoiseFloor(
        baseline="small", metric="m", runs={"a": 0.3, "b": 0.6}, largest=0.4, standard_deviation=0.3
    )
    one = Comparison(
        arm="a", outcome="inconclusive", effect=0.3, low=0.1, high=0.5, p_corrected=0.001, n_seeds=1
    )
    words = outcome_words(one, 0.05, 0.05, noise)
    assert "+0.300 is within the noise: 2 equal runs of small fall up to 0.400 apart" in words
    assert "on which side" not in words


def test_what_a_warning_of_the_conclusion_tells_is_told_once(project):
    entries = (
        "  benchmark:\n  - {name: val, path: tasks.jsonl, max_tokens: 4}\n"
        "  - {name: final, path: tasks.jsonl, max_tokens: 4, split: test}\n"
    )
    metadata = METADATA.partition("  benchmark")[0] + entries
    project.experiment(metadata=metadata).run()
    again = project.experiment(metadata=metadata.replace("it learns", "it learns a lot")).run()
    with Index(Path(again.directory).parent) as index:
        index.refresh()
        found = explain(index, again.experiment_id)
    assert sum("the test tasks of final" in line for line in found.weakened) == 1
    assert sum("it learns a lot" in line for line in found.weakened) == 1


def test_the_arms_on_record_are_read_once(lab, monkeypatch):
    failure, status, _ = _failure("memory", lab.draw)
    parent = lab.begin({"a": lab.run()}, 1)
    lab.end(parent, "REFUTED", [])
    child = lab.begin({"b": lab.run()}, 1, parent_experiment_id=parent.experiment_id)
    lab.result(child, "b", 0, status=status, failure=failure)
    lab.end(child, "INCONCLUSIVE", [], status="failed")
    read = []
    real = ArmsOnRecord.from_index
    monkeypatch.setattr(ArmsOnRecord, "from_index", lambda index: read.append(index) or real(index))
    found = explained(lab, child.experiment_id)
    assert (len(found.failed), len(found.changed), len(read)) == (1, 1, 1)


def test_failures_are_told_with_how_often_and_where_they_came_up(lab):
    failure, status, _ = _failure("memory", lab.draw)
    base = lab.run("sft", 0.001)
    arms = {f"len-{n}": changed(base, max_length=n) for n in (256, 512, 1024, 2048, 8192, 8193, 8194, 8195)}
    record = lab.begin(arms, 1)
    for arm in arms:
        bad = arm >= "len-8"
        lab.result(record, arm, 0, **({"status": status, "failure": failure} if bad else {}))
    lab.end(record, "REFUTED", [], status="partial")
    found = explained(lab, record.experiment_id)
    assert [each.run_id for each in found.failed] == [f"len-{n}-s0" for n in (8192, 8193, 8194, 8195)]
    first = found.failed[0]
    assert (first.way, first.message, first.place) == (
        "failed backend/BackendError",
        failure.message,
        "x.py:3",
    )
    assert (first.runs_on_record, first.region) == (
        4,
        'algorithm.params.max_length >= 8192 and backend.kind = "evsys-backend-local/local"',
    )
    (alone,) = explained(lab, record.experiment_id, "len-8193").failed
    assert alone.run_id == "len-8193-s0"


def test_a_scoring_that_failed_is_told_although_its_run_completed(lab):
    record = lab.begin({"a": lab.run()}, 1)
    lab.result(record, "a", 0, scoring=Failure(boundary="verifier", message="boom", error_type="KeyError"))
    lab.end(record, "INCONCLUSIVE", [])
    (found,) = explained(lab, record.experiment_id).failed
    assert (found.status, found.message) == ("completed", "boom")
    assert found.way.startswith("scoring of ")


def test_what_changed_against_the_parent_is_told_for_the_nearest_arm(lab):
    base = lab.run("sft", 0.001)
    parent = lab.begin({"small": base, "big": changed(base, lora_rank=64)}, 1)
    lab.end(parent, "REFUTED", [lab._comparison("small", "tie", 1), lab._comparison("big", "loss", 1)])
    child = lab.begin({"bigger": changed(base, lora_rank=65)}, 1, parent_experiment_id=parent.experiment_id)
    lab.end(child, "SUPPORTED", [lab._comparison("bigger", "win", 1)])
    found = explained(lab, child.experiment_id)
    assert (found.parent, found.parent_verdict) == (parent.experiment_id, "REFUTED")
    (change,) = found.changed
    assert (change.arm, change.parent_arm) == ("bigger", "big")
    assert [(d.path, d.one, d.other) for d in change.differences] == [
        ("algorithm.params.lora_rank", "64", "65")
    ]
    assert change.parent_effect < -0.1 < 0.1 < change.effect


def test_whatever_weakens_a_conclusion_is_told(lab):
    parent = lab._conclude("win")
    child = lab._conclude("win", parent_experiment_id=parent)
    retract(lab.experiments / parent, "leaked")
    assert explained(lab, parent).weakened[0] == "it was retracted: leaked"
    assert explained(lab, child).parent_retracted == "leaked"
    assert explained(lab, child).weakened[0] == f"it rests on retracted experiments: {parent}"


def test_an_arm_or_a_run_can_be_asked_about(lab):
    base = lab.run("sft", 0.001)
    record = lab.begin({"one": base, "two": changed(base, steps=7)}, 2)
    for repeat in (0, 1):
        for arm in ("one", "two"):
            lab.result(record, arm, repeat)
    lab.end(record, "CANDIDATE", [lab._comparison("one", "win", 2), lab._comparison("two", "tie", 2)])
    for named in ("two", "two-s1"):
        found = explained(lab, record.experiment_id, named)
        assert (found.arm, [each.comparison.arm for each in found.arms]) == ("two", ["two"])
    with pytest.raises(ConfigError, match="has no run 'three'"):
        explained(lab, record.experiment_id, "three")


def test_an_experiment_without_a_conclusion_says_why_it_has_none(lab):
    crashed = lab._conclude("crashed")
    found = explained(lab, crashed)
    assert (found.verdict, found.status) == (None, "crashed")
    assert "evsys resume" in found.reason


def test_the_document_is_as_published(lab):
    experiment = lab._conclude("candidate")
    tree = json.loads(json.dumps(result_tree(explained(lab, experiment))))
    jsonschema.Draft202012Validator(result_schema("why")).validate(tree)

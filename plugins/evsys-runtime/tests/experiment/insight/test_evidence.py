"""What a plan finds on record: the same as a look at every file would give, from the files that matter alone."""

import os

import pytest
from past_lab import Lab

from evsys_record.history import Question, ask
from evsys_record.index import Index
from evsys_record.leaves import short_leaves
from evsys_runtime.experiment.insight import evidence as module
from evsys_runtime.experiment.insight.evidence import Evidence


@pytest.fixture
def index(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    lab = Lab(tmp_path / ".evsys" / "experiments", seed=2)
    lab.write(60)
    with Index(lab.experiments) as index:
        index.refresh()
        yield index


def every_arm(index):
    evidence = Evidence(index)
    return [arm for past in ask(index, Question()).experiments for arm in evidence.arms_of(past)]


def named(arms):
    return [(arm.experiment.experiment_id, arm.name) for arm in arms]


def lacking(config, other):
    return sum(other.get(path) != text for path, text in config.items())


@pytest.mark.parametrize("most", [0, 3, 6])
def test_arms_that_lack_few_values_are_found_by_the_index(index, most):
    arms = every_arm(index)
    config = short_leaves(arms[7].run)
    wanted = [arm for arm in arms if lacking(config, short_leaves(arm.run)) <= most]
    assert named(Evidence(index).arms_near([config], most)) == named(wanted)
    assert named(wanted)


def test_arms_that_train_alike_are_found_by_the_index(index):
    arms = every_arm(index)
    wanted = [arm for arm in arms if arm.trained_as(arms[3].run)]
    assert named(Evidence(index).arms_trained_as(arms[3].run)) == named(wanted)
    assert 1 < len(wanted) < len(arms)


def test_only_the_files_of_what_is_found_are_read_and_once(index, monkeypatch):
    arms = every_arm(index)
    read = []
    real = module.read_json
    monkeypatch.setattr(module, "read_json", lambda path: read.append(path.parent.name) or real(path))
    evidence = Evidence(index)
    config = short_leaves(arms[7].run)
    found = [*evidence.arms_near([config], 0), *evidence.arms_near([config], 0)]
    assert sorted(read) == sorted({arm.experiment.experiment_id for arm in found})


def test_arms_that_were_scored_on_the_same_tasks_are_found_by_their_hash(project):
    first = project.experiment().run()
    project.tasks([(f"t{i:02d}", "say b", "b") for i in range(12)])
    second = project.experiment().run()
    with Index(project.root / ".evsys" / "experiments") as index:
        index.refresh()
        evidence = Evidence(index)
        for result in (first, second):
            (hashed,) = {e.benchmark_hash for e in result.arms[0].evaluations}
            assert {arm.experiment.experiment_id for arm in evidence.arms_scored_on(hashed)} == {
                result.experiment_id
            }
        assert list(evidence.arms_scored_on(None)) == []

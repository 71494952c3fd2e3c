"""An experiment that is run again takes its scores from the cache, and says what it found there."""

import json
from pathlib import Path

import pytest

from evsys.errors import ConfigError
from evsys_runtime.data.workspace import Workspace
from evsys_runtime.experiment.evaluated_models import find_saved_model
from evsys_runtime.experiment.preflight.cache_report import lookups


def evaluations(result):
    (arm,) = result.arms
    return {evaluation.step: evaluation for evaluation in arm.evaluations}


def test_an_experiment_that_is_run_again_has_the_same_scores_from_the_cache(project):
    first, second = (evaluations(project.experiment().run()) for _ in range(2))
    assert {step: (e.cached, e.scored) for step, e in first.items()} == {0: (0, 12), 6: (0, 12)}
    assert {step: (e.cached, e.scored) for step, e in second.items()} == {0: (12, 12), 6: (12, 12)}
    assert second[6].task_rewards == first[6].task_rewards
    assert second[6].usage.completion_tokens == 0


def test_without_the_cache_everything_is_made_anew_and_nothing_is_kept(project):
    for _ in range(2):
        found = evaluations(project.experiment(no_cache=True).run())
        assert [evaluation.cached for evaluation in found.values()] == [0, 0]
    assert Workspace(project.root).results().info().rollouts == 0


def test_other_weights_are_scored_anew_and_the_starting_weights_are_not(project, run_text):
    project.experiment().run()
    text = f"run:{run_text(('learning_rate: 0.05', 'learning_rate: 0.01'))}"
    found = evaluations(project.experiment(text).run())
    assert {step: evaluation.cached for step, evaluation in found.items()} == {0: 12, 6: 0}


def test_lookups_tell_what_differed(project, run_text):
    project.experiment().run()
    text = f"run:{run_text(('learning_rate: 0.05', 'learning_rate: 0.01'))}"
    result = project.experiment(text).run()
    before, after = lookups(Path(result.directory))
    assert (before.run, before.benchmark, before.step, before.used, before.wanted) == (
        "run-s0",
        "val",
        0,
        12,
        12,
    )
    assert (after.step, after.used) == (6, 0)
    assert [difference["path"] for difference in after.nearest["differences"]] == ["model.weights"]


def test_lookups_are_those_of_an_experiment_or_of_a_run_and_of_an_entry(project):
    folder = Path(project.experiment().run().directory)
    for each in (folder, folder / "runs/run-s0"):
        found = lookups(each, benchmark="val")
        assert [lookup.step for lookup in found] == [0, 6]


def test_a_record_or_an_entry_that_is_not_there_is_an_error_that_says_what_is(project):
    folder = Path(project.experiment().run().directory)
    with pytest.raises(ConfigError, match="is neither an experiment nor a run"):
        lookups(project.root / "nowhere")
    with pytest.raises(ConfigError, match="it has val"):
        lookups(folder, benchmark="other")


def test_the_value_of_no_secret_is_in_the_lookups(project, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-abcdefghijklmnopqrstuvwx")
    result = project.experiment().run()
    text = (Path(result.directory) / "runs/run-s0/cache.jsonl").read_text("utf-8")
    assert "sk-abc" not in text
    assert all(json.loads(line)["benchmark"] == "val" for line in text.splitlines())


def test_a_checkpoint_that_a_run_scored_is_not_scored_again(project):
    import asyncio

    from evsys import Registry, use_registry
    from evsys_runtime.config.model import BenchmarkConfig
    from evsys_runtime.experiment.evaluation import ascore

    folder = Path(project.experiment().run().directory)
    saved = find_saved_model(max((folder / "runs/run-s0/checkpoints").iterdir()))
    registry = Registry()
    with use_registry(registry):
        result = asyncio.run(
            ascore(
                saved,
                [BenchmarkConfig(name="val", path="tasks.jsonl", max_tokens=4)],
                project_root=project.root,
                registry=registry,
                quiet=True,
            )
        )
    [lookup] = lookups(Path(result.run_dir))
    differing = [difference["path"] for difference in (lookup.nearest or {}).get("differences", ())]
    assert (result.evaluations[0].cached, differing) == (12, [])

"""Bands that algorithms declare: what left them stands wherever a run is told of."""

import json
from pathlib import Path

import pytest

from evsys_runtime.experiment import Experiment

DECLARES = """
from pathlib import Path

from evsys import register_algorithm
from evsys_algo_sft import SFT
from evsys_runtime.training.bands import Band


@register_algorithm("watched")
class Watched(SFT):
    health = {
        "odd": Band(None, 1.0, "look at the oddness", lasting=2),
        "nll": Band(0.0, None, "never below"),
    }

    def step_metrics(self, step_idx, batch, result):
        found = super().step_metrics(step_idx, batch, result)
        if Path(__file__).with_name(f"fails_at_{step_idx}").exists():
            raise ValueError("enough")
        return {**found, "odd": 5.0 if step_idx in ODD else 0.0}
"""

WATCHED = """
run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: watched, params: {learning_rate: 0.05, steps: 6, batch_size: 4, lora_rank: 4, save_every: 2}}
  backend: {kind: mock}
"""


def watched(project, odd=(), fails_at=None):
    project.code("watched", DECLARES.replace("ODD", repr(tuple(odd))))
    project.code("__init__", "from . import watched\n")
    if fails_at is not None:
        (project.root / f"src/fails_at_{fails_at}").touch()
    return project


def test_what_left_its_band_is_in_both_results_and_in_words(project):
    result = watched(project, odd=(2, 3, 4)).experiment(WATCHED).run()
    (arm,) = result.arms
    (found,) = arm.health
    assert (found.metric, found.high, found.first_step, found.last_step, found.steps) == ("odd", 1.0, 3, 5, 3)
    assert found.share == 0.5
    assert result.conclusion.health == {"run-s0": (found,)}
    folder = Path(result.directory)
    for path in (folder / "conclusion.json", folder / "runs/run-s0/run_result.json"):
        tree = json.loads(path.read_text(encoding="utf-8"))["health"]
        (told,) = tree if isinstance(tree, list) else tree["run-s0"]
        assert (told["metric"], told["why"], told["share"]) == ("odd", "look at the oddness", 0.5)
    line = "odd left its band of at most 1 in run-s0 (50% of its steps, from step 3): look at the oddness"
    assert f"- {line}" in (folder / "conclusion.md").read_text(encoding="utf-8")
    assert f"- health: {line}" in (folder / "runs/run-s0/conclusion.md").read_text(encoding="utf-8")


def test_a_healthy_run_tells_nothing(project):
    result = watched(project, odd=(2,)).experiment(WATCHED).run()
    assert result.arms[0].health == ()
    assert result.conclusion.health == {}
    assert "bands of healthy" not in (Path(result.directory) / "conclusion.md").read_text(encoding="utf-8")


def test_a_run_that_fails_tells_what_it_saw_before(project):
    result = watched(project, odd=(0, 1, 2), fails_at=4).experiment(WATCHED).run()
    assert result.arms[0].status == "failed"
    (found,) = result.arms[0].health
    assert (found.first_step, found.steps) == (1, 3)


def test_steps_that_were_made_again_count_once(project):
    first = watched(project, odd=(2, 3, 4), fails_at=4).experiment(WATCHED).run()
    (project.root / "src/fails_at_4").unlink()  # it goes on from the checkpoint of step 4
    again = Experiment.resume(first.directory, quiet=True).run()
    (found,) = again.arms[0].health
    assert again.arms[0].status == "completed"
    assert (found.first_step, found.last_step, found.steps, found.share) == (3, 5, 3, 0.5)


def test_a_contract_that_is_none_ends_the_run_and_says_so(project):
    watched(project)
    path = project.root / "src/watched.py"
    path.write_text(path.read_text(encoding="utf-8").replace('Band(0.0, None, "never below")', "(0, 1)"))
    result = project.experiment(WATCHED).run()
    assert "`health` maps names of metrics to bands" in result.arms[0].failure.message
    assert not any("health" in warning for warning in result.arms[0].warnings)


@pytest.mark.parametrize("kind", ["sft", "dpo", "rl"])
def test_standard_algorithms_declare_bands_with_words(kind):
    from evsys import current_registry
    from evsys_runtime.training.bands import bands_of

    bands = bands_of(current_registry().get("algorithm", kind), kind)
    assert "grad_norm" in bands
    assert all(len(band.why) > 20 for band in bands.values())

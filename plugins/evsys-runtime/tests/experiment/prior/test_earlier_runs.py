"""A run that was there before is pointed out, and held against what it came to then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from evsys_runtime.experiment.arm.fingerprints import STAGES, first_difference


def facts(arm):
    return json.loads(Path(arm.run_dir, "run.json").read_text(encoding="utf-8"))


def told(arm):
    path = Path(arm.run_dir).parents[1] / "experiment.log.jsonl"
    log = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    said = [line["what"] for line in map(json.loads, log) if line["event"] == "run.repeated"]
    return [line for line in said if line.startswith(f"{arm.run_id} ")]


def test_a_run_that_was_there_before_is_pointed_out(project, run_text):
    before = project.experiment().run()
    again = project.experiment().run()
    (arm,) = again.arms
    assert told(arm) == [
        f"run-s0 was run before in {before.experiment_id} (use it: evsys show {before.experiment_id} run-s0)"
    ]
    assert facts(arm)["run_before"] == {"experiment_id": before.experiment_id, "run_id": "run-s0"}
    assert facts(arm)["stages"] == facts(before.arms[0])["stages"]
    assert set(facts(arm)["stages"]) == {"steps", *STAGES}
    assert None not in facts(arm)["stages"].values()
    (repeat, *rest) = again.warnings
    assert repeat.startswith(f"it repeats {before.experiment_id}")
    assert tuple(rest) == before.warnings


def test_what_is_new_failed_or_dry_is_not_pointed_out(project, run_text):
    project.experiment(dry=True).run()
    broken = project.experiment("run:" + run_text(("batch_size: 4", "batch_size: 4, max_length: 2"))).run()
    assert broken.status == "failed"
    grid = "matrix:\n  axes:\n    algorithm.params.steps: [3, 6]\nbase_run:" + run_text()
    result = project.experiment(grid, extra="n_repeats: 2\n").run()
    assert [told(arm) for arm in result.arms] == [[]] * 4
    wider = project.experiment(grid.replace("[3, 6]", "[6, 9]"), extra="n_repeats: 2\n").run()
    assert ["run_before" in facts(arm) for arm in wider.arms] == [True, False, True, False]
    dry = project.experiment(grid, dry=True).run()
    assert [told(arm) for arm in dry.arms] == [[]] * 2


def test_repeats_that_were_there_before_are_pointed_out_in_one_line(project):
    before = project.experiment(extra="n_repeats: 3\n").run()
    again = project.experiment(extra="n_repeats: 3\n").run()
    (line,) = [line for arm in again.arms for line in told(arm)]
    assert f"was run before in {before.experiment_id} (use it: evsys show" in line
    assert line.endswith("; its other repeats are only in run.json")
    assert [facts(arm)["run_before"]["run_id"] for arm in again.arms] == ["run-s0", "run-s1", "run-s2"]


def test_a_rerun_that_diverges_names_the_first_stage(project):
    before = project.experiment().run()
    (run,) = Path(before.directory, "runs").iterdir()
    kept = json.loads((run / "run.json").read_text(encoding="utf-8"))
    kept["stages"] |= {"losses": "sha256:0", "weights": "sha256:1"}
    (run / "run.json").write_text(json.dumps(kept), encoding="utf-8")
    (arm,) = project.experiment().run().arms
    assert arm.status == "completed"
    said = f"it is the same run as {before.experiment_id} run-s0, yet differs, first in the losses after the first step"
    assert said in arm.warnings


@pytest.mark.parametrize("damage", ["gone", "broken"])
def test_an_earlier_record_that_cannot_be_read_is_no_failure(project, damage):
    before = project.experiment().run()
    (run,) = Path(before.directory, "runs").iterdir()
    if damage == "gone":
        shutil.rmtree(before.directory)
    else:
        (run / "run.json").write_text("{", encoding="utf-8")
    result = project.experiment().run()
    assert result.status == "completed"
    assert told(result.arms[0]) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, None),
        ({"weights": "x"}, STAGES["weights"]),
        ({"losses": "x", "weights": "x"}, STAGES["losses"]),
        ({"batches": "x", "first_loss": "x", "weights": "x"}, STAGES["batches"]),
        ({"first_loss": None, "losses": "x"}, STAGES["losses"]),
    ],
)
def test_the_first_stage_that_differs_is_named(changed, words):
    one = dict.fromkeys(STAGES, "same") | {"steps": 3}
    assert first_difference(one, one | changed) == words
    assert first_difference(one | changed, one) == words


def test_a_rerun_that_diverges_on_a_backend_that_promised_nothing_is_not_warned_of(project, run_text):
    project.code(
        "plugins",
        """
from evsys_sdk import register_backend
from evsys_backend_mock import MockBackend

@register_backend("shared")
class Shared(MockBackend):
    async def prepare(self, *args, **kwargs):
        client = await super().prepare(*args, **kwargs)
        client.facts = {"deterministic": False}
        return client
""",
    )
    text = "run:" + run_text(("kind: mock", "kind: shared"))
    (run,) = Path(project.experiment(text).run().directory, "runs").iterdir()
    kept = json.loads((run / "run.json").read_text(encoding="utf-8"))
    kept["stages"] |= {"losses": "sha256:0"}
    (run / "run.json").write_text(json.dumps(kept), encoding="utf-8")
    (arm,) = project.experiment(text).run().arms
    assert facts(arm)["run_before"]["run_id"] == "run-s0"
    assert not [warning for warning in arm.warnings if "yet differs" in warning]


def test_a_run_that_was_ended_early_departs_from_a_whole_one_only_where_they_share_steps():
    whole = dict.fromkeys(STAGES, "same") | {"steps": 30}
    stopped = whole | {"steps": 21, "batches": "x", "losses": "x", "weights": "x"}
    assert first_difference(whole, stopped) is None
    assert first_difference(whole, stopped | {"first_loss": "x"}) == STAGES["first_loss"]

"""The consumer of `log_store`: what reaches a store, and what one that fails does."""

import json
from pathlib import Path

import pytest

STORE = """
import json
from evsys import option, register_log_store
import attrs

@register_log_store("notebook")
class Notebook:
    @attrs.frozen(kw_only=True)
    class Config:
        fails_at: str | None = option(None, "event at which it fails")

    def __init__(self, fails_at):
        self.fails_at = fails_at

    async def write(self, record):
        if record["event"] == self.fails_at:
            raise ConnectionError("the notebook is full")
        with open("notebook.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\\n")

    async def close(self):
        with open("closed.txt", "a", encoding="utf-8") as file:
            file.write("closed\\n")
"""


def records(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "notebook.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def stored(project, monkeypatch):
    """Runs an experiment with a project's own log store."""
    monkeypatch.chdir(project.root)
    project.code("stores", STORE)

    def run(params: str = "{}", extra: str = ""):
        return project.experiment(extra=f"{extra}log_store: {{kind: notebook, params: {params}}}\n").run()

    return run


def test_a_store_gets_what_happens_to_each_run_and_to_the_experiment(stored, project):
    result = stored(extra="n_repeats: 2\n")
    found = records(project.root)
    assert [(found[0]["event"], found[0]["runs"])] == [("experiment_started", ["run-s0", "run-s1"])]
    assert {record["experiment"] for record in found} == {result.experiment_id}
    for arm in result.arms:
        own = [record for record in found if record["run"] == arm.run_id]
        assert (own[0]["event"], own[0]["rows"], own[0]["from_step"]) == ("run_started", 8, 0)
        assert own[0]["config"]["algorithm"]["kind"].endswith("sft")
        assert (own[-1]["event"], own[-1]["status"]) == ("run_finished", "completed")
        steps = [each for each in own if each["event"] == "metrics" and each["group"] == "training"]
        assert [each["step"] for each in steps] == list(range(1, arm.run.steps + 1))
        assert steps[-1]["values"] == arm.run.metrics
        scores = {each["step"]: each["values"] for each in own if each.get("group") == "val/val"}
        for evaluation in arm.evaluations:
            assert scores[evaluation.step]["mean_reward"] == evaluation.metrics["mean_reward"].value
        assert any(Path(each["path"]).is_dir() for each in own if each["event"] == "checkpoint")
    assert (found[-1]["event"], found[-1]["facts"]["verdict"]) == (
        "experiment_finished",
        result.conclusion.verdict,
    )
    assert (project.root / "closed.txt").read_text(encoding="utf-8") == "closed\n"


@pytest.mark.parametrize("event", ["experiment_started", "run_started", "metrics", "experiment_finished"])
def test_a_store_that_fails_is_a_warning_and_training_goes_on(stored, project, event):
    result = stored(f"{{fails_at: {event}}}")
    assert (result.status, result.arms[0].status) == ("completed", "completed")
    assert any("'log_store' failed" in line and "the notebook is full" in line for line in result.warnings)
    assert (project.root / "closed.txt").read_text(encoding="utf-8") == "closed\n"


def test_the_local_store_appends_every_record_to_the_file_that_is_named(project):
    extra = "log_store: {kind: local, params: {path: logs/all.jsonl}}\n"
    result = project.experiment(extra=extra).run()
    lines = (project.root / "logs" / "all.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    assert found[-1]["event"] == "experiment_finished"
    assert {record["experiment"] for record in found} == {result.experiment_id}


def test_the_local_store_alone_is_the_record(project):
    before = {path.name for path in project.root.iterdir()}
    assert project.experiment(extra="log_store: {kind: local}\n").run().status == "completed"
    assert {path.name for path in project.root.iterdir()} - before <= {"config.yaml", ".evsys"}

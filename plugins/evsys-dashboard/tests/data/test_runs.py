"""Experiments on data by ID: they pull it once, keep the version that a name meant, and know who read their test sets."""

import json
import shutil
from pathlib import Path

import pytest
from small_project import Project
from team_data import TASKS

from evsys.errors import ConfigError
from evsys_dashboard.data.store import EvsysStore
from evsys_dashboard.push.pusher import Pusher
from evsys_dashboard.push.server import ServerTarget
from evsys_record.files import read_json
from evsys_runtime import Workspace
from evsys_runtime.experiment import Experiment

ROWS = [{"prompt": f"say {c}", "completion": c} for c in "abcdefgh"]
NEWER = [*ROWS, {"prompt": "say i", "completion": "i"}]
RUN = """
data_store: {kind: evsys}
run:
  data: {dataset_name: letters, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 0.05, steps: 6, batch_size: 4, lora_rank: 4}}
  backend: {kind: mock}
"""
METADATA = """
metadata:
  hypothesis: it learns
  success_metric: val.mean_reward
  benchmark:
    - {name: val, path: tasks.jsonl, max_tokens: 4}
    - {name: final, split: test, max_tokens: 4}
"""


@pytest.fixture
def project(team, tmp_path, monkeypatch):
    """A project whose training rows and final test are on the server."""
    write = team.key("write")
    team.upload(write, "datasets", "letters", ROWS)
    team.upload(write, "benchmarks", "final", TASKS, split="test")
    monkeypatch.setenv("EVSYS_API_URL", team.address)
    monkeypatch.setenv("EVSYS_API_KEY", team.key("read", "write", "test"))
    folder = tmp_path / "lab"
    folder.mkdir()
    return Project(folder)


def experiment(project, metadata=METADATA, **options):
    return project.experiment(RUN, metadata=metadata, **options)


def stored(result):
    return read_json(result_folder(result) / "experiment.json")["stored_data"]


def result_folder(result):
    return Path(result.directory)


def lineage(result):
    [run] = (result_folder(result) / "runs").iterdir()
    return read_json(run / "run.json")["data"]["lineage"][0]


def reads(team):
    key = team.key("read")
    return team.ask("/projects/lab/data/benchmarks/final", Authorization=f"Bearer {key}")["reads"]


def test_an_experiment_pulls_its_data_and_records_the_versions(project, team):
    result = experiment(project).run()
    assert result.status == "completed"
    known = stored(result)
    assert known["datasets/letters"]["id"] == lineage(result)["id"]
    assert (known["benchmarks/final"]["split"], known["benchmarks/final"]["reads"]) == ("test", 1)
    workspace = Workspace(project.root)
    entry = workspace.cache("datasets").get(known["datasets/letters"]["id"])
    entry.verify()
    assert list(entry.rows()) == ROWS
    assert not list((project.root / ".evsys/cache/downloads").iterdir())


def test_a_new_experiment_takes_the_latest_version_and_a_resumed_one_its_own(project, team):
    first = experiment(project)
    first.run()
    folder = result_folder(first.result)
    newer = team.upload(team.key("write"), "datasets", "letters", NEWER).version
    facts = read_json(folder / "experiment.json")
    (folder / "run_result.json").unlink(missing_ok=True)
    facts |= {"status": "running", "finished": None}
    (folder / "experiment.json").write_text(json.dumps(facts), encoding="utf-8")
    for path in (folder / "conclusion.json", folder / "experiment_result.json"):
        path.unlink(missing_ok=True)
    resumed = Experiment.resume(folder, quiet=True)
    assert resumed.plan.stored["datasets/letters"]["id"] == stored(first.result)["datasets/letters"]["id"]
    resumed.run()
    assert lineage(resumed.result)["id"] == lineage(first.result)["id"] != newer.id
    second = experiment(project).run()
    assert lineage(second)["id"] == newer.id


def test_a_resumed_experiment_pulls_its_version_again_if_the_cache_is_gone(project, team):
    workspace = Workspace(project.root, store=EvsysStore())
    old = workspace.pull_dataset("letters").id
    team.upload(team.key("write"), "datasets", "letters", NEWER)
    shutil.rmtree(project.root / ".evsys/cache")
    again = Workspace(project.root, store=EvsysStore(), pins=workspace.pins)
    assert again.pull_dataset("letters").id == old
    assert Workspace(project.root, store=EvsysStore()).pull_dataset("letters").id != old


def test_without_the_server_the_version_pulled_before_is_used_and_named(project, team):
    first = experiment(project).run()
    team.stop()
    second = experiment(project).run()
    assert stored(second)["datasets/letters"]["id"] == stored(first)["datasets/letters"]["id"]
    assert any("can't be reached" in each and "pulled before" in each for each in second.warnings)


def test_a_project_that_never_pulled_needs_the_server(project, team):
    team.stop()
    with pytest.raises(ConfigError, match="can't be reached"):
        experiment(project)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("name: final,", "name: fnial,"), "no benchmark 'fnial'; did you mean 'final'"),
        (("name: final,", "id: final-000000000000,"), "has no version 'final-000000000000'"),
    ],
)
def test_an_unknown_benchmark_is_a_problem_of_the_file_with_the_nearest_name(project, change, message):
    with pytest.raises(ConfigError, match=message):
        experiment(project, METADATA.replace(*change))


def test_an_unknown_dataset_fails_the_run_with_the_nearest_name(project):
    result = project.experiment(RUN.replace("letters", "lettres"), metadata=METADATA).run()
    assert result.status == "failed"
    assert "no dataset 'lettres'; did you mean 'letters'?" in str(result.arms[0])


def test_a_key_without_the_scope_can_not_pull_a_test_set(project, team, monkeypatch):
    monkeypatch.setenv("EVSYS_API_KEY", team.key("read"))
    with pytest.raises(ConfigError, match="is a test set, and the key lacks the scope 'test'"):
        experiment(project)
    assert reads(team) == 0


def test_without_a_key_the_variable_is_named(project, monkeypatch):
    monkeypatch.delenv("EVSYS_API_KEY")
    with pytest.raises(ConfigError, match="EVSYS_API_KEY isn't set"):
        experiment(project)


def test_reads_of_a_test_set_by_others_count_in_its_exposure(project, team):
    first = experiment(project).run()
    assert (reads(team), first.conclusion.test_looks_before) == (1, {})
    tester = team.key("read", "test")
    for _ in range(2):
        team.ask("/projects/lab/data/benchmarks/final/rows", Authorization=f"Bearer {tester}")
    shutil.rmtree(first.directory)
    (project.root / ".evsys/looks.jsonl").unlink(missing_ok=True)
    shutil.rmtree(project.root / ".evsys/cache")
    second = experiment(project).run()
    assert reads(team) == 4
    assert second.conclusion.test_looks_before == {"final": 3}
    assert any("the rows of final were read 3 times" in each for each in second.conclusion.warnings)


def test_a_test_set_of_the_store_as_val_is_warned_of(project):
    plan = experiment(project, METADATA.replace("split: test, ", "")).plan
    assert any("'final' is a test set in the data store" in each for each in plan.warnings)


def test_the_server_knows_which_experiments_used_a_version(project, team):
    result = experiment(project).run()
    target = ServerTarget(team.address, team.key("write"))
    pusher = Pusher(result_folder(result), target)
    while pusher.push():
        pass
    target.close()
    key = team.key("read")
    for kind, name in (("datasets", "letters"), ("benchmarks", "final")):
        shown = team.ask(f"/projects/lab/data/{kind}/{name}", Authorization=f"Bearer {key}")
        assert [each["experiment"] for each in shown["used_by"]] == [result.experiment_id]


def test_own_data_of_a_project_comes_before_the_store(project):
    folder = project.root / "data/datasets/letters/v1"
    folder.mkdir(parents=True)
    (project.root / "train.jsonl").rename(folder / "train.jsonl")
    result = experiment(project).run()
    assert "datasets/letters" not in stored(result)
    assert result.status == "completed"

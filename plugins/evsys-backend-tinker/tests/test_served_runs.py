"""Whole experiments over the wire, and the probe."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evsys import Registry, use_registry
from evsys_backend_tinker.commands import backend as command
from evsys_backend_tinker.probes import lacking
from evsys_runtime.experiment import Experiment

EXAMPLES = Path(__file__).parents[3] / "examples"
CLOCKS = ("seconds", "rollout_wait/seconds", "sampler_idle/seconds")


def run(folder: Path, *overrides: str) -> tuple[Any, list[dict[str, float]]]:
    """An experiment and the metrics of its steps, without those of a clock."""
    experiment = Experiment.from_yaml(folder / "config.yaml", overrides=overrides, quiet=True)
    result = experiment.run()
    paths = Path(result.directory).glob("runs/*/training/metrics.jsonl")
    lines = [json.loads(line)["values"] for path in paths for line in path.read_text("utf-8").splitlines()]
    return result, [{name: value for name, value in line.items() if name not in CLOCKS} for line in lines]


def scores(result: Any) -> list[tuple[int, dict[str, float]]]:
    return [
        (one.step, {name: metric.value for name, metric in one.metrics.items()})
        for one in result.arms[0].evaluations
    ]


def over(base_url: str, *more: str) -> tuple[str, ...]:
    return ("run.backend.kind=tinker", f"run.backend.params.base_url={base_url}", *more)


def example(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=shutil.ignore_patterns(".evsys")))


@pytest.mark.parametrize("provider", [(), ("run.backend.params.provider=evsys",)], ids=["tinker", "evsys"])
def test_the_quickstart_gives_the_numbers_of_a_run_in_process(
    local_server, tmp_path: Path, provider: tuple[str, ...]
):
    folder, short = example("quickstart", tmp_path), "run.algorithm.params.steps=8"
    here, expected = run(folder, short)
    there, found = run(folder, short, *over(local_server.base_url, *provider))
    assert here.status == there.status == "completed"
    assert found == expected
    assert scores(there) == scores(here)


@pytest.mark.parametrize(
    "more",
    [
        # Groups of five, so that no share of the loss is a power of two, which would hide what is rounded; waves of 9, of 2 groups.
        pytest.param(("n_concurrent=9",), id="importance_sampling"),
        pytest.param(("loss=dro",), id="dro"),
        pytest.param(("loss=gspo",), id="gspo"),
    ],
)
def test_reinforcement_learning_gives_the_bits_of_a_run_in_process(
    local_server, tmp_path: Path, more: tuple[str, ...]
):
    pytest.importorskip("evsys_algo_rl")
    folder = example("rl_word_length", tmp_path)
    params = ("steps=3", "learning_rate=0.01", "groups_per_step=2", "group_size=5", *more)
    short = ("metadata.benchmark.limit=8", *(f"run.algorithm.params.{one}" for one in params))
    here, expected = run(folder, *short)
    there, found = run(folder, *short, *over(local_server.base_url, "run.backend.params.provider=evsys"))
    assert here.arms[0].status == there.arms[0].status == "completed"
    assert expected[0]["grad_norm"] > 0
    assert (
        expected[0]["kl_k1"] != 0
    )  # sampler and trainer differ by what is rounded, which has to be the same
    assert found == expected
    assert scores(there) == scores(here)


def test_a_run_that_is_stopped_early_stops_after_the_step_where_it_stops_in_process(
    local_server, tmp_path: Path
):
    folder = example("quickstart", tmp_path)
    stop = "{kind: early_stopping, params: {monitor: loss, patience: 2, min_delta: 100, direction: min}}"
    short = (f"callbacks=[{stop}]", "run.algorithm.params.steps=8")
    here, expected = run(folder, *short)
    there, found = run(folder, *short, *over(local_server.base_url, "run.backend.params.provider=evsys"))
    assert len(expected) == 3
    assert found == expected
    assert there.arms[0].run.stop_reason == here.arms[0].run.stop_reason
    assert scores(there) == scores(here)


def test_agents_of_several_turns_give_the_bits_of_a_run_in_process(local_server, tmp_path: Path):
    pytest.importorskip("evsys_algo_rl")
    folder = example("rl_lookup", tmp_path)
    short = ("run.algorithm.params.steps=2", "metadata.benchmark.limit=16")
    here, expected = run(folder, *short)
    there, found = run(folder, *short, *over(local_server.base_url, "run.backend.params.provider=evsys"))
    assert here.arms[0].status == there.arms[0].status == "completed"
    assert found == expected
    assert scores(there) == scores(here)


def test_a_checkpoint_of_one_experiment_starts_another(local_server, tmp_path: Path):
    folder = example("quickstart", tmp_path)
    common = over(local_server.base_url, "run.backend.params.provider=evsys")
    first, _ = run(folder, "run.algorithm.params.steps=4", "run.algorithm.params.save_every=2", *common)
    [manifest] = Path(first.directory).glob("runs/*/checkpoints/4/manifest.json")
    saved = json.loads(manifest.read_text("utf-8"))["manifest"]
    assert saved["state"]["path"].startswith("tinker://")
    assert saved["model"]["lora"]["rank"] == 8
    start = manifest.parent.relative_to(folder).as_posix()
    second, _ = run(
        folder, "run.algorithm.params.steps=2", f"run.model.load_checkpoint_path={start}", *common
    )
    assert second.status == "completed"
    third, _ = run(
        folder,
        "run.algorithm.params.steps=2",
        f"run.model.init_from_checkpoint={saved['state']['path']}",
        *common,
    )
    assert third.status == "completed"


def test_the_probe_finds_local_in_process_and_through_the_wire_equal(
    local_server, monkeypatch, tmp_path: Path
):
    monkeypatch.setenv("EVSYS_CACHE", str(tmp_path / "cache"))
    arguments = ["--param", "provider=evsys", "--param", f"base_url={local_server.base_url}"]
    with use_registry(Registry()):
        result = CliRunner().invoke(
            command, ["probe", *arguments, "--beside", "local", "--tolerance", "1e-6", "--json"]
        )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["same"] is True
    assert lacking(local_server.base_url) == frozenset()


def test_states_that_are_left_can_be_deleted(mock_server, tmp_path: Path):
    folder = example("quickstart", tmp_path)
    common = over(mock_server.base_url, "run.backend.params.provider=evsys", "run.algorithm.params.steps=2")
    result, _ = run(folder, *common)
    [manifest] = Path(result.directory).glob("runs/*/checkpoints/2/manifest.json")
    path = json.loads(manifest.read_text("utf-8"))["manifest"]["state"]["path"]

    def states(*more: str) -> list[dict[str, Any]]:
        params = ["--param", "provider=evsys", "--param", f"base_url={mock_server.base_url}"]
        with use_registry(Registry()):
            done = CliRunner().invoke(command, ["states", *params, "--json", *more])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)["states"]

    [state] = [one for one in states() if one["path"] == path]
    assert state["expires"] is None  # the last state of a run that is over stays
    assert all(one["deleted"] for one in states("--delete"))
    assert states() == []
    gone, _ = run(folder, *common, f"run.model.init_from_checkpoint={path}")
    assert "can't be loaded" in gone.arms[0].failure.message


def test_a_run_on_a_server_that_only_imitates_a_model_is_marked_as_one_in_process_is(
    mock_server, tmp_path: Path
):
    folder = example("quickstart", tmp_path)
    result, _ = run(folder, "run.algorithm.params.steps=2", *over(mock_server.base_url))
    assert result.conclusion.extra["simulated_by"] == ["tinker"]
    assert any("'tinker' only imitates a model" in warning for warning in result.warnings)
    page = Path(result.directory, "conclusion.md").read_text(encoding="utf-8")
    assert f"{result.conclusion.verdict} (a model simulated by tinker)" in page


def test_a_run_on_a_server_with_a_model_has_no_such_mark(local_server, tmp_path: Path):
    folder = example("quickstart", tmp_path)
    result, _ = run(folder, "run.algorithm.params.steps=2", *over(local_server.base_url))
    assert "simulated_by" not in result.conclusion.extra

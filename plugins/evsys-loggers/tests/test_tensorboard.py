"""`tensorboard`: what TensorBoard reads back."""

import pytest
from attempts import attempt, context, needs
from small_project import Project

from evsys_loggers.tensorboard import TensorBoardLogger

pytestmark = needs("tensorboard")


def read(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    scalars = {
        tag: [(e.step, round(e.value, 6)) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }
    texts = {
        tag: events.Tensors(tag)[-1].tensor_proto.string_val[0].decode("utf-8")
        for tag in events.Tags()["tensors"]
    }
    return scalars, texts


def test_a_run_is_read_back_with_its_scores_its_config_and_its_end(tmp_path):
    ctx = context(tmp_path)
    attempt(TensorBoardLogger(tags=("one",)), ctx, range(1, 6), [(0, 0.25), (3, 0.5)])
    scalars, texts = read(ctx.run_dir / "loggers" / "tensorboard")
    assert scalars["training/loss"] == [(step, float(step)) for step in range(1, 6)]
    assert scalars["val/val/pass@1"] == [(0, 0.25), (3, 0.5)]
    assert scalars["val/val/pass@1/low"] == [(0, 0.25), (3, 0.25)]
    assert '"learning_rate": 0.01' in texts["config/text_summary"]
    assert '"run": "a-s0"' in texts["config/text_summary"]
    assert texts["tags/text_summary"] == "    one"
    assert "| stop_reason | early_stopping: enough |" in texts["end/text_summary"]


def test_a_resumed_attempt_goes_on_and_hides_the_steps_that_it_trains_again(tmp_path):
    attempt(TensorBoardLogger(), context(tmp_path), range(1, 9), status="cancelled")
    ctx = context(tmp_path, attempt=2, from_step=4)
    attempt(TensorBoardLogger(), ctx, range(5, 7))
    scalars, _ = read(ctx.run_dir / "loggers" / "tensorboard")
    assert [step for step, _ in scalars["training/loss"]] == [1, 2, 3, 4, 5, 6]


def test_files_can_lie_in_one_folder_of_the_project(tmp_path):
    attempt(TensorBoardLogger(directory="logs", project="mine", name="{arm}"), context(tmp_path), [1])
    assert read(tmp_path / "logs" / "mine" / "a")[0]["training/loss"] == [(1, 1.0)]


def test_an_experiment_logs_its_verdict(tmp_path):
    result = Project(tmp_path).experiment(extra="callbacks: [{kind: tensorboard}]\n").run()
    assert [line for line in result.warnings if "tensorboard" in line] == []
    scalars, texts = read(f"{result.directory}/loggers/tensorboard")
    assert f"| verdict | {result.conclusion.verdict} |" in texts["end/text_summary"]
    assert scalars["conclusion/run/effect"] == [(0, pytest.approx(result.conclusion.comparisons[0].effect))]
    assert read(f"{result.arms[0].run_dir}/loggers/tensorboard")[0]["training/loss"][-1][0] == 6

"""A fork is a new experiment that begins where another one stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_project import METADATA, RUN

from evsys.errors import ConfigError
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.files import read_json
from evsys_runtime.experiment import Experiment

EVERY_2 = METADATA.replace("max_tokens: 4", "max_tokens: 4\n    run_every: 2")
NINE = f"run:{RUN.replace('steps: 6', 'steps: 9, save_every: 2')}"

STOPS = """
from pathlib import Path
from evsys_sdk import register_callback

HERE = Path(__file__).parent

@register_callback("stops")
class Stops:
    def evsys_step_finished(self, ctx, step):
        if (HERE / f"stop-{step}").exists():
            raise KeyboardInterrupt
"""


@pytest.fixture
def stopped(project):
    """An experiment that was interrupted at step 5, and won't be again."""
    project.code("stops", STOPS)
    (project.root / "src/stop-5").touch()
    experiment = project.experiment(
        NINE, metadata=EVERY_2, extra="callbacks: [{kind: stops}]\n", no_cache=True
    )
    with pytest.raises(KeyboardInterrupt):
        experiment.run()
    (project.root / "src/stop-5").unlink()
    return Path(experiment.result.directory)


def run_of(directory):
    return ExperimentRecord.open(Path(directory)).find_run("run-s0")


def steps_of(run):
    return [line["step"] for line in run.read_journal() if line["event"] == "done"]


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def more_rows(project):
    with (project.root / "train.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"prompt": "say z", "completion": "z"}\n')


def test_a_fork_goes_on_from_the_checkpoints_on_other_rows_and_leaves_its_parent_alone(project, stopped):
    more_rows(project)
    with pytest.raises(ConfigError, match="the rows have changed since"):
        Experiment.resume(stopped, quiet=True).run()
    before = contents(stopped)
    result = Experiment.fork(stopped, quiet=True).run()
    assert contents(stopped) == before
    assert (result.status, result.arms[0].run.steps) == ("completed", 9)
    assert result.experiment_id != stopped.name
    facts = read_json(Path(result.directory) / "experiment.json")
    assert facts["parent_experiment_id"] == stopped.name
    run = run_of(result.directory)
    assert [(a.reason, a.parent, a.from_step) for a in run.attempts] == [
        ("branch", None, 4),
        ("resume", 1, 4),
    ]
    assert steps_of(run) == [5, 6, 7, 8, 9]
    assert run.facts["branch"]["experiment_id"] == stopped.name
    saved = run_of(stopped).checkpoints.latest(run_of(stopped).attempts)
    ours = next(entry for entry in run.checkpoints.complete() if entry.step == 4)
    assert ours.files == saved.files


def test_a_fork_tells_of_a_damaged_checkpoint_that_it_could_not_begin_from(stopped):
    path = run_of(stopped).directory / "checkpoints/4/manifest.json"
    path.write_bytes(path.read_bytes()[:100])
    result = Experiment.fork(stopped, quiet=True).run()
    assert [a.from_step for a in run_of(result.directory).attempts] == [2, 2]
    [told] = [warning for warning in result.warnings if "a checkpoint is left out" in warning]
    assert str(path) in told


def test_a_fork_is_scored_anew_from_its_first_step_on_and_on_untrained_weights(stopped):
    result = Experiment.fork(stopped, quiet=True).run()
    assert [(e.step, e.status) for e in result.arms[0].evaluations] == [
        (step, "completed") for step in (0, 4, 6, 8, 9)
    ]


def test_what_nothing_changed_for_comes_to_the_weights_of_its_parent_under_another_identity(project, stopped):
    result = Experiment.fork(stopped, quiet=True).run()
    parent = Experiment.resume(stopped, quiet=True).run()
    weights = [
        (Path(each.arms[0].run_dir) / each.arms[0].run.final_checkpoint / "mock.npz").read_bytes()
        for each in (result, parent)
    ]
    assert weights[0] == weights[1]
    assert result.arms[0].identity != parent.arms[0].identity


def test_a_fork_may_be_set_otherwise_and_counts_only_what_it_did_itself(stopped):
    longer = Experiment.fork(stopped, overrides=["run.algorithm.params.steps=12"], quiet=True).run()
    run = run_of(longer.directory)
    assert steps_of(run) == list(range(5, 13))
    trained = sum(int(line["values"]["tokens"]) for line in run.read_metrics())
    assert longer.arms[0].run.usage.trained_tokens == trained


def test_a_run_without_a_checkpoint_begins_at_its_beginning(project, stopped):
    result = Experiment.fork(stopped, overrides=["n_repeats=2"], quiet=True).run()
    assert [arm.run.steps for arm in result.arms] == [9, 9]
    other = ExperimentRecord.open(Path(result.directory)).find_run("run-s1")
    assert [(a.reason, a.from_step) for a in other.attempts] == [("start", 0)]


@pytest.mark.parametrize("when", ["copied", "copying"])
def test_a_fork_can_be_resumed_also_where_it_was_cut_off_while_it_was_made(
    project, stopped, monkeypatch, when
):
    with monkeypatch.context() as patched:

        def cut(*arguments, **facts):
            raise KeyboardInterrupt

        name = "_copy" if when == "copying" else "restart_points"
        module = "resume.fork" if when == "copying" else "experiment"
        patched.setattr(f"evsys_runtime.experiment.{module}.{name}", cut)
        fork = Experiment.fork(stopped, quiet=True)
        with pytest.raises(KeyboardInterrupt):
            fork.run()
    [directory] = [path for path in stopped.parent.iterdir() if path.is_dir() and path != stopped]
    result = Experiment.resume(directory, quiet=True).run()
    assert (result.status, steps_of(run_of(directory))) == ("completed", [5, 6, 7, 8, 9])
    assert read_json(directory / "experiment.json")["parent_experiment_id"] == stopped.name


def test_a_fork_that_was_interrupted_goes_on_like_any_experiment(project, stopped):
    (project.root / "src/stop-7").touch()
    fork = Experiment.fork(stopped, quiet=True)
    with pytest.raises(KeyboardInterrupt):
        fork.run()
    (project.root / "src/stop-7").unlink()
    result = Experiment.resume(fork.result.directory, quiet=True).run()
    assert result.status == "completed"
    assert [e.step for e in result.arms[0].evaluations] == [0, 4, 6, 8, 9]


def test_a_complete_experiment_can_be_forked_onto_other_tasks(project):
    whole = project.experiment(NINE, metadata=EVERY_2).run()
    project.tasks([(f"u{i:02d}", "say b", "b") for i in range(12)])
    result = Experiment.fork(whole.directory, quiet=True).run()
    assert steps_of(run_of(result.directory)) == []
    assert [e.step for e in result.arms[0].evaluations] == [0, 9]
    assert set(result.arms[0].evaluations[0].task_rewards) == {f"u{i:02d}" for i in range(12)}


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_a_fork_with_more_steps_reports_the_jump_of_the_learning_rate_and_how_to_keep_the_schedule(
    project, kind
):
    text = NINE.replace("steps: 9", f"steps: 9, lr_schedule: {kind}")
    whole = project.experiment(text, metadata=EVERY_2).run()
    longer = Experiment.fork(whole.directory, overrides=["run.algorithm.params.steps=18"], quiet=True).run()
    rates = {
        line["step"]: line["values"]["learning_rate"] for line in run_of(longer.directory).read_metrics()
    }
    [told] = [text for text in longer.arms[0].warnings if "by the schedule of the checkpoint" in text]
    assert told == (
        f"the learning rate of step 10 is {rates[10]:.3g}, and was to be 0 by the schedule of the checkpoint: its {kind} decay "
        "reaches 0 at step 18, then at step 9; to keep that, set algorithm.params.schedule_steps to 9"
    )


def test_a_fork_that_keeps_the_schedule_trains_at_its_rates_and_says_where_they_are_zero(project, stopped):
    more = ["run.algorithm.params.steps=12", "run.algorithm.params.schedule_steps=9"]
    kept = Experiment.fork(stopped, overrides=more, quiet=True).run()
    rates = [line["values"]["learning_rate"] for line in run_of(kept.directory).read_metrics()]
    assert rates == pytest.approx([0.05 * (1 - step / 9) for step in range(4, 9)] + [0.0] * 3)
    assert "the learning rate is 0 from step 10 on (schedule_steps)" in kept.arms[0].warnings
    assert not any("by the schedule of" in text for text in kept.arms[0].warnings)


def test_a_dry_run_is_not_forked(project):
    result = project.experiment(NINE, metadata=EVERY_2, dry=True).run()
    with pytest.raises(ConfigError, match="is a dry run"):
        Experiment.fork(result.directory)

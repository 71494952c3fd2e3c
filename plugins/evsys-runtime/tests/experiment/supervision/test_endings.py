"""However an experiment ends, its record says so, and keeps what was done until then."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from evsys.errors import EvsysError, PluginContractError, StoreError
from evsys_record.lock import ExperimentLock
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment import experiment as experiment_module
from evsys_runtime.experiment.supervision.interrupts import AbandonRequest, TerminationRequest

signals = pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals")

KILLS = """
import os, signal
from evsys_sdk import register_callback

@register_callback("kills")
class Kills:
    def __init__(self, **kw):
        pass

    def evsys_step_finished(self, ctx, step, metrics):
        if step == 3:
            os.kill(os.getpid(), signal.{name})
"""

STUBBORN = """
import asyncio, os, signal
from evsys_sdk import SFT, register_algorithm

@register_algorithm("stubborn")
class Stubborn(SFT):
    async def build_batch(self, step_idx):
        if step_idx == 2 and self.ctx.attempt == 1:
            while True:  # whoever is asked to end, and doesn't
                try:
                    os.kill(os.getpid(), signal.SIGINT)
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    pass
        return await super().build_batch(step_idx)
"""

BREAKS = """
from evsys_sdk import SFT, register_algorithm

@register_algorithm("breaks")
class Breaks(SFT):
    async def build_batch(self, step_idx):
        if step_idx == 3:
            raise RuntimeError("the fourth batch")
        return await super().build_batch(step_idx)
"""


def killed(project, name):
    project.code("callbacks", KILLS.format(name=name))
    return project.experiment(extra="callbacks: [{kind: kills}]\n")


def facts(project, name="experiment.json"):
    (record,) = (project.root / ".evsys/experiments").iterdir()
    return json.loads((record / name).read_text(encoding="utf-8"))


# --- signals -----------------------------------------------------------------------------------------------------


@signals
def test_a_signal_that_asks_to_end_cancels_the_run_and_ends_the_process(project, name):
    experiment = killed(project, name)
    with pytest.raises(TerminationRequest) as ended:
        experiment.run()
    number = getattr(signal, name)
    result = experiment.result
    assert ended.value.code == result.exit_code == 128 + number
    assert result.status == facts(project)["status"] == "cancelled"
    assert facts(project)["exit_code"] == 128 + number
    run = facts(project, "runs/run-s0/run_result.json")
    assert (run["status"], run["run"]["steps"]) == ("cancelled", 3)
    assert run["run"]["stop_reason"] == f"interrupted by {name}"
    assert f"the experiment ended early: interrupted by {name}" in result.warnings
    assert signal.getsignal(number) is signal.SIG_DFL


def test_ctrl_c_leaves_the_result_with_the_experiment(project):
    experiment = killed(project, "SIGINT")
    with pytest.raises(KeyboardInterrupt):
        experiment.run()
    assert (experiment.result.status, experiment.result.exit_code) == ("cancelled", 130)
    assert experiment.result.arms[0].run.steps == 3
    assert Path(experiment.result.directory, "experiment.json").is_file()


def test_ctrl_c_twice_waits_for_nothing_and_leaves_an_experiment_that_can_be_resumed(project):
    project.code("stubborn", STUBBORN)
    experiment = project.experiment(overrides=["run.algorithm.kind=stubborn"])
    with pytest.raises(AbandonRequest):
        experiment.run()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert facts(project)["status"] in ("cancelled", "running")
    again = Experiment.resume(
        experiment.record.directory, quiet=True
    )  # nobody holds it, though this process lives
    assert again.run().status == "completed"


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda number, frame: None])
def test_a_signal_that_is_ignored_or_handled_already_is_left_to_that(project, handler):
    before = signal.signal(signal.SIGHUP, handler)
    try:
        assert killed(project, "SIGHUP").run().status == "completed"
        assert signal.getsignal(signal.SIGHUP) is handler
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_signal_would_end_the_process_at_once(project):
    code = KILLS.format(name="SIGTERM").replace(
        "signal.SIGTERM)\n",
        "signal.SIGTERM)\n            ctx.log.info('left.to', system=signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)\n",
    )
    project.code("callbacks", code)
    with pytest.raises(TerminationRequest):
        project.experiment(extra="callbacks: [{kind: kills}]\n").run()
    (log,) = project.root.glob(".evsys/experiments/*/runs/*/run.log.jsonl")
    (line,) = [line for line in map(json.loads, log.read_text().splitlines()) if line["event"] == "left.to"]
    assert line["system"] is True


def test_an_experiment_in_a_thread_listens_to_no_signal(project):
    found = []

    def run():
        found.append(project.experiment().run().status)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == ["completed"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_signal_while_the_record_is_made_leaves_no_run_behind_that_seems_to_go_on(project, monkeypatch):
    opened = experiment_module.open_session

    def slow(*args, **options):
        session = opened(*args, **options)
        os.kill(os.getpid(), signal.SIGTERM)
        while signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            os.sched_yield()
        return session

    monkeypatch.setattr(experiment_module, "open_session", slow)
    experiment = project.experiment()
    with pytest.raises(TerminationRequest):
        experiment.run()
    assert facts(project)["status"] == experiment.result.status == "cancelled"


def test_a_signal_before_there_is_a_record_leaves_none(project, monkeypatch):
    stuck = threading.Event()

    def never(*args):
        os.kill(os.getpid(), signal.SIGTERM)
        stuck.wait(60)
        raise AssertionError

    monkeypatch.setattr("evsys_runtime.experiment.experiment.bound_benchmarks", never)
    experiment = project.experiment()
    with pytest.raises(TerminationRequest):
        experiment.run()
    stuck.set()
    assert experiment.result is None
    assert not (project.root / ".evsys/experiments").exists()


def test_a_signal_does_not_wait_for_a_runner_that_hangs(project):
    stuck = threading.Event()

    def train_fn(session):
        os.kill(os.getpid(), signal.SIGTERM)
        stuck.wait(60)
        return []

    with pytest.raises(TerminationRequest):
        project.experiment(train_fn=train_fn).run()
    assert not stuck.is_set()
    stuck.set()
    assert facts(project)["status"] == "cancelled"


def test_a_run_that_had_failed_when_it_was_interrupted_stays_failed(project):
    project.code("algorithms", BREAKS)
    project.code(
        "callbacks",
        """
import asyncio, os, signal
from evsys_sdk import register_callback

@register_callback("slow_to_tell")
class SlowToTell:
    async def evsys_run_failed(self, ctx, failure):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
""",
    )
    experiment = project.experiment(
        extra="callbacks: [{kind: slow_to_tell}]\n", overrides=["run.algorithm.kind=breaks"]
    )
    with pytest.raises(TerminationRequest):
        experiment.run()
    assert facts(project)["status"] == "cancelled"
    run = facts(project, "runs/run-s0/run_result.json")
    assert (run["status"], run["run"]["steps"]) == ("failed", 3)
    assert "the fourth batch" in run["failure"]["message"]


# --- failures ----------------------------------------------------------------------------------------------------


def test_a_failed_run_keeps_how_far_it_came(project):
    project.code("algorithms", BREAKS)
    overrides = ["run.algorithm.kind=breaks", "run.algorithm.params.save_every=2"]
    (arm,) = project.experiment(overrides=overrides).run().arms
    assert (arm.status, arm.run.status, arm.run.steps) == ("failed", "failed", 3)
    lines = (Path(arm.run_dir) / "training/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    values = [json.loads(line)["values"] for line in lines]
    assert arm.run.metrics == values[-1]
    assert arm.run.usage.trained_tokens == sum(value["tokens"] for value in values) > 0
    assert 0 < arm.run.usage.seconds <= arm.seconds
    assert arm.run.usage.cost_usd == 0  # the mock backend costs nothing, also where a run on it fails
    assert arm.run.final_checkpoint == "checkpoints/2"
    assert "Status failed, 3 steps" in (Path(arm.run_dir) / "conclusion.md").read_text(encoding="utf-8")


def test_a_run_that_fails_before_its_first_step_has_none(project):
    (arm,) = project.experiment(overrides=["run.algorithm.params.max_length=2"]).run().arms
    assert (arm.status, arm.run.steps, arm.run.final_checkpoint) == ("failed", 0, None)


def test_a_record_that_can_not_be_read_back_does_not_hide_the_failure(project):
    project.code(
        "algorithms",
        BREAKS.replace(
            'raise RuntimeError("the fourth batch")',
            '(self.ctx.run_dir / "journal.jsonl").write_text("{}\\n{\\n{}\\n"); raise RuntimeError("the fourth batch")',
        ),
    )
    (arm,) = project.experiment(overrides=["run.algorithm.kind=breaks"]).run().arms
    assert "the fourth batch" in arm.failure.message
    assert any("how far the run came can't be read" in warning for warning in arm.warnings)


def test_an_experiment_that_can_not_go_on_is_failed_and_says_why(project):
    experiment = project.experiment(train_fn=lambda session: [])
    with pytest.raises(PluginContractError):
        experiment.run()
    assert facts(project)["status"] == experiment.result.status == "failed"
    assert facts(project)["exit_code"] == PluginContractError.exit_code
    assert any(
        w.startswith("the experiment ended early: train_fn returned 0") for w in facts(project)["warnings"]
    )


def test_a_callback_that_can_not_be_made_leaves_no_record_that_seems_to_run(project, monkeypatch):
    project.code(
        "callbacks",
        """
import os
from evsys_sdk import register_callback

@register_callback("needs_socket")
class NeedsSocket:
    def __init__(self, **kw):
        if "NO_SOCKET" in os.environ:
            raise RuntimeError("no socket")
""",
    )
    experiment = project.experiment(extra="callbacks: [{kind: needs_socket}]\n")
    monkeypatch.setenv("NO_SOCKET", "1")
    with pytest.raises(EvsysError, match="no socket"):
        experiment.run()
    assert facts(project)["status"] == "failed"
    assert any("no socket" in warning for warning in facts(project)["warnings"])


# --- outputs that are gone ---------------------------------------------------------------------------------------


class Unread(io.StringIO):
    """A pipe whose reader left."""

    def write(self, text):
        raise BrokenPipeError(32, "Broken pipe")


def test_a_run_whose_progress_nobody_reads_goes_on_to_its_end(project, monkeypatch):
    from evsys_runtime.experiment import Experiment

    monkeypatch.setattr("sys.stderr", Unread())
    result = Experiment.from_yaml(project.config(extra="n_repeats: 2\n")).run()
    assert (result.status, result.exit_code) == ("completed", 0)
    told = [warning for warning in result.warnings if "print_progress" in warning]
    assert len(told) == 1
    assert "left out from then on" in told[0]


def test_a_failed_run_is_told_of_once_on_the_terminal(project, capsys):
    from evsys_runtime.experiment import Experiment

    project.code("algorithms", BREAKS)
    path = project.config()
    Experiment.from_yaml(path, overrides=["run.algorithm.kind=breaks"]).run()
    said = capsys.readouterr().err
    assert said.count("the fourth batch") == 1
    assert "Traceback" not in said
    (log,) = project.root.glob(".evsys/experiments/*/runs/*/run.log.jsonl")
    assert "Traceback" in log.read_text(encoding="utf-8")


# --- what a number is worth --------------------------------------------------------------------------------------


def test_a_backend_that_only_imitates_a_model_is_named_with_the_verdict(project):
    result = project.experiment().run()
    assert result.conclusion.extra["simulated_by"] == ["mock"]
    assert any(
        "'mock' only imitates a model" in warning and "evsys/tiny" in warning for warning in result.warnings
    )
    page = Path(result.directory, "conclusion.md").read_text(encoding="utf-8")
    assert f"**{result.conclusion.verdict} (a model simulated by mock): " in page


def test_a_real_backend_has_no_such_mark(project):
    result = project.experiment(overrides=["run.backend.kind=local", "run.algorithm.params.steps=1"]).run()
    assert "simulated_by" not in result.conclusion.extra
    assert "simulated" not in Path(result.directory, "conclusion.md").read_text(encoding="utf-8")
    assert result.warnings == ()


def test_a_learning_rate_of_zero_is_told_of_in_the_result(project):
    result = project.experiment(overrides=["run.algorithm.params.learning_rate=0"]).run()
    assert result.status == "completed"
    assert "the learning rate is 0 at every step, so nothing is trained" in result.warnings
    assert "nothing is trained" in Path(result.directory, "conclusion.md").read_text(encoding="utf-8")


def test_a_training_that_diverged_with_finite_losses_is_told_of_in_the_result(project):
    result = project.experiment(overrides=["run.algorithm.params.learning_rate=1e10"]).run()
    assert result.status == "completed"
    [told] = [line for line in result.warnings if "diverged" in line]
    assert "the loss rose from" in told
    assert "lower the learning rate" in told


def test_a_model_that_diverged_ends_with_what_to_do_and_no_warning_of_numpy(project, capfd):
    overrides = ["run.backend.kind=local", "run.algorithm.params.learning_rate=1e30"]
    (arm,) = project.experiment(overrides=overrides).run().arms
    assert arm.status == "failed"
    assert "lower the learning rate" in arm.failure.hint
    assert arm.run.steps == 1
    assert "RuntimeWarning" not in capfd.readouterr().err
    log = (Path(arm.run_dir) / "run.log.jsonl").read_text(encoding="utf-8")
    odd = [line for line in map(json.loads, log.splitlines()) if line["event"] == "numbers.odd"]
    assert odd
    assert all(line["place"].partition(":")[0].endswith(".py") for line in odd)


# --- a record that is another process's by now ---------------------------------------------------------------------

TAKES_OVER = """
import asyncio, json
import attrs
from evsys_sdk import register_callback
from evsys_record.lock import Holder

@register_callback("takes_over")
class TakesOver:
    async def evsys_step_finished(self, ctx, step):
        if step == 3:
            other = attrs.evolve(Holder.here(), pid=4711, host="elsewhere", boot="another")
            text = json.dumps(attrs.asdict(other))
            (ctx.run_dir.parents[1] / ".lock").write_text(text, encoding="utf-8")
            await asyncio.Event().wait()
"""


def test_who_lost_its_lock_to_another_process_ends_and_writes_nothing_more(project, monkeypatch):
    monkeypatch.setitem(ExperimentLock.__init__.__kwdefaults__, "lease_seconds", 0.2)
    project.code("callbacks", TAKES_OVER)
    experiment = project.experiment(extra="callbacks: [{kind: takes_over}]\nbudget: {steps: 20}\n")
    with pytest.raises(StoreError, match="was taken over by process 4711 on elsewhere"):
        experiment.run()
    assert experiment.result is None
    assert (facts(project)["status"], facts(project)["finished"]) == ("running", None)
    (record,) = (project.root / ".evsys/experiments").iterdir()
    assert not (record / "conclusion.json").exists()
    assert not (record / "runs/run-s0/run_result.json").exists()
    assert json.loads((record / ".lock").read_text(encoding="utf-8"))["pid"] == 4711

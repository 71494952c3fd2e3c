"""A run whose training collapses goes on from its best checkpoint; the record keeps both sides, whatever is killed meanwhile."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from small_project import Project

from evsys.errors import ConfigError, StoreError
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.files import read_json
from evsys_record.run_record import RunRecord
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.arm import rollback as going_back
from evsys_runtime.experiment.resume.unfinished_experiments import newest_unfinished

RUN = """
run:
  data: {{source_kind: jsonl, path: tasks.jsonl}}
  model: {{name: evsys/tiny}}
  algorithm:
    kind: falls
    params: {{learning_rate: 0.05, steps: 8, save_every: 2, batch_size: 2, group_size: 3, lora_rank: 4, max_tokens: 4{more}}}
  backend: {{kind: bursts}}
callbacks: [{{kind: faults}}]
"""

METADATA = """
metadata:
  hypothesis: it learns
  allow_leak: true
  success_metric: val.mean_reward
  benchmark:
    - {{name: val, path: tasks.jsonl, max_tokens: 4, temperature: 1.0{every}}}
    - {{name: kept, path: tasks.jsonl, max_tokens: 4, split: test}}
"""

CODE = '''
import os
import signal
from pathlib import Path

import attrs
from evsys.errors import BackendError
from evsys_algo_rl import RL
from evsys_backend_mock import MockBackend
from evsys_sdk import register_algorithm, register_backend, register_callback, register_verifier

HERE = Path(__file__).parent
NEXT = [0, 0]  # how often the run had gone back, and the step that is made


def wanted(what):
    return (HERE / what).exists()


@register_verifier("vowels")
def vowels(model_output, expected, params):
    return sum(letter in "aeiou" for letter in model_output[:4]) / 4


@register_algorithm("falls")
class Falls(RL):
    """Collapses after the steps that files ask for."""

    def step_metrics(self, step_idx, batch, result):
        if wanted(f"collapse-{self.ctx.retreats}-{step_idx + 1}"):
            batch.metrics["entropy"] = float("nan")
        return super().step_metrics(step_idx, batch, result)

    async def batch_of(self, groups, step_idx):
        batch = await super().batch_of(groups, step_idx)
        NEXT[:] = self.ctx.retreats, step_idx + 1
        told = HERE / f"reward-{step_idx + 1}"
        if told.exists():
            batch.metrics["reward"] = float(told.read_text())
        return batch


@register_backend("bursts")
class Bursts(MockBackend):
    """Has losses that aren't finite after the steps that files ask for."""

    async def prepare(self, *args, **kwargs):
        if wanted(f"unloadable-{NEXT[1]}"):
            raise BackendError("no card is left")
        client = await super().prepare(*args, **kwargs)
        real = client.forward_backward

        async def burst(pending):
            return attrs.evolve(await pending, loss=float("nan"))

        def forward_backward(*args, **kwargs):
            pending = real(*args, **kwargs)
            return burst(pending) if wanted(f"nan-{NEXT[0]}-{NEXT[1]}") else pending

        client.forward_backward = forward_backward
        return client


@register_callback("faults")
class Faults:
    """Ends the process, or the run, where a file says so."""

    def strike(self, ctx, what):
        if wanted(f"interrupt-{ctx.attempt}-{what}"):
            raise KeyboardInterrupt
        if wanted(f"kill-{ctx.attempt}-{what}"):
            os.kill(os.getpid(), signal.SIGKILL)

    def evsys_step_finished(self, ctx, step, metrics):
        self.strike(ctx, step)

    def evsys_checkpoint_saved(self, ctx, checkpoint):
        self.strike(ctx, f"saved-{checkpoint.step}")

    def hear(self, ctx, what):
        with (HERE / "heard.txt").open("a", encoding="utf-8") as file:
            file.write(f"{ctx.attempt} {what}\\n")

    def evsys_run_failed(self, ctx, failure):
        self.hear(ctx, f"failed: {failure.message}")

    def evsys_run_finished(self, ctx, result):
        self.hear(ctx, f"finished: {result.status} as attempt {result.attempt}")
        self.strike(ctx, "finished")
'''


class Lab:
    def __init__(self, root):
        self.project = Project(root)
        self.project.code("faults", CODE)
        self.project.tasks([(f"t{i:02d}", f"say {c}", c) for i, c in enumerate("abcdefghijkl")], "vowels")

    def faults(self, *names):
        for path in (self.project.root / "src").glob("*-*"):
            path.unlink()
        for name in names:
            name, _, text = name.partition("=")
            (self.project.root / "src" / name).write_text(text, encoding="utf-8")

    def experiment(self, more, every=""):
        return self.project.experiment(
            RUN.format(more=more),
            metadata=METADATA.format(every=every),
            skip_grader_check=True,
            no_cache=True,
        )

    def run(self, *names, more=", on_collapse: rollback", every=""):
        self.faults(*names)
        return self.carried_out(self.experiment(more, every))

    def resume(self, directory, *names):
        self.faults(*names)
        return self.carried_out(Experiment.resume(directory, quiet=True))

    @property
    def heard(self):
        """What the callbacks of each attempt heard of its end."""
        return (self.project.root / "src" / "heard.txt").read_text(encoding="utf-8").splitlines()

    def carried_out(self, experiment):
        try:
            return experiment.run()
        except KeyboardInterrupt:
            return experiment.result

    @property
    def directory(self):
        [path] = (self.project.root / ".evsys/experiments").glob("*/experiment.json")
        return path.parent


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path)


def attempts(folder):
    found = read_json(folder / "run.json")["attempts"]
    return [(one["n"], one["reason"], one["parent"], one["from_step"]) for one in found]


def lines(folder, name):
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]


def live(folder):
    """Steps and learning rates that count, and what was said in them."""
    [run] = ExperimentRecord.open(folder.parents[1]).runs()
    rates = [(line["step"], line["values"]["learning_rate"]) for line in run.read_metrics()]
    said = [
        (line["step"], line["rollout"]["task_id"], line["rollout"]["output"]) for line in run.read_rollouts()
    ]
    return rates, sorted(said)


def weights(folder, result):
    return (folder / result["run"]["final_checkpoint"] / "mock.npz").read_bytes()


def test_it_goes_on_from_the_best_checkpoint_with_a_lower_rate_and_other_samples(lab):
    result = lab.run("collapse-0-7", "reward-3=0.9", "reward-4=0.9", "reward-5=0.1", "reward-6=0.1")
    [arm] = result.arms
    folder = Path(arm.run_dir)
    assert (arm.status, arm.attempt, arm.run.steps) == ("completed", 2, 8)
    assert attempts(folder) == [(1, "start", None, 0), (2, "rollback", 1, 4)]
    rates, said = live(folder)
    assert rates == [*((step, 0.05) for step in range(1, 5)), *((step, 0.025) for step in range(5, 9))]
    everything = lines(folder, "training/rollouts.jsonl")
    left = {
        (one["step"], one["rollout"]["task_id"]): one["rollout"]["output"]
        for one in everything
        if one["attempt"] == 1
    }
    again = [(left[step, task], text) for step, task, text in said if step in (5, 6) and (step, task) in left]
    assert again
    assert any(before != now for before, now in again)
    [warning] = [text for text in arm.warnings if "collapsed in attempt 1" in text]
    assert "continued from step 4 as attempt 2 (rollback)" in warning


def test_both_sides_are_on_record_with_what_each_came_to(lab):
    [arm] = lab.run("collapse-0-7").arms
    folder = Path(arm.run_dir)
    left = read_json(folder / "run_result.1.json")
    assert (left["status"], left["run"]["steps"], left["attempt"]) == ("collapsed", 7, 1)
    assert "entropy is nan" in left["run"]["stop_reason"]
    assert (folder / left["run"]["final_checkpoint"] / "manifest.json").is_file()
    assert (folder / left["run"]["best_checkpoint"] / "manifest.json").is_file()
    done = [(one["attempt"], one["step"]) for one in lines(folder, "journal.jsonl") if one["event"] == "done"]
    assert [step for attempt, step in done if attempt == 1] == list(range(1, 8))
    assert read_json(folder / "run_result.json")["attempt"] == 2


@pytest.mark.parametrize(("how", "scored"), [("rollback", []), ("branch", [("val", "completed")])])
def test_a_branch_scores_what_collapsed_though_never_on_the_test(lab, how, scored):
    [arm] = lab.run("collapse-0-7", more=f", on_collapse: {how}").arms
    folder = Path(arm.run_dir)
    assert [(n, reason) for n, reason, *_ in attempts(folder)] == [(1, "start"), (2, how)]
    left = read_json(folder / "run_result.1.json")
    assert [(one["benchmark"], one["status"]) for one in left["evaluations"] if one["step"] == 7] == scored
    final = [(one.benchmark, one.status) for one in arm.evaluations if one.step == 8]
    assert final == [("val", "completed"), ("kept", "completed")]
    assert not [one for one in arm.evaluations if one.step == 7]


def test_after_so_many_of_them_the_run_has_collapsed(lab):
    [arm] = lab.run(
        *(f"collapse-{retreats}-5" for retreats in range(4)), more=", on_collapse: rollback, max_rollbacks: 2"
    ).arms
    folder = Path(arm.run_dir)
    assert (arm.status, arm.attempt, arm.run.steps) == ("collapsed", 3, 5)
    assert [reason for _, reason, *_ in attempts(folder)] == ["start", "rollback", "rollback"]
    rates, _ = live(folder)
    assert rates[-1] == (5, 0.0125)
    assert arm.evaluations[-1].step == 5


def test_a_collapse_before_the_first_checkpoint_starts_over(lab):
    [arm] = lab.run("collapse-0-2", more=", on_collapse: rollback, rollback_lr_factor: 0.1").arms
    assert (arm.status, arm.run.steps) == ("completed", 8)
    assert attempts(Path(arm.run_dir))[1] == (2, "rollback", 1, 0)
    assert live(Path(arm.run_dir))[0] == [(step, pytest.approx(0.005)) for step in range(1, 9)]


def test_scores_on_the_way_say_which_checkpoint_is_the_best(lab):
    """A reward that rises says nothing where the success metric is measured."""
    result = lab.run(
        "collapse-0-7", *(f"reward-{step}={step}" for step in range(1, 9)), every=", run_every: 2"
    )
    [arm] = result.arms
    folder = Path(arm.run_dir)
    scores = {
        one["step"]: one["metrics"]["mean_reward"]["value"]
        for one in read_json(folder / "run_result.1.json")["evaluations"]
        if one["benchmark"] == "val" and one["step"] in (2, 4, 6)
    }
    best = max(scores, key=lambda step: (scores[step], step))
    assert attempts(folder)[1] == (2, "rollback", 1, best)
    own = {
        one.step: one.metrics["mean_reward"].value
        for one in arm.evaluations
        if one.benchmark == "val" and one.step
    }
    top = max(own, key=lambda step: (own[step], step))
    assert arm.run.best_checkpoint.split("/")[1].split("-")[0] == str(top)


def test_a_run_that_stops_where_it_collapsed_names_its_best_checkpoint(lab):
    [arm] = lab.run(
        "collapse-0-7", "reward-3=0.9", "reward-4=0.9", "reward-5=0", "reward-6=0", "reward-7=0", more=""
    ).arms
    assert (arm.status, arm.attempt) == ("collapsed", 1)
    assert arm.run.best_checkpoint == "checkpoints/4"


@pytest.mark.parametrize("how", ["rollback", "branch"])
def test_a_loss_that_is_not_finite_is_gone_back_from_and_its_weights_are_not_scored(lab, how):
    rewards = [f"reward-{step}={step / 10}" for step in range(1, 9)]
    [arm] = lab.run("nan-0-5", *rewards, more=f", on_collapse: {how}").arms
    folder = Path(arm.run_dir)
    assert (arm.status, arm.attempt, arm.run.steps) == ("completed", 2, 8)
    # The weights of step 4 gave that loss.
    assert attempts(folder) == [(1, "start", None, 0), (2, "rollback", 1, 2)]
    assert live(folder)[0] == [*((step, 0.05) for step in (1, 2)), *((step, 0.025) for step in range(3, 9))]
    left = read_json(folder / "run_result.1.json")
    assert (left["status"], left["run"]["steps"]) == ("collapsed", 4)
    assert (
        left["run"]["stop_reason"] == "the loss of step 5 is nan; training can't continue from these weights"
    )
    assert left["run"]["final_checkpoint"] == "checkpoints/4"
    assert [one["step"] for one in left["evaluations"]] == [0, 0]


@pytest.mark.parametrize(
    "more", [", on_collapse: stop", ", on_collapse: warn", ", on_collapse: rollback, max_rollbacks: 1"]
)
def test_a_loss_that_is_not_finite_is_a_failure_where_nothing_goes_back(lab, more):
    [arm] = lab.run("nan-0-5", "nan-1-5", more=more).arms
    assert (arm.status, arm.run.steps, arm.failure.boundary) == ("failed", 4, "algorithm")
    assert arm.failure.message.startswith("the loss of step 5 is nan")
    assert arm.attempt == (2 if "rollback" in more else 1)


@pytest.mark.parametrize("cut", ["1-4", "1-saved-4", "1-finished", "2-3"])
def test_a_run_that_is_interrupted_around_a_loss_that_is_not_finite_comes_to_the_same(lab, cut):
    faults = ("nan-0-5", "reward-1=0.9", "reward-2=0.9")
    first = lab.run(*faults, f"interrupt-{cut}")
    [arm] = lab.resume(first.directory, *faults).arms
    [undisturbed] = lab.run(*faults).arms
    assert [one.task_rewards for one in arm.evaluations] == [
        one.task_rewards for one in undisturbed.evaluations
    ]
    assert live(Path(arm.run_dir)) == live(Path(undisturbed.run_dir))


WHOLE = ("collapse-0-7", "collapse-1-6", "reward-3=0.9", "reward-4=0.9", "reward-5=0", "reward-6=0")
CUTS = ["1-5", "1-7", "1-saved-7", "1-finished", "2-5", "2-saved-6", "2-finished", "3-5", "3-saved-6"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("whole"))
    [arm] = lab.run(*WHOLE).arms
    folder = Path(arm.run_dir)
    return (
        live(folder),
        weights(folder, read_json(folder / "run_result.json")),
        arm.evaluations[-1].task_rewards,
    )


@pytest.mark.parametrize("cut", CUTS)
def test_a_run_that_is_interrupted_anywhere_and_resumed_comes_to_the_same(lab, whole, cut):
    first = lab.run(*WHOLE, f"interrupt-{cut}")
    [arm] = lab.resume(first.directory, *WHOLE).arms
    folder = Path(arm.run_dir)
    assert arm.status == "completed"
    found = (
        live(folder),
        weights(folder, read_json(folder / "run_result.json")),
        arm.evaluations[-1].task_rewards,
    )
    assert found == whole
    assert [reason for _, reason, *_ in attempts(folder)].count("rollback") == 2


LIFE = """
import sys
from evsys_runtime.experiment import Experiment
found = Experiment.from_yaml("config.yaml", quiet=True, skip_grader_check=True, no_cache=True).run()
"""


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("cut", ["1-saved-7", "1-finished", "2-5"])
def test_a_run_that_is_killed_around_a_collapse_and_resumed_comes_to_the_same(lab, whole, cut):
    lab.faults(*WHOLE, f"kill-{cut}")
    lab.experiment(", on_collapse: rollback")  # writes the config
    done = subprocess.run(
        [sys.executable, "-c", LIFE],
        cwd=lab.project.root,
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    [arm] = lab.resume(lab.directory, *WHOLE).arms
    folder = Path(arm.run_dir)
    found = (
        live(folder),
        weights(folder, read_json(folder / "run_result.json")),
        arm.evaluations[-1].task_rewards,
    )
    assert found == whole


@pytest.mark.parametrize(
    ("where", "what"),
    [(RunRecord, "write_result_left_behind"), (RunRecord, "start_attempt"), (going_back, "take_up")],
)
def test_a_record_that_fails_while_going_back_ends_that_arm_alone_and_a_resume_goes_back(
    lab, monkeypatch, where, what
):
    lab.faults("collapse-0-7")
    text = RUN.format(more=", on_collapse: rollback").replace(
        "run:", "matrix: {axes: {seed: [1, 2]}}\nbase_run:"
    )
    metadata = METADATA.format(every="")
    more = {"metadata": metadata, "skip_grader_check": True, "no_cache": True}
    whole = lab.project.experiment(text, **more).run()
    real, left = getattr(where, what), ["once"]

    def full(record, *args, **kwargs):
        collapsed = record.facts.get("trained", {}).get("result", {}).get("status") == "collapsed"
        if left and collapsed and record.run_id == "seed-1-s0":
            left.pop()
            raise StoreError("no space left on device")
        return real(record, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(where, what, full)
        first = lab.project.experiment(text, **more).run()
    assert not left
    assert [(arm.status, arm.run.steps) for arm in first.arms] == [("failed", 7), ("completed", 8)]
    failure = first.arms[0].failure
    assert (failure.boundary, failure.message) == ("store", "no space left on device")
    assert (first.status, first.exit_code) == ("completed", 1)

    again = Experiment.resume(first.directory, quiet=True).run()
    assert [arm.status for arm in again.arms] == ["completed", "completed"]
    assert [arm.evaluations[-1].task_rewards for arm in again.arms] == [
        arm.evaluations[-1].task_rewards for arm in whole.arms
    ]
    reasons = [reason for _, reason, *_ in attempts(Path(again.arms[0].run_dir))]
    assert reasons.count("rollback") == 1


def test_the_listeners_of_each_attempt_hear_of_its_end_once(lab):
    lab.run("collapse-0-7")
    assert lab.heard == ["1 finished: collapsed as attempt 1", "2 finished: completed as attempt 2"]


@pytest.mark.parametrize(
    ("where", "what", "attempt"),
    [
        (RunRecord, "write_result_left_behind", 1),
        (RunRecord, "start_attempt", 1),
        (going_back, "take_up", 2),
    ],
)
def test_the_listeners_hear_once_of_a_run_that_fails_while_it_goes_back(
    lab, monkeypatch, where, what, attempt
):
    real = getattr(where, what)

    def full(record, *args, **kwargs):
        if record.facts.get("trained"):
            raise StoreError("no space left on device")
        return real(record, *args, **kwargs)

    monkeypatch.setattr(where, what, full)
    [arm] = lab.run("collapse-0-7").arms
    assert (arm.status, arm.attempt) == ("failed", attempt)
    assert lab.heard == [
        "1 failed: no space left on device",
        f"1 finished: failed as attempt {attempt}",
    ]


def test_where_the_model_to_go_back_to_cant_be_loaded_those_who_listened_hear_of_the_failure_once(lab):
    [arm] = lab.run("collapse-0-7", "unloadable-7").arms
    assert (arm.status, arm.attempt) == ("failed", 2)
    assert lab.heard == ["1 failed: no card is left", "1 finished: failed as attempt 2"]
    assert read_json(Path(arm.run_dir) / "run_result.1.json")["status"] == "collapsed"


def test_an_attempt_that_is_interrupted_before_its_model_is_loaded_is_told_to_those_who_listened(
    lab, monkeypatch
):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(going_back, "take_up", interrupted)
    result = lab.run("collapse-0-7")
    assert result.status == "cancelled"
    assert lab.heard == ["1 finished: cancelled as attempt 1"]


def test_what_collapsed_for_good_is_kept_by_a_resume(lab):
    first = lab.run("collapse-0-5", "collapse-1-5", more=", on_collapse: rollback, max_rollbacks: 1")
    [before] = first.arms
    again = lab.resume(first.directory)
    assert (before.status, again.arms[0].status, again.arms[0].attempt) == ("collapsed", "collapsed", 2)
    assert not (lab.directory / "conclusion.1.json").exists()
    with pytest.raises(ConfigError, match="there is no unfinished experiment"):
        newest_unfinished(lab.directory.parent)


def test_a_fork_goes_on_with_the_rate_and_the_samples_that_the_run_had_gone_back_to(lab):
    """The rate that had collapsed isn't taken again, in a fork of the fork neither."""
    lab.run("collapse-0-5")
    lab.faults()
    fork = Experiment.fork(lab.directory, overrides=["run.algorithm.params.steps=10"], quiet=True).run()
    again = Experiment.fork(
        Path(fork.arms[0].run_dir).parents[1], overrides=["run.algorithm.params.steps=12"], quiet=True
    ).run()
    for result, steps in ((fork, (9, 10)), (again, (11, 12))):
        [arm] = result.arms
        assert live(Path(arm.run_dir))[0] == [(step, 0.025) for step in steps]
        [warning] = [text for text in arm.warnings if "had gone back once" in text]
        assert "lower learning rate" in warning


@pytest.mark.parametrize(
    "more", ["rollback_lr_factor: 0", "rollback_lr_factor: 1.5", "max_rollbacks: 0", "on_collapse: back"]
)
def test_settings_that_make_no_sense_are_refused(lab, more):
    with pytest.raises(ConfigError, match=more.partition(":")[0]):
        lab.experiment(f", {more}")

"""An experiment that was cut off goes on from its record, and comes to what it would have come to."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
from pathlib import Path

import pytest
from faulty_project import FaultyProject
from small_project import METADATA, RUN, Project

from evsys.errors import ConfigError, StoreError
from evsys_record import files
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.files import read_json, write_json
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.resume.changes import original_plan
from evsys_runtime.experiment.resume.unfinished_experiments import newest_unfinished

EVERY_2 = METADATA.replace("max_tokens: 4", "max_tokens: 4\n    run_every: 2\n    temperature: 1.0")
NINE = RUN.replace("steps: 6", "steps: 9, save_every: 2")

COUNTED = """
import os

from evsys_sdk import register_verifier

@register_verifier("counted")
def counted(model_output, expected, params):
    with (HERE / f"judged.{os.getpid()}").open("a") as judged:
        judged.write(".")
    if wanted("judge-nothing"):
        raise RuntimeError("as it was told to")
    return float(len(model_output) % 2)
"""


class Lab(FaultyProject):
    """A project whose runs fail where it says so."""

    def __init__(self, project):
        super().__init__(project, COUNTED)
        project.tasks(
            [(f"t{i * 5 % 12:02d}", f"say {c}", c) for i, c in enumerate("abcdefghijkl")], "counted"
        )

    def run(self, *names, text=NINE, metadata=EVERY_2, extra="", **options):
        self.fault(*names)
        body = text.replace("kind: sft", "kind: breaks")
        body = body if body.startswith("matrix") else f"run:{body}"
        more = f"callbacks: [{{kind: faults}}]\n{extra}"
        experiment = self.project.experiment(
            body, metadata=metadata, extra=more, skip_grader_check=True, **options
        )
        return self.carried_out(experiment)

    @property
    def judged(self):
        """Answers judged by the run itself, without those judged again in a fresh process."""
        return (self.project.root / f"src/judged.{os.getpid()}").stat().st_size


@pytest.fixture
def lab(project):
    return Lab(project)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What the same experiment comes to that nobody cuts off, in a project of its own."""
    known = {}

    def run(**how):
        key = repr(sorted(how.items()))
        if key not in known:
            known[key] = Lab(Project(tmp_path_factory.mktemp("whole"))).run(**how)
        return known[key]

    return run


def numbers(value):
    """All but times, places, attempts, ids, and what work used that was cut off."""
    dropped = {
        "seconds",
        "attempt",
        "cut_off",
        "run_dir",
        "final_checkpoint",
        "best_checkpoint",
        "experiment_id",
        "directory",
    }
    if isinstance(value, dict):
        return {key: numbers(item) for key, item in value.items() if key not in dropped}
    return [numbers(item) for item in value] if isinstance(value, list) else value


def outcome(result):
    record = ExperimentRecord.open(Path(result.directory))
    return numbers(record.read_result())


def weights(run_dir, result):
    folder = Path(run_dir) / result.run.final_checkpoint
    return (folder / "mock.npz").read_bytes()


def attempts(run_dir):
    found = read_json(Path(run_dir) / "run.json")["attempts"]
    return [(one["n"], one["reason"], one["parent"], one["from_step"]) for one in found]


def steps_of(run_dir, attempt):
    lines = map(json.loads, (Path(run_dir) / "journal.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["step"] for line in lines if line["event"] == "done" and line["attempt"] == attempt]


# --- going on --------------------------------------------------------------------------------------------------------


def test_an_interrupted_run_goes_on_from_its_last_checkpoint_and_comes_to_the_same(lab, whole):
    cut = lab.run("interrupt-run-s0-5")
    assert (cut.status, cut.arms[0].status) == ("cancelled", "cancelled")
    result = lab.resume(cut.directory)
    [arm], expected = result.arms, whole()
    assert (result.status, result.exit_code, result.experiment_id) == ("completed", 0, cut.experiment_id)
    assert attempts(arm.run_dir) == [(1, "start", None, 0), (2, "resume", 1, 4)]
    assert steps_of(arm.run_dir, 2) == [5, 6, 7, 8, 9]
    assert outcome(result) == outcome(expected)
    assert weights(arm.run_dir, arm) == weights(expected.arms[0].run_dir, expected.arms[0])


def test_finished_runs_are_kept_as_they_are(lab, whole):
    sweep = {"extra": "n_repeats: 3\nmax_concurrent_arms: 1\n"}
    cut = lab.run("interrupt-run-s1-3", **sweep)
    before = {path: path.read_bytes() for path in Path(cut.arms[0].run_dir).rglob("*") if path.is_file()}
    result = lab.resume(cut.directory)
    assert {path: path.read_bytes() for path in before} == before
    assert [len(attempts(arm.run_dir)) for arm in result.arms] == [1, 2, 1]
    assert outcome(result) == outcome(whole(**sweep))


def test_a_failed_run_goes_on_and_the_experiment_is_complete(lab, whole):
    failed = lab.run("break-run-s0-8")
    assert failed.arms[0].status == "failed"
    result = lab.resume(failed.directory)
    assert attempts(result.arms[0].run_dir)[1] == (2, "resume", 1, 6)
    assert outcome(result) == outcome(whole())
    assert read_json(Path(result.arms[0].run_dir) / "run_result.1.json")["status"] == "failed"


def test_a_run_without_a_checkpoint_starts_over_and_keeps_the_scores_of_its_untrained_weights(lab, whole):
    cut = lab.run("interrupt-run-s0-1", "interrupt-run-s0-scored-0", no_cache=True)
    judged = lab.judged
    result = lab.resume(cut.directory)
    assert attempts(result.arms[0].run_dir)[1] == (2, "resume", 1, 0)
    assert steps_of(result.arms[0].run_dir, 2) == list(range(1, 10))
    assert outcome(result) == outcome(whole(no_cache=True))
    kept = sum(e.status == "completed" for e in cut.arms[0].evaluations)
    assert lab.judged - judged == 12 * (
        8 - kept
    )  # six looks, and the proof of the first and of the selected weights


def test_a_record_from_before_select_goes_on_with_its_last_checkpoints(lab):
    cut = lab.run("interrupt-run-s0-5")
    path = Path(cut.directory) / "resolved.json"
    tree = read_json(path)
    assert tree.pop("select") == {"by": "val.mean_reward", "checkpoint": "best"}
    write_json(path, tree)
    result = lab.resume(cut.directory)
    assert (result.status, result.arms[0].run.selected_checkpoint) == ("completed", None)
    assert result.conclusion.selection is None
    assert not [e for e in result.arms[0].evaluations if e.benchmark == "val@selected" and e.step > 0]


def test_a_record_from_before_leaks_and_samples_were_settings_goes_on(lab):
    cut = lab.run("interrupt-run-s0-5")
    without_settings(cut.directory)
    assert lab.resume(cut.directory).status == "completed"


def test_the_limit_of_a_record_from_before_samples_takes_the_first_tasks(lab):
    cut = lab.run(
        "interrupt-run-s0-5", metadata=EVERY_2.replace("max_tokens: 4", "max_tokens: 4\n    limit: 11")
    )
    plan = load_experiment(lab.project.root / "config.yaml")
    assert original_plan(plan, Path(cut.directory)).experiment.metadata.benchmarks[0].limit_by == "sample"
    without_settings(cut.directory)
    assert original_plan(plan, Path(cut.directory)).experiment.metadata.benchmarks[0].limit_by == "first"


def without_settings(directory):
    """Leave out of resolved.json what older versions didn't write."""
    path = Path(directory) / "resolved.json"
    tree = read_json(path)
    assert tree["metadata"].pop("allow_leak") is False
    assert {entry.pop("limit_by") for entry in tree["benchmarks"]} == {"sample"}
    write_json(path, tree)


def test_a_run_may_be_cut_off_again_and_again(lab, whole):
    cut = lab.run("interrupt-run-s0-3")
    for place in (4, 5, 8):
        cut = lab.resume(cut.directory, f"interrupt-run-s0-{place}")
        assert cut.status == "cancelled"
    result = lab.resume(cut.directory)
    assert [parent for _, _, parent, _ in attempts(result.arms[0].run_dir)] == [None, 1, 2, 3, 4]
    assert outcome(result) == outcome(whole())


def test_a_run_that_never_began_is_begun(lab, whole):
    sweep = {"extra": "n_repeats: 2\nmax_concurrent_arms: 1\n"}
    cut = lab.run("interrupt-run-s0-3", **sweep)
    assert [(arm.run_id, arm.status) for arm in cut.arms] == [("run-s0", "cancelled"), ("run-s1", "skipped")]
    assert outcome(lab.resume(cut.directory)) == outcome(whole(**sweep))


def test_an_unscored_run_is_scored_and_not_trained_again(lab, whole):
    cut = lab.run("interrupt-run-s0-scored-9")
    result = lab.resume(cut.directory)
    assert attempts(result.arms[0].run_dir)[1] == (2, "resume", 1, 9)
    assert steps_of(result.arms[0].run_dir, 2) == []
    assert outcome(result) == outcome(whole())


def test_scorings_that_failed_are_made_again_from_the_checkpoints_of_their_steps(lab, whole):
    failed = lab.run("judge-nothing")
    assert (failed.exit_code, failed.arms[0].status) == (1, "completed")
    assert {e.status for e in failed.arms[0].evaluations} <= {"failed", "invalid"}
    result = lab.resume(failed.directory)
    assert steps_of(result.arms[0].run_dir, 2) == []
    assert outcome(result) == outcome(whole())


def test_a_lost_scoring_without_a_checkpoint_of_its_step_is_recorded_missing_with_the_reason(lab):
    text = NINE.replace("save_every: 2", "save_every: 4")
    cut = lab.run("judge-nothing", "interrupt-run-s0-8", text=text, extra="select: {checkpoint: last}\n")
    result = lab.resume(cut.directory)
    evaluations = {e.step: e for e in result.arms[0].evaluations}
    missing = [step for step, e in evaluations.items() if e.status != "completed"]
    assert (list(evaluations), missing) == ([0, 2, 4, 6, 8, 9], [2])
    assert "no checkpoint of its step" in evaluations[2].failure.message
    assert (result.status, result.exit_code) == ("completed", 1)
    again = Experiment.resume(cut.directory, quiet=True)
    again.run()
    assert again.nothing_to_do  # what can't be made isn't tried for ever


def test_recorded_scorings_are_read_back_and_not_made_again(lab, whole):
    cut = lab.run("interrupt-run-s0-8", no_cache=True)
    done = {(e.benchmark, e.step): e for e in cut.arms[0].evaluations if e.status == "completed"}
    judged = lab.judged
    result = lab.resume(cut.directory)
    assert outcome(result) == outcome(whole(no_cache=True))
    assert lab.judged - judged == 12 * (8 - len(done))
    made = {(e.benchmark, e.step): e for e in result.arms[0].evaluations}
    assert {key: made[key] for key in done} == done


def test_rollouts_in_the_cache_that_nobody_counted_are_counted_by_the_run_that_made_them(lab, whole):
    cut = lab.run("interrupt-run-s0-scored-0")
    record = ExperimentRecord.open(Path(cut.directory))
    (record.directory / "runs/run-s0/evaluations.jsonl").unlink()  # as if killed right before
    (record.directory / "runs/run-s0/run_result.json").unlink()
    result = lab.resume(cut.directory)
    assert outcome(result) == outcome(whole())
    looked_up = (record.directory / "runs/run-s0/cache.jsonl").read_text(encoding="utf-8")
    assert '"used":12' in looked_up


def test_early_stopping_stops_where_it_would_have(lab, whole):
    stops = "early_stopping, params: {monitor: loss, patience: 2, min_delta: 10}}, {kind: faults"
    how = {"extra": "", "text": NINE}

    def run(other, *names):
        other.fault(*names)
        experiment = other.project.experiment(
            f"run:{how['text'].replace('kind: sft', 'kind: breaks')}",
            metadata=EVERY_2,
            extra=f"callbacks: [{{kind: {stops}}}]\n",
            skip_grader_check=True,
        )
        return other.carried_out(experiment)

    expected = run(lab)
    assert expected.arms[0].run.steps < 9
    last = expected.arms[0].run.steps
    for place in (f"interrupt-run-s0-scored-{last}", f"interrupt-run-s0-{last}"):
        again = lab.resume(run(lab, place).directory)
        assert again.arms[0].run.steps == last
        assert again.arms[0].run.stop_reason == expected.arms[0].run.stop_reason


def test_a_damaged_checkpoint_is_left_out_with_a_warning(lab, whole):
    cut = lab.run("interrupt-run-s0-5")
    run_dir = Path(cut.arms[0].run_dir)
    (run_dir / "checkpoints/4/mock.npz").write_bytes(b"not what was saved")
    result = lab.resume(cut.directory)
    assert attempts(run_dir)[1] == (2, "resume", 1, 2)
    assert any("mock.npz has changed since it was saved" in warning for warning in result.warnings)
    assert weights(run_dir, result.arms[0]) == weights(whole().arms[0].run_dir, whole().arms[0])


def cut_in_half(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def with_a_bad_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] = 0xFF
    path.write_bytes(bytes(content))


def test_a_checkpoint_with_a_damaged_manifest_is_left_out_with_a_warning(lab, whole):
    cut = lab.run("interrupt-run-s0-5")
    run_dir = Path(cut.arms[0].run_dir)
    cut_in_half(run_dir / "checkpoints/4/manifest.json")
    result = lab.resume(cut.directory)
    assert attempts(run_dir)[1] == (2, "resume", 1, 2)
    assert any("checkpoints/4/manifest.json isn't JSON" in warning for warning in result.warnings)
    assert weights(run_dir, result.arms[0]) == weights(whole().arms[0].run_dir, whole().arms[0])


def test_a_damaged_check_of_the_graders_is_made_again(lab, whole):
    cut = lab.run("interrupt-run-s0-5")
    checked = Path(cut.directory) / "grader_check.json"
    before = checked.read_bytes()
    cut_in_half(checked)
    result = lab.resume(cut.directory)
    assert checked.read_bytes() == before
    assert outcome(result) == outcome(whole())


def test_a_damaged_resolved_experiment_is_made_again_and_told(lab):
    cut = lab.run("interrupt-run-s0-5")
    resolved = Path(cut.directory) / "resolved.json"
    before = resolved.read_bytes()
    cut_in_half(resolved)
    result = lab.resume(cut.directory)
    assert (result.status, resolved.read_bytes()) == ("completed", before)
    assert any("resolved.json is damaged" in warning for warning in result.warnings)


def test_a_damaged_run_is_refused_with_what_to_remove_and_that_starts_it_over(lab, whole):
    sweep = {"extra": "n_repeats: 2\nmax_concurrent_arms: 1\n"}
    cut = lab.run("interrupt-run-s1-5", **sweep)
    run_dir = Path(cut.directory) / "runs/run-s1"
    cut_in_half(run_dir / "run.json")
    with pytest.raises(StoreError, match=r"run\.json isn't JSON") as caught:
        lab.resume(cut.directory)
    assert caught.value.hint == f"remove {run_dir}, then `evsys resume` starts this run over"
    shutil.rmtree(run_dir)
    result = lab.resume(cut.directory)
    assert attempts(run_dir) == [(1, "start", None, 0)]
    assert result.status == "completed"
    assert outcome(result)["arms"][0] == outcome(whole(**sweep))["arms"][0]
    assert weights(run_dir, result.arms[1]) == weights(whole(**sweep).arms[1].run_dir, whole(**sweep).arms[1])


def test_a_damaged_result_is_refused_with_what_to_remove_and_comes_to_the_same_again(lab, whole):
    sweep = {"extra": "n_repeats: 2\nmax_concurrent_arms: 1\n"}
    cut = lab.run("interrupt-run-s1-5", **sweep)
    path = Path(cut.directory) / "runs/run-s0/run_result.json"
    cut_in_half(path)
    with pytest.raises(StoreError, match=r"run_result\.json isn't JSON") as caught:
        lab.resume(cut.directory)
    assert caught.value.hint.startswith("remove it, then `evsys resume` makes it again; remove ")
    path.unlink()
    result = lab.resume(cut.directory)
    assert steps_of(path.parent, 2) == []
    assert outcome(result) == outcome(whole(**sweep))


def test_a_bad_byte_in_the_journal_costs_no_run_its_result(lab, whole):
    cut = lab.run("interrupt-run-s0-5")
    with_a_bad_byte(Path(cut.arms[0].run_dir) / "journal.jsonl")
    result = lab.resume(cut.directory)
    [arm], [expected] = result.arms, whole().arms
    assert (arm.status, result.status) == ("completed", "completed")
    assert [e.task_rewards for e in arm.evaluations] == [e.task_rewards for e in expected.evaluations]
    assert weights(arm.run_dir, arm) == weights(expected.run_dir, expected)
    assert any("journal.jsonl" in warning for warning in arm.warnings)


@pytest.mark.parametrize("name", ["evaluations.jsonl", "checkpoints.jsonl"])
def test_a_bad_byte_in_what_is_taken_up_is_refused_with_its_line_and_nothing_is_lost_without_that(
    lab, whole, name
):
    cut = lab.run("interrupt-run-s0-5")
    path = Path(cut.arms[0].run_dir) / name
    with_a_bad_byte(path)
    with pytest.raises(StoreError, match=r"jsonl:\d+: line \d+ isn't JSON") as caught:
        lab.resume(cut.directory)
    assert caught.value.hint == "fix or remove this line"
    path.write_bytes(b"".join(line for line in path.read_bytes().splitlines(True) if b"\xff" not in line))
    assert outcome(lab.resume(cut.directory)) == outcome(whole())


@pytest.mark.parametrize("name", ["journal.jsonl", "training/metrics.jsonl"])
def test_steps_that_are_lost_behind_the_checkpoint_are_told(lab, name):
    cut = lab.run("interrupt-run-s0-5")
    path = Path(cut.arms[0].run_dir) / name
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if json.loads(line)["step"] <= 2))
    result = lab.resume(cut.directory)
    told = [warning for warning in result.warnings if "lacks 2 of the 4 steps" in warning]
    assert (result.status, len(told)) == ("completed", 1)
    assert str(path) in told[0]
    assert "the first of them step 3" in told[0]


def test_nothing_is_told_of_steps_that_are_all_there(lab):
    cut = lab.run("interrupt-run-s0-5")
    cut = lab.resume(cut.directory, "interrupt-run-s0-7")
    result = lab.resume(cut.directory)
    assert result.status == "completed"
    assert not any("lacks" in warning for warning in result.warnings)


def test_a_full_disk_while_saving_fails_the_run_which_goes_on_once_there_is_room(lab, whole, monkeypatch):
    real = files.os.fsync

    def full(descriptor):
        if "checkpoints" in str(Path(f"/proc/self/fd/{descriptor}").resolve()) and full.left:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor)

    full.left = True
    monkeypatch.setattr("os.fsync", full)
    failed = lab.run()
    assert failed.arms[0].status == "failed"
    assert "No space left on device" in failed.arms[0].failure.message
    full.left = False
    assert outcome(lab.resume(failed.directory)) == outcome(whole())


def test_a_project_may_move_before_it_goes_on(lab, whole, tmp_path_factory):
    cut = lab.run("interrupt-run-s0-5")
    there = tmp_path_factory.mktemp("moved") / "project"
    shutil.move(lab.project.root, there)
    for path in (there / "src").glob("*-*"):
        path.unlink()
    record = there / Path(cut.directory).relative_to(lab.project.root)
    assert outcome(Experiment.resume(record, quiet=True).run()) == outcome(whole())


def test_a_record_outside_of_the_project_finds_its_project(lab, whole, tmp_path_factory):
    output = tmp_path_factory.mktemp("elsewhere")
    cut = lab.run("interrupt-run-s0-5", extra=f"output_dir: {output}\n")
    assert Path(cut.directory).parent == output
    assert outcome(lab.resume(cut.directory)) == outcome(whole())


def test_shared_scores_of_starting_weights_are_paid_for_once_also_after_a_resume(lab, whole):
    text = f"matrix:\n  axes: {{algorithm.params.learning_rate: [0.05, 0.02]}}\nbase_run:{NINE}"
    sweep = {"text": text, "extra": "max_concurrent_arms: 2\n"}
    cut = lab.run("interrupt-learning_rate=0.02-s0-5", **sweep)
    result = lab.resume(cut.directory)
    assert outcome(result) == outcome(whole(**sweep))


# --- what it concludes -----------------------------------------------------------------------------------------------


def test_what_was_concluded_before_stays_beside_the_new_conclusion(lab):
    cut = lab.run("interrupt-run-s0-5")
    folder = Path(cut.directory)
    before = {suffix: (folder / f"conclusion.{suffix}").read_bytes() for suffix in ("json", "md")}
    cut = lab.resume(folder, "interrupt-run-s0-7")
    lab.resume(folder)
    assert {suffix: (folder / f"conclusion.1.{suffix}").read_bytes() for suffix in before} == before
    assert (folder / "conclusion.2.json").exists()
    facts = read_json(folder / "experiment.json")
    assert (facts["status"], len(facts["resumed"])) == ("completed", 2)


def test_an_experiment_that_only_lacks_its_conclusion_concludes(lab, whole):
    result = lab.run()
    record = ExperimentRecord.open(Path(result.directory))
    record.note(status="running", finished=None)
    (record.directory / "conclusion.json").unlink()
    again = lab.resume(record.directory)
    assert attempts(again.arms[0].run_dir) == [(1, "start", None, 0)]
    assert outcome(again) == outcome(whole())
    assert again.conclusion.extra["simulated_by"] == ["mock"]


def test_a_complete_experiment_has_nothing_to_do(lab):
    result = lab.run()
    before = {path: path.stat().st_mtime_ns for path in Path(result.directory).rglob("*")}
    experiment = Experiment.resume(result.directory, quiet=True)
    again = experiment.run()
    assert experiment.nothing_to_do
    assert (again.status, again.conclusion.verdict) == (result.status, result.conclusion.verdict)
    assert {path: path.stat().st_mtime_ns for path in Path(result.directory).rglob("*")} == before


# --- refusals --------------------------------------------------------------------------------------------------------


def changed(path, **values):
    """Let a file of the record say something else of what was then."""
    tree = read_json(path)
    for place, value in values.items():
        *way, last = place.split("__")
        inner = tree
        for key in way:
            inner = inner[key]
        inner[last] = value
    write_json(path, tree)


def edit_config(root, record):
    with (record / "config.yaml").open("a", encoding="utf-8") as file:
        file.write("# one more line\n")


def edit_rows(root, record):
    with (root / "train.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"prompt": "say z", "completion": "z"}\n')


def edit_tasks(root, record):
    rows = (root / "tasks.jsonl").read_text(encoding="utf-8")
    (root / "tasks.jsonl").write_text(rows.replace("say a", "say aa"), encoding="utf-8")


def edit_verifier(root, record):
    changed(record / "experiment.json", benchmarks__val__verifier_hash="sha256:other")


def edit_default(root, record):
    tree = read_json(record / "resolved.json")
    tree["arms"][0]["run"]["algorithm"]["params"]["adam_beta2"] = 0.5
    write_json(record / "resolved.json", tree)


def edit_version(root, record):
    facts = read_json(record / "experiment.json")
    facts["provenance"]["evsys"]["evsys-std"] = "0.0.1"
    write_json(record / "experiment.json", facts)


def edit_transform(root, record):
    run = record / "runs/run-s0/run.json"
    plugins = {**read_json(run)["plugins"], "transform:evsys-std/jsonl_to_chat": "0.0.1"}
    changed(run, plugins=plugins)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit_config, "config.yaml in the record is not the file"),
        (edit_rows, r"run-s0: the rows have changed since \(sha256:"),
        (edit_tasks, "the tasks of benchmark 'val' changed since"),
        (edit_verifier, "the verifiers of benchmark 'val' changed since"),
        (edit_default, r"arms\.run-s0\.run\.algorithm\.params\.adam_beta2 was 0\.5 and is"),
        (edit_version, r"evsys-std was 0\.0\.1 and is"),
        (edit_transform, r"run-s0: transform:evsys-std/jsonl_to_chat was 0\.0\.1 and is"),
    ],
    ids=["config", "rows", "tasks", "verifier", "default", "version", "transform"],
)
def test_what_has_changed_since_is_refused_with_what_it_is_and_nothing_is_written(lab, change, message):
    cut = lab.run("interrupt-run-s0-5")
    record = Path(cut.directory)
    change(lab.project.root, record)
    before = {path: path.read_bytes() for path in record.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=message) as refused:
        lab.resume(record)
    assert "put it back as it was" in str(refused.value)
    after = {path: path.read_bytes() for path in record.rglob("*") if path.is_file()}
    assert after == before


def test_other_libraries_are_a_warning(lab):
    cut = lab.run("interrupt-run-s0-5")
    facts = read_json(Path(cut.directory) / "experiment.json")
    facts["provenance"]["libraries"]["numpy"] = "1.0"
    write_json(Path(cut.directory) / "experiment.json", facts)
    result = lab.resume(cut.directory)
    assert any("begun with 1.0: last bits may differ" in warning for warning in result.warnings)


def test_a_dry_run_is_never_resumed(lab):
    result = lab.run("interrupt-run-s0-1", dry=True)
    with pytest.raises(ConfigError, match="is a dry run, which is never resumed"):
        Experiment.resume(result.directory)


def test_an_experiment_that_a_process_is_at_is_refused_by_name(lab):
    cut = lab.run("interrupt-run-s0-5")
    with (
        ExperimentRecord.open(Path(cut.directory)).lock,
        pytest.raises(StoreError, match=r"is in use by process \d+ on "),
    ):
        lab.resume(cut.directory)


def test_a_record_of_a_newer_format_is_refused(lab):
    cut = lab.run("interrupt-run-s0-5")
    path = Path(cut.directory) / "experiment.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"format": 1', '"format": 2'), encoding="utf-8")
    with pytest.raises(StoreError, match="has format 2, this evsys reads 1; upgrade evsys"):
        Experiment.resume(cut.directory)


def test_a_folder_without_an_experiment_is_refused(tmp_path):
    with pytest.raises(StoreError, match="no experiment in"):
        Experiment.resume(tmp_path)


def test_an_experiment_of_an_injected_runner_needs_it_again(lab):
    async def runner(session):
        raise KeyboardInterrupt

    cut = lab.run(train_fn=runner)
    with pytest.raises(ConfigError, match="was launched with train_fn, which can't be read from the record"):
        Experiment.resume(cut.directory)
    from evsys_sdk import arun_experiment

    assert lab.resume(cut.directory, train_fn=arun_experiment).status == "completed"


def test_settings_can_not_be_changed_on_the_way_and_secrets_are_asked_for(lab):
    lab.fault("interrupt-run-s0-5")
    text = f"run:{NINE.replace('kind: sft', 'kind: breaks')}"
    experiment = lab.project.experiment(
        text,
        metadata=EVERY_2,
        extra="callbacks: [{kind: faults}]\n",
        overrides=["run.seed=3"],
        skip_grader_check=True,
    )
    cut = lab.carried_out(experiment)
    with pytest.raises(ConfigError, match="accepts no --set run.seed"):
        Experiment.resume(cut.directory, overrides=["run.seed=4"])
    result = lab.resume(cut.directory)
    assert result.arms[0].seed == 3
    changed(Path(cut.directory) / "experiment.json", launch__hidden=["--set run.seed"], status="failed")
    with pytest.raises(ConfigError, match="launched with --set run.seed=..., a secret"):
        Experiment.resume(cut.directory)
    assert Experiment.resume(cut.directory, overrides=["run.seed=3"], quiet=True).run().status == "completed"


def test_a_stop_by_the_budget_goes_on_with_a_larger_one(lab, whole):
    budget = {"extra": "budget: {steps: 5}\n"}
    stopped = lab.run(**budget)
    assert (stopped.status, stopped.arms[0].run.steps) == ("budget_stopped", 5)
    again = lab.resume(stopped.directory)
    assert (again.status, again.exit_code) == ("budget_stopped", 5)
    result = lab.resume(stopped.directory, overrides=["budget.steps=90"])
    assert result.status == "completed"
    expected = whole().arms[0]
    assert weights(result.arms[0].run_dir, result.arms[0]) == weights(expected.run_dir, expected)
    assert {e.step: e.metrics for e in expected.evaluations}.items() <= {
        e.step: e.metrics for e in result.arms[0].evaluations
    }.items()


def test_what_was_set_anew_stays_so(lab):
    stopped = lab.run("interrupt-run-s0-5", extra="budget: {steps: 7}\n")
    cut = lab.resume(stopped.directory, "interrupt-run-s0-6", overrides=["budget.steps=90"])
    assert lab.resume(cut.directory).status == "completed"
    assert read_json(Path(cut.directory) / "experiment.json")["adjusted"] == ["budget.steps=90"]


# --- which one -------------------------------------------------------------------------------------------------------


def test_the_newest_that_is_not_complete_and_that_nobody_is_at_is_found(lab):
    experiments = lab.project.root / ".evsys/experiments"
    with pytest.raises(ConfigError, match="there is no unfinished experiment in"):
        newest_unfinished(experiments)
    first = lab.run("interrupt-run-s0-3")
    second = lab.run("interrupt-run-s0-3")
    lab.run()
    lab.run("interrupt-run-s0-1", dry=True)
    assert newest_unfinished(experiments) == Path(second.directory)
    record = ExperimentRecord.open(Path(second.directory))
    record.note(status="running", finished=None)
    with record.lock:
        assert newest_unfinished(experiments) == Path(first.directory)
        shutil.rmtree(first.directory)
        with pytest.raises(StoreError, match="is in use by process"):
            newest_unfinished(experiments)


@pytest.mark.parametrize("damage", ["torn", "gone", "lacking"])
def test_an_experiment_that_can_not_be_read_is_named_when_it_is_passed_over(lab, damage):
    experiments = lab.project.root / ".evsys/experiments"
    first, second = (Path(lab.run("interrupt-run-s0-3").directory) for _ in range(2))
    path = second / "experiment.json"
    if damage == "torn":
        cut_in_half(path)
    elif damage == "gone":
        path.unlink()
    else:
        path.write_text('{"format": 1}', encoding="utf-8")
    told = []
    assert newest_unfinished(experiments, tell=told.append) == first
    [line] = told
    assert line.startswith(f"{second.name} is passed over: ")
    assert "experiment.json" in line or "no experiment in" in line
    shutil.rmtree(first)
    with pytest.raises(ConfigError, match=f"experiment.json can't be read in {second.name}: put it back"):
        newest_unfinished(experiments)


def test_resuming_works_in_a_running_loop(lab):
    cut = lab.run("interrupt-run-s0-5")
    lab.fault()
    result = asyncio.run(Experiment.resume(cut.directory, quiet=True).arun())
    assert result.status == "completed"

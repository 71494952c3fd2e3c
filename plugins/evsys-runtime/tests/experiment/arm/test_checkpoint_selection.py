"""The checkpoint that a validation entry selects is what is tested, proven and recorded."""

import json
from pathlib import Path

import pytest

SPOILS = """
import attrs
from evsys_sdk import SFT, register_algorithm

@register_algorithm("spoils")
class Spoils(SFT):
    '''Learns the first half of its rows, and from step `until` on the second.'''

    @attrs.frozen(kw_only=True)
    class Config(SFT.Config):
        until: int = 6

    async def build_batch(self, step_idx):
        batch = await super().build_batch(step_idx)
        half = len(self._rendered) // 2
        rows = self._rendered[:half] if step_idx < self.config.until else self._rendered[half:]
        weight = 1.0 / sum(row.weight for row in rows)
        batch.data = [datum for row in rows for datum in row.data(weight)]
        return batch
"""

RUN = """
run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm:
    kind: spoils
    params: {learning_rate: RATE, steps: STEPS, until: UNTIL, batch_size: 8, lora_rank: 4, save_every: 0, lr_schedule: constant}
  backend: {kind: BACKEND}
"""

VAL = "{name: val, path: tasks.jsonl, max_tokens: 2, run_every: EVERY}"
TEST = "{name: final, path: test.jsonl, max_tokens: 2, split: test}"


@pytest.fixture
def trial(project):
    """Runs an experiment that knows the answer until step UNTIL, and forgets it then."""
    right = [{"prompt": "say a", "completion": "a"}] * 4
    wrong = [{"prompt": "say a", "completion": "b"}] * 4
    project.write("train.jsonl", right + wrong)
    project.tasks([(f"t{i:02d}", "say a", "a" if i < 38 else "zz") for i in range(40)])
    (project.root / "test.jsonl").write_text(
        (project.root / "tasks.jsonl").read_text(encoding="utf-8").replace("t0", "u0"), encoding="utf-8"
    )
    project.code("plugins", SPOILS)

    def made(
        *entries,
        every=2,
        steps=16,
        until=8,
        backend="mock",
        rate=0.1,
        kind="spoils",
        extra="",
        success="val.mean_reward",
        **options,
    ):
        listed = "".join(f"\n    - {entry.replace('EVERY', str(every))}" for entry in entries or (VAL, TEST))
        metadata = f"metadata:\n  success_metric: {success}\n  benchmark:{listed}\n"
        text = (
            RUN.replace("STEPS", str(steps))
            .replace("UNTIL", str(until))
            .replace("BACKEND", backend)
            .replace("RATE", str(rate))
            .replace("kind: spoils", f"kind: {kind}")
        )
        return project.experiment(text, metadata=metadata, extra=extra, **options)

    return made


def scores(arm):
    return {(e.benchmark, e.step): e.metrics["mean_reward"].value for e in arm.evaluations}


def test_a_run_that_peaks_at_120_of_160_and_ends_at_0_is_tested_at_120(trial):
    result = trial(every=40, steps=160, until=120).run()
    (arm,) = result.arms
    found = scores(arm)
    assert (found["val", 120], found["val", 160]) == (0.95, 0.0)
    assert found["final", 120] == 0.95
    assert ("final", 160) not in found
    selected = arm.run.selected_checkpoint
    assert (selected.step, selected.checkpoint, selected.by) == (120, "checkpoints/120", "val.mean_reward")
    assert (selected.last_step, selected.last_score, selected.looks) == (160, 0.0, 4)
    assert selected.last_is_worse
    conclusion = result.conclusion
    assert conclusion.verdict == "SUPPORTED"
    assert (conclusion.selection.proof, conclusion.selection.runs) == ("held_out_tasks", {"run-s0": selected})
    assert conclusion.comparisons[0].n_tasks == 20
    written = json.loads((Path(arm.run_dir) / "run_result.json").read_text(encoding="utf-8"))
    assert written["run"]["selected_checkpoint"]["step"] == 120


@pytest.mark.parametrize("backend", ["mock", "local"])
def test_only_the_selected_and_the_last_checkpoint_are_kept(trial, backend):
    steps, until, rate = (16, 8, 0.1) if backend == "mock" else (50, 30, 0.01)
    (arm,) = trial(backend=backend, steps=steps, until=until, rate=rate).run().arms
    selected = arm.run.selected_checkpoint
    kept = {path.name for path in (Path(arm.run_dir) / "checkpoints").iterdir()}
    assert kept == {str(selected.step), str(steps)}
    assert selected.step < steps
    assert scores(arm)["final", selected.step] > scores(arm)["val", steps]


def test_the_last_checkpoint_counts_if_the_file_says_so(trial):
    result = trial(extra="select: {checkpoint: last}\n").run()
    (arm,) = result.arms
    assert arm.run.selected_checkpoint is None
    assert result.conclusion.selection is None
    assert scores(arm)["final", 16] == 0.0
    assert {e.benchmark for e in arm.evaluations} == {"val", "final"}
    assert [path.name for path in (Path(arm.run_dir) / "checkpoints").iterdir()] == ["16"]
    assert result.conclusion.comparisons[0].n_tasks == 40


def test_with_a_temperature_the_selected_checkpoint_is_sampled_again(trial):
    result = trial(VAL.replace("EVERY", "EVERY, temperature: 1.0, num_samples: 2"), TEST).run()
    assert result.conclusion.selection.proof == "fresh_samples"
    (arm,) = result.arms
    step = arm.run.selected_checkpoint.step
    looked, proof = (
        next(e for e in arm.evaluations if (e.benchmark, e.step) == (name, step))
        for name in ("val", "val@selected")
    )
    assert looked.task_rewards.keys() == proof.task_rewards.keys()
    assert result.conclusion.comparisons[0].after == proof.metrics["mean_reward"].value
    assert result.conclusion.comparisons[0].n_tasks == 40


def test_the_tasks_that_select_have_no_part_in_the_proof(trial):
    from evsys_runtime.evaluation.proof import selecting_tasks
    from evsys_runtime.experiment.open_session import bound_benchmarks
    from evsys_runtime.experiment.state.options import Options

    experiment = trial()
    val = bound_benchmarks(experiment.plan, Options())[0]
    result = experiment.run()
    proof = [e for e in result.arms[0].evaluations if e.benchmark == "val@selected"]
    seen = selecting_tasks(val)
    assert len(seen) == 20
    assert [e.step for e in proof] == [0, result.arms[0].run.selected_checkpoint.step]
    assert all(set(e.task_rewards) == {t.task_id for t in val.tasks} - seen for e in proof)


def test_another_entry_proves_what_one_selects(trial, project):
    project.write(
        "other.jsonl",
        [
            {
                "task_id": f"o{i}",
                "instruction": f"say a, take {i}",
                "verifier": {"name": "exact_match", "expected": "a"},
            }
            for i in range(24)
        ],
    )
    other = "{name: other, path: other.jsonl, max_tokens: 2}"
    result = trial(VAL, other, success="other.mean_reward").run()
    assert result.conclusion.selection.proof == "other_entry"
    assert result.conclusion.selection.by == "val.mean_reward"
    (arm,) = result.arms
    selected = arm.run.selected_checkpoint.step
    assert selected < 16
    assert scores(arm)["other", selected] == 1.0
    assert ("other", 16) not in scores(arm)
    assert {e.benchmark for e in arm.evaluations} == {"val", "other"}


def test_of_equal_checkpoints_the_later_one_is_selected(trial):
    (arm,) = trial(until=99, every=3, steps=8).run().arms
    selected = arm.run.selected_checkpoint
    assert (selected.step, selected.last_is_worse, selected.p_value) == (8, False, None)


def test_the_next_stage_begins_with_the_selected_checkpoint(project, trial):
    trial()  # writes the files
    spoils = "{kind: spoils, params: {learning_rate: 0.1, steps: 16, until: 8, batch_size: 8, lora_rank: 4, save_every: 0, lr_schedule: constant}}"
    data = "{path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}"
    text = (
        "run:\n  model: {name: evsys/tiny}\n  backend: {kind: mock}\n"
        "stages:\n"
        f"  - {{name: one, data: {data}, algorithm: {spoils}}}\n"
        f"  - {{name: two, data: {data}, algorithm: {spoils}}}\n"
    )
    metadata = (
        f"metadata:\n  success_metric: val.mean_reward\n  benchmark:\n    - {VAL.replace('EVERY', '2')}\n"
    )
    result = project.experiment(text, metadata=metadata).run()
    first, second = result.arms
    selected = first.run.selected_checkpoint
    assert selected.step < 16
    facts = json.loads((Path(second.run_dir) / "run.json").read_text(encoding="utf-8"))
    assert facts["begins_with"]["step"] == selected.step
    assert set(result.conclusion.selection.runs) == {first.run_id, second.run_id}


def test_every_text_names_the_selected_checkpoint_and_how_much_worse_the_last_is(trial):
    result = trial(every=40, steps=160, until=120).run()
    words = "step 120 of 160 (val.mean_reward"
    for path in (Path(result.directory) / "conclusion.md", Path(result.arms[0].run_dir) / "conclusion.md"):
        text = path.read_text(encoding="utf-8")
        assert words in text
        assert "worse by more than noise" in text
        assert "not worse" not in text


def test_a_custom_algorithm_that_saves_nothing_on_the_way_keeps_its_last_weights(trial, project):
    project.code(
        "late",
        "from evsys_sdk import register_algorithm\n"
        "from src.plugins import Spoils\n\n"
        '@register_algorithm("saves_late")\n'
        "class SavesLate(Spoils):\n"
        "    '''Hides from the loop which steps may be selected.'''\n"
        "    async def setup(self, ctx):\n"
        "        ctx.evaluate.selects = lambda step: False\n"
        "        await super().setup(ctx)\n",
    )
    experiment = trial(kind="saves_late")
    (arm,) = experiment.run().arms
    assert arm.run.selected_checkpoint.step == 16
    assert scores(arm)["final", 16] == 0.0


def test_what_would_settle_it_counts_the_tasks_that_decide(project):
    project.tasks([(f"t{i:02d}", f"say {'abcdefgh'[i % 8]}", "a" if i % 3 else "h") for i in range(48)])
    metadata = (
        "metadata:\n  success_metric: val.mean_reward\n  minimum_effect: 0.1\n"
        f"  benchmark: {VAL.replace('max_tokens: 2', 'max_tokens: 4').replace('EVERY', '2')}\n"
    )
    conclusion = project.experiment(metadata=metadata).run().conclusion
    assert conclusion.verdict == "INCONCLUSIVE"
    assert conclusion.settling.tasks > 24
    assert conclusion.settle.endswith(
        "(24 tasks were scored); only the half that doesn't select a checkpoint counts"
    )

"""Dataset after dataset: what is left of the earlier ones, and an arm that ends early where that is too little."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from evsys.errors import ConfigError
from evsys_record.files import read_json
from evsys_record.index import Index
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.estimate.plan import plan_experiment
from evsys_runtime.experiment.resume.unfinished_experiments import newest_unfinished

METADATA = """
metadata:
  success_metric: a.mean_reward
  benchmark:
  - {name: a, path: ta.jsonl, max_tokens: 2}
  - {name: b, path: tb.jsonl, max_tokens: 2}
  - {name: c, path: tc.jsonl, max_tokens: 2}
"""
RUN = """
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 0.2, steps: 12, batch_size: 4, lora_rank: 4}}
  backend: {kind: mock}
"""
CONTINUAL = """
continual:
  datasets:
  - {name: a, path: a.jsonl, transforms: [{kind: jsonl_to_chat}]}
  - {name: b, path: b.jsonl, transforms: [{kind: jsonl_to_chat}]}
  - {name: c, path: c.jsonl, transforms: [{kind: jsonl_to_chat}]}
"""
BREAKS = """
from pathlib import Path
from evsys_sdk import SFT, register_algorithm

@register_algorithm("breaks")
class Breaks(SFT):
    async def build_batch(self, step_idx):
        if (Path(__file__).parents[1] / f"break-{self.ctx.arm}-s{self.ctx.repeat}").exists():
            raise RuntimeError("as it was told to")
        return await super().build_batch(step_idx)
"""
WORDS = {"a": ("abcd", "x"), "b": ("efgh", "y"), "c": ("ijkl", "z")}


@pytest.fixture
def learning(project):
    """Makes an experiment that learns three datasets whose answers stand in each other's way."""
    for name, (words, answer) in WORDS.items():
        project.write(f"{name}.jsonl", [{"prompt": f"say {w}", "completion": answer} for w in words])
        verifier = {"name": "exact_match", "expected": answer}
        tasks = [
            {"task_id": f"{name}{w}{i}", "instruction": f"say {w} {i}", "verifier": verifier}
            for w in words
            for i in range(3)
        ]
        project.write(f"t{name}.jsonl", tasks)

    def made(keys="", *, extra="", metadata=METADATA, run=f"run:{RUN}", **options):
        text = CONTINUAL.replace("  datasets:", f"{keys}  datasets:")
        return project.experiment(f"{text}{run}", metadata=metadata, extra=extra, **options)

    return made


def test_the_matrix_has_each_benchmark_after_each_stage(learning):
    result = learning().run()

    [found] = result.conclusion.forgetting
    assert (found.arm, found.benchmarks, found.own) == ("run", ("a", "b", "c"), (1, 2, 3))
    assert found.stages == ("start", "1-a", "2-b", "3-c")
    by_stage = [{e.benchmark: e for e in arm.evaluations if e.step} for arm in result.arms]
    start = {e.benchmark: e for e in result.arms[0].evaluations if e.step == 0}
    for place, name in enumerate("abc"):
        metrics = [each[name].metrics["mean_reward"] for each in (start, *by_stage)]
        assert found.values[place] == tuple(metric.value for metric in metrics)
        assert found.low[place] == tuple(metric.low for metric in metrics)
        assert found.high[place] == tuple(metric.high for metric in metrics)
    assert [found.values[place][place + 1] for place in range(3)] == [1.0, 1.0, 1.0]
    assert found.retention[0] == (None, 1.0, found.values[0][2], found.values[0][3])
    assert found.retention[2] == (None, None, None, 1.0)
    assert found.changes[0] == (None, None, found.values[0][2] - 1, found.values[0][3] - 1)
    assert found.change_low[0][3] <= found.changes[0][3] <= found.change_high[0][3] <= 0
    assert found.changes[2] == (None,) * 4
    assert found.tests == ()  # no limit was set
    assert found.values[0][3] < 1  # it is forgotten


def test_over_seeds_the_matrix_has_means_with_their_interval(learning):
    result = learning(extra="n_repeats: 2\n", keys="  replay: 1.0\n").run()

    [found] = result.conclusion.forgetting
    assert found.seeds == 2
    ends = [arm for arm in result.arms if arm.stage == "3-c"]
    for place, name in enumerate("abc"):
        made = [e.metrics["mean_reward"] for arm in ends for e in arm.evaluations if e.benchmark == name]
        mean = sum(metric.value for metric in made) / 2
        by_seed = abs(made[0].value - made[1].value) / 2 * 12.706204736  # t of one degree of freedom
        low, high = (sum(getattr(metric, end) for metric in made) / 2 for end in ("low", "high"))
        assert found.values[place][3] == pytest.approx(mean)
        assert found.low[place][3] == pytest.approx(max(0.0, mean - math.hypot(mean - low, by_seed)))
        assert found.high[place][3] == pytest.approx(min(1.0, mean + math.hypot(high - mean, by_seed)))


def test_starting_weights_are_scored_whatever_the_baseline_is(learning):
    text = f"base_run:{RUN}matrix: {{axes: {{continual.replay: [0, 0.5]}}}}"
    metadata = METADATA.replace("success", "baseline: replay-0\n  success")
    result = learning(run=text, metadata=metadata).run()

    assert [found.arm for found in result.conclusion.forgetting] == ["replay-0", "replay-0.5"]
    for found in result.conclusion.forgetting:
        assert all(row[0] is not None for row in found.values)
    assert [len([e for e in arm.evaluations if e.step == 0]) for arm in result.arms] == [3, 0, 0, 3, 0, 0]
    [compared] = result.conclusion.comparisons
    assert compared.arm == "replay-0.5"


def test_an_arm_ends_early_where_too_little_is_left(learning):
    result = learning("  minimum_retention: 0.9\n").run()

    assert [arm.status for arm in result.arms] == ["completed", "completed", "skipped"]
    why = result.arms[2].run.stop_reason
    assert why == (
        "after stage 2-b a.mean_reward has changed by -1.000 (95 % interval -1.000 to -0.515), "
        "beyond minimum_retention 0.9 (p = 0.00049, level 0.05)"
    )
    [found] = result.conclusion.forgetting
    assert found.stopped == (f"run-s0: {why}",)
    assert found.minimum_retention == 0.9
    assert found.values[0][3] is None
    [compared] = result.conclusion.comparisons
    assert (compared.outcome, compared.reason) == ("unscored", f"run-s0.3-c: {why}")
    assert (result.status, result.exit_code) == ("completed", 1)
    text = (Path(result.directory) / "conclusion.md").read_text(encoding="utf-8")
    assert f"- ended early: run-s0: {why}" in text


def test_a_value_that_isnt_of_all_seeds_says_of_how_many(learning):
    # Of the three seeds some keep enough of `a` to go on, and what they score later isn't what the arm does.
    result = learning("  minimum_retention: 0.6\n  replay: 1.0\n", extra="n_repeats: 3\n").run()

    ended = [arm.status for arm in result.arms if arm.stage == "3-c"]
    left = ended.count("completed")
    assert 0 < left < 3
    [found] = result.conclusion.forgetting
    assert (found.seeds, found.scored) == (3, ((3, 3, 3, left),) * 3)
    text = (Path(result.directory) / "conclusion.md").read_text(encoding="utf-8")
    of_some = f" of {left} seed{'s' * (left > 1)}"
    assert re.search(
        rf"^\| a\.mean_reward \| [0-9.]+ \| \([0-9.]+\) \| [0-9.]+ \| [0-9.]+{of_some} \| [-+0-9.]+ \[[-0-9., ]+\]{of_some} \|$",
        text,
        re.MULTILINE,
    )
    assert re.search(rf"- a\.mean_reward: .* after 1-a, .*{of_some} after 3-c", text)
    assert f"({found.values[2][3]:.3f}{of_some})" in text


def test_what_keeps_enough_goes_on(learning):
    result = learning("  minimum_retention: 0.0\n").run()
    assert [arm.status for arm in result.arms] == ["completed"] * 3


def test_an_experiment_whose_arms_ended_early_has_nothing_to_resume(learning, project):
    first = learning("  minimum_retention: 0.9\n").run()
    experiment = Experiment.resume(first.directory, quiet=True)
    again = experiment.run()

    assert (first.status, first.exit_code) == ("completed", 1)
    assert experiment.nothing_to_do
    assert again.conclusion.forgetting == first.conclusion.forgetting
    assert not (Path(first.directory) / "conclusion.1.json").exists()
    with pytest.raises(ConfigError, match="there is no unfinished experiment"):
        newest_unfinished(project.root / ".evsys/experiments")


def test_an_arm_that_ended_early_ends_there_again_when_another_one_goes_on(learning, project):
    project.code("faults", BREAKS)
    broken = project.root / "break-run-s1"
    broken.touch()
    run = RUN.replace("kind: sft", "kind: breaks")
    first = learning("  minimum_retention: 0.9\n", extra="n_repeats: 2\n", run=f"run:{run}").run()
    ended = {arm.run_id: arm.status for arm in first.arms}
    assert ended["run-s0.3-c"] == "skipped"
    assert [ended[f"run-s1.{stage}"] for stage in ("1-a", "2-b", "3-c")] == ["failed", "skipped", "skipped"]
    assert newest_unfinished(project.root / ".evsys/experiments") == Path(first.directory)
    assert read_json(Path(first.directory) / "experiment.json")["to_resume"] == [
        "run-s1.1-a",
        "run-s1.2-b",
        "run-s1.3-c",
    ]

    broken.unlink()
    again = Experiment.resume(first.directory, quiet=True).run()
    whole = learning("  minimum_retention: 0.9\n", extra="n_repeats: 2\n", run=f"run:{run}").run()
    assert [(arm.run_id, arm.status) for arm in again.arms] == [
        (arm.run_id, arm.status) for arm in whole.arms
    ]
    assert again.conclusion.forgetting == whole.conclusion.forgetting
    assert {arm.run_id: arm.attempt for arm in again.arms if arm.repeat == 0 and arm.run_dir} == {
        "run-s0.1-a": 1,
        "run-s0.2-b": 1,
    }


def test_a_dataset_may_share_the_benchmark_of_another_or_have_none(learning, project):
    text = CONTINUAL.replace("name: b,", "name: second, benchmark: a,").replace("name: c,", "name: third,")
    result = project.experiment(f"{text}run:{RUN}", metadata=METADATA).run()

    [found] = result.conclusion.forgetting
    assert (found.benchmarks, found.own) == (("a",), (1,))
    assert found.stages == ("start", "1-a", "2-second", "3-third")


def test_replayed_rows_are_in_the_record(learning):
    result = learning("  replay: 0.5\n").run()

    folder = Path(result.directory) / "runs"
    data = [read_json(folder / arm.run_id / "run.json")["data"] for arm in result.arms]
    assert [each["rows"] for each in data] == [4, 6, 6]
    drawn = [[of["drawn"] for of in each["lineage"][-1].get("from", ())] for each in data]
    assert drawn == [[], [2], [1, 1]]
    assert len({each["fingerprint"] for each in data}) == 3


def test_a_dry_run_has_no_matrix(learning):
    assert learning("  minimum_retention: 1.0\n", dry=True).run().conclusion.forgetting == ()


def test_the_matrix_is_in_conclusion_json_and_md(learning):
    result = learning().run()
    tree = read_json(Path(result.directory) / "conclusion.json")
    assert tree["forgetting"][0]["values"][0][1] == 1.0
    lines = (Path(result.directory) / "conclusion.md").read_text(encoding="utf-8").splitlines()
    head = lines.index("| run | start | 1-a | 2-b | 3-c | change |")
    assert lines[head + 2].startswith("| a.mean_reward | 0.000 | (1.000) |")
    assert lines[head + 4].endswith("(1.000) |  |")


def test_the_plan_counts_stages_and_what_is_scored_after_each(learning, tmp_path):
    experiment = learning("  replay: 0.5\n")
    with Index(tmp_path / ".evsys/experiments") as index:
        planned = plan_experiment(experiment.plan, index)

    assert [arm.arm for arm in planned.arms] == ["run.1-a", "run.2-b", "run.3-c"]
    assert [(arm.rows, arm.steps) for arm in planned.arms] == [(4, 12), (6, 12), (6, 12)]
    assert planned.runs == 3
    assert planned.steps == 36
    assert [scoring.scorings for scoring in planned.scorings] == [4, 4, 4]  # of the weights at the start, too
    assert planned.design.runs == 1

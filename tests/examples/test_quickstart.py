"""The quickstart: what a newcomer is promised, and that it isn't an artefact.

These runs are shorter than the example's own (40 of 100 steps), which learns at least as much.
"""

import json
import random
import shutil
from pathlib import Path

import pytest

SHORT = ("run.algorithm.params.steps=40", "metadata.benchmark.run_every=40")


@pytest.fixture(scope="module")
def quickstart(example):
    return example("quickstart")


@pytest.fixture(scope="module")
def trained(quickstart):
    return quickstart.run(*SHORT)


def values(run_dir, read):
    """Every line of metrics without what depends on the clock."""
    lines = [
        line for part in ("training", "validation") for line in read(Path(run_dir) / part / "metrics.jsonl")
    ]
    for line in lines:
        del line["time"]
        for name in [name for name in line["values"] if name.rpartition("/")[2] == "seconds"]:
            del line["values"][name]
    return lines


def test_its_script_writes_the_data_that_is_there(quickstart):
    assert quickstart.scripted() == quickstart.data()


def test_training_and_held_out_tasks_share_no_instruction(quickstart):
    train = {row["prompt"] for row in quickstart.train()}
    held_out = {task["instruction"] for task in quickstart.tasks()}
    assert (len(train), len(held_out)) == (600, 100)
    assert train & held_out == set()


def test_the_model_learns_what_it_could_not_do_before(trained, score):
    assert score(trained, 0) <= 0.05
    assert score(trained, -1) >= 0.6
    assert (trained.status, trained.exit_code, trained.conclusion.verdict) == ("completed", 0, "SUPPORTED")


def test_the_same_seed_gives_the_same_metrics(quickstart, trained, read):
    again = quickstart.run(*SHORT)
    first, second = (values(result.arms[0].run_dir, read) for result in (trained, again))
    assert len(first) == 44
    assert first == second
    other = quickstart.run(
        *SHORT, "run.seed=1", "run.algorithm.params.steps=1", "metadata.benchmark.limit=10"
    )
    assert values(other.arms[0].run_dir, read)[0] != first[0]


def test_shuffled_answers_teach_nothing(quickstart, score):
    rows = quickstart.train()
    answers = [row["answer"] for row in rows]
    random.Random(0).shuffle(answers)
    lines = [json.dumps({**row, "answer": answer}) for row, answer in zip(rows, answers, strict=True)]
    shuffled = quickstart.folder / "data/datasets/shuffled/v1"
    shuffled.mkdir(parents=True)
    (shuffled / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    try:
        result = quickstart.run(*SHORT, "run.data.dataset_name=shuffled/v1")
    finally:
        shutil.rmtree(shuffled.parent)
    assert score(result, -1) < 0.2
    assert result.conclusion.verdict != "SUPPORTED"


def test_a_learning_rate_of_0_changes_nothing_and_supports_nothing(quickstart, read):
    short = ("run.algorithm.params.steps=5", "metadata.benchmark.run_every=5")
    sampled = ("metadata.benchmark.num_samples=2", "metadata.benchmark.temperature=1")
    result = quickstart.run(*short, *sampled, "run.algorithm.params.learning_rate=0")
    outputs: dict[int, list[str]] = {0: [], 5: []}
    for line in read(Path(result.arms[0].run_dir) / "validation/rollouts.jsonl"):
        outputs[line["step"]].append(line["rollout"]["output"])
    assert len(outputs[0]) == 400  # the entry, and its proof on the selected weights
    assert sorted(outputs[0]) == sorted(outputs[5])
    assert (result.status, result.conclusion.verdict) == (
        "completed",
        "INCONCLUSIVE",
    )  # both are on the floor


def test_the_backend_is_the_only_word_that_changes_for_a_rehearsal(quickstart, trained):
    rehearsal = quickstart.run(*SHORT, "run.backend.kind=mock")
    assert (rehearsal.status, rehearsal.exit_code) == ("completed", 0)
    assert rehearsal.arms[0].run.steps == trained.arms[0].run.steps

    def recorded(result):
        return json.loads((Path(result.directory) / "resolved.json").read_text(encoding="utf-8"))

    def differences(one, two, path="$"):
        if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
            return [d for key in one for d in differences(one[key], two[key], f"{path}.{key}")]
        if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
            return [
                d
                for i, (a, b) in enumerate(zip(one, two, strict=True))
                for d in differences(a, b, f"{path}[{i}]")
            ]
        return [] if one == two else [path]

    # The params are the defaults of each.
    assert differences(recorded(trained), recorded(rehearsal)) == [
        "$.arms[0].run.backend.kind",
        "$.arms[0].run.backend.params",
    ]

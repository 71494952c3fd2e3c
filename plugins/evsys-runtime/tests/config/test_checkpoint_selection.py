"""`select`: what it means by default, and what is refused or warned of."""

import pytest
from task_files import task, write_tasks

RUN = """\
run:
  data: {path: data/train.jsonl}
  model: {name: evsys/tiny}
  algorithm: {kind: sft}
  backend: {kind: BACKEND}
"""
VAL = "{path: data/many.jsonl, name: val, run_every: 2}"
FEW = "{path: data/val.jsonl, run_every: 2}"
FEW_SAMPLED = "{path: data/val.jsonl, run_every: 2, temperature: 1}"
NEARLY_GREEDY = "{path: data/many.jsonl, name: val, run_every: 2, temperature: 1e-6}"
OTHER = "{path: data/test.jsonl, name: other}"
TEST = "{path: data/test.jsonl, name: last, split: test}"


@pytest.fixture
def file(project):
    write_tasks(project / "data" / "many.jsonl", [task(f"t{i}") for i in range(24)])

    def text(*entries, select=None, success=None, backend="mock", more=""):
        metric = f", success_metric: {success}" if success else ""
        chosen = f"select: {select}\n" if select else ""
        run = RUN.replace("BACKEND", backend)
        return f"version: 1\nname: x\nmetadata: {{benchmark: [{', '.join(entries)}]{metric}}}\n{run}{chosen}{more}"

    return text


@pytest.mark.parametrize(
    ("entries", "success", "by", "proof"),
    [
        ((VAL, TEST), None, "val.mean_reward", "held_out_tasks"),
        ((VAL, TEST), "val.pass_rate", "val.pass_rate", "held_out_tasks"),
        ((FEW_SAMPLED, TEST), None, "val.mean_reward", "fresh_samples"),
        ((NEARLY_GREEDY, TEST), None, "val.mean_reward", "held_out_tasks"),
        ((FEW, OTHER), "other.mean_reward", "val.mean_reward", "other_entry"),
        ((FEW, OTHER), None, "val.mean_reward", None),
        (("{path: data/test.jsonl, name: odd, metrics: [nll], run_every: 3}", OTHER), "other.pass_rate", "odd.nll", "held_out_tasks"),
    ],
)  # fmt: skip
def test_the_best_checkpoint_is_selected_if_an_entry_is_scored_during_training(
    load, file, project, entries, success, by, proof
):
    write_tasks(project / "data" / "test.jsonl", [task(f"u{i}") for i in range(24)])
    selection = load(file(*entries, success=success)).selection
    assert (selection.checkpoint, selection.by, selection.proof) == ("best", by, proof)


@pytest.mark.parametrize(
    "entries", [(OTHER,), (TEST,), ("{path: data/test.jsonl, run_every: 2, split: test}",)]
)
def test_without_a_val_entry_that_is_scored_during_training_the_last_counts(load, file, entries):
    plan = load(file(*entries))
    assert (plan.selection.checkpoint, plan.selection.by, plan.selection.reason) == ("last", None, None)


@pytest.mark.parametrize(
    ("entries", "backend", "reason"),
    [
        ((FEW,), "mock", "'val' selects and decides at temperature 0, and its 12 tasks are too few"),
        ((VAL,), "frozen", "backend 'frozen' can't load a checkpoint again"),
    ],
)
def test_what_keeps_checkpoints_from_being_selected_is_a_reason_by_default_and_a_problem_if_asked_for(
    load, problems, file, registry, entries, backend, reason
):
    registry.register(
        "backend", "frozen", type("Frozen", (registry.get("backend", "mock"),), {"capabilities": frozenset()})
    )
    selection = load(file(*entries, backend=backend)).selection
    assert selection.checkpoint == "last"
    assert selection.reason.startswith(reason)
    (problem,) = problems(file(*entries, backend=backend, select="{checkpoint: best}"))
    assert reason in problem
    assert "$.select.checkpoint" in problem


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("{by: last.mean_reward}", "'last' is a 'test' entry, which nothing may be selected by; name a 'val' entry"),
        ("{by: other.mean_reward}", "'other' is only scored after training, so it can't select a checkpoint; give the entry 'run_every'"),
        ("{by: val.mean_rewards}", "no entry and metric are called 'val.mean_rewards'; did you mean 'val.mean_reward'?"),
        ("{by: nothing}", "no entry and metric are called 'nothing'; choose one of val.mean_reward"),
        ("{checkpoint: newest}", "$.select.checkpoint"),
    ],
)  # fmt: skip
def test_what_can_not_select_is_a_problem_with_a_hint(problems, file, select, message):
    (problem,) = problems(file(VAL, OTHER, TEST, select=select))
    assert message in problem


def test_best_without_an_entry_that_selects_is_a_problem(problems, file):
    (problem,) = problems(file(OTHER, select="{checkpoint: best}"))
    assert "no 'val' entry is scored during training; give the entry 'run_every'" in problem


def test_settings_without_effect_are_warned_of(load, file, project):
    plan = load(file(VAL, select="{by: val.mean_reward, checkpoint: last}"))
    assert plan.selection.checkpoint == "last"
    assert "select: 'by' has no effect with 'checkpoint: last'" in plan.warnings
    assert not load(file(VAL, select="{checkpoint: last}")).warnings


def test_clusters_count_as_one_each_in_both_halves(load, file, project):
    rows = [{**task(f"t{i}"), "metadata": {"group": str(i // 2)}} for i in range(24)]
    write_tasks(project / "data" / "many.jsonl", rows)
    selection = load(file(VAL.replace("}", ", cluster_key: group}"))).selection
    assert "its 12 clusters of tasks are too few" in selection.reason


def test_the_same_tasks_under_two_names_do_not_prove_each_other(load, file):
    twin = "{path: data/many.jsonl, name: twin}"
    assert load(file(VAL, twin, success="twin.mean_reward")).selection.proof == "held_out_tasks"


def test_what_by_names_is_checked_though_something_else_is_wrong(problems, file, project):
    write_tasks(project / "data" / "val.jsonl", [task(f"t{i}") for i in range(3)])
    found = problems(file(FEW, select="{by: val.pass_rat}"))
    assert len(found) == 2
    assert "holds 3 tasks, and nothing can be decided on fewer than 10" in found[0]
    assert "no entry and metric are called 'val.pass_rat'" in found[1]

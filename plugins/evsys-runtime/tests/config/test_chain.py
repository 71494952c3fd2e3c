"""`stages` and `continual`: each arm becomes a chain of runs, or the file is refused."""

from __future__ import annotations

import pytest
from task_files import task, write_tasks

from evsys.types import LoraSpec

RUN = """
run:
  model: {name: evsys/tiny}
  algorithm: {kind: sft}
  backend: {kind: mock}
"""
BARE = RUN.replace("  algorithm: {kind: sft}\n", "")
STAGES = """
name: x
stages:
- {name: warm up, data: {path: a.jsonl}, algorithm: {kind: sft, params: {notes: one}}}
- {name: more, data: {path: b.jsonl}, algorithm: {kind: sft, params: {notes: two}}}
"""
CONTINUAL = """
name: x
continual:
  datasets:
  - {path: a.jsonl}
  - {path: b.jsonl, name: Second one}
  - {path: c.jsonl}
"""


@pytest.fixture(autouse=True)
def files(project):
    for name in "abc":
        (project / f"{name}.jsonl").write_text('{"messages": []}\n', encoding="utf-8")
    (project / "weights").mkdir()


def test_stages_are_runs_each_of_which_follows_the_one_before(load):
    arms = load(f"{STAGES}{BARE}n_repeats: 2").arms

    assert [(arm.run_id, arm.after) for arm in arms] == [
        ("run-s0.1-warm-up", None),
        ("run-s0.2-more", "run-s0.1-warm-up"),
        ("run-s1.1-warm-up", None),
        ("run-s1.2-more", "run-s1.1-warm-up"),
    ]
    assert [arm.run.data.path for arm in arms[:2]] == ["a.jsonl", "b.jsonl"]
    assert [arm.run.algorithm.params["notes"] for arm in arms[:2]] == ["one", "two"]
    assert [(arm.stage.first, arm.stage.last) for arm in arms[:2]] == [(True, False), (False, True)]
    assert len({arm.digest for arm in arms}) == 2


def test_a_checkpoint_is_where_the_first_stage_begins(load):
    arms = load(STAGES + BARE.replace("evsys/tiny", "evsys/tiny, init_from_checkpoint: weights")).arms

    assert [arm.run.model.init_from_checkpoint for arm in arms] == ["weights", None]
    assert [arm.tree["model"] for arm in arms] == [
        {"name": "evsys/tiny", "init_from_checkpoint": "weights"},
        {"name": "evsys/tiny"},
    ]


def test_an_axis_reaches_into_a_stage(load):
    text = BARE.replace("run:", "base_run:")
    axes = "matrix: {axes: {'stages[1].algorithm.params.learning_rate': [0.1, 0.2]}}"
    arms = load(f"{STAGES}{text}{axes}").arms

    assert [arm.run_id for arm in arms] == [
        "learning_rate-0.1-s0.1-warm-up",
        "learning_rate-0.1-s0.2-more",
        "learning_rate-0.2-s0.1-warm-up",
        "learning_rate-0.2-s0.2-more",
    ]
    assert [arm.run.algorithm.params.get("learning_rate") for arm in arms] == [None, 0.1, None, 0.2]


def test_each_dataset_is_learnt_by_the_one_recipe(load):
    arms = load(CONTINUAL + RUN).arms

    assert [arm.stage.label for arm in arms] == ["1-data-1", "2-second-one", "3-data-3"]
    assert [arm.run.data.path for arm in arms] == ["a.jsonl", "b.jsonl", "c.jsonl"]
    assert all(arm.run.data.replay is None for arm in arms)


def test_replay_draws_from_all_datasets_before(load):
    arms = load(CONTINUAL.replace("  datasets:", "  replay: 0.25\n  datasets:") + RUN).arms

    assert arms[0].run.data.replay is None
    drawn = [(arm.run.data.replay.ratio, arm.run.data.replay.datasets) for arm in arms[1:]]
    assert [(ratio, [each.path for each in of]) for ratio, of in drawn] == [
        (0.25, ["a.jsonl"]),
        (0.25, ["a.jsonl", "b.jsonl"]),
    ]


def test_replay_is_an_axis(load):
    text = RUN.replace("run:", "base_run:")
    arms = load(f"{CONTINUAL}{text}matrix: {{axes: {{continual.replay: [0, 0.5]}}}}").arms

    assert [arm.run_id for arm in arms if arm.stage.last] == [
        "replay-0-s0.3-data-3",
        "replay-0.5-s0.3-data-3",
    ]
    assert [arm.run.data.replay and arm.run.data.replay.ratio for arm in arms] == [
        None,
        None,
        None,
        None,
        0.5,
        0.5,
    ]


REFUSED = {
    "both": (
        f"{STAGES}{CONTINUAL.replace('name: x', '')}{BARE}",
        "$.continual: 'stages' and 'continual' both define",
    ),
    "own data": (
        STAGES + BARE.replace("run:", "run:\n  data: {path: a.jsonl}"),
        "$.run.data: set by the experiment's 'stages'",
    ),
    "own algorithm": (STAGES + RUN, "$.run.algorithm: set by the experiment's 'stages'"),
    "inside": (
        STAGES + BARE.replace("run:", "run:\n  stages: [1]"),
        "$.run.stages: set by the experiment's 'stages'",
    ),
    "no algorithm": (CONTINUAL + BARE, "$.run.algorithm: is missing"),
    "confirm": (
        f"{CONTINUAL}{RUN}confirm: {{seeds: 1}}",
        "$.confirm: 'confirm' doesn't go with 'continual'",
    ),
    "same name": (
        f"{STAGES.replace('more', 'warm-up')}{BARE}",
        "$.stages[1].name: two stages are called 'warm-up'",
    ),
    "no file": (
        STAGES.replace("b.jsonl", "z.jsonl") + BARE,
        "$.stages[1].data.path: there is no file z.jsonl",
    ),
    "no dataset": (
        CONTINUAL.replace("b.jsonl", "z.jsonl") + RUN,
        "$.continual.datasets[1].path: there is no file",
    ),
    "odd param": (
        STAGES.replace("notes: two", "nots: two") + BARE,
        "$.stages[1].algorithm.params.nots: unknown key",
    ),
    "unnamed": (STAGES.replace("name: more, ", "") + BARE, "$.stages[1].name: is missing"),
    "no data": (STAGES.replace("data: {path: b.jsonl}, ", "") + BARE, "$.stages[1].data: is missing"),
    "one dataset": ("name: x\ncontinual: {datasets: [{path: a.jsonl}]}" + RUN, "there are at least two"),
    "no datasets": ("name: x\ncontinual: {replay: 0.5}" + RUN, "$.continual.datasets: is missing"),
    "replay": (
        CONTINUAL.replace("  datasets:", "  replay: 2\n  datasets:") + RUN,
        "$.continual.replay: 'replay' must be <= 1",
    ),
    "rank": (
        STAGES.replace("notes: two", "lora_rank: 8") + BARE,
        "$.stages[1].algorithm.params.lora_rank: it starts from weights trained with lora_rank 32, and has 8",
    ),
    "backend": (
        STAGES + BARE.replace("kind: mock", "kind: remote"),
        "$.run.backend.kind: backend 'remote' can't begin with the weights of another run",
    ),
}


def test_a_search_chooses_no_chains(problems):
    found = problems(f"{STAGES}{BARE}search: {{kind: random}}\n")
    assert any("$.search: 'search' doesn't go with 'stages'" in problem for problem in found)


@pytest.mark.parametrize("case", REFUSED)
def test_chains_that_cannot_be_are_refused(problems, registry, monkeypatch, case):
    trainer = registry.get("algorithm", "sft")
    monkeypatch.setattr(trainer, "lora", lambda self: LoraSpec(rank=self.fields["lora_rank"]), raising=False)
    text, said = REFUSED[case]
    found = problems(text)
    assert any(said in problem for problem in found), found
    assert len(found) == 1


def test_a_backend_that_loads_nothing_makes_no_chain(problems, registry, monkeypatch):
    monkeypatch.setattr(registry.get("backend", "mock"), "capabilities", frozenset({"deterministic"}))
    (found,) = problems(STAGES + BARE)
    assert "$.run.backend.kind: backend 'mock' can't begin with the weights of another run" in found


AXES = {
    "continual.datasets": "of 'continual' an axis reaches continual.replay alone",
    "data.path": "'continual' says what 'data' is",
    "continual.replay": "$.matrix.axes['continual.replay'][0]",
}


@pytest.mark.parametrize("name", AXES)
def test_axes_that_no_stage_has_are_refused(problems, name):
    text = RUN.replace("run:", "base_run:")
    found = problems(f"{CONTINUAL}{text}matrix: {{axes: {{{name}: [x, z]}}}}")
    assert any(AXES[name] in problem for problem in found), found


@pytest.mark.parametrize(
    ("benchmark", "said"),
    [
        ("{path: data/val.jsonl, name: a}", "'maximum_loss' needs a benchmark for this dataset"),
        ("{path: data/val.jsonl, name: nope}", "no benchmark entry is called 'a'"),
        ("{path: data/val.jsonl, name: a, split: test}", "would be decided by 'a', which is a 'test' entry"),
    ],
)
def test_what_decides_whether_an_arm_ends_early_has_to_be_there(problems, project, benchmark, said):
    text = CONTINUAL.replace("{path: a.jsonl}", "{path: a.jsonl, benchmark: a}")
    text = text.replace("  datasets:", "  maximum_loss: 0.5\n  datasets:")
    found = problems(f"{text}{RUN}metadata: {{benchmark: [{benchmark}]}}")
    assert any(said in problem for problem in found), found


def test_minimum_retention_is_deprecated_and_still_read(load, project):
    write_tasks(project / "data" / "more.jsonl", [task(name) for name in "abcdefghijkl"])
    text = CONTINUAL.replace("{path: a.jsonl}", "{path: a.jsonl, benchmark: val}").replace(
        "  datasets:", "  minimum_retention: 0.5\n  datasets:"
    )
    entries = "{path: data/val.jsonl, name: val}, {path: data/more.jsonl, name: second-one}"
    plan = load(f"{text}{RUN}metadata: {{success_metric: val.mean_reward, benchmark: [{entries}]}}")

    assert plan.experiment.continual.minimum_retention == 0.5
    (warning,) = plan.warnings
    assert "'minimum_retention' is deprecated since evsys 0.1" in warning
    assert "maximum_loss" in warning


def test_two_limits_of_what_may_be_forgotten_are_refused(problems, project):
    text = CONTINUAL.replace("{path: a.jsonl}", "{path: a.jsonl, benchmark: val}")
    text = text.replace("  datasets:", "  minimum_retention: 0.5\n  maximum_loss: 0.1\n  datasets:")
    found = problems(f"{text}{RUN}metadata: {{benchmark: [{{path: data/val.jsonl, name: val}}]}}")
    assert any("both limit how much may be forgotten" in problem for problem in found), found


def test_benchmarks_are_those_that_datasets_name_or_are_called_like(load, project):
    write_tasks(project / "data" / "more.jsonl", [task(name) for name in "abcdefghijkl"])
    text = CONTINUAL.replace("{path: a.jsonl}", "{path: a.jsonl, benchmark: val}").replace(
        "  datasets:", "  maximum_loss: 0.5\n  datasets:"
    )
    entries = "{path: data/val.jsonl, name: val}, {path: data/more.jsonl, name: second-one}"
    plan = load(f"{text}{RUN}metadata: {{success_metric: val.mean_reward, benchmark: [{entries}]}}")
    assert plan.warnings == ()


def test_that_nothing_tells_what_is_forgotten_is_warned_of(load):
    assert load(CONTINUAL + RUN).warnings == (
        "continual: no dataset has a benchmark entry, so forgetting can't be measured",
    )


def test_the_budget_knows_the_steps_of_every_stage(load, registry):
    text = STAGES.replace("notes: one", "batch_size: 1")
    plan = load(f"{text}{BARE}budget: {{arms: 1}}")
    assert plan.warnings == ("budget.arms is 1, so 1 of the 2 planned runs won't be started",)

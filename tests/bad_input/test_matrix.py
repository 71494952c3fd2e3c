"""Grids that are wrong, repeat themselves, or fail in part."""

from __future__ import annotations

import json

import pytest
from lab import CONFIG

FAILS = """\
from evsys_sdk import SFT, register_algorithm

@register_algorithm("fails")
class Fails(SFT):
    async def build_batch(self, step_idx):
        raise RuntimeError(f"no luck with {self.config.learning_rate:g}")
"""


def grid(axes: str, *, also: str = "", run: str | None = None) -> str:
    head, _, arm = CONFIG.partition("run:\n")
    return f"{head}base_run:\n{run or arm}matrix:\n  axes:\n{axes}{also}"


def runs(*arms: tuple[str, float]) -> str:
    head, _, arm = CONFIG.partition("run:\n")
    body = "".join(
        f"  - name: {name}\n"
        + arm.replace("  ", "    ", 1).replace("\n  ", "\n    ").replace("0.05", str(rate)).rstrip(" ")
        for name, rate in arms
    )
    return f"{head}runs:\n{body}"


RATES = "    algorithm.params.learning_rate: [1e-2, 2e-2, 3e-2]\n"


def arms(lab, text: str, *arguments: str) -> list[str]:
    lab.config(text=text)
    outcome = lab.validate("--json", *arguments)
    outcome.passed()
    return outcome.json["arms"]


# --- what a grid gives -------------------------------------------------------------------------------------------------


def test_nested_axes_give_the_product_once_in_a_stable_order(lab):
    axes = (
        "    algorithm.params.steps: [1, 2, 3]\n    algorithm.params.batch_size: [2, 4]\n"
        "    algorithm.params.lora_rank: [4, 8]\n    algorithm.params.learning_rate: [1e-5, 2e-5, 3e-5]\n"
        "    algorithm.params.warmup_steps: [0, 1, 2]\n"
    )
    found = arms(lab, grid(axes))
    assert len(found) == len(set(found)) == 108
    assert found == arms(lab, grid(axes))
    assert found[0] == "steps-1-batch_size-2-lora_rank-4-learning_rate-1e-05-warmup_steps-0"


def test_scientific_notation_without_a_dot_is_a_number_on_an_axis_too(lab):
    assert arms(lab, grid("    algorithm.params.learning_rate: [1e-5, 2e-5]\n")) == [
        "learning_rate-1e-05",
        "learning_rate-2e-05",
    ]
    lab.config(text=grid("    algorithm.params.learning_rate: [1e-5, '2e-5']\n"))
    lab.run().refused(
        2,
        r":12:44: .*\[1\]: expected a finite number or null, got '2e-5' \(in the arm .*; write 2e-05 without quotes",
    )


def test_an_arm_of_an_earlier_grid_is_the_same_run_again(lab):
    lab.config(text=grid("    algorithm.params.learning_rate: [1e-2, 2e-2]\n"))
    lab.run().passed()
    lab.config(text=grid("    algorithm.params.learning_rate: [2e-2, 3e-2]\n"))
    lab.run().passed()
    identities = [
        {
            json.loads((run / "run.json").read_text(encoding="utf-8"))["identity"]
            for run in (record / "runs").iterdir()
        }
        for record in lab.records()
    ]
    assert [len(found) for found in identities] == [2, 2]
    assert len(identities[0] & identities[1]) == 1


def test_a_conditional_axis_multiplies_only_where_it_applies(lab):
    axes = (
        "    algorithm.params.lr_schedule: [linear, constant]\n"
        "    algorithm.params.warmup_steps: {values: [1, 2], when: {algorithm.params.lr_schedule: linear}}\n"
    )
    assert arms(lab, grid(axes)) == [
        "lr_schedule-linear-warmup_steps-1",
        "lr_schedule-linear-warmup_steps-2",
        "lr_schedule-constant",
    ]


def test_params_of_one_algorithm_only_are_refused_in_the_arms_of_another(lab):
    lab.code(
        "import attrs\nfrom evsys_sdk import SFT, register_algorithm\n\n@register_algorithm('terse')\nclass Terse(SFT):\n"
        "    @attrs.frozen(kw_only=True)\n    class Config:\n        batch_size: int = 4\n"
    )
    lab.config(
        text=grid("    algorithm.kind: [sft, terse]\n    algorithm.params.learning_rate: [0.1, 0.2]\n")
    )
    lab.run().refused(
        2, r"unknown key 'learning_rate' \(in 2 of 4 arms, the first is 'kind-terse-learning_rate-0\.1'\)"
    )
    lab.nothing_was_written()


def test_ten_thousand_arms_are_counted_and_a_hundred_thousand_refused_before_they_are_built(lab):
    hundred = ", ".join(map(str, range(1, 101)))
    axes = "".join(f"    algorithm.params.{key}: [{hundred}]\n" for key in ("steps", "log_every"))
    assert len(set(arms(lab, grid(axes)))) == 10_000
    lab.config(text=grid(axes + f"    algorithm.params.save_every: [{hundred}]\n"))
    lab.run().refused(2, r"\$\.matrix\.axes: the axes give 1,000,000 arms; at most 100,000 are accepted")


# --- what makes no sense -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ("    algorithm.params.learning_rte: [1, 2]\n", r":12:\d+: .*unknown key 'learning_rte'.*'learning_rate'\?"),
        ("    algoritm.params.learning_rate: [1, 2]\n", r":12:5: \$\.matrix\.axes\['algoritm\.params\.learning_rate'\]: unknown key 'algoritm'"),
        ("    'algorithm..steps': [1]\n", r"'algorithm\.\.steps' is not a path"),
        ("    model.name.x: [1]\n", r"the axis can't be set: model\.name is text"),
        ("    algorithm.params.steps: []\n", r"the axis has no values; give at least one, or remove the axis"),
        ("    algorithm.params.steps: 3\n", r"expected a list or a mapping, got 3; write \[3\]"),
        ("    algorithm.params.steps: [1, 1]\n", r":12:33: .*the arm 'steps-1' is the same run as 'steps-0'; remove one; 'n_repeats'"),
        ("    algorithm.params.learning_rate: [1, 1.0]\n", r"is the same run as"),
        ("    algorithm.params.steps: [1, -2]\n", r":12:33: .*'steps' must be >= 1, got -2 \(in the arm 'steps-minus-2'\)"),
        ("    {}\n", r"there is no axis; give at least one, or use `run`"),
        ("    name: [base_model, x]\n", r"an arm can't be called 'base_model'"),
        ("    algorithm.params.steps: {values: [1], when: {algorithm.params.stepz: 1}}\n", r"no arm has 'algorithm\.params\.stepz'; did you mean 'algorithm\.params\.steps'\?"),
    ],
)  # fmt: skip
def test_an_axis_that_can_not_be_meant_is_refused_at_its_place(lab, axes, said):
    lab.config(text=grid(axes))
    lab.run().refused(2, said)
    lab.nothing_was_written()


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("same", r"two arms are called 'same'; name every axis in 'name_template'"),
        ("'x-{algorithm.params.rate}'", r"there is no 'algorithm\.params\.rate' in a run"),
        ("'x-{algorithm'", r"a '\{' is alone"),
        ("'x-{algorithm.__class__}'", r"there is no 'algorithm\.__class__' in a run"),
    ],
)
def test_names_that_can_not_tell_the_arms_apart_are_refused(lab, template, said):
    lab.config(text=grid(RATES, also=f"  name_template: {template}\n"))
    lab.run().refused(2, said)


@pytest.mark.parametrize(
    ("axes", "also", "said"),
    [
        ("    'algorithm..steps': [1]\n", "", r"'algorithm\.\.steps' is not a path"),
        ("    algorithm.params.save_every: []\n", "", r"the axis has no values"),
        ("    algorithm.params.save_every: 3\n", "", r"expected a list or a mapping, got 3"),
        ("    model.name.x: [1]\n", "", r"the axis can't be set"),
        ("    seed: {values: [1], when: {algorithm.knd: sft}}\n", "", r"no arm has 'algorithm\.knd'"),
        ("    seed: [1, 2]\n", "  name_template: 'x-{sed}'\n", r"there is no 'sed' in a run; did you mean 'seed'\?"),
        ("    seed: [1, 2]\n", "  name_template: 'x-{seed'\n", r"a '\{' is alone"),
        ("    seed: [1, 2]\n", "  name_template: 5\n", r"\.name_template: expected text"),
        ("    seed: [1, 2]\n", "  zip: [[seed, sed]]\n", r"there is no axis 'sed'"),
        ("    seed: [1, 2]\n", "  zp: []\n", r"unknown key 'zp'"),
        (f"    seed: [{', '.join(map(str, range(1000)))}]\n    algorithm.params.warmup_steps: [{', '.join(map(str, range(1000)))}]\n", "", r"the axes give 2,000,000 arms"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_axes_hides_nothing_else_that_is_wrong(lab, axes, also, said):
    lab.config(
        text=grid(f"    algorithm.params.batch_size: [2, 0]\n{axes}", also=also)
        .replace("kind: mock", "kind: mok")
        .replace("tasks.jsonl", "taks.jsonl")
        .replace("metadata:", "metadata:\n  baseline: nobody")
        + "callbacks: [{kind: nothing}]\n"
    )
    outcome = lab.run("--json")
    outcome.refused(
        2,
        said,
        r"no backend is called 'mok'; did you mean 'mock'\?",
        r"there is no file taks\.jsonl",
        r"\$\.matrix\.axes\['algorithm\.params\.batch_size'\]\[1\]: 'batch_size' must be >= 1, got 0",
        r"no callback is called 'nothing'",
    )
    assert len(outcome.json["error"]["problems"]) == 5


def test_a_value_that_a_bad_axis_would_bring_is_not_missed_twice(lab):
    lab.config(text=grid("    algorithm.kind: []\n").replace("kind: sft, ", ""))
    outcome = lab.run("--json")
    outcome.refused(2, r"the axis has no values")
    assert len(outcome.json["error"]["problems"]) == 1


def test_two_ways_of_saying_what_is_run_are_both_looked_at(lab):
    broken = CONFIG.partition("run:\n")[2].replace("kind: mock", "kind: mok")
    lab.config(text=grid("    seed: [1, -2]\n") + f"run:\n{broken}")
    lab.run().refused(
        2, "3 problems:", r"found 'run' and 'matrix'", r"no backend is called 'mok'", r"must be >= 0, got -2"
    )


def test_a_matrix_without_a_base_run_still_tells_of_its_axes(lab):
    lab.config(text="version: 1\nname: x\nmatrix: {axes: {seed: []}}\n")
    lab.run().refused(2, "2 problems:", r"no 'base_run' to vary", r"the axis has no values")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            ("same", "same"),
            r":\d+:\d+: \$\.runs\[1\]\.name: two arms are called 'same'; give each run a name of its own",
        ),
        (("A b", "a-B"), r"two arms are called 'a-b'"),
        (("base_model", "x"), r"\$\.runs\[0\]\.name: an arm can't be called 'base_model'"),
    ],
)
def test_two_arms_with_one_name_are_refused_whatever_its_spelling(lab, names, said):
    lab.config(text=runs((names[0], 0.1), (names[1], 0.2)))
    lab.run().refused(2, said)
    lab.nothing_was_written()


def test_the_same_run_under_two_names_is_refused(lab):
    lab.config(text=runs(("a", 0.1), ("b", 0.1)))
    lab.run().refused(
        2, r"\$\.runs\[1\]: the arm 'b' is the same run as 'a'; remove one; 'n_repeats' repeats each arm"
    )


def test_exactly_one_way_of_saying_what_is_run(lab):
    lab.config(text=grid(RATES) + "run: {}\n")
    lab.run().refused(
        2, r"expected exactly one of 'run', 'runs' and 'matrix'; found 'run' and 'matrix'; keep one"
    )
    lab.config(text="version: 1\nname: x\n")
    lab.run().refused(2, r"found none of them; add a 'run'")
    lab.config(text="version: 1\nname: x\nmatrix: {axes: {seed: [1, 2]}}\n")
    lab.run().refused(2, r"the matrix has no 'base_run' to vary; give 'base_run' what all arms share")


# --- arms that fail ----------------------------------------------------------------------------------------------------


def test_each_failing_arm_has_its_own_traceback_and_line_in_the_summary(lab):
    lab.code(FAILS)
    lab.config(text=grid(RATES).replace("kind: sft", "kind: fails"))
    outcome = lab.run()
    outcome.refused(
        1,
        *(
            rf"failed: algorithm 'fails' failed: RuntimeError: no luck with 0\.0{n} \(src/plugins\.py:6\)"
            for n in "123"
        ),
    )
    for number, folder in enumerate(sorted((lab.record() / "runs").iterdir()), 1):
        log = (folder / "run.log.jsonl").read_text(encoding="utf-8")
        assert f"no luck with 0.0{number}" in log
        assert "Traceback (most recent call last)" in log
        assert json.loads((folder / "run_result.json").read_text(encoding="utf-8"))["status"] == "failed"
    assert lab.facts()["status"] == "failed"
    lab.nothing_is_half_written()


def test_some_failing_arms_make_a_partial_success_and_fail_fast_stops_at_the_first(lab):
    lab.code(FAILS)
    lab.config(text=grid("    algorithm.kind: [fails, sft]\n"))
    outcome = lab.run("--json")
    outcome.refused(1)
    assert outcome.json["status"] == "completed"
    assert [arm["status"] for arm in outcome.json["arms"]] == ["failed", "completed"]
    outcome = lab.run("--json", "--fail-fast", "--set", "max_concurrent_arms=1")
    outcome.refused(1)
    assert [arm["status"] for arm in outcome.json["arms"]] == ["failed", "skipped"]

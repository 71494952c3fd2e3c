"""`evsys plan`: what it foretells against what runs then do, and what it says of the design."""

import json
from pathlib import Path
from statistics import NormalDist

import jsonschema
import pytest

from evsys_algo_sft import SFT
from evsys_backend_mock.backend import MockBackend
from evsys_record import marks
from evsys_record.index import Index
from evsys_record.result_trees import result_tree
from evsys_record.retraction import retract
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.config.project import project_registry
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.data.load import load_dataset
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.estimate import plan as estimate
from evsys_runtime.experiment.estimate import training
from evsys_runtime.experiment.estimate.plan import plan_experiment
from evsys_runtime.experiment.result_schemas import result_schema, validate_result
from evsys_stats.alpha_spending import level_of_look

LAST = ("select={checkpoint: last}",)
CONFIG = """version: 1
name: trial
metadata:
  success_metric: val.mean_reward
  minimum_effect: 0.2
  benchmark:
    - {name: val, path: tasks.jsonl, max_tokens: 4, metrics: [mean_reward], run_every: 2}
    - {name: other, path: tasks.jsonl, max_tokens: 4, split: test}
n_repeats: 2
matrix:
  axes:
    algorithm.params.learning_rate: [0.05, 0.01]
base_run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {epochs: 3, batch_size: 4}}
  backend: {kind: mock}
"""


@pytest.fixture
def config(tmp_path):
    rows = [{"prompt": f"say {c}", "completion": c * (i + 1)} for i, c in enumerate("abcdefghi")]
    tasks = [
        {
            "task_id": f"t{i:02d}",
            "instruction": f"say a, take {i}",
            "verifier": {"name": "exact_match", "expected": "a"},
        }
        for i in range(20)
    ]
    for name, lines in (("train.jsonl", rows), ("tasks.jsonl", tasks)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


def planned(config, *overrides, **options):
    plan = load_experiment(config, overrides=overrides, records=False)
    with Index(plan.project_root / plan.experiment.output_dir) as index:
        index.refresh()
        return plan_experiment(plan, index, **options)


def ran(config, *overrides):
    return Experiment.from_yaml(config, overrides=overrides, quiet=True).run()


def test_the_work_of_planning_grows_with_the_arms_and_not_with_their_square(config, monkeypatch):
    looks = []
    label = ArmConfig.label
    monkeypatch.setattr(ArmConfig, "label", property(lambda arm: looks.append(arm) or label.__get__(arm)))
    counts = []
    for arms in (10, 40):
        rates = ", ".join(str(0.001 * (number + 1)) for number in range(arms))
        planned(config, f"matrix.axes={{algorithm.params.learning_rate: [{rates}]}}")
        counts.append(len(looks))
        looks.clear()
    assert counts[1] < 6 * counts[0]


def test_planning_builds_no_algorithm_again_and_resolves_no_arm_for_an_empty_record(config, monkeypatch):
    before, _, after = CONFIG.partition("metadata:")
    config.write_text(before + after[after.index("n_repeats:") :], encoding="utf-8")
    plan, made = load_experiment(config, records=False), []
    monkeypatch.setattr(SFT, "__init__", lambda self, **params: made.append(params))
    monkeypatch.setattr(estimate, "resolved_tree", lambda *_: made.append("resolved"))
    with Index(plan.project_root / plan.experiment.output_dir) as index:
        index.refresh()
        assert plan_experiment(plan, index).runs == 4
    assert made == []


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("base_run.algorithm.params.held_out=0.25",),
        ("base_run.algorithm.params.epochs=null", "base_run.algorithm.params.steps=9"),
    ],
    ids=["epochs", "rows kept out", "steps"],
)
def test_a_run_takes_the_steps_and_scorings_that_were_foretold(config, overrides):
    found, result = planned(config, *overrides), ran(config, *overrides)
    assert [arm.runs for arm in found.arms] == [2, 2]
    assert found.runs == len(result.arms)
    for arm in found.arms:
        runs = [each for each in result.arms if each.arm == arm.arm]
        assert {each.run.steps for each in runs} == {arm.steps}
    assert found.steps == sum(each.run.steps for each in result.arms)
    for scoring in found.scorings:
        made = {
            (each.run_id if e.step else "untrained", e.step)
            for each in result.arms
            for e in each.evaluations
            if e.benchmark == scoring.benchmark
        }
        assert scoring.scorings == len(made)
        assert scoring.rollouts == len(made) * (10 if scoring.benchmark == "val@selected" else 20)


def test_whole_epochs_take_exactly_the_tokens_that_were_foretold(config):
    found, result = planned(config), ran(config)
    assert {arm.trained_tokens for arm in found.arms} == {
        each.run.usage.trained_tokens for each in result.arms
    }
    assert found.trained_tokens == result.usage.trained_tokens


def test_nothing_is_trained_sampled_or_written(config, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("a plan needs no backend")

    monkeypatch.setattr(MockBackend, "prepare", refuse)
    before = sorted(path.name for path in config.parent.rglob("*"))
    planned(config)
    assert sorted(path.name for path in config.parent.rglob("*")) == before


@pytest.mark.parametrize(
    ("data", "times"),
    [("{path: chats.jsonl}", 1), ("{path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}", 2)],
    ids=["no transform", "a transform"],
)
def test_arms_with_seeds_of_their_own_share_rows_that_no_transform_draws_from(
    config, monkeypatch, data, times
):
    seeds = []

    def counted(*args, seed, **options):
        seeds.append(seed)
        return load_dataset(*args, seed=seed, **options)

    monkeypatch.setattr(training, "load_dataset", counted)
    chat = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    (config.parent / "chats.jsonl").write_text(json.dumps(chat) + "\n", encoding="utf-8")
    axes = "matrix.axes={seed: [1, 2]}"
    found = planned(config, axes, "base_run.algorithm.params.batch_size=1", f"base_run.data={data}")
    assert len(seeds) == len(set(seeds)) == times
    assert len(found.arms) == 2
    assert len({arm.trained_tokens for arm in found.arms} - {None}) == 1


@pytest.mark.parametrize(
    ("axes", "times"),
    [
        ("algorithm.params.learning_rate: [0.1, 0.2, 0.3], algorithm.params.lora_rank: [2, 4]", 1),
        ("algorithm.params.learning_rate: [0.1, 0.2, 0.3], algorithm.params.max_length: [64, 4096]", 2),
        ("algorithm.params.train_on: [all, all_assistant], algorithm.params.grad_clip: [0, 1]", 2),
    ],
)
def test_arms_whose_rows_are_rendered_alike_share_them(config, monkeypatch, axes, times):
    shown = []
    preview = SFT.preview
    monkeypatch.setattr(SFT, "preview", lambda self, *given: shown.append(self) or preview(self, *given))
    found = planned(config, f"matrix.axes={{{axes}}}")
    assert len(found.arms) in {4, 6}
    assert None not in {arm.trained_tokens for arm in found.arms}
    assert len(shown) == times


def test_a_subclass_that_does_not_declare_which_params_matter_shares_no_rows(config, monkeypatch):
    class Mine(SFT):
        def preview(self, rows, renderer, dropped=None):
            shown.append(self.config.learning_rate)
            return super().preview(rows, renderer, dropped)

    shown = []
    registry = project_registry()
    registry.register("algorithm", "mine", Mine)
    plan = load_experiment(
        config, overrides=("base_run.algorithm.kind=mine",), records=False, registry=registry
    )
    with Index(plan.project_root / plan.experiment.output_dir) as index:
        index.refresh()
        plan_experiment(plan, index)
    assert shown == [0.05, 0.01]


def test_without_rows_what_follows_from_them_is_unknown_and_says_why(config):
    found = planned(config, read_rows=False)
    assert {(arm.rows, arm.steps, arm.trained_tokens) for arm in found.arms} == {(None, None, None)}
    assert "rows weren't read (--no-data)" in found.arms[0].unknown
    assert (found.steps, found.scorings[0].scorings) == (None, None)
    assert (
        found.scorings[1].scorings is not None
    )  # it is scored at the ends only, however many steps there are


def test_tasks_that_select_a_checkpoint_have_no_part_in_the_design(config):
    lines = [
        {
            "task_id": f"t{i}",
            "instruction": f"say a, take {i}",
            "verifier": {"name": "exact_match", "expected": "a"},
        }
        for i in range(51)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (config.parent / "tasks.jsonl").write_text(text, encoding="utf-8")
    assert planned(config).design.tasks == 26
    assert planned(config, *LAST).design.tasks == 51


NO_MARGIN = "metadata.minimum_effect=null"
ONE_ARM = (*LAST, NO_MARGIN, "matrix.axes={algorithm.params.learning_rate: [0.05]}")


def write_tasks(config, count, groups=None):
    """Tasks, in so many groups where that is given."""
    lines = [
        {
            "task_id": f"t{i:03d}",
            "instruction": f"say {'ab'[i % 2]}, take {i}",
            "metadata": {} if groups is None else {"group": str(i % groups)},
            "verifier": {"name": "exact_match", "expected": "a"},
        }
        for i in range(count)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (config.parent / "tasks.jsonl").write_text(text, encoding="utf-8")


def multiplier(level):
    normal = NormalDist()
    return normal.inv_cdf(1 - level / 2) + normal.inv_cdf(0.8)


@pytest.fixture
def trusting(monkeypatch):
    """The mock's records stand for those of a real backend."""
    monkeypatch.setattr(marks, "DISQUALIFYING", marks.DISQUALIFYING - {"simulated"})


def test_without_a_record_an_effect_is_promised_for_all_that_may_be_and_at_best_one_is_smaller(config):
    for tasks in (100, 500):
        write_tasks(config, tasks)
        design = planned(config, *ONE_ARM, "n_repeats=1").design
        assert (design.comparisons, design.tasks, design.look) == (1, tasks, 1)
        assert design.level == pytest.approx(0.04)
        # Independent scores with a pass rate of 1/2, and the continuity correction of an exact test.
        least = multiplier(0.04) * (0.5 / tasks) ** 0.5 + 1 / tasks
        assert least * 0.97 <= design.smallest_detectable_effect <= least * 1.05
        assert design.smallest_detectable_at_best < 0.6 * design.smallest_detectable_effect
        assert 0.8 <= design.power_low < 0.82
        assert 0.95 < design.power_high <= 1
        assert (design.correlation, design.base_rate, design.run_deviation) == ((0, 0.7), (0, 1), None)
        assert design.basis == "the widest spread there can be, since nothing like it is on record"


def test_a_claim_by_a_margin_is_promised_for_an_effect_beyond_it(config):
    write_tasks(config, 500)
    one = (*ONE_ARM, "n_repeats=1")
    plain = planned(config, *one).design.smallest_detectable_effect
    beyond = planned(config, *one, "metadata.minimum_effect=0.2").design
    assert beyond.smallest_detectable_effect == pytest.approx(0.2 + plain, abs=0.01)
    assert beyond.tasks_needed == pytest.approx(500 * (plain / 0.2) ** 2, rel=0.2)
    tie = planned(config, *one, "metadata.claim=no_worse", "metadata.margin=0.1").design
    assert tie.smallest_detectable_effect == pytest.approx(plain, abs=0.01)
    equal = planned(config, *one, "metadata.claim=equal", "metadata.margin=0.1").design
    assert equal.smallest_detectable_effect > tie.smallest_detectable_effect
    assert (equal.asked, equal.margin, equal.minimum_effect) == ("equal", 0.1, 0.0)


def test_a_claim_about_recipes_counts_a_deviation_that_is_assumed_if_none_is_on_record(config):
    write_tasks(config, 200)
    design = planned(config, *ONE_ARM, "n_repeats=4").design
    assert (design.claim, design.run_deviation) == ("recipe", (0, 0.05))
    assert any("at most 0.05 is assumed" in note for note in design.notes)
    more = planned(config, *ONE_ARM, "n_repeats=16").design
    assert more.smallest_detectable_effect < design.smallest_detectable_effect


def test_the_record_of_like_experiments_narrows_the_range(config, trusting):
    write_tasks(config, 60)
    one = (*ONE_ARM, "n_repeats=1")
    before = planned(config, *one).design
    result = ran(config, *one)
    design = planned(config, *one, "base_run.algorithm.params.learning_rate=0.3").design
    assert design.basis == f"differences on these tasks in {result.experiment_id}"
    assert (design.correlation, design.base_rate) == (None, None)
    assert design.smallest_detectable_effect < before.smallest_detectable_effect
    assert design.smallest_detectable_at_best <= design.smallest_detectable_effect


def test_the_deviation_of_like_runs_on_record_makes_a_single_run_a_claim_about_its_recipe(config, trusting):
    write_tasks(config, 60)
    ran(config, *ONE_ARM, "n_repeats=4")
    design = planned(config, *ONE_ARM, "n_repeats=1").design
    low, high = design.run_deviation
    assert (design.claim, 0 < low < high) == ("recipe", True)
    assert not any("assumed" in note for note in design.notes)


@pytest.mark.parametrize("spoil", ["simulated", "retracted", "other model"])
def test_experiments_that_are_not_alike_or_not_reliable_tell_nothing(config, spoil, request):
    if spoil != "simulated":
        request.getfixturevalue("trusting")
    write_tasks(config, 60)
    before = planned(config, *ONE_ARM).design
    result = ran(config, *ONE_ARM)
    if spoil == "retracted":
        retract(Path(result.directory), "the rows were wrong")
    elif spoil == "other model":
        path = Path(result.directory) / "resolved.json"
        text = path.read_text(encoding="utf-8").replace('"evsys/tiny"', '"evsys/other"')
        path.write_text(text, encoding="utf-8")
    after = planned(config, *ONE_ARM).design
    assert (after.basis, after.baseline_score) == (
        "the widest spread there can be, since nothing like it is on record",
        None,
    )
    assert after.smallest_detectable_effect >= before.smallest_detectable_effect


def test_every_look_at_a_question_leaves_the_next_a_lower_level(config):
    write_tasks(config, 60)
    first = planned(config, *ONE_ARM).design
    ran(config, *ONE_ARM)
    second = planned(config, *ONE_ARM, "base_seed=5").design
    assert (first.look, second.look) == (1, 2)
    assert second.level == pytest.approx(level_of_look(2, 0.05))
    assert second.smallest_detectable_effect > first.smallest_detectable_effect


def test_more_arms_ask_for_more(config):
    write_tasks(config, 100)
    one = planned(config, "matrix.axes={algorithm.params.learning_rate: [0.05]}").design
    four = planned(config, "matrix.axes={algorithm.params.learning_rate: [0.05, 0.04, 0.03, 0.02]}").design
    assert four.level == pytest.approx(0.04 / 4)
    assert four.smallest_detectable_effect > one.smallest_detectable_effect
    assert four.tasks_needed > one.tasks_needed


def test_too_few_clusters_are_told_before_anything_is_spent(config):
    lines = [
        {
            "task_id": f"t{i}",
            "instruction": f"say a, take {i}",
            "metadata": {"page": str(i % 4)},
            "verifier": {"name": "exact_match", "expected": "a"},
        }
        for i in range(20)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (config.parent / "tasks.jsonl").write_text(text, encoding="utf-8")
    design = planned(config, "metadata.benchmark[0].cluster_key=page").design
    assert (design.units, design.clustered, design.smallest_p) == (4, True, 0.125)
    assert design.smallest_detectable_effect is None
    assert any("nothing can win" in note for note in design.notes)


def test_the_floor_of_seeds_is_told_where_an_arm_is_the_baseline(config):
    names = [arm.arm for arm in planned(config).arms]
    baseline = f"metadata.baseline={names[0]}"
    two, four = planned(config, baseline).design, planned(config, baseline, "n_repeats=4").design
    assert (two.claim, two.permutation_floor) == ("checkpoint", pytest.approx(1 / 3))
    assert (four.claim, four.permutation_floor) == ("recipe", pytest.approx(2 / 70))
    several = planned(
        config, baseline, "n_repeats=4", "matrix.axes={algorithm.params.learning_rate: [0.05, 0.01, 0.02]}"
    )
    assert any("so it isn't made" in note for note in several.design.notes)


def test_scores_on_record_tell_floor_ceiling_time_and_that_it_was_run_before(config, trusting):
    result = ran(config)
    found = planned(config)
    untrained = next(e for e in result.arms[0].evaluations if e.benchmark == "val" and e.step == 0)
    rewards = [rewards[0] for rewards in untrained.task_rewards.values()]
    assert found.design.tasks_at_floor == rewards.count(0.0)
    assert found.design.tasks_at_ceiling == rewards.count(1.0)
    assert found.design.baseline_score == pytest.approx(sum(rewards) / 20)
    assert result.experiment_id in found.design.basis
    assert (found.cost_usd, found.arms[0].cost_usd) == (0.0, 0.0)
    assert found.seconds > 0
    near = {each.arm: each for each in found.neighbours if not each.differences}
    assert set(near) == {arm.arm for arm in found.arms}
    assert all(each.same_seeds and each.experiment_id == result.experiment_id for each in near.values())
    other = planned(config, "base_seed=7").neighbours
    assert not any(each.same_seeds for each in other)


def test_what_differs_from_a_near_run_is_named(config):
    ran(config)
    changed = planned(config, "base_run.algorithm.params.batch_size=3").neighbours
    nearest = changed[0]
    assert [(each.path, each.one, each.other) for each in nearest.differences] == [
        ("algorithm.params.batch_size", "3", "4")
    ]
    with (config.parent / "train.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"prompt": "say z", "completion": "z"}) + "\n")
    assert [each.path for each in planned(config).neighbours[0].differences] == ["data.rows"]


def test_money_is_by_the_price_of_training_and_unknown_without_one(config, monkeypatch):
    monkeypatch.setattr(MockBackend, "free", False)
    found = planned(config)
    assert (found.cost_usd, found.arms[0].cost_usd) == (None, None)
    assert "no price of training evsys/tiny is known" in found.arms[0].unknown
    prices = '[models."evsys/tiny"]\nprompt = 1.0\ncompletion = 1.0\ntraining = 2.0\n'
    (config.parent / "prices.toml").write_text(prices, encoding="utf-8")
    priced = planned(config)
    assert priced.arms[0].cost_usd == pytest.approx(priced.arms[0].trained_tokens * 2e-6)
    assert any("unverified" in warning for warning in priced.warnings)


def test_no_success_metric_has_no_design(config):
    found = planned(
        config, "metadata.success_metric=null", "metadata.minimum_effect=null", "metadata.benchmark=[]"
    )
    assert (found.design, found.scorings) == (None, ())


def test_the_document_is_as_published(config):
    tree = json.loads(json.dumps(result_tree(planned(config))))
    jsonschema.validate(tree, result_schema("plan"))
    validate_result(tree, "plan")


def test_scoring_is_free_where_nobody_is_paid_and_never_with_a_judge(config, monkeypatch):
    assert [scoring.cost_usd for scoring in planned(config).scorings] == [0.0, 0.0, 0.0]
    from evsys_verifiers_std.verifiers import ExactMatch

    monkeypatch.setattr(ExactMatch, "free", False, raising=False)
    assert [scoring.cost_usd for scoring in planned(config).scorings] == [None, None, None]


def test_an_algorithm_that_samples_on_the_way_has_steps_and_no_tokens_and_no_price(config):
    rl = (
        "base_run.algorithm={kind: rl, params: {steps: 3, batch_size: 2}}",
        "base_run.data={path: tasks.jsonl}",
    )
    found = planned(config, *rl)
    assert {(arm.steps, arm.trained_tokens, arm.cost_usd) for arm in found.arms} == {(3, None, None)}
    assert "algorithm rl makes its tokens on the way" in found.arms[0].unknown


def test_rows_of_which_nothing_is_trained_tell_nothing_of_the_tokens(config):
    found = planned(config, "base_run.algorithm={kind: sdft, params: {steps: 3, batch_size: 2}}")
    assert {(arm.steps, arm.trained_tokens) for arm in found.arms} == {(3, None)}
    assert "algorithm sdft makes its tokens on the way" in found.arms[0].unknown


def test_control_and_confirm_runs_take_what_was_foretold(config):
    learns = [{"prompt": "say a", "completion": "x"}] * 9
    for name in ("train.jsonl", "tasks.jsonl"):
        path = config.parent / name
        rows = learns if name == "train.jsonl" else [
            {**json.loads(line), "verifier": {"name": "exact_match", "expected": "x"}}
            for line in path.read_text(encoding="utf-8").splitlines()
        ]  # fmt: skip
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    asked = (
        "confirm={seeds: 2, benchmark: other}",
        "control={repeats: 3}",
        "metadata.baseline=slow",
        "matrix.name_template='lr-{algorithm.params.learning_rate}'",
        "matrix.axes={algorithm.params.learning_rate: [0.0, 0.3, 0.2]}",
    )
    asked = tuple(each.replace("slow", "lr-0") for each in asked)
    found = planned(config, *asked)
    result = ran(config, *asked)

    assert result.conclusion.verdict == "SUPPORTED"
    by_purpose = {
        purpose: [arm for arm in result.arms if arm.purpose == purpose]
        for purpose in ("candidate", "control", "confirm")
    }
    (control,) = [arm for arm in found.arms if arm.purpose == "control"]
    assert (control.runs, control.steps) == (3, by_purpose["control"][0].run.steps)
    rest = by_purpose["candidate"] + by_purpose["control"]
    assert found.runs == len(rest)
    assert found.steps == sum(arm.run.steps for arm in rest)
    confirm = found.confirm
    assert (confirm.benchmark, confirm.seeds, confirm.runs) == ("other", 2, len(by_purpose["confirm"]))
    assert confirm.steps == sum(arm.run.steps for arm in by_purpose["confirm"])
    assert confirm.trained_tokens == sum(arm.usage.trained_tokens for arm in by_purpose["confirm"])
    made = [e for arm in by_purpose["confirm"] for e in arm.evaluations if e.benchmark == "other"]
    assert confirm.rollouts == sum(e.scored for e in made)
    assert {scoring.benchmark: scoring.scorings for scoring in found.scorings}["other"] == 0
    assert (confirm.design.comparisons, confirm.design.runs) == (1, 2)
    assert confirm.design.level == pytest.approx(0.04)
    assert (found.design.comparisons, found.design.runs) == (2, 2)
    assert {near.arm for near in planned(config, *asked).neighbours} <= {"lr-0", "lr-0.3", "lr-0.2"}


def test_a_plan_without_a_choice_has_no_confirmation(config):
    asked = ("confirm={seeds: 2}", "matrix.axes={algorithm.params.learning_rate: [0.3]}")
    assert planned(config, *asked).confirm is None


def test_a_confirmation_against_untrained_weights_trains_the_winner_alone(config):
    confirm = planned(config, "confirm={seeds: 3}").confirm
    steps = confirm.steps // 3
    scorings = steps // 2 + steps % 2 + 1  # every two steps, in the end, and before the first
    assert (confirm.runs, confirm.rollouts) == (3, 3 * scorings * 20)
    assert planned(config, "confirm={seeds: 0, benchmark: other}").confirm.steps == 0


def limits(found):
    return {limit.name: limit for limit in found.budget}


def test_a_budget_that_does_not_pay_for_training_and_scoring_does_not_fit(config):
    ran(config)
    single = "max_concurrent_arms=1"
    whole = planned(config, single)
    assert whole.budget == ()
    training = sum(arm.seconds * arm.runs for arm in whole.arms)
    scoring = whole.seconds - training
    assert scoring > 0
    enough, little = whole.seconds * 1.01, training + scoring / 2
    fits = limits(planned(config, single, f"budget={{wall_seconds: {enough}, steps: 1000, usd: 1.0}}"))
    assert {name: limit.fits for name, limit in fits.items()} == dict.fromkeys(
        ("usd", "wall_seconds", "steps"), True
    )
    (limit,) = planned(config, single, f"budget={{wall_seconds: {little}}}").budget
    assert (limit.training, limit.scoring) == (pytest.approx(training), pytest.approx(scoring))
    assert limit.fits is False
    (limit,) = planned(config, "budget={steps: 3}").budget
    assert (limit.training, limit.scoring, limit.fits) == (whole.steps, 0, False)
    (limit,) = planned(config, "budget={arms: 3}").budget
    assert (limit.training, limit.fits) == (4, False)


def test_a_budget_may_fit_if_a_part_is_unknown_and_does_not_if_the_known_part_exceeds_it(config, monkeypatch):
    monkeypatch.setattr(MockBackend, "free", False)
    prices = '[models."evsys/tiny"]\nprompt = 1.0\ncompletion = 1.0\ntraining = 2.0\n'
    (config.parent / "prices.toml").write_text(prices, encoding="utf-8")
    training = sum(arm.cost_usd * arm.runs for arm in planned(config).arms)
    for limit, fits in ((2 * training, None), (training / 2, False)):
        (found,) = planned(config, f"budget={{usd: {limit}}}").budget
        assert (found.training, found.scoring, found.fits) == (pytest.approx(training), None, fits)


def test_runs_at_once_share_the_seconds_of_a_budget(config):
    ran(config)
    seconds = planned(config).seconds
    one, two = (
        planned(config, f"budget={{wall_seconds: {seconds * 0.6}}}", f"max_concurrent_arms={count}").budget[0]
        for count in (1, 2)
    )
    assert (one.fits, two.fits) == (False, True)
    assert two.training == pytest.approx(one.training / 2)


TAUGHT = """version: 1
name: taught
run:
  data: {path: train.jsonl}
  model: {name: evsys/tiny}
  algorithm: {kind: opd, params: {steps: 4, batch_size: 4, max_tokens: 4, lora_rank: 2}}
  backend: {kind: mock}
  teacher: {model: {name: evsys/tiny}, inference: {kind: oracle, params: {price: 0.001}}}
"""

ORACLE = """
import attrs
from evsys import register_inference_client
from evsys.types import Completion, Message


@register_inference_client("oracle")
class Oracle:
    @attrs.frozen(kw_only=True)
    class Config:
        price: float = 0.0

    def __init__(self, *, price):
        self.price = price

    async def generate(self, messages, sampling, *, n=1, tools=()):
        raise NotImplementedError

    async def prompt_logprobs(self, tokens):
        logprobs = [float("nan"), *[-1.0] * (len(tokens) - 1)]
        return Completion(message=Message(role="assistant", content=""), finish_reason="length", logprobs=logprobs)

    def sampling_cost(self, prompt_tokens, completion_tokens):
        return prompt_tokens * self.price
"""


def test_what_a_teacher_costs_is_unknown_until_it_is_on_record_and_scales_with_the_steps(config):
    config.write_text(TAUGHT, encoding="utf-8")
    (config.parent / "src").mkdir()
    (config.parent / "src/oracle.py").write_text(ORACLE, encoding="utf-8")
    (before,) = planned(config).arms
    assert (before.cost_usd, before.second_models) == (None, {"teacher": None})
    assert "no record shows the cost of the teacher" in before.unknown
    (free,) = planned(config, "run.teacher.inference.params.price=0").arms
    assert free.second_models == {"teacher": 0.0}
    (arm,) = ran(config).arms
    (after,) = planned(config, "run.algorithm.params.steps=8").arms
    took = arm.run.roles["teacher"].cost_usd
    assert took > 0
    assert after.second_models == {"teacher": pytest.approx(2 * took)}
    (other,) = planned(config, "run.teacher.inference.params.price=0.002").arms
    assert other.second_models == {"teacher": None}


GROUPED = "metadata.benchmark[0].cluster_key=group"


def test_tasks_in_clusters_say_as_much_as_their_clusters(config):
    write_tasks(config, 200, groups=50)
    one = (*ONE_ARM, "n_repeats=1")
    single, grouped = (planned(config, *one, *more).design for more in ((), (GROUPED,)))
    assert (grouped.tasks, grouped.units) == (200, 50)
    # Four tasks a cluster that may be alike: the error grows by the root of four.
    assert grouped.smallest_detectable_effect == pytest.approx(
        2 * single.smallest_detectable_effect, rel=0.05
    )


def test_the_error_of_clusters_on_record_is_that_of_clusters_and_not_of_tasks(config, trusting):
    write_tasks(config, 200, groups=50)
    one = (*ONE_ARM, "n_repeats=1")
    ran(config, *one, GROUPED)
    (arm,) = planned(config, *one, GROUPED).neighbours
    assert arm.differences == ()
    clustered = planned(config, *one, GROUPED).design
    assert clustered.basis.startswith("differences")
    assert (
        clustered.smallest_detectable_effect
        < planned(config, *one, GROUPED, "n_repeats=2").design.smallest_detectable_effect * 1.01
    )


def test_differences_of_more_runs_than_are_planned_may_be_narrower(config, trusting):
    write_tasks(config, 200)
    ran(config, *ONE_ARM, "n_repeats=3")
    three, one = (planned(config, *ONE_ARM, f"n_repeats={count}").design for count in (3, 1))
    assert three.basis == one.basis
    assert one.smallest_detectable_effect > three.smallest_detectable_effect

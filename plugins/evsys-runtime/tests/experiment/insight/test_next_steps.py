"""`evsys next`: what could be learnt, what that takes, and how it is done."""

import json

import attrs
import jsonschema
import pytest
from past_lab import Lab, write_conclusion

from evsys.types import Failure, Settling, SettlingPoint
from evsys_record.index import Index
from evsys_record.past import LookPlace, PastExperiment
from evsys_record.result_trees import result_tree
from evsys_record.retraction import retract
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.insight.coming_look import coming_level, settling_at_next_look
from evsys_runtime.experiment.insight.next_steps import next_steps
from evsys_runtime.experiment.insight.results import Condition, Region
from evsys_runtime.experiment.insight.untried_values import TriedArm, untried_neighbours
from evsys_runtime.experiment.result_schemas import result_schema
from evsys_stats.alpha_spending import level_of_look

CONFIG = """version: 1
name: trial
metadata:
  success_metric: val.mean_reward
  minimum_effect: 0.2
  tags: [a]
  benchmark: {name: val, path: tasks.jsonl, max_tokens: 4, metrics: [mean_reward], limit: 12}
matrix:
  axes: {algorithm.params.learning_rate: [0.05, 0.01]}
base_run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {steps: 2, batch_size: 4}}
  backend: {kind: mock}
"""


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path / ".evsys" / "experiments")


def steps_of(lab, **options):
    with Index(lab.experiments) as index:
        index.refresh()
        return next_steps(index, **options)


def concluded(lab, arms, verdict, outcomes, *, repeats=1, settle=None, settling=None, **facts):
    record = lab.begin(arms, repeats, success_metric="faq.mean_reward", **facts)
    for repeat in range(repeats):
        for arm in arms:
            lab.result(record, arm, repeat)
    lab.end(
        record,
        verdict,
        [lab._comparison(arm, outcome, repeats) for arm, outcome in outcomes.items()],
        settle=settle,
        settling=settling,
    )
    return record.experiment_id


def test_a_candidate_is_to_be_confirmed_by_as_many_fresh_runs_as_it_had(lab):
    arms = {"one": lab.run("sft", 0.001), "two": lab.run("rl", 0.001)}
    name = concluded(lab, arms, "CANDIDATE", {"one": "win", "two": "tie"}, repeats=2)
    (step,) = steps_of(lab).steps
    assert (step.kind, step.experiment, step.arm, step.runs) == ("confirm", name, "one", 2)
    assert (step.cost_usd, step.seconds) == (pytest.approx(0.04), 60.0)
    assert step.learns == "whether one beats base_model when it isn't chosen among 2"


def test_a_candidate_whose_fresh_runs_left_it_open_is_settled_and_not_confirmed_again(lab):
    arms = {"one": lab.run("sft", 0.001), "two": lab.run("rl", 0.001)}
    outcomes = {"one": "win", "two": "tie"}
    name = concluded(lab, arms, "CANDIDATE", outcomes, settling=Settling(arm="one", tasks=400))
    lab.tried_anew(name, "one", "inconclusive")
    (step,) = steps_of(lab).steps
    assert (step.kind, step.arm) == ("settle", "one")
    assert "+0.01 [-0.09, 0.11] so far" in step.learns
    assert step.needs == "about 400 tasks (100 were scored)"


def test_a_candidate_that_fell_behind_when_it_was_tried_anew_leaves_the_place_to_the_next(lab):
    arms = {"one": lab.run("sft", 0.001), "two": lab.run("rl", 0.001)}
    name = concluded(lab, arms, "CANDIDATE", {"one": "win", "two": "win"})
    lab.tried_anew(name, "one", "tie")
    (step,) = steps_of(lab).steps
    assert (step.kind, step.arm) == ("confirm", "two")


def test_a_question_is_settled_by_the_tasks_or_runs_that_its_conclusion_names(lab):
    by_tasks = concluded(
        lab,
        {"a": lab.run()},
        "INCONCLUSIVE",
        {"a": "inconclusive"},
        settling=Settling(arm="a", tasks=300),
    )
    by_runs = concluded(
        lab,
        {"b": lab.run()},
        "INCONCLUSIVE",
        {"b": "inconclusive"},
        repeats=4,
        settling=Settling(arm="b", runs=9),
    )
    neither = concluded(
        lab, {"c": lab.run()}, "INCONCLUSIVE", {"c": "inconclusive"}, settle="a minimum_effect to aim at: ..."
    )
    steps = {step.experiment: step for step in steps_of(lab).steps}
    assert steps[by_tasks].needs == "about 300 tasks (100 were scored)"
    assert steps[by_runs].needs == "9 training runs of each side (4 so far)"
    assert (steps[by_tasks].runs, steps[by_tasks].seconds) == (1, 90.0)
    assert (steps[by_runs].runs, steps[by_runs].seconds) == (9, 270.0)
    assert (steps[neither].runs, steps[neither].cost_usd, steps[neither].command) == (None, None, None)
    assert [step.experiment for step in steps_of(lab).steps] == [by_tasks, by_runs, neither]


def test_a_question_is_settled_of_the_arm_that_its_conclusion_names_and_not_of_the_best_one(lab):
    arms = {"a": lab.run("sft", 0.001), "b": lab.run("rl", 0.001)}
    outcomes = {"a": "inconclusive", "b": "inconclusive"}
    concluded(lab, arms, "INCONCLUSIVE", outcomes, settling=Settling(arm="b", tasks=300))
    concluded(
        lab, {"c": arms["a"]}, "INCONCLUSIVE", {"c": "inconclusive"}, settling=Settling(arm="c", runs=3)
    )
    assert {step.arm for step in steps_of(lab).steps} == {"b", "c"}


def test_without_a_minimum_effect_the_curve_of_the_conclusion_helps_to_choose_one(lab):
    name = concluded(
        lab, {"a": lab.run()}, "INCONCLUSIVE", {"a": "inconclusive"}, settle="a minimum_effect to aim at: ..."
    )
    path = lab.experiments / name / "conclusion.json"
    curve = [{"effect": 0.1, "tasks": 250, "runs": None, "seconds": 90.0, "cost_usd": 0.05}]
    write_conclusion(path.parent, {**json.loads(path.read_bytes()), "settling_curve": curve})
    (step,) = steps_of(lab).steps
    assert step.curve == (SettlingPoint(effect=0.1, tasks=250, seconds=90.0, cost_usd=0.05),)
    assert (step.needs, step.command) == ("a minimum_effect to aim at: ...", None)


def test_what_is_unfinished_is_to_be_resumed(lab):
    name = lab._conclude("crashed")
    (step,) = steps_of(lab).steps
    assert (step.kind, step.command) == ("resume", f"evsys resume {name}")
    assert step.cost_usd is None


def test_neighbours_of_a_winner_are_those_that_its_sweep_left_out(lab):
    base = lab.run("sft", 0.001)
    arms = {}
    for rate in (1e-5, 1e-4, 1e-3):
        params = {**base["algorithm"]["params"], "learning_rate": rate}
        arms[f"lr-{rate:g}"] = {**base, "algorithm": {**base["algorithm"], "params": params}}
    concluded(lab, arms, "SUPPORTED", {"lr-0.001": "win", "lr-0.0001": "tie", "lr-1e-05": "tie"})
    steps = steps_of(lab).steps
    assert [step.kind for step in steps] == ["neighbour", "neighbour"]
    assert {step.learns for step in steps} == {
        "whether algorithm.params.learning_rate of 0.004 is better than 0.001: the best of its sweep, 0.001, is the largest value tried",
        "whether algorithm.params.learning_rate of 0.00032 is better than 0.001: nothing was tried between 0.0001 and 0.001",
    }
    params = {**base["algorithm"]["params"], "learning_rate": 0.004}
    tried = {**base, "algorithm": {**base["algorithm"], "params": params}}
    concluded(lab, {"other": tried}, "REFUTED", {"other": "tie"})
    assert ["0.00032" in step.learns for step in steps_of(lab).steps] == [True]


@pytest.mark.parametrize(
    ("values", "winner", "expected"),
    [
        (["4", "8", "16"], "16", [32]),
        (["4", "8", "16"], "4", [2]),
        (["4", "8", "16"], "8", []),
        (["1", "64"], "64", [256, 8]),
        (["0.1", "0.2"], "0.1", [0.05]),
        (["0.1", "0"], "0.1", []),
        (['"a"', '"b"'], '"a"', []),
    ],
)
def test_untried_values_lie_beyond_the_edge_and_in_wide_gaps(values, winner, expected):
    assert next_to(values, winner) == expected


def next_to(values, winner, failed=(), regions=()):
    tried = [TriedArm(config={"p": value, "q": "1"}, failed=value in failed) for value in values]
    return [each.value for each in untried_neighbours({"p": winner, "q": "1"}, tried, regions)]


def region(*conditions):
    made = tuple(Condition(path=path, relation=relation, value=value) for path, relation, value in conditions)
    return Region(
        conditions=made, failed=3, completed_inside=0, completed_outside=9, chance=0.01, known_bad=True
    )


@pytest.mark.parametrize(
    ("values", "failed", "regions", "expected"),
    [
        # A third of the way, by ratio, from the best to what failed; never beyond it.
        (["0.001", "0.01", "10.0"], ["10.0"], [], [0.0032, 0.1]),
        (["0.001", "0.01", "0.08"], ["0.001", "0.08"], [], [0.0046, 0.02]),
        (["4", "8", "64"], ["64"], [], [16]),
        # Never further than a factor of ten, however far away it failed.
        (["0.005", "0.01", "1e+20"], ["1e+20"], [], [0.1]),
        (["1e-30", "0.01", "0.02"], ["1e-30"], [], [0.001]),
        # The edge of a region that other experiments found counts as a value that failed.
        (["0.005", "0.01"], [], [region(("p", ">=", "0.02"))], []),
        (["0.005", "0.01"], [], [region(("p", ">=", "0.08"))], [0.02]),
        (["0.01", "0.02"], [], [region(("p", "<=", "0.00008"), ("q", "=", "1"))], [0.002]),
        (["0.005", "0.01"], [], [region(("p", ">=", "0.015"), ("q", "=", "2"))], [0.02]),
        (["0.005", "0.01"], [], [region(("q", "=", "1"))], []),
        # Too near to what failed for anything between.
        (["0.005", "0.01", "0.03"], ["0.03"], [], []),
    ],
)
def test_towards_what_failed_the_next_value_stays_on_the_good_side(values, failed, regions, expected):
    assert next_to(values, "0.01" if "0.01" in values else "8", failed, regions) == expected


def test_what_other_experiments_tried_is_neither_an_edge_nor_tried_again():
    def values(own, elsewhere):
        tried = [TriedArm(config={"p": value}) for value in own]
        tried += [TriedArm(config={"p": value}, beside=False) for value in elsewhere]
        return [each.value for each in untried_neighbours({"p": "1.0"}, tried)]

    assert values([], ["2.0", "9.0"]) == []
    assert values(["0.5"], []) == [2.0]
    assert values(["0.5"], ["2.0"]) == []
    assert values(["0.5"], ["9.0"]) == [3.0]
    assert values(["0.5", "8.0"], []) == [2.8]
    assert values(["0.5", "8.0"], ["3.0"]) == []


def test_a_gap_whose_far_end_failed_is_told_as_such(lab):
    base = lab.run("sft", 0.001)
    arms = {f"lr-{rate:g}": with_rate(base, rate) for rate in (5e-4, 1e-3, 0.1)}
    record = lab.begin(arms, 1, success_metric="faq.mean_reward")
    failure = Failure(boundary="algorithm", message="the loss isn't finite", error_type="AlgorithmError")
    for arm in arms:
        failed = {"status": "failed", "failure": failure} if arm == "lr-0.1" else {}
        lab.result(record, arm, 0, **failed)
    comparisons = [lab._comparison("lr-0.001", "win", 1), lab._comparison("lr-0.0005", "tie", 1)]
    lab.end(record, "SUPPORTED", comparisons, status="partial")
    (step,) = (step for step in steps_of(lab).steps if step.kind == "neighbour")
    assert step.learns == (
        "whether algorithm.params.learning_rate of 0.0046 is better than 0.001: "
        "nothing was tried between 0.001 and 0.1, and 0.1 failed"
    )


def test_what_another_experiment_tried_leaves_no_gap_and_a_dry_run_is_no_trial(lab):
    base = lab.run("sft", 0.001)
    arms = {f"lr-{rate:g}": with_rate(base, rate) for rate in (1e-5, 1e-3, 2e-3)}
    concluded(lab, arms, "SUPPORTED", {"lr-0.001": "win", "lr-1e-05": "tie", "lr-0.002": "tie"})
    assert ["0.0001 is better" in step.learns for step in steps_of(lab).steps] == [True]
    other = with_rate(base, 5e-4)
    record = lab.begin({"dry": other}, 1, success_metric="faq.mean_reward")
    record.note(dry=True)
    lab.end(record, "REFUTED", [])
    assert steps_of(lab).total == 1
    concluded(lab, {"other": other}, "REFUTED", {"other": "tie"})
    assert steps_of(lab).total == 0


def with_rate(run, rate):
    params = {**run["algorithm"]["params"], "learning_rate": rate}
    return {**run, "algorithm": {**run["algorithm"], "params": params}}


def test_the_cheapest_for_what_it_tells_comes_first_and_the_rest_is_counted(lab):
    lab.write(40)
    whole, first = steps_of(lab), steps_of(lab, limit=3)
    assert (len(whole.steps), first.total) == (whole.total, whole.total)
    assert first.steps == whole.steps[:3]
    rates = [step.cost_usd / step.worth for step in whole.steps if step.cost_usd is not None]
    assert rates == sorted(rates)
    assert [step.cost_usd is None for step in whole.steps] == sorted(
        step.cost_usd is None for step in whole.steps
    )


def test_nothing_is_built_on_what_was_retracted(lab):
    arms = {"one": lab.run("sft", 0.001), "two": lab.run("rl", 0.001)}
    parent = concluded(lab, arms, "CANDIDATE", {"one": "win", "two": "tie"})
    others = {"three": lab.run("sft", 0.002), "four": lab.run("rl", 0.001)}
    concluded(lab, others, "CANDIDATE", {"three": "win", "four": "tie"}, parent_experiment_id=parent)
    assert steps_of(lab).total == 2
    retract(lab.experiments / parent, "leaked")
    assert steps_of(lab).total == 0


def test_the_document_is_as_published(lab):
    lab.write(20)
    tree = json.loads(json.dumps(result_tree(steps_of(lab))))
    jsonschema.Draft202012Validator(result_schema("next")).validate(tree)


def test_the_file_of_a_step_is_a_valid_child_with_other_seeds_and_runs(tmp_path):
    tasks = [
        {
            "task_id": f"t{i:02d}",
            "instruction": f"say a, take {i}",
            "verifier": {"name": "exact_match", "expected": "a"},
        }
        for i in range(20)
    ]
    rows = [{"prompt": f"say {c}", "completion": c} for c in "abcdefgh"]
    for name, lines in (("train.jsonl", rows), ("tasks.jsonl", tasks)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    result = Experiment.from_yaml(path, quiet=True).run()
    directory = tmp_path / ".evsys" / "experiments" / result.experiment_id
    conclusion = json.loads((directory / "conclusion.json").read_bytes())
    winner = conclusion["comparisons"][1]["arm"]
    conclusion |= {"verdict": "CANDIDATE", "best_arm": winner}
    conclusion["comparisons"][1] |= {"outcome": "win", "effect": 0.5}
    write_conclusion(directory, conclusion)
    steps = steps_of(Lab(tmp_path / ".evsys" / "experiments")).steps
    (step,) = (step for step in steps if step.kind == "confirm")
    child = tmp_path / "child.yaml"
    child.write_text(json.dumps(step.config), encoding="utf-8")
    plan = load_experiment(child)
    assert [(arm.name, arm.run.algorithm.params["learning_rate"]) for arm in plan.arms] == [(winner, 0.01)]
    metadata = plan.experiment.metadata
    assert (metadata.parent_experiment_id, metadata.minimum_effect) == (result.experiment_id, 0.2)
    assert plan.experiment.base_seed == 1000
    assert (metadata.benchmarks[0].limit, metadata.tags) == (12, ("a",))
    ended = Experiment.from_yaml(child, quiet=True).run()
    assert ended.status == "completed"
    assert ended.arms[0].identity not in {arm.identity for arm in result.arms}
    neighbour = next(each for each in steps if each.kind == "neighbour")
    child.write_text(json.dumps(neighbour.config), encoding="utf-8")
    plan = load_experiment(child)
    rates = {arm.name: arm.run.algorithm.params["learning_rate"] for arm in plan.arms}
    changed = f"learning_rate-{rates[plan.arms[1].name]}"
    assert list(rates) == [winner, changed]
    assert rates[winner] == 0.01
    assert rates[changed] not in (0.05, 0.01)
    assert (plan.experiment.metadata.baseline, neighbour.runs) == (winner, 2)


def test_what_is_cut_off_while_its_winner_is_tried_anew_is_resumed_and_not_begun_again(lab):
    arms = {"one": lab.run("sft", 0.001), "two": lab.run("rl", 0.001)}
    name = concluded(lab, arms, "CANDIDATE", {"one": "win", "two": "win"})
    lab.tried_anew(name, "one", "win")
    record = lab.experiments / name / "experiment.json"
    facts = json.loads(record.read_bytes())
    facts |= {"status": "budget_stopped", "arms": [*facts["arms"], {**facts["arms"][0], "repeat": 1}]}
    facts["arms"][-1]["run_id"] = "one-s1"
    record.write_text(json.dumps(facts), encoding="utf-8")
    assert [step.kind for step in steps_of(lab).steps] == ["resume"]


def test_the_same_question_and_the_same_neighbour_are_offered_once(lab):
    base = lab.run("sft", 0.001)
    arms = {"a": base, "b": lab.run("rl", 0.001)}
    outcomes = {"a": "inconclusive", "b": "tie"}
    settling = Settling(arm="a", tasks=300)
    parent = concluded(lab, arms, "INCONCLUSIVE", outcomes, settling=settling)
    again = concluded(
        lab,
        {"a": base},
        "INCONCLUSIVE",
        {"a": "inconclusive"},
        settling=settling,
        parent_experiment_id=parent,
    )
    assert [step.experiment for step in steps_of(lab).steps] == [again]
    rates = {f"lr-{rate:g}": with_rate(base, rate) for rate in (1e-4, 4e-3, 0.04)}
    concluded(lab, rates, "SUPPORTED", {"lr-0.004": "win", "lr-0.0001": "tie", "lr-0.04": "tie"})
    concluded(lab, rates, "SUPPORTED", {"lr-0.04": "win", "lr-0.0001": "tie", "lr-0.004": "tie"})
    offered = [
        step.learns.partition(" is better")[0] for step in steps_of(lab).steps if step.kind == "neighbour"
    ]
    assert len(offered) == len(set(offered)) > 1


def test_a_search_that_tried_a_value_beside_other_numbers_has_been_there():
    tried = [TriedArm(config={"p": p, "q": q}) for p, q in (("1.0", "5"), ("9.0", "7"), ("3.0", "2"))]
    assert [each.value for each in untried_neighbours({"p": "2.0", "q": "5"}, tried[:1])] == [4.0]
    assert list(untried_neighbours({"p": "2.0", "q": "5"}, tried)) == []
    assert [each.value for each in untried_neighbours({"p": "2.0", "q": "5"}, tried[:2])] == [4.2]


def test_a_question_that_was_looked_at_since_takes_more_at_its_next_look():
    past = PastExperiment(experiment_id="one", look=LookPlace(number=1, of=1))
    settling = Settling(arm="a", tasks=300, runs=4)
    assert settling_at_next_look(settling, past) == settling
    later = attrs.evolve(past, look=LookPlace(number=1, of=9))
    assert coming_level(later) == level_of_look(10, 0.05)
    more = settling_at_next_look(settling, later)
    assert (more.tasks, more.runs) == (462, 7)  # (z(1 - 0.00016 / 2) + z(0.8))² by the same of 0.0039

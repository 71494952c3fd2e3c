"""All looks at a question share one level, whatever the experiments, arms, entries and files are called."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evsys_record import final_scoring
from evsys_record.files import read_json, write_json
from evsys_record.history import past_experiment
from evsys_record.index import Index
from evsys_record.look_ledger import LedgerLine, LookLedger
from evsys_record.marks import concluded_labels, labels
from evsys_record.questions import AskedQuestion
from evsys_runtime.audit.auditing import audit_experiment
from evsys_runtime.config.plan import ALPHA
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment import conclusion as concluding
from evsys_runtime.experiment.prior.level_parts import repeated_share
from evsys_runtime.experiment.result_schemas import validate_result
from evsys_runtime.experiment.verdict.prose import verdict_line
from evsys_stats.alpha_spending import FIRST_SHARE, level_of_look

METADATA = """
metadata:
  hypothesis: it learns
  success_metric: val.mean_reward
  benchmark:
    - {name: val, path: tasks.jsonl, max_tokens: 4}
"""
ARM = """
  - name: {name}
    data: {{source_kind: jsonl, path: train.jsonl, transforms: [{{kind: jsonl_to_chat}}]}}
    model: {{name: evsys/tiny}}
    algorithm: {{kind: sft, params: {{learning_rate: {rate}, steps: 6, batch_size: 4}}}}
    backend: {{kind: mock}}
"""
TWO_ARMS = f"runs:{ARM.format(name='low', rate=0.0011)}{ARM.format(name='high', rate=0.05)}"


@pytest.fixture(autouse=True)
def different_tasks(project):
    project.tasks([(f"t{i:02d}", f"say {'abcdefgh'[i % 8]} for {i}", "abcdefgh"[i % 8]) for i in range(40)])


def looked(project, *changes, text=None, metadata=METADATA, extra="", **options):
    """Run it, and give its series."""
    body = text
    for old, new in changes:
        assert old in metadata or old in (body or "")
        metadata, body = metadata.replace(old, new), body and body.replace(old, new)
    experiment = project.experiment(body, metadata=metadata, extra=extra, **options)
    result = experiment.run()
    validate_result(json.loads((experiment.record.directory / "conclusion.json").read_text()), "conclusion")
    return result.conclusion.looks


def test_the_levels_of_any_number_of_looks_sum_to_the_level_of_the_question():
    levels = [level_of_look(number, ALPHA) for number in range(1, 200_001)]
    assert levels[0] == pytest.approx(FIRST_SHARE * ALPHA)
    assert levels == sorted(levels, reverse=True)
    assert sum(levels) < ALPHA
    assert sum(levels) == pytest.approx(ALPHA, rel=1e-5)


def test_each_repetition_is_the_next_look_at_the_question_and_has_the_level_that_is_left(project):
    found = [looked(project, extra=f"\nbase_seed: {seed}\n") for seed in range(3)]
    assert [series.number for series in found] == [1, 2, 3]
    assert [series.level for series in found] == [level_of_look(k, 0.05) for k in (1, 2, 3)]
    assert [len(series.earlier) for series in found] == [0, 1, 2]
    assert found[2].earlier[0].verdict in ("SUPPORTED", "REFUTED", "INCONCLUSIVE")


def test_names_of_entries_tasks_and_files_hide_no_look(project):
    assert looked(project).number == 1
    rows = [json.loads(line) for line in (project.root / "tasks.jsonl").read_text().splitlines()]
    renamed = [
        {**row, "task_id": f"other-{i}", "instruction": f"  {row['instruction'].upper()}. "}
        for i, row in enumerate(reversed(rows))
    ]
    project.write("other.jsonl", renamed)
    again = looked(
        project,
        ("val.mean_reward", "fresh.mean_reward"),
        ("name: val", "name: fresh"),
        ("tasks.jsonl", "other.jsonl"),
    )
    assert again.number == 2


def test_rewording_every_task_hides_no_look(project):
    words = "amber birch cedar delta ember fjord grove heath inlet jetty".split()
    rows = [
        (f"t{i:02d}", f"say {'abcdefgh'[i % 8]} to the {words[i % 10]} by {words[i // 4]}", "abcdefgh"[i % 8])
        for i in range(40)
    ]
    project.tasks(rows)
    assert looked(project).number == 1
    project.tasks([(task_id, f"please {text} now", answer) for task_id, text, answer in rows])
    series = looked(project, extra="\nbase_seed: 1\n")
    assert (series.number, series.other_tasks) == (2, 0)
    # The ledger has the signatures as well, of records that are gone.
    for folder in (project.root / ".evsys" / "experiments").glob("2*"):
        shutil.rmtree(folder)
    project.tasks([(task_id, f"{text}, would you", answer) for task_id, text, answer in rows])
    assert looked(project, extra="\nbase_seed: 2\n").number == 3


def test_fewer_or_more_of_the_same_tasks_are_the_same_benchmark_and_others_are_not(project):
    assert looked(project).number == 1
    assert looked(project, ("max_tokens: 4", "max_tokens: 4, limit: 15")).number == 2
    project.tasks(
        [(f"t{i:02d}", f"name {'abcdefgh'[i % 8]} at {100 + i}", "abcdefgh"[i % 8]) for i in range(40)]
    )
    assert looked(project).number == 1


def test_another_margin_is_the_same_question_and_another_claim_is_not(project):
    assert looked(project).number == 1
    assert looked(project, ("  success_metric", "  minimum_effect: 0.02\n  success_metric")).number == 2
    assert (
        looked(project, ("  success_metric", "  claim: no_worse\n  margin: 0.1\n  success_metric")).number
        == 1
    )


def test_that_an_arm_is_worse_is_another_question_than_that_it_is_better(project):
    assert looked(project).number == 1
    assert looked(project, ("  success_metric", "  claim: worse\n  success_metric")).number == 1


def test_a_comparison_that_is_turned_round_with_its_claim_is_the_same_question(project):
    against = METADATA.replace("  hypothesis", "  baseline: low\n  hypothesis")
    worse = ("  success_metric", "  claim: worse\n  success_metric")
    assert looked(project, text=TWO_ARMS, metadata=against).number == 1
    assert (
        looked(project, worse, ("baseline: low", "baseline: high"), text=TWO_ARMS, metadata=against).number
        == 2
    )


def test_arms_that_differ_in_the_same_key_ask_the_same_however_far_they_differ(project):
    against = METADATA.replace("  hypothesis", "  baseline: low\n  hypothesis")
    first = looked(project, text=TWO_ARMS, metadata=against)
    assert first.levers == ("+algorithm.params.learning_rate",)
    touched = looked(project, ("0.0011", "0.0011001"), ("0.05", "0.04"), text=TWO_ARMS, metadata=against)
    assert touched.number == 2
    renamed = looked(
        project,
        ("name: low", "name: calm"),
        ("baseline: low", "baseline: calm"),
        text=TWO_ARMS,
        metadata=against,
    )
    assert renamed.number == 3
    turned = looked(project, ("baseline: low", "baseline: high"), text=TWO_ARMS, metadata=against)
    assert (turned.levers, turned.number) == (("-algorithm.params.learning_rate",), 1)
    other = looked(
        project,
        ("learning_rate: 0.05, steps: 6", "learning_rate: 0.0011, steps: 9"),
        text=TWO_ARMS,
        metadata=against,
    )
    assert (other.levers, other.number) == (("+algorithm.params.steps",), 1)


def test_an_experiment_that_tested_nothing_spends_nothing(project):
    first = looked(project, ("max_tokens: 4", "max_tokens: 4, limit: 9"))
    assert (first.number, first.tested) == (1, False)
    assert looked(project).number == 1
    assert looked(project).number == 2


def test_records_of_simulated_models_and_of_real_ones_are_series_of_their_own(project):
    first = project.experiment()
    first.run()
    path = first.record.directory / "conclusion.json"
    tree = read_json(path)
    assert tree["extra"]["simulated_by"] == ["mock"]
    write_json(path, {**tree, "extra": {}})
    file = project.root / ".evsys" / "looks.jsonl"
    file.write_text(
        file.read_text(encoding="utf-8").replace('"simulated":true', '"simulated":false'), encoding="utf-8"
    )
    assert looked(project).number == 1
    assert looked(project).number == 2


def test_records_from_before_questions_were_counted_are_looks_at_the_same_rows(project):
    first = project.experiment()
    first.run()
    folder = first.record.directory
    facts = read_json(folder / "experiment.json")
    del facts["task_contents"]
    write_json(folder / "experiment.json", facts)
    tree = read_json(folder / "conclusion.json")
    del tree["looks"], tree["procedure"], tree["claim"], tree["margin"]
    write_json(folder / "conclusion.json", tree)
    series = looked(project)
    assert (series.number, series.earlier[0].experiment_id, series.earlier[0].level) == (2, folder.name, None)


def test_what_was_supported_before_and_isnt_now_is_said(project):
    first = project.experiment()
    assert first.run().conclusion.verdict == "SUPPORTED"
    again = project.experiment(f"run:{RUN_THAT_LEARNS_NOTHING}").run()
    assert again.conclusion.verdict != "SUPPORTED"
    (line,) = [line for line in again.conclusion.warnings if "was SUPPORTED on this question" in line]
    assert first.record.directory.name in line
    page = (project.root / again.directory / "conclusion.md").read_text(encoding="utf-8")
    assert "(look 2 at this question, level 0.0039 of 0.05)" in page
    assert f"before it {first.record.directory.name} SUPPORTED +" in page


RUN_THAT_LEARNS_NOTHING = """
  data:
    source_kind: jsonl
    path: train.jsonl
    transforms: [{kind: jsonl_to_chat}]
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 0.00000001, steps: 1, batch_size: 4}}
  backend: {kind: mock}
"""


def test_an_experiment_that_is_interrupted_and_resumed_is_one_look(project):
    experiment = project.experiment(TWO_ARMS)
    experiment.run()
    folder = experiment.record.directory
    tree = read_json(folder / "conclusion.json")
    partial = {**tree, "verdict": "INCONCLUSIVE", "looks": {**tree["looks"], "complete": False}}
    write_json(folder / "conclusion.1.json", partial)
    write_json(folder / "experiment.json", read_json(folder / "experiment.json"))
    assert looked(project, text=TWO_ARMS).number == 2
    write_json(folder / "conclusion.1.json", {**tree, "looks": {**tree["looks"], "number": 7}})
    write_json(folder / "experiment.json", read_json(folder / "experiment.json"))
    assert looked(project, text=TWO_ARMS).number == 4


def test_raising_a_budget_until_the_numbers_are_good_supports_nothing_before_the_plan_is_done(project):
    """Each repeat that is added changes the numbers of the same comparison, so one may not stop at the best of them."""
    experiment = project.experiment(metadata=METADATA, extra="\nn_repeats: 3\nbudget: {arms: 1}\n")
    conclusion = experiment.run().conclusion
    verdicts, looks = [conclusion.verdict], [conclusion.looks]
    for arms in (2, 3):
        overrides = [f"budget.arms={arms}"]
        result = Experiment.resume(experiment.record.directory, overrides=overrides, quiet=True).run()
        verdicts.append(result.conclusion.verdict)
        looks.append(result.conclusion.looks)
    assert conclusion.comparisons[0].outcome == "win"
    assert "only 1 of 3 repeats" in conclusion.reason
    assert verdicts == ["CANDIDATE", "CANDIDATE", "SUPPORTED"]
    assert [(each.number, each.complete) for each in looks] == [(1, False), (1, False), (1, True)]


def test_an_experiment_that_was_killed_behind_its_conclusion_and_resumed_is_one_look(project):
    experiment = project.experiment(metadata=METADATA)
    experiment.run()
    folder = experiment.record.directory
    concluded = read_json(folder / "conclusion.json")
    write_json(folder / "experiment.json", {**read_json(folder / "experiment.json"), "status": "running"})
    Experiment.resume(folder, quiet=True).run()
    again = read_json(folder / "conclusion.json")
    assert (folder / "conclusion.1.json").exists()
    assert (again["looks"]["number"], again["comparisons"]) == (1, concluded["comparisons"])
    assert looked(project, extra="\nbase_seed: 1\n").number == 2


def test_a_run_that_ended_by_what_it_scored_divides_its_level_among_the_scorings(project):
    """It could have ended at any of the planned ones, so each gets an equal part, whichever was the last."""
    scored = ("max_tokens: 4", "max_tokens: 4, run_every: 1")
    stops = """
select: {checkpoint: last}
callbacks:
  - {kind: early_stopping, params: {monitor: val.mean_reward, patience: 2}}
"""
    series = looked(
        project, scored, extra=stops, text=f"run:{RUN_THAT_LEARNS_NOTHING.replace('steps: 1', 'steps: 12')}"
    )
    assert series.scorings == 12
    assert series.level == pytest.approx(level_of_look(1, ALPHA) / series.scorings)
    through = looked(project, scored, extra="\nselect: {checkpoint: last}\n")
    assert (through.number, through.scorings) == (2, 1)


def test_a_checkpoint_selected_by_a_copy_of_the_deciding_tasks_divides_the_level(project):
    copied = (
        (project.root / "tasks.jsonl").read_text(encoding="utf-8").replace('"task_id": "t', '"task_id": "u')
    )
    (project.root / "copy.jsonl").write_text(copied, encoding="utf-8")
    metadata = METADATA.replace(
        "benchmark:", "benchmark:\n    - {name: same, path: copy.jsonl, max_tokens: 4, run_every: 1}"
    )
    text = f"run:{RUN_THAT_LEARNS_NOTHING.replace('steps: 1', 'steps: 12')}"
    series = project.experiment(text, metadata=metadata).run().conclusion.looks
    assert (series.scorings, series.level) == (12, level_of_look(1, ALPHA) / 12)


def test_fresh_samples_that_repeat_the_answers_that_selected_divide_the_level(project):
    """The temperature is high enough to count as sampling, and the answers hardly depend on it."""
    project.tasks([(f"t{i:02d}", f"say {'abcdefgh'[i % 8]} for {i}", "abcdefgh"[i % 8]) for i in range(40)])
    scored = ("max_tokens: 4", "max_tokens: 4, run_every: 1, temperature: 0.06")
    experiment = project.experiment(metadata=METADATA.replace(*scored))
    result = experiment.run()
    (arm,) = result.arms
    assert result.conclusion.selection.proof == "fresh_samples"
    same = final_scoring(arm, "val").task_rewards
    before = next(
        each.task_rewards
        for each in arm.evaluations
        if each.benchmark == "val" and each.step == arm.run.selected_checkpoint.step
    )
    assert sum(same[task] == before[task] for task in same) > 30
    series = result.conclusion.looks
    assert series.scorings > 1
    assert series.level == level_of_look(1, ALPHA) / series.scorings
    assert audit_experiment(experiment.record.directory).passed


@pytest.mark.parametrize(
    ("others", "again", "share"),
    [
        ([[1, 1, 0, 0]], [1, 0, 1, 0], 1.0),  # what sets it apart comes again
        ([[1, 1, 0, 0]], [1, 1, 0, 0], 0.0),  # nothing of it does
        ([[1, 0, 1, 0]], [1, 0, 1, 0], 0.0),  # all are the same, so there was nothing to select
        ([[1, 1, 0, 0], [1, 0, 1, 1]], [0, 0, 1, 0], 0.45),
    ],
)
def test_the_share_of_a_selected_lead_that_comes_again(others, again, share):
    tasks = "abcd"
    looks = {step: dict(zip(tasks, one, strict=True)) for step, one in enumerate([[1, 0, 1, 0], *others])}
    expected = repeated_share(looks, 0, dict(zip(tasks, again, strict=True)))
    assert expected == pytest.approx(share, abs=0.01)


def test_where_it_is_not_known_how_often_a_run_would_be_scored_later_ends_have_smaller_parts(project):
    stops = """
select: {checkpoint: last}
callbacks:
  - {kind: early_stopping, params: {monitor: val.mean_reward, patience: 2}}
"""
    text = f"run:{RUN_THAT_LEARNS_NOTHING.replace('steps: 1', 'epochs: 6')}"
    scored = METADATA.replace("max_tokens: 4", "max_tokens: 4, run_every: 1")
    conclusion = project.experiment(text, metadata=scored, extra=stops).run()
    (arm,) = conclusion.arms
    ended_at = len({each.step for each in arm.evaluations} - {0})
    assert arm.run.stop_reason
    assert conclusion.conclusion.looks.scorings == ended_at * (ended_at + 1)


def _deleted(folder):
    shutil.rmtree(folder)


def _declared_dry(folder):
    facts = read_json(folder / "experiment.json")
    write_json(folder / "experiment.json", {**facts, "dry": True})


def _declared_invalid(folder):
    tree = read_json(folder / "conclusion.json")
    write_json(folder / "conclusion.json", {**tree, "verdict": "INVALID"})


def _concluding_nothing(folder):
    (folder / "conclusion.json").unlink()


def _asking_something_else(folder):
    tree = read_json(folder / "resolved.json")
    write_json(
        folder / "resolved.json", {**tree, "metadata": {**tree["metadata"], "claim": "equal", "margin": 0.5}}
    )


@pytest.mark.parametrize(
    "change", [_deleted, _declared_dry, _declared_invalid, _concluding_nothing, _asking_something_else]
)
def test_a_look_counts_although_its_record_was_deleted_or_changed(project, change):
    first = looked(project)
    assert first.number == 1
    (folder,) = (project.root / ".evsys" / "experiments").iterdir()
    change(folder)
    again = looked(project, extra="\nbase_seed: 1\n")
    assert again.number == 2
    assert [look.experiment_id for look in again.earlier] == [folder.name]
    assert looked(project, extra="\nbase_seed: 2\n").number == 3


def test_a_dry_run_puts_no_look_on_file(project):
    project.experiment(metadata=METADATA, dry=True).run()
    assert not (project.root / ".evsys" / "looks.jsonl").exists()


def test_looks_of_a_folder_elsewhere_are_on_file_in_it(project, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "runs"
    for number in (1, 2):
        assert looked(project, extra=f"\noutput_dir: {elsewhere}\nbase_seed: {number}\n").number == number
        shutil.rmtree(next(elsewhere.glob("2*")))
    assert (elsewhere / ".looks.jsonl").is_file()
    assert not (elsewhere.parent / "looks.jsonl").exists()


def ledger_of(project):
    return project.root / ".evsys" / "looks.jsonl"


def lines_of(project):
    return [json.loads(line) for line in ledger_of(project).read_text(encoding="utf-8").splitlines()]


def test_deleting_the_folder_of_an_experiment_deletes_no_look(project):
    first = project.experiment(metadata=METADATA)
    first.run()
    shutil.rmtree(first.record.directory)
    series = looked(project, extra="\nbase_seed: 1\n")
    assert (series.number, [look.experiment_id for look in series.earlier], series.rebuilt) == (
        2,
        [first.record.experiment_id],
        False,
    )


def test_deleting_a_conclusion_that_was_set_aside_deletes_no_look(project):
    experiment = project.experiment(metadata=METADATA)
    experiment.run()
    directory = experiment.record.directory
    project.experiment(metadata=METADATA, extra="\nbase_seed: 1\n").run()
    (directory / "conclusion.json").unlink()
    assert looked(project, extra="\nbase_seed: 2\n").number == 3


@pytest.mark.parametrize(
    "lose", [Path.unlink, lambda path: path.write_bytes(b"")], ids=["deleted", "emptied"]
)
def test_a_ledger_that_was_lost_is_made_again_from_the_records_with_a_mark_that_stays(project, lose):
    experiment = project.experiment(metadata=METADATA)
    experiment.run()
    lose(ledger_of(project))
    second = project.experiment(metadata=METADATA, extra="\nbase_seed: 1\n")
    conclusion = second.run().conclusion
    assert (conclusion.looks.number, conclusion.looks.rebuilt) == (2, True)
    assert any("ledger of looks was missing" in warning for warning in conclusion.warnings)
    assert "(ledger of looks rebuilt)" in verdict_line(conclusion)
    assert looked(project, extra="\nbase_seed: 2\n").rebuilt
    with Index(experiment.record.directory.parent) as index:
        past = past_experiment(index, second.record.experiment_id)
    assert "ledger of looks rebuilt" in labels(past.marks)


ANOTHER_METRIC = ("success_metric: val.mean_reward", "success_metric: val.pass_rate")
ANOTHER_CLAIM = ("hypothesis: it learns", "hypothesis: it learns\n  claim: no_worse\n  margin: 0.5")


@pytest.mark.parametrize("change", [ANOTHER_METRIC, ANOTHER_CLAIM], ids=["metric", "claim"])
def test_a_look_at_a_similar_question_is_a_mark_wherever_the_verdict_is(project, change):
    project.experiment(metadata=METADATA).run()
    second = project.experiment(metadata=METADATA.replace(*change), extra="\nbase_seed: 1\n")
    conclusion = second.run().conclusion
    assert (conclusion.looks.number, conclusion.looks.similar) == (1, 1)
    assert "1 look at similar questions" in verdict_line(conclusion)
    assert any("1 look at similar questions came before" in warning for warning in conclusion.warnings)
    assert "1 look at similar questions" in concluded_labels(conclusion)
    with Index(second.record.directory.parent) as index:
        past = past_experiment(index, second.record.experiment_id)
    assert "1 look at similar questions" in labels(past.marks)


@pytest.mark.parametrize("change", [ANOTHER_METRIC, ANOTHER_CLAIM], ids=["metric", "claim"])
def test_touching_an_arm_hides_no_change_of_the_question(project, change):
    against = METADATA.replace("  hypothesis", "  baseline: low\n  hypothesis")
    looked(project, text=TWO_ARMS, metadata=against)
    touched = looked(project, ("0.0011", "0.0011001"), change, text=TWO_ARMS, metadata=against)
    assert (touched.number, touched.similar) == (1, 1)


def test_a_search_hides_no_change_of_the_question(project):
    space = """
matrix:
  axes:
    algorithm.params.learning_rate: {low: 0.001, high: 0.05, log: true}
base_run:
  data: {source_kind: jsonl, path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {steps: 6, batch_size: 4}}
  backend: {kind: mock}
search: {kind: random, params: {arms: 2}}
confirm: {seeds: 1}
"""
    first = looked(project, text=space)
    assert looked(project, text=space, extra="base_seed: 1\n").number == 2
    other = looked(project, ANOTHER_METRIC, text=space, extra="base_seed: 2\n")
    assert (first.number, other.number, other.similar) == (1, 1, 2)


def test_looks_on_other_tasks_are_not_similar(project):
    project.experiment(metadata=METADATA).run()
    project.tasks(
        [(f"u{i:02d}", f"write {'abcdefgh'[i % 8]} after {100 + i}", "abcdefgh"[i % 8]) for i in range(40)]
    )
    series = looked(project, ANOTHER_METRIC, extra="\nbase_seed: 1\n")
    assert (series.number, series.similar) == (1, 0)


def test_two_experiments_that_conclude_at_once_get_a_look_each(project):
    """The second concludes while the first has its look reserved and isn't through yet."""
    first, numbers = project.experiment(metadata=METADATA), []
    put = concluding.put_into_ledger

    def late(session, reserved, conclusion):
        if not numbers:
            numbers.append(reserved.number)
            with ThreadPoolExecutor(1) as other:
                series = other.submit(looked, project, extra="\nbase_seed: 1\n").result()
            numbers.append(series.number)
        return put(session, reserved, conclusion)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(concluding, "put_into_ledger", late)
        first.run()
    assert numbers == [1, 2]
    states = [line["state"] for line in lines_of(project) if line["state"] != "scored"]
    assert states == ["reserved", "reserved", "concluded", "concluded"]


def test_many_that_reserve_at_once_all_get_other_numbers(tmp_path):
    question = AskedQuestion(
        metric="m", direction="max", claim="better", baseline="b", levers=("l",), simulated=False
    )

    def reserve(name):
        with LookLedger.locked(tmp_path / ".evsys" / "experiments") as ledger:
            number = 1 + len(ledger.looks())
            ledger.append(
                [LedgerLine(experiment_id=name, time="t", state="reserved", question=question, number=number)]
            )
        return number

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(reserve, map(str, range(24)))) == list(range(1, 25))


def test_a_reservation_whose_process_was_killed_counts_as_a_look(project):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(concluding, "put_into_ledger", lambda _session, _reserved, conclusion: conclusion)
        project.experiment(metadata=METADATA).run()
    (folder,) = (project.root / ".evsys" / "experiments").glob("2*")
    shutil.rmtree(folder)
    text = ledger_of(project).read_text(encoding="utf-8")
    ledger_of(project).write_text(text.replace(folder.name, "20200101-000000-killed"), encoding="utf-8")
    series = looked(project, extra="\nbase_seed: 1\n")
    assert (series.number, series.earlier[0].verdict) == (2, None)


@pytest.mark.parametrize("edit", ["verdict", "number", "gone"])
def test_an_audit_finds_a_ledger_that_disagrees_with_the_experiment(project, edit):
    experiment = project.experiment(metadata=METADATA)
    experiment.run()
    folder = experiment.record.directory
    assert audit_experiment(folder).passed
    lines = lines_of(project)
    if edit == "verdict":
        lines[-1]["look"]["verdict"] = (
            "INCONCLUSIVE" if lines[-1]["look"]["verdict"] != "INCONCLUSIVE" else "REFUTED"
        )
    elif edit == "number":
        lines[-1]["number"] = 7
    else:
        lines = []
    ledger_of(project).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    audit = audit_experiment(folder)
    assert {check.about for check in audit.checks if check.state == "differs"} == {"ledger of looks"}

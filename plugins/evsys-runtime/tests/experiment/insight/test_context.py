"""`evsys context`: everything that matters of hundreds of experiments, once, in as many tokens as one has."""

import json
import os
from collections import Counter

import attrs
import jsonschema
import pytest
from past_lab import Lab, write_conclusion

from evsys.types import Settling
from evsys_record.history import Question, ask
from evsys_record.index import Index
from evsys_record.result_trees import result_tree
from evsys_record.retraction import retract
from evsys_runtime.commands import compact_json
from evsys_runtime.experiment.insight.context import context_of
from evsys_runtime.experiment.insight.markdown import SECTIONS, context_markdown
from evsys_runtime.experiment.insight.next_steps import next_steps
from evsys_runtime.experiment.insight.text_budget import fit, tokens_of
from evsys_runtime.experiment.result_schemas import result_schema, validate_result


def document(context):
    return compact_json(result_tree(context))


FORMS = {"markdown": context_markdown, "json": document}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A project with 200 experiments; tests read it."""
    root = tmp_path_factory.mktemp("lab")
    root.joinpath("README.md").write_text("# Lab\n\nAnswers that\nhelp.\n\nMore.\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        past = Lab(root / ".evsys" / "experiments", seed=3).write(200)
    return root, past


def whole_of(root):
    with Index(root / ".evsys" / "experiments") as index:
        index.refresh()
        return context_of(index, root)


@pytest.fixture(scope="module")
def whole(lab):
    return whole_of(lab[0])


def named(context, section):
    return [entry.name.partition("/")[0] for entry in getattr(context, section)]


@pytest.mark.parametrize("form", FORMS)
def test_200_experiments_fit_4000_tokens_with_each_winner_failure_and_open_question_once(lab, whole, form):
    _, past = lab
    context = fit(whole, 4000, FORMS[form])
    text = FORMS[form](context)
    assert len(text.encode("utf-8")) <= 16_000
    assert context.fit.tokens <= 4000
    assert sorted(named(context, "supported") + named(context, "candidates")) == sorted(past.winners)
    assert sorted(named(context, "open")) == sorted(past.open)
    best = [recipe.name.partition("/")[0] for recipe in context.best]
    assert len(best) == 2
    for experiment in (*past.winners, *past.open):
        assert text.count(experiment) == 1 + best.count(experiment), experiment
    ways = {
        "collapse": "collapsed",
        "memory": "failed backend/BackendError",
        "server": "failed backend/ServiceUnavailableError",
        "torn": "failed data/DataError",
        "stalled": "stalled backend/StalledError",
        "verifier": "failed verifier/KeyError",
        "diverged": "failed algorithm/AlgorithmError",
    }
    runs = {way.way: way.runs for way in context.failures if not way.way.startswith("INVALID")}
    assert runs == {ways[way]: count for way, count in past.failed.items()}
    assert all(text.count(json.dumps(name)[1:-1]) == 1 for name in runs)
    assert set(context.fit.left_out) <= {"refuted"}


def test_a_question_that_a_later_experiment_answered_is_open_no_more(lab, whole):
    _, past = lab
    assert past.answered
    assert not set(past.answered) & set(named(fit(whole, 100_000, context_markdown), "open"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tokens", [300, 500, 1000, 2000, 3000, 8000, 100_000])
def test_it_is_never_longer_than_asked_for_and_counts_what_is_left_out(whole, form, tokens):
    context = fit(whole, tokens, FORMS[form])
    assert tokens_of(FORMS[form](context)) <= tokens
    for name in SECTIONS:
        entries = getattr(context, name)
        assert len(set(entries)) == len(entries)
        assert len(entries) + context.fit.left_out.get(name, 0) == len(whole.sections[name])
    if tokens == 100_000:
        assert (context.fit.left_out, context.fit.shortened) == ({}, {})


def test_more_room_names_more_and_is_used(whole):
    counts = []
    for tokens in (500, 1000, 2000, 4000):
        context = fit(whole, tokens, context_markdown)
        counts.append(sum(len(getattr(context, name)) for name in SECTIONS))
        assert context.fit.tokens > 0.8 * tokens
    assert counts == sorted(set(counts))


def test_the_same_record_gives_the_same_bytes(lab, whole):
    first, second = (document(fit(each, 4000, document)) for each in (whole, whole_of(lab[0])))
    assert first == second


def test_the_document_is_as_published(whole):
    tree = json.loads(document(fit(whole, 4000, document)))
    jsonschema.Draft202012Validator(result_schema("context")).validate(tree)
    validate_result(tree, "context")
    assert (tree["about"], tree["goals"].keys()) == (
        "Answers that help.",
        {"faster-answers", "fewer-escalations"},
    )


def test_head_counts_what_is_on_record(lab, whole):
    head, (_, past) = whole.head, lab
    assert head.verdicts["SUPPORTED"] + head.verdicts["CANDIDATE"] == len(past.winners)
    assert sum(head.verdicts.values()) == head.experiments
    assert head.spent.cost_usd == pytest.approx(
        0.08 * (head.experiments - head.verdicts.get("none", 0)), abs=1.0
    )


def test_what_was_retracted_is_no_winner_and_marks_what_rests_on_it(tmp_path):
    lab = Lab(tmp_path / ".evsys" / "experiments")
    parent = lab._conclude("win")
    child = lab._conclude("win", parent_experiment_id=parent)
    grandchild = lab._conclude("open", parent_experiment_id=child)
    other = lab._conclude("win")
    retract(lab.experiments / parent, "the grader took every answer")
    context = fit(whole_of(tmp_path), 4000, context_markdown)
    (retracted,) = context.retracted
    assert (retracted.experiment, retracted.reason) == (parent, "the grader took every answer")
    assert sorted(retracted.resting) == sorted([child, grandchild])
    assert named(context, "supported") == [other, child]
    assert context.supported[1].says.startswith(f"RESTS ON RETRACTED {parent}; ")
    assert context.open[0].says.startswith(f"RESTS ON RETRACTED {parent}; ")
    assert context.verdicts["retracted"] == 1


def test_a_recipe_that_won_twice_is_one_finding_and_its_tie_is_told(tmp_path):
    lab = Lab(tmp_path / ".evsys" / "experiments")
    run = lab.run("sft", 0.001)
    ids = []
    for outcome, verdict in (("win", "SUPPORTED"), ("win", "CANDIDATE"), ("tie", "REFUTED")):
        record = lab.begin({f"arm-{outcome}": run}, 1, success_metric="faq.mean_reward")
        lab.result(record, f"arm-{outcome}", 0)
        lab.end(record, verdict, [lab._comparison(f"arm-{outcome}", outcome, 1)])
        ids.append(record.experiment_id)
    context = fit(whole_of(tmp_path), 4000, context_markdown)
    (found,) = context.supported
    assert found.name == f"{ids[0]}/arm-win"
    assert f"also won in {ids[1]}" in found.says
    assert f"but a tie in {ids[2]}" in found.says
    assert context.candidates == ()


def test_a_candidate_is_told_by_the_runs_that_had_no_part_in_its_choice(tmp_path):
    lab = Lab(tmp_path / ".evsys" / "experiments")
    record = lab.begin({"one": lab.run(), "two": lab.run()}, 1)
    lab.end(record, "CANDIDATE", [lab._comparison("one", "win", 1), lab._comparison("two", "win", 1)])
    lab.tried_anew(record.experiment_id, "one", "inconclusive")
    (worded,) = whole_of(tmp_path).sections["candidates"]
    found = worded.full
    assert found.name.endswith("/one")
    assert found.effect == (0.01, -0.09, 0.11)
    assert found.says.startswith("retried: inconclusive, +0.")
    assert "by the runs that chose it" in found.says
    with Index(lab.experiments) as index:
        (past,) = ask(index, Question()).experiments
    assert (past.before, past.after, past.effect) == (0.4, 0.41, 0.01)


def test_a_question_asked_twice_is_one(tmp_path):
    lab = Lab(tmp_path / ".evsys" / "experiments")
    run = lab.run("sft", 0.001)
    ids = []
    for _ in range(2):
        record = lab.begin({"arm": run}, 1, success_metric="faq.mean_reward")
        lab.result(record, "arm", 0)
        lab.end(record, "INCONCLUSIVE", [lab._comparison("arm", "inconclusive", 1)])
        ids.append(record.experiment_id)
    (found,) = fit(whole_of(tmp_path), 4000, context_markdown).open
    assert found.name == f"{ids[1]}/arm"
    assert f"asked before in {ids[0]}" in found.says


def asked(lab, *arms, **facts):
    """An inconclusive experiment."""
    record = lab.begin(arms_of(lab, *arms), 1, success_metric="faq.mean_reward", **facts)
    for arm in arms:
        lab.result(record, arm, 0)
    settling = Settling(arm=arms[0], tasks=500)
    lab.end(
        record,
        "INCONCLUSIVE",
        [lab._comparison(arm, "inconclusive", 1) for arm in arms],
        settle="about 500 tasks",
        settling=settling,
    )
    return record.experiment_id


def arms_of(lab, *arms):
    base = lab.run("sft", 0.001)
    return {
        arm: {**base, "algorithm": {**base["algorithm"], "params": {"learning_rate": place + 1}}}
        for place, arm in enumerate(arms)
    }


def opened(root):
    return [entry.name for entry in fit(whole_of(root), 4000, context_markdown).open]


def test_only_a_child_that_answers_the_question_closes_it(tmp_path):
    lab = Lab(tmp_path / ".evsys" / "experiments")
    question = asked(lab, "one")
    lab._conclude("win", parent_experiment_id=question)
    lab.answer(question, "win", success_metric="tickets.pass@1")
    lab.answer(question, "win", claim="equal")
    assert opened(tmp_path) == [f"{question}/one"]
    lab.answer(question, "loss")
    assert opened(tmp_path) == []


def test_a_question_stays_open_about_the_arms_that_are_left(tmp_path):
    lab = Lab(tmp_path / ".evsys" / "experiments")
    question = asked(lab, "one", "two")
    lab.answer(question, "tie")
    assert opened(tmp_path) == [f"{question}/two"]
    with Index(lab.experiments) as index:
        index.refresh()
        steps = [step for step in next_steps(index).steps if step.kind == "settle"]
    assert [(step.arm, step.config) for step in steps] == [("two", None)]
    lab.answer(question, "win")
    assert opened(tmp_path) == []


def test_an_edited_or_leaked_conclusion_answers_nothing(tmp_path):
    lab = Lab(tmp_path / ".evsys" / "experiments")
    question = asked(lab, "one")
    answer = lab.experiments / lab.answer(question, "win")
    conclusion = json.loads((answer / "conclusion.json").read_bytes())
    flagged = {"benchmark": "faq", "reason": "", "verdict": "SUPPORTED", "tasks": ["a"], "comparisons": []}
    write_conclusion(answer, {**conclusion, "without_flagged": flagged})
    assert opened(tmp_path) == [f"{question}/one"]
    write_conclusion(answer, conclusion)
    assert opened(tmp_path) == []
    (answer / "conclusion.json").write_text(json.dumps({**conclusion, "reason": "better"}), encoding="utf-8")
    assert opened(tmp_path) == [f"{question}/one"]


def winner(lab, score, *, verdict="SUPPORTED", direction="max", **changed):
    """An experiment whose only arm won with a score; `changed` goes into its conclusion."""
    arms = arms_of(lab, "one")
    record = lab.begin(arms, 2, success_metric="faq.mean_reward", direction=direction)
    for repeat in range(2):
        lab.result(record, "one", repeat)
    won = attrs.evolve(lab._comparison("one", "win", 2), after=score)
    lab.end(record, verdict, [won])
    conclusion = json.loads((record.directory / "conclusion.json").read_bytes())
    write_conclusion(record.directory, {**conclusion, **changed})
    return record


def best_of(root):
    return fit(whole_of(root), 4000, context_markdown).best


def test_the_best_recipe_is_named_with_what_it_was_trained_of_and_takes(tmp_path):
    lab = Lab(tmp_path / ".evsys" / "experiments")
    winner(lab, 0.6)
    record = winner(lab, 0.9)
    for name in ("one-s0", "one-s1"):
        path = record.directory / "runs" / name / "run.json"
        facts = json.loads(path.read_bytes())
        path.write_text(json.dumps({**facts, "data": {**facts["data"], "rows": 80}}), encoding="utf-8")
        ended = record.directory / "runs" / name / "run_result.json"
        result = json.loads(ended.read_bytes())
        result["run"]["final_checkpoint"] = "checkpoints/100"
        ended.write_text(json.dumps(result), encoding="utf-8")
    checkpoint = record.directory / "runs" / "one-s0" / "checkpoints" / "100"
    (best,) = best_of(tmp_path)
    assert (best.score, best.verdict, best.rows, best.learning_rate) == (0.9, "SUPPORTED", 80, 1.0)
    assert (best.name, best.runs, best.cost_usd, best.seconds) == (
        f"{record.experiment_id}/one",
        2,
        0.02,
        30.0,
    )
    assert best.checkpoint is None
    checkpoint.mkdir(parents=True)
    (best,) = best_of(tmp_path)
    assert best.checkpoint == str(checkpoint.relative_to(tmp_path))
    text = context_markdown(fit(whole_of(tmp_path), 4000, context_markdown))
    assert f"## Best so far\n\n- faq.mean_reward 0.9 by {record.experiment_id}/one (SUPPORTED, this " in text
    assert f"80 rows, learning rate 1, 2 runs, $0.02 each, 30 s each, checkpoint {best.checkpoint}" in text


def test_the_lowest_score_is_the_best_of_a_metric_to_minimise(tmp_path):
    lab = Lab(tmp_path / ".evsys" / "experiments")
    lowest = winner(lab, 0.2, direction="min")
    winner(lab, 0.5, direction="min")
    assert [best.name for best in best_of(tmp_path)] == [f"{lowest.experiment_id}/one"]


def test_the_best_recipe_is_never_simulated_leaked_retracted_or_edited_and_supported_ones_come_first(
    tmp_path,
):
    lab = Lab(tmp_path / ".evsys" / "experiments")
    flagged = {"benchmark": "faq", "reason": "", "verdict": "SUPPORTED", "tasks": ["a"], "comparisons": []}
    winner(lab, 0.99, extra={"simulated_by": ["mock"]})
    winner(lab, 0.99, without_flagged=flagged)
    retract(winner(lab, 0.99).directory, "the grader had a fault")
    edited = winner(lab, 0.99).directory / "conclusion.json"
    edited.write_bytes(edited.read_bytes() + b" ")
    assert best_of(tmp_path) == ()
    candidate = winner(lab, 0.9, verdict="CANDIDATE")
    assert [best.name for best in best_of(tmp_path)] == [f"{candidate.experiment_id}/one"]
    supported = winner(lab, 0.5)
    assert [best.name for best in best_of(tmp_path)] == [f"{supported.experiment_id}/one"]


def test_nothing_on_record_says_so(tmp_path):
    context = fit(whole_of(tmp_path), 4000, context_markdown)
    assert Counter(len(getattr(context, name)) for name in SECTIONS) == {0: len(SECTIONS)}
    assert context_markdown(context).startswith(
        f"# {tmp_path.name}: what is known from 0 experiments, 0 runs\n"
    )

"""Marks on past experiments: each one is on every line that names the experiment, and in the JSON."""

import json

import attrs
import pytest
from past_lab import Lab, write_conclusion

from evsys.types import Conclusion, ExperimentResult, LookSeries, Usage
from evsys_record.files import read_json
from evsys_record.hashing import file_digest
from evsys_record.history import Question, ask
from evsys_record.index import Index
from evsys_record.marks import HACKING_SUSPECTED, labels, marks_of
from evsys_record.past import PastExperiment
from evsys_record.retraction import retract
from evsys_runtime.experiment.insight.context import context_of
from evsys_runtime.experiment.insight.next_steps import next_steps
from evsys_runtime.experiment.insight.why import explain
from evsys_runtime.log_values import verdict_of


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path / ".evsys" / "experiments")


def won(lab, *, verdict="SUPPORTED", repeats=5, **changed):
    """A winner; `changed` goes into its conclusion as if the run had written it."""
    record = lab.begin({"one": lab.run("sft", 0.001)}, repeats, success_metric="faq.mean_reward")
    for repeat in range(repeats):
        lab.result(record, "one", repeat)
    lab.end(record, verdict, [lab._comparison("one", "win", repeats)])
    path = record.directory / "conclusion.json"
    write_conclusion(record.directory, {**read_json(path), **changed})
    return record


def past_of(lab):
    with Index(lab.experiments) as index:
        index.refresh()
        (past,) = ask(index, Question()).experiments
    return past


def kinds(past):
    return [mark.kind for mark in past.marks]


FLAGGED = {"benchmark": "faq", "reason": "", "verdict": "SUPPORTED", "tasks": ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("changed", "kind", "label"),
    [
        ({"extra": {"simulated_by": ["mock"]}}, "simulated", "simulated"),
        ({"without_flagged": {**FLAGGED, "comparisons": [{"n_tasks": 9}]}}, "leaked", "25% leaked"),
        ({"without_flagged": FLAGGED}, "leaked", "100% leaked"),
        ({"extra": {"reward_hacking_suspected": ["rl-s0"]}}, "reward_hacking", "reward hacking suspected"),
        ({"question_changed": ["the baseline"]}, "question_changed", "question changed after results"),
    ],
)
def test_a_conclusion_is_marked_by_its_own_fields(lab, changed, kind, label):
    won(lab, **changed)
    past = past_of(lab)
    assert kinds(past) == [kind]
    assert labels(past.marks) == (label,)


def test_a_plain_conclusion_has_no_mark(lab):
    won(lab, subject="recipe")
    past = past_of(lab)
    assert (past.marks, past.subject) == ((), "recipe")


def test_the_comparisons_give_the_subject_of_a_conclusion_that_has_none(lab):
    won(lab, repeats=1)
    assert past_of(lab).subject == "checkpoint"


def test_an_open_verdict_has_no_subject(lab):
    won(lab, verdict="CANDIDATE", repeats=1)
    assert past_of(lab).subject is None


def test_an_edited_conclusion_is_marked_until_it_is_restored(lab):
    record = won(lab)
    path = record.directory / "conclusion.json"
    written = path.read_bytes()
    path.write_bytes(written.replace(b"SUPPORTED", b"REFUTED"))
    assert kinds(past_of(lab)) == ["edited"]
    path.write_bytes(written)
    assert kinds(past_of(lab)) == []


def test_a_record_without_a_conclusion_hash_is_not_marked_as_edited(lab):
    record = won(lab)
    facts = record.facts
    del facts["conclusion_hash"]
    (record.directory / "experiment.json").write_text(json.dumps(facts), encoding="utf-8")
    assert not past_of(lab).edited


def test_the_hash_is_that_of_the_file_as_the_run_wrote_it(lab):
    record = lab.begin({"one": lab.run()}, 1)
    lab.end(record, "REFUTED", [lab._comparison("one", "tie", 1)])
    assert record.facts["conclusion_hash"] == file_digest(record.directory / "conclusion.json")


def test_the_most_serious_mark_comes_first():
    past = PastExperiment(
        experiment_id="x", retracted="a fault", edited=True, dry=True, simulated_by=("mock",)
    )
    assert [mark.kind for mark in marks_of(past)] == ["retracted", "edited", "dry", "simulated"]
    assert marks_of(attrs.evolve(past, retracted=None))[0].kind == "edited"


def test_context_next_and_why_have_the_marks(lab, tmp_path):
    record = won(lab, verdict="CANDIDATE", repeats=1, extra={"simulated_by": ["mock"]})
    marked = ["simulated"]
    with Index(lab.experiments) as index:
        index.refresh()
        (found,) = context_of(index, tmp_path).sections["candidates"]
        assert list(found.brief.marks) == marked
        assert found.brief.says.startswith("[simulated]")
        step, *_ = next_steps(index).steps
        assert [mark.kind for mark in step.marks] == marked
        explained = explain(index, record.experiment_id)
    assert [mark.kind for mark in explained.marks] == marked
    assert "the model is simulated by mock" in explained.weakened


def test_a_retracted_experiment_is_marked_and_so_is_its_child(lab):
    parent = lab._conclude("win")
    child = lab._conclude("win", parent_experiment_id=parent)
    retract(lab.experiments / parent, "the grader had a fault")
    with Index(lab.experiments) as index:
        index.refresh()
        found = {past.experiment_id: past for past in ask(index, Question()).experiments}
    assert found[parent].marks[0].says == "it was retracted: the grader had a fault"
    assert found[child].marks[0].says == f"it rests on retracted experiments: {parent}"


def test_tokens_and_money_of_a_simulated_model_are_not_spent(lab, tmp_path):
    real = won(lab)
    real.note(usage=attrs.asdict(Usage(trained_tokens=100, cost_usd=1.0)))
    with Index(lab.experiments) as index:
        index.refresh()
        before = context_of(index, tmp_path).head.spent
        simulated = won(lab, extra={"simulated_by": ["local"]})
        simulated.note(usage=attrs.asdict(Usage(trained_tokens=500, cost_usd=2.0)))
        index.refresh()
        after = context_of(index, tmp_path).head.spent
    assert (before.trained_tokens, before.cost_usd) == (100, 1.0)
    assert (after.trained_tokens, after.cost_usd) == (100, 1.0)


def test_loggers_get_a_verdict_with_its_subject_and_marks():
    series = LookSeries(
        number=2, level=0.0039, alpha=0.05, metric="m", claim="better", baseline="b", levers=(), rebuilt=True
    )
    conclusion = Conclusion(
        verdict="SUPPORTED",
        reason="it wins",
        subject="checkpoint",
        extra={"simulated_by": ["mock"], "leaked": 0.25, HACKING_SUSPECTED: ["a-s0"]},
        question_changed=("baseline",),
        looks=series,
    )
    result = ExperimentResult(
        experiment_id="e", name="e", status="completed", directory="d", conclusion=conclusion
    )
    facts = verdict_of(result)
    assert (facts["verdict"], facts["subject"]) == ("SUPPORTED", "checkpoint")
    assert facts["marks"] == (
        "simulated, 25% leaked, reward hacking suspected, question changed after results, look 2, ledger of looks rebuilt"
    )
    plain = attrs.evolve(
        result, conclusion=Conclusion(verdict="SUPPORTED", reason="it wins", subject="recipe")
    )
    assert "marks" not in verdict_of(plain)

"""`evsys trigger`: fires on a change, with its evidence, and within its limits."""

import json
import random
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from evsys.errors import ConfigError, DataError, StoreError
from evsys_traces.trigger.check import check
from evsys_traces.trigger.command import trigger as command
from evsys_traces.trigger.config import load_trigger

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
WORDS = ["refund", "order", "parcel", "late", "address", "invoice", "return", "size", "colour", "payment"]
FILE = """version: 1
name: support
reference: reference.jsonl
slices: [model]
min_examples: 20
"""


def trace(draw, number, *, failing=0.1, words=WORDS, model="tiny", judged=True):
    question = " ".join(draw.choice(words) for _ in range(draw.randint(4, 12)))
    facts = {
        "conversation_id": f"c-{number}",
        "time": (BEGIN + timedelta(minutes=number)).isoformat(),
        "model": model,
    }
    if judged:
        facts["feedback"] = [{"name": "thumbs", "score": float(draw.random() >= failing)}]
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": "An answer."}]
    return {"messages": messages, "metadata": facts}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text("[tool.evsys]\n")
    monkeypatch.chdir(tmp_path)
    draw = random.Random(7)
    write(tmp_path / "reference.jsonl", [trace(draw, n) for n in range(300)])
    (tmp_path / "trigger.yaml").write_text(FILE)
    return tmp_path


def stream(path, begin, count, seed=8, **options):
    draw = random.Random(seed)
    return write(path, [trace(draw, begin + n, **options) for n in range(count)])


def state(project):
    return (project / ".evsys/triggers/support/state.json").read_bytes()


def test_traffic_as_it_was_is_quiet(project):
    decision = check(load_trigger("trigger.yaml"), stream(project / "t.jsonl", 300, 400))
    assert (decision.outcome, decision.new) == ("quiet", 400)
    assert decision.e_value < decision.threshold == 100
    assert {each["series"] for each in decision.evidence} == {
        "failures",
        "failures of model=tiny",
        "length",
        "novelty",
    }


def test_more_failures_fire_with_their_rates(project):
    traces = stream(project / "t.jsonl", 300, 200, failing=0.5)
    decision = check(load_trigger("trigger.yaml"), traces)
    assert decision.outcome == "fired"
    assert decision.why.startswith("failures")
    strongest = decision.evidence[0]
    assert strongest["rate"]["low"] > strongest["reference"]["high"]
    written = json.loads((project / ".evsys/triggers/support/decision.json").read_bytes())
    assert (written["outcome"], written["new"]) == ("fired", 200)
    assert set(written["digests"]) == {"config", "reference", "traces", "state_before"}
    assert (project / ".evsys/triggers/support/fired-1.json").exists()


def test_failures_of_one_slice_are_seen_behind_the_others(project):
    draw = random.Random(1)
    models = ["a"] * 9 + ["b"]
    write(project / "reference.jsonl", [trace(draw, n, model=models[n % 10]) for n in range(600)])
    rows = [
        trace(draw, 600 + n, model=models[n % 10], failing=0.6 if n % 10 == 9 else 0.1) for n in range(500)
    ]
    decision = check(load_trigger("trigger.yaml"), write(project / "t.jsonl", rows))
    assert decision.outcome == "fired"
    assert decision.evidence[0]["series"] == "failures of model=b"


def test_new_words_fire_without_any_feedback(project):
    other = ["warranty", "battery", "charger", "screen", "firmware", "bluetooth", "pairing", "reset"]
    traces = stream(project / "t.jsonl", 300, 80, words=other, judged=False)
    decision = check(load_trigger("trigger.yaml"), traces)
    assert decision.outcome == "fired"
    assert decision.why.startswith("novelty")


def test_traces_count_once(project):
    first = stream(project / "a.jsonl", 300, 100)
    check(load_trigger("trigger.yaml"), first)
    later = write(project / "b.jsonl", [json.loads(line) for line in first.read_text().splitlines()])
    with later.open("a") as file:
        file.write(json.dumps(trace(random.Random(2), 400)) + "\n")
    decision = check(load_trigger("trigger.yaml"), later)
    assert (decision.new, decision.left_out) == (101, {"not later than the last check": 100})


def test_several_checks_come_to_the_evidence_of_one(project):
    whole = stream(project / "whole.jsonl", 300, 120)
    rows = [json.loads(line) for line in whole.read_text().splitlines()]
    once = check(load_trigger("trigger.yaml"), whole)
    (project / ".evsys/triggers/support/state.json").unlink()
    check(load_trigger("trigger.yaml"), write(project / "a.jsonl", rows[:50]))
    twice = check(load_trigger("trigger.yaml"), write(project / "b.jsonl", rows[50:]))
    assert (twice.e_value, twice.evidence) == (once.e_value, once.evidence)


def test_a_check_cut_off_before_its_state_is_repeated_to_the_byte(project):
    traces = stream(project / "t.jsonl", 300, 200, failing=0.5)
    check(load_trigger("trigger.yaml"), traces)
    folder = project / ".evsys/triggers/support"
    written, after = (folder / "decision.json").read_bytes(), state(project)
    (folder / "state.json").unlink()
    check(load_trigger("trigger.yaml"), traces)
    assert (folder / "decision.json").read_bytes() == written
    assert state(project) == after


def test_it_is_held_until_enough_traces_are_new(project):
    (project / "trigger.yaml").write_text(FILE.replace("min_examples: 20", "min_examples: 150"))
    decision = check(load_trigger("trigger.yaml"), stream(project / "t.jsonl", 300, 100, failing=0.9))
    assert decision.outcome == "held"
    assert decision.why.endswith("100 of 150 new traces")


def test_it_cools_down_and_has_a_budget_a_month(project):
    text = FILE + "cooldown_hours: 2\nmax_per_month: 2\n"
    (project / "trigger.yaml").write_text(text)
    trigger = load_trigger("trigger.yaml")
    outcomes = []
    for place in range(5):
        traces = stream(project / f"{place}.jsonl", 300 + 60 * place, 60, seed=place, failing=0.9)
        outcomes.append(check(trigger, traces).outcome)
    assert outcomes == ["fired", "held", "fired", "held", "held"]
    assert "as often as it may" in json.loads((trigger.folder / "decision.json").read_bytes())["why"]


def test_another_reference_needs_a_reset_which_keeps_the_days(project):
    trigger = load_trigger("trigger.yaml")
    check(trigger, stream(project / "t.jsonl", 300, 200, failing=0.9))
    stream(project / "reference.jsonl", 0, 300, seed=9, failing=0.9)
    with pytest.raises(ConfigError, match="the reference changed since trigger 'support' was armed"):
        check(load_trigger("trigger.yaml"), project / "t.jsonl")
    assert CliRunner().invoke(command, ["reset", "trigger.yaml"]).exit_code == 0
    decision = check(load_trigger("trigger.yaml"), stream(project / "t.jsonl", 500, 200, failing=0.9))
    assert decision.outcome == "quiet"
    assert len(json.loads(state(project))["fired"]) == 1


def test_no_text_of_a_user_is_kept(project):
    (project / "trigger.yaml").write_text(FILE)
    traces = stream(project / "t.jsonl", 300, 100, words=["ada@example.org", "sk-secret"], failing=0.9)
    check(load_trigger("trigger.yaml"), traces)
    for path in (project / ".evsys/triggers/support").iterdir():
        content = path.read_text()
        assert "ada" not in content
        assert "secret" not in content
        assert "refund" not in content


def test_what_can_not_be_ordered_is_counted(project):
    draw = random.Random(3)
    rows = [trace(draw, 300), trace(draw, 301)]
    del rows[1]["metadata"]["time"]
    decision = check(load_trigger("trigger.yaml"), write(project / "t.jsonl", rows))
    assert decision.left_out == {"without a time": 1}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("reference: reference.jsonl", "reference: nothing.jsonl", "no such file: nothing.jsonl"),
        ("name: support", "name: ../x", "is not a name of a folder"),
        ("min_examples: 20", "min_examples: 0", "min_examples"),
        ("slices: [model]", "slice: [model]", "unknown key 'slice'"),
    ],
)
def test_a_faulty_file_is_refused(project, old, new, message):
    (project / "trigger.yaml").write_text(FILE.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_trigger("trigger.yaml")
    assert message in str(caught.value)


def test_a_small_reference_is_refused(project):
    write(project / "reference.jsonl", [trace(random.Random(1), n) for n in range(39)])
    with pytest.raises(DataError, match="the reference has 39 traces, fewer than 40"):
        check(load_trigger("trigger.yaml"), stream(project / "t.jsonl", 300, 10))


def test_a_damaged_state_is_named(project):
    check(load_trigger("trigger.yaml"), stream(project / "t.jsonl", 300, 10))
    (project / ".evsys/triggers/support/state.json").write_text("{")
    with pytest.raises(StoreError):
        check(load_trigger("trigger.yaml"), project / "t.jsonl")


def test_the_command_prints_the_decision_and_can_exit_with_it(project):
    stream(project / "t.jsonl", 300, 200, failing=0.5)
    done = CliRunner().invoke(
        command, ["check", "trigger.yaml", "t.jsonl", "--exit-code"], standalone_mode=False
    )
    assert done.return_value == 10
    assert done.stdout.startswith("support: fired: failures")
    shown = CliRunner().invoke(command, ["status", "trigger.yaml", "--json"])
    assert json.loads(shown.stdout)["fired"] == 1
    again = CliRunner().invoke(command, ["check", "trigger.yaml", "t.jsonl", "--json"])
    assert json.loads(again.stdout)["outcome"] == "held"

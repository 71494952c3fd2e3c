"""`evsys data preview`: rows, what is left out and why, and what nobody read. `evsys data check`: tasks among the rows."""

import json

import jsonschema
import pytest

from evsys_cli import progress
from evsys_cli.commands import data as command
from evsys_runtime.experiment.result_schemas import result_schema


def test_trained_tokens_are_marked_and_what_was_not_read_is_said(evsys, config):
    outcome = evsys("data", "preview", config, "--rows", "1")
    assert outcome.code == 0, outcome.err
    assert "⟦a<|im_end|>⟧" in outcome.out
    assert outcome.out.splitlines()[-1] == "not read: what follows"
    assert "skipped" not in outcome.out
    assert "not read" not in evsys("data", "preview", config, "-n", "8").out


def test_rows_left_out_have_a_number_and_a_reason_each(evsys, config):
    transforms = [
        {"kind": "filter", "params": {"conditions": [{"column": "prompt", "op": "!=", "value": "say b"}]}},
        {"kind": "shuffle"},
        {"kind": "jsonl_to_chat"},
    ]
    options = ("--set", f"run.data.transforms={json.dumps(transforms)}", "-n", "2")
    outcome = evsys("data", "preview", config, *options, "--set", "run.algorithm.params.max_length=10")
    assert outcome.out.splitlines() == [
        "skipped: 1 (filter: not: prompt != 'say b')",
        "skipped: 2 (sft: longer than max_length (10 tokens))",
        "not read: 5",
    ]
    document = evsys("data", "preview", config, *options, "--json").json
    assert (len(document["rows"]), document["not_read"]) == (2, 5)
    assert document["dropped"] == {"filter: not: prompt != 'say b'": 1}


def test_nothing_is_written(evsys, config):
    before = sorted(config.parent.rglob("*"))
    assert evsys("data", "preview", config).code == 0
    assert sorted(config.parent.rglob("*")) == before


# --- check --------------------------------------------------------------------------------------------------------

RIDDLE = "A farmer keeps seventeen red hens and sells nine of them to a baker, so how many stay on the farm?"


@pytest.fixture
def leaked(config):
    """The experiment with two tasks of twelve in its training rows: one as it stands, one inside of another prompt."""
    questions = [RIDDLE, *(f"say {chr(97 + n)} twice" for n in range(1, 12))]
    tasks = [
        {
            "task_id": f"t{n:02d}",
            "instruction": text,
            "verifier": {"name": "exact_match", "expected": f"{n}!"},
        }
        for n, text in enumerate(questions)
    ]
    rows = [
        {"prompt": "say a", "completion": "a"},
        {"row_id": "leak", "prompt": "say c twice", "completion": "2!"},
        {"prompt": f"Hello. {questions[0]} Thanks.", "completion": "dunno"},
    ]
    config.write_text(
        config.read_text(encoding="utf-8").replace("batch_size: 4", "batch_size: 1"), encoding="utf-8"
    )
    for name, lines in (("train.jsonl", rows), ("tasks.jsonl", tasks)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (config.parent / name).write_text(text, encoding="utf-8")
    return config


def test_tasks_among_the_rows_are_named_with_what_says_so(evsys, leaked):
    outcome = evsys("data", "check", leaked)
    assert outcome.code == 0, outcome.err
    assert outcome.out.splitlines() == [
        "train.jsonl: 3 rows, trained on by run",
        "  val: 2 of 12 tasks are in these rows: 1 equal, 1 near",
        "    t00: nearly equal, 9 of 9 13-grams, 14 of 14 8-grams; row 2",
        "    t02: whole instruction, equal, with its answer; row 1 (leak)",
        "    compared as whole texts only, being short or of shared phrases: 11",
    ]
    assert outcome.err == ""


def test_data_without_a_task_says_so(evsys, leaked):
    (leaked.parent / "clean.jsonl").write_text('{"prompt": "a", "completion": "b"}\n', encoding="utf-8")
    outcome = evsys("data", "check", leaked, "--fail", "--set", "run.data.path=clean.jsonl")
    assert (outcome.code, outcome.out.splitlines()[1]) == (0, "  val: none of 12 tasks is in these rows")


def test_fail_makes_an_exit_code_of_flagged_tasks(evsys, leaked):
    assert evsys("data", "check", leaked, "--fail").code == 4
    assert evsys("data", "check", leaked, "--fail", "--json").code == 4
    assert evsys("data", "check", leaked, "--json").code == 0


def test_the_document_fits_its_published_schema_and_names_tasks_rows_and_arms(evsys, leaked):
    document = evsys("data", "check", leaked, "--json").json
    jsonschema.Draft202012Validator(result_schema("data_check")).validate(document)
    (dataset,) = document["datasets"]
    (benchmark,) = dataset["benchmarks"]
    assert (document["flagged"], dataset["arms"], dataset["rows"]) == (2, ["run"], 3)
    assert [task["task_id"] for task in benchmark["flagged"]] == ["t00", "t02"]
    assert [task["match"] for task in benchmark["flagged"]] == ["near", "equal"]
    assert benchmark["flagged"][1]["closest"] == [
        {"row": 1, "row_id": "leak", "ngrams": 0, "instruction": True, "near": False, "answer": True}
    ]


def test_many_flagged_tasks_are_counted_in_words_and_listed_in_the_document(evsys, leaked):
    names = [f"name {n} things" for n in range(command.MOST_SHOWN + 3)]
    tasks = [
        {"task_id": f"t{n:02d}", "instruction": text, "verifier": {"name": "exact_match", "expected": "!"}}
        for n, text in enumerate(names)
    ]
    rows = [{"prompt": text, "completion": "a"} for text in names]
    for name, lines in (("train.jsonl", rows), ("tasks.jsonl", tasks)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (leaked.parent / name).write_text(text, encoding="utf-8")
    assert "    and 3 more; --json lists all" in evsys("data", "check", leaked).out.splitlines()
    assert evsys("data", "check", leaked, "--json").json["flagged"] == len(names)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--arm", "nobody"), "no arm is called 'nobody'"),
        (("--set", "metadata.benchmark=[]"), "there is no benchmark"),
    ],
)
def test_what_can_not_be_checked_is_refused(evsys, leaked, options, said):
    outcome = evsys("data", "check", leaked, *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err


def test_long_work_says_how_far_it_is_on_standard_error(evsys, leaked, monkeypatch):
    rows = "".join(json.dumps({"prompt": f"q{n}", "completion": "a"}) + "\n" for n in range(2_500))
    (leaked.parent / "train.jsonl").write_text(rows, encoding="utf-8")
    assert evsys("data", "check", leaked).err == ""
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    outcome = evsys("data", "check", leaked, "--json")
    assert outcome.err.splitlines() == [
        "train.jsonl: looked at 1000 rows",
        "train.jsonl: looked at 2000 rows",
    ]
    assert outcome.json["datasets"][0]["rows"] == 2_500


def test_checking_writes_nothing(evsys, leaked):
    before = sorted(leaked.parent.rglob("*"))
    assert evsys("data", "check", leaked).code == 0
    assert sorted(leaked.parent.rglob("*")) == before

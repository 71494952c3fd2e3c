"""Rows and tasks that can't be used: the file, the physical line, the reason, and exit code 4; nothing silently dropped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lab import ROWS, lines, task, tasks

GOOD = lines(ROWS)
CHAT = ("[{kind: jsonl_to_chat}]", "[]")


def trained_rows(lab) -> list[dict]:
    (path,) = lab.record().glob("runs/*/data/training_data.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


# --- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "trian.jsonl",
            r":6:10: \$\.run\.data\.path: there is no file trian\.jsonl; did you mean 'train\.jsonl'",
        ),
        ("nowhere/x.jsonl", r"there is no file nowhere/x\.jsonl; paths are relative to the project root"),
        ("folder", r"folder is a folder; name a file in it"),
        ("empty.jsonl", r"empty\.jsonl is empty; fill it, or name another file"),
        ("loop.jsonl", r"loop\.jsonl is a symbolic link that leads nowhere"),
        ("pipe.jsonl", r"pipe\.jsonl is not a regular file"),
        ("table.xlsx", r"no format is known for the suffix '\.xlsx'; known are \.csv, \.json, \.jsonl"),
        ('"a\\0b.jsonl"', r"is not a usable path"),
        ("x" * 300 + ".jsonl", r"is not a usable path: File name too long"),
        ("'${HOME}/x.jsonl'", r"environment variables are put in plugin params only"),
    ],
)
def test_a_path_that_leads_to_no_rows_is_a_problem_of_the_file(lab, name, said):
    (lab.root / "folder").mkdir()
    lab.write("empty.jsonl", "")
    lab.write("table.xlsx", b"PK\x03\x04")
    (lab.root / "loop.jsonl").symlink_to("loop.jsonl")
    os.mkfifo(lab.root / "pipe.jsonl")
    lab.config(("path: train.jsonl", f"path: {name}"))
    lab.run().refused(2, said)
    lab.nothing_was_written()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param("\n\n  \n", r"train\.jsonl: holds no rows", id="blank lines"),
        pytest.param(GOOD.encode("utf-16"), r"train\.jsonl: is UTF-16", id="utf-16"),
        pytest.param(b"\x1f\x8b\x08abc", r"is compressed with gzip", id="gzip"),
        pytest.param(GOOD.encode() + b'{"prompt": "caf\xe9"}\n', r"train\.jsonl:9: not UTF-8 \(byte 0xe9", id="latin-1"),
        pytest.param(GOOD.replace("\n", "\r"), r"train\.jsonl:1: not valid JSON: expected the end of the line", id="old mac"),
        pytest.param('{"prompt": "a", "completion": "b"}\n\n\n{"prompt": "x", "compl\n' + GOOD, r"train\.jsonl:4: not valid JSON: unterminated string starting at column 17", id="truncated"),
        pytest.param(GOOD + "[]\n", r"train\.jsonl:9: a row must be an object of columns, got a list", id="list"),
        pytest.param(GOOD + "null\n", r"got null", id="null"),
        pytest.param(GOOD + '{"prompt": "a", "completion": NaN}\n', r"train\.jsonl:9: NaN is not JSON; write null", id="nan"),
        pytest.param(GOOD + '{"prompt": "a", "completion": "b", "n": 1e999}\n', r"train\.jsonl:9: a number has no finite value: 1e999", id="infinite"),
        pytest.param(GOOD + f'{{"prompt": "a", "n": {"9" * 5000}}}\n', r"train\.jsonl:9: a number has thousands of digits", id="huge"),
        pytest.param(GOOD + '{"a": ' + "[" * 99999 + "\n", r"train\.jsonl:9: nested too deeply", id="deep"),
        pytest.param(GOOD + '{"prompt": "\\ud800", "completion": "b"}\n', r"train\.jsonl:9: .*half a surrogate pair", id="surrogate"),
        pytest.param(GOOD + '{"prompt": "a"}\n', r"train\.jsonl:9\): no messages and no known pair of columns in prompt", id="column missing"),
        pytest.param(GOOD + "{}\n", r"train\.jsonl:9\): the row has no columns", id="no columns"),
        pytest.param(GOOD + '{"prompt": "a", "completion": null}\n', r"train\.jsonl:9\): column 'completion' is empty", id="null answer"),
        pytest.param(GOOD + '{"prompt": "a", "completion": ""}\n', r"train\.jsonl:9\): column 'completion' is empty", id="empty answer"),
    ],
)  # fmt: skip
def test_a_row_that_can_not_be_used_ends_with_4_and_its_physical_line(lab, content, said):
    lab.write("train.jsonl", content)
    lab.run().refused(4, said, r"failed in .* record: \.evsys/experiments/")
    assert lab.facts()["status"] == "failed"
    lab.nothing_is_half_written()
    lab.evsys("data", "preview", "config.yaml", "--rows", "20").refused(4, said)


def test_bad_rows_are_left_out_and_counted_where_the_file_says_so(lab):
    lab.write("train.jsonl", GOOD + '[]\n{"prompt": \n{"prompt": "x"}\n')
    lab.run("--set", "run.data.on_bad_row=skip").refused(4, r"train\.jsonl:11")
    lab.write("train.jsonl", GOOD + '[]\n{"prompt": \n')
    lab.run("--set", "run.data.on_bad_row=skip").passed()
    run = json.loads(next(lab.records()[-1].glob("runs/*/run.json")).read_text(encoding="utf-8"))
    assert run["data"]["dropped"] == {"reading: not an object": 1, "reading: not valid JSON": 1}
    lab.write("train.jsonl", '[]\n{"prompt": \n')
    lab.run("--set", "run.data.on_bad_row=skip").refused(
        4, r"no row can be read \(not an object: 1, not valid JSON: 1\)"
    )


@pytest.mark.parametrize(
    "change", [lambda b: b"\xef\xbb\xbf" + b, lambda b: b.replace(b"\n", b"\r\n")], ids=["bom", "crlf"]
)
def test_a_byte_order_mark_and_windows_line_ends_change_no_row(lab, change):
    lab.write("train.jsonl", change(GOOD.encode()))
    lab.write("tasks.jsonl", change(lines(tasks()).encode()))
    lab.run().passed()
    assert [row["prompt"] for row in trained_rows(lab)] == [row["prompt"] for row in ROWS]


def test_line_separators_of_unicode_inside_a_text_end_no_row(lab):
    text = "a\u2028b\u2029c\x85d"
    lab.write("train.jsonl", lines([{"prompt": text, "completion": text}] * 8))
    lab.write(
        "tasks.jsonl",
        lines(
            task(number, instruction=f"{text} {number}", verifier={"name": "exact_match", "expected": text})
            for number in range(12)
        ),
    )
    lab.run().passed()
    rows = trained_rows(lab)
    assert [row["prompt"] for row in rows] == [text] * 8
    lab.nothing_is_half_written()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "prompt,completion\na,b\nc\n",
            r"train\.csv:3: 1 fields where the header has 2; does a value hold ',' without quotes\?",
        ),
        ("prompt,prompt\na,b\n", r"train\.csv:1: the header names a column twice: prompt"),
        ("prompt,completion\n", r"train\.csv: holds no rows"),
        (
            'prompt,completion\n"a,b\nc,d\n',
            r"train\.csv:2: not valid CSV: a quote that opens here is never closed",
        ),
    ],
)
def test_a_table_that_is_damaged_names_its_line(lab, content, said):
    lab.write("train.csv", content)
    lab.config(("train.jsonl", "train.csv"))
    lab.run().refused(4, said)


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}, ("--json", "--full")),
        ({"PYTHONIOENCODING": "cp1252"}, ("--json", "--full")),
        ({"PYTHONIOENCODING": "cp1252"}, ()),
    ],
)
def test_any_text_survives_a_machine_with_another_encoding(lab, options, arguments):
    lab.write("train.jsonl", lines([{"prompt": f"🎉 {n}", "completion": "žluť"} for n in range(8)]))
    lab.config(("name: val", "name: 'vál🎉'"), ("name: trial", "name: 'pokus 🎉'"))
    outcome = lab.process("run", "config.yaml", *arguments, env=options)
    outcome.passed()
    if arguments:
        assert outcome.json["name"] == "pokus 🎉"
    else:
        assert "completed in" in outcome.out
    assert trained_rows(lab)[0]["prompt"] == "🎉 0"
    assert lab.facts()["name"] == "pokus 🎉"
    lab.nothing_is_half_written()


# --- rows and what becomes of them -------------------------------------------------------------------------------------


def test_fewer_rows_than_a_batch_say_how_many_there_are(lab):
    lab.write("train.jsonl", lines(ROWS[:3]))
    told = (
        r"config.yaml:\d+:\d+: \$\.run\.algorithm\.params\.batch_size: 3 rows are fewer than one batch of 4"
    )
    lab.run().refused(2, told, r"set it to at most 3, or leave it out")
    lab.write("train.jsonl", lines(ROWS[:1]))
    lab.run().refused(2, r"1 row is fewer than one batch of 4")


def test_rows_that_are_too_long_for_a_batch_are_found_while_they_are_read(lab):
    lab.write("train.jsonl", lines([*ROWS[:3], *({**row, "completion": "x" * 999} for row in ROWS[3:])]))
    lab.config(("batch_size: 4", "batch_size: 4, max_length: 200"))
    lab.run().refused(
        4, r"3 rows .* are fewer than one batch of 4", r"set algorithm\.params\.batch_size to at most 3"
    )


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        (
            "{kind: filter, params: {max_length: {prompt: 1}}}",
            r"transform 'filter' let none of 8 rows through \(.*: 8\)",
        ),
        ("{kind: t}", r"transform 't' let none of 8 rows through \(.*: 8\)"),
    ],
)
def test_a_transform_that_leaves_nothing_is_named_with_its_reasons(lab, transform, said):
    lab.code(
        "from evsys_sdk import register_transform\n\n@register_transform('t')\nclass T:\n    def __call__(self, rows):\n"
        "        for row in rows:\n            if row.get('prompt') == 'other':\n                yield row\n"
    )
    lab.config(("{kind: jsonl_to_chat}", f"{transform}, {{kind: jsonl_to_chat}}"))
    lab.run().refused(4, said, r"look at the reasons")


def test_a_pattern_that_never_ends_is_told_with_transform_row_and_line(lab):
    lab.write("train.jsonl", GOOD + lines([{"prompt": "a" * 40 + "b", "completion": "c"}]))
    pattern = '{kind: filter, params: {timeout_seconds: 0.2, conditions: [{column: prompt, op: not_matches, value: "^(a+)+$"}]}}'
    lab.config(("{kind: jsonl_to_chat}", f"{pattern}, {{kind: jsonl_to_chat}}"))
    lab.run().refused(
        4,
        r"transform 'filter' failed after taking row 8 \(train\.jsonl:9\): the pattern .* took longer than 0\.2 s on the "
        r"41 characters of column 'prompt'; write it without repetition inside repetition",
    )


def test_rows_with_one_fault_are_told_once_with_their_number(lab):
    lab.write("train.jsonl", lines([{"text": "x"}] * 548))
    lab.config(CHAT)
    outcome = lab.run()
    outcome.refused(
        4, r"548 rows can't be used as 'chat':", r"row 0 \(train\.jsonl:1\): .* \(and 547 more rows like it\)"
    )
    assert outcome.said.count("neither `messages`") == 1


@pytest.mark.parametrize(
    "row",
    [
        '{"prompt": "a", "completion": "b", "prompt": "c"}',
        '{"prompt": "a", "completion": "b", "meta": [{"k" : 1, "k": 2}]}',
    ],
)
def test_a_key_that_a_row_gives_twice_is_no_silent_loss(lab, row):
    lab.write("train.jsonl", GOOD + row + "\n")
    lab.run().refused(
        4, r"train\.jsonl:9: the key '(prompt|k)' is given twice, and one of its values would be lost"
    )
    lab.run("--set", "run.data.on_bad_row=skip").passed()
    run = json.loads(next(lab.records()[-1].glob("runs/*/run.json")).read_text(encoding="utf-8"))
    assert run["data"]["dropped"] == {"reading: a key given twice": 1}


def test_a_row_longer_than_the_context_is_dropped_and_counted_and_all_of_them_are_an_error(lab):
    long = {"prompt": "x" * 900, "completion": "y"}
    lab.write("train.jsonl", lines([*ROWS, long]))
    limit = ("--set", "run.algorithm.params.max_length=200")
    outcome = lab.run(*limit)
    outcome.passed()
    assert "warning: 1 of 9 rows were left out: longer than max_length (200 tokens)" in outcome.out
    lab.write("train.jsonl", lines([long] * 8))
    lab.run(*limit).refused(
        4, r"no row is left to train on: of 8 rows 8 longer than max_length", r"raise max_length, or look"
    )


def test_the_models_own_limit_counts_on_the_local_engine(lab):
    lab.write("train.jsonl", lines([*ROWS, {"prompt": "x" * 3000, "completion": "y"}]))
    outcome = lab.run("--set", "run.backend.kind=local", "--set", "run.algorithm.params.steps=1")
    outcome.passed()
    assert "1 of 9 rows were left out: longer than max_length (1024 tokens)" in outcome.out


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"messages": []}, r"row 0 \(train\.jsonl:1\): 'messages' is empty"),
        ({"messages": "hi"}, r"'messages' is a string, not a list of messages"),
        (
            {"messages": [{"role": "robot", "content": "x"}]},
            r"messages\[0\]\.role is 'robot'; roles are system, user",
        ),
        ({"messages": [{"role": "user"}]}, r"messages\[0\] has no `content`"),
        (
            {"messages": [{"role": "user", "content": "x", "audio": "y"}]},
            r"messages\[0\]\.audio: not supported",
        ),
        (
            {"messages": [{"role": "user", "content": "x"}]},
            r"no row is left to train on: of 8 rows 8 without a trainable token",
        ),
        ({"prompt": "a", "completion": "b", "tools": "not json"}, r"'tools' is a string that is not JSON"),
        (
            {"prompt": "a", "completion": "b", "tools": {"x": 1}},
            r"'tools' is an object, not a list of tool schemas",
        ),
    ],
)
def test_rows_that_are_no_conversation_are_told_one_by_one(lab, row, said):
    lab.write("train.jsonl", lines([row] * 8))
    lab.config(CHAT)
    outcome = lab.run()
    outcome.refused(4, said)
    (verdict,) = [line for line in outcome.out.splitlines() if line.startswith("INCONCLUSIVE")]
    assert len(verdict) < 300


def test_an_answer_without_a_token_to_train_on_is_never_a_silent_zero(lab):
    rows = [
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "weight": 0}]}
    ]
    lab.write("train.jsonl", lines(rows * 8))
    lab.config(CHAT)
    lab.run().refused(
        4, r"of 8 rows 8 without a trainable token", r"look at the rows with `evsys data preview`"
    )
    assert not list(lab.record().glob("runs/*/training/metrics.jsonl"))


# --- tasks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        ("", 2, r":4:\d+: \$\.metadata\.benchmark\.path: tasks\.jsonl is empty"),
        ("\n", 4, r"tasks\.jsonl: holds no rows"),
        (lines([{"instruction": "a"}]), 4, r"tasks\.jsonl:1: .*\n? *line 1: no `task_id`; it has instruction"),
        (lines([{"task_id": "a", "instruction": "a"}]), 4, r"task 'a': no `verifier`; it has nothing else"),
        (lines([task(verifier="exact_match")]), 4, r"`verifier` is a string, not \{name, expected, params\}"),
        (lines([task(instruction="")]), 4, r"`instruction` is empty"),
        (lines([task(instruction=5)]), 4, r"'instruction' is a number, not a list of messages"),
        (lines([*tasks(3), task(1)]), 4, r"tasks\.jsonl:4: .*\n? *line 4: task_id 't01' comes again, first in line 2"),
        (lines(tasks(3)) + '{"inst', 4, r"tasks\.jsonl:4: .*\n? *line 4: not valid JSON: unterminated string"),
        (lines([task(verifier={"name": "exactmatch", "expected": "a"})]), 2, r"tasks\.jsonl:1: .*task 't00': no verifier is called 'exactmatch'; did you mean 'exact_match'\?"),
        (lines([task(verifier={"name": "exact_match"})]), 2, r"`expected` is missing; give the text that counts as right"),
        (lines([task(verifier={"name": "exact_match", "expected": {"a": 1}})]), 2, r"`expected` holds a dict, not a string"),
        (lines([task(verifier={"name": "regex_match", "expected": "(["})]), 2, r"'\(\[' is not a regular expression"),
        (lines([task(verifier={"name": "exact_match", "expected": "a", "params": {"ignore_cse": True}})]), 2, r"params\.ignore_cse: unknown key 'ignore_cse'; known: strip, case_sensitive"),
        (lines([task(verifier={"name": "exact_match", "expectd": "a"})]), 4, r"`verifier` has an unknown key 'expectd'; did you mean `expected`\?"),
    ],
)  # fmt: skip
def test_a_benchmark_that_can_not_be_judged_is_refused_before_training(lab, content, code, said):
    lab.write("tasks.jsonl", content)
    lab.run().refused(code, said)
    lab.nothing_was_written()


def test_thousands_of_wrong_tasks_do_not_fill_the_screen(lab):
    lab.write("tasks.jsonl", lines(tasks(2000, verifier={"name": "exact_match"})))
    outcome = lab.run()
    outcome.refused(
        2, r"tasks\.jsonl:1: .*task 't00': .*`expected` is missing.* \(and 1999 more tasks like it\)"
    )
    assert len(outcome.err.splitlines()) == 1
    lab.write("tasks.jsonl", lines([task(n, verifier={"name": f"v{n}"}) for n in range(2000)]))
    outcome = lab.run()
    outcome.refused(2, r"1990 more tasks from here on have problems")
    assert len(outcome.err.splitlines()) < 20
    lab.write("tasks.jsonl", lines([{"task_id": f"t{n}"} for n in range(2000)]))
    outcome = lab.run()
    outcome.refused(4, r"no `instruction`")
    assert len(outcome.err.splitlines()) < 30


@pytest.mark.parametrize("reference", ["../../../../etc", "..", "/etc", "a/../../b"])
def test_an_id_or_name_that_points_out_of_the_project_finds_nothing(lab, reference):
    outside = lab.root.parent / "etc"
    outside.mkdir(exist_ok=True)
    for key in ("dataset_id", "dataset_name"):
        lab.config(("path: train.jsonl", f"{key}: {reference}"))
        outcome = lab.run()
        assert outcome.code in {2, 4}, outcome.said
        outcome.refused(outcome.code, r"isn't in the project's cache|no dataset|has no ")
    for key in ("id", "name"):
        lab.config(("name: val, path: tasks.jsonl", f"{key}: {reference}"))
        outcome = lab.run()
        assert outcome.code in {2, 4}, outcome.said
        outcome.refused(outcome.code, r"isn't in the project's cache|no benchmark")


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ("{path: mroe.jsonl, ratio: 0.5}", r"transforms\[0\]\.params\.sources\[0\]\.path: there is no file mroe\.jsonl; did you mean 'more\.jsonl'"),
        ("{path: more.jsonl, ratio: 0.5, transforms: [{kind: jsonl_to_chta}]}", r"sources\[0\]\.transforms\[0\]\.kind: no transform is called 'jsonl_to_chta'"),
        ("{path: more.jsonl, ratio: 0.5, transforms: [{kind: filter}]}", r"sources\[0\]\.transforms\[0\]\.params: transform 'filter': no condition"),
    ],
)  # fmt: skip
def test_what_is_mixed_in_is_looked_at_before_anything_is_trained(lab, params, said):
    lab.write("more.jsonl", GOOD)
    lab.config(
        ("{kind: jsonl_to_chat}", f"{{kind: mix, params: {{sources: [{params}]}}}}, {{kind: jsonl_to_chat}}")
    )
    lab.run().refused(2, said)
    lab.nothing_was_written()


# --- size --------------------------------------------------------------------------------------------------------------

PEAK = """
import sys
from pathlib import Path
from evsys_cli.main import main
try:
    main(sys.argv[1:])
finally:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    print("peak", line.split()[1], file=sys.stderr)
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").is_file(), reason="the system doesn't tell how much memory a process took"
)
def test_a_big_file_is_read_in_the_memory_of_a_small_one(lab):
    def peak(rows: int) -> int:
        """Kilobytes that a run takes which keeps eight rows of many."""
        with lab.write("train.jsonl", lines(ROWS)).open("a", encoding="utf-8") as file:
            for _ in range(rows):
                file.write('{"prompt": "' + "n" * 1000 + '", "completion": "x"}\n')
        done = subprocess.run(
            [sys.executable, "-c", PEAK, "run", "config.yaml", "--quiet"],
            cwd=lab.root, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout
        return int(done.stderr.rpartition("peak ")[2])

    lab.config(
        (
            "{kind: jsonl_to_chat}",
            "{kind: filter, params: {max_length: {prompt: 100}}}, {kind: jsonl_to_chat}",
        )
    )
    small, big = peak(100), peak(40_000)
    assert lab.root.joinpath("train.jsonl").stat().st_size > 40_000_000
    assert big - small < 10_000

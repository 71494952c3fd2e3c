"""`evsys history`, `show` and `reindex` on records that runs wrote, and on none."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import jsonschema
import pytest

from evsys_cli import history_tables, progress
from evsys_cli.history_tables import history_lines
from evsys_record.past import History, PastExperiment
from evsys_runtime.experiment.result_schemas import result_schema

CONTINUAL = """version: 1
name: continual
metadata:
  benchmark: [{name: a, path: ta.jsonl, max_tokens: 2}, {name: b, path: tb.jsonl, max_tokens: 2}]
continual:
  minimum_retention: 0.9
  datasets:
    - {name: a, path: a.jsonl, transforms: [{kind: jsonl_to_chat}]}
    - {name: b, path: b.jsonl, transforms: [{kind: jsonl_to_chat}]}
    - {name: c, path: a.jsonl, transforms: [{kind: jsonl_to_chat}]}
run:
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 0.2, steps: 12, batch_size: 4, lora_rank: 4}}
  backend: {kind: mock}
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A project with two experiments, of which the second has a failed arm, and a dry run; made once, copied for each test."""
    from evsys_runtime.experiment import Experiment

    root = tmp_path_factory.mktemp("recorded")
    rows = [{"prompt": f"say {c}", "completion": c} for c in "abcdefgh"]
    tasks = [
        {
            "task_id": f"t{i:02d}",
            "instruction": f"say a, take {i}",
            "verifier": {"name": "regex_match", "expected": "^$" if i < 3 else "^a$"},
        }
        for i in range(12)
    ]
    for name, lines in (("train.jsonl", rows), ("tasks.jsonl", tasks)):
        (root / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    text = """version: 1
name: %s
metadata:
  hypothesis: Repetition helps.
  tags: [%s]
  success_metric: val.mean_reward
  minimum_effect: 0.2
  benchmark: {name: val, path: tasks.jsonl, max_tokens: 4, metrics: [mean_reward]}
runs:
  - name: one
    data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
    model: {name: evsys/tiny}
    algorithm: {kind: sft, params: {learning_rate: 0.05, steps: 2, batch_size: 4}}
    backend: {kind: mock}
  - name: two
    data: {path: %s, transforms: [{kind: jsonl_to_chat}]}
    model: {name: evsys/tiny}
    algorithm: {kind: sft, params: {learning_rate: 0.01, steps: 2, batch_size: 4}}
    backend: {kind: mock}
"""
    (root / "good.yaml").write_text(text % ("good", "fine", "train.jsonl"), encoding="utf-8")
    (root / "torn.jsonl").write_text('{"prompt": \n', encoding="utf-8")
    (root / "bad.yaml").write_text(text % ("bad", "broken", "torn.jsonl"), encoding="utf-8")
    for name, dry in (("good", False), ("bad", False), ("good", True)):
        Experiment.from_yaml(root / f"{name}.yaml", dry=dry, quiet=True).run()
    return root


@pytest.fixture
def project(recorded: Path, tmp_path: Path) -> Path:
    kept = shutil.ignore_patterns("checkpoints", "data")
    shutil.copytree(recorded / ".evsys" / "experiments", tmp_path / ".evsys" / "experiments", ignore=kept)
    return tmp_path


@pytest.fixture
def ids(project: Path) -> dict[str, str]:
    found = [path.name for path in (project / ".evsys" / "experiments").iterdir()]
    facts = {
        name: json.loads((project / ".evsys/experiments" / name / "experiment.json").read_bytes())
        for name in found
    }
    return {("dry" if facts[name]["dry"] else facts[name]["name"]): name for name in found}


def test_experiments_are_listed_the_newest_first_with_status_verdict_and_effect(evsys, ids):
    outcome = evsys("history")
    assert (outcome.code, outcome.err) == (0, "")
    header, first, second = outcome.out.splitlines()
    assert header.split() == ["experiment", "status", "verdict", "effect", "runs", "metric", "tags"]
    assert re.fullmatch(rf"  {ids['bad']} +completed except two-s0 +INCONCLUSIVE .*1 of 2 .*broken", first)
    assert re.fullmatch(
        rf"  {ids['good']} +completed +\w+ \(simulated, look 1 of 2\) +[+-]\d\.\d+ \[[-\d., ]+\] +2 +val\.mean_reward .* -> .* fine",
        second,
    )


def test_runs_are_listed_with_scores_and_failures(evsys, ids):
    lines = evsys("history", "--runs", "--text", "bad").out.splitlines()
    assert re.fullmatch(rf"  {ids['bad']}/one-s0  completed  \d\.\d+ \[.*\] .* sft .* evsys/tiny", lines[1])
    assert re.fullmatch(rf"  {ids['bad']}/two-s0  failed .*torn\.jsonl:1: .*", lines[2])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--status", "partial"), []),
        (("--status", "partial", "--status", "completed"), ["bad", "good"]),
        (("--tag", "fine"), ["good"]),
        (("--algorithm", "sft", "--model", "tiny"), ["bad", "good"]),
        (("--model", "*/nothing"), []),
        (("--since", "1h"), ["bad", "good"]),
        (("--since", "2099-01-01"), []),
        (("--text", "repetition"), ["bad", "good"]),
        (("--text", "JSON torn"), ["bad"]),
        (("--outcome", "inconclusive", "--tag", "broken"), ["bad"]),
        (("--sort", "name", "--reverse"), ["good", "bad"]),
        (("--limit", "1"), ["bad"]),
        (("--parent", "last"), []),
    ],
)
def test_options_say_which(evsys, ids, options, expected):
    document = evsys("history", *options, "--json").json
    jsonschema.Draft202012Validator(result_schema("history")).validate(document)
    assert [each["name"] for each in document["experiments"]] == expected


def test_what_is_near_a_config_is_listed_with_the_values_that_differ(evsys, project, recorded, ids):
    for name in ("good.yaml", "train.jsonl", "tasks.jsonl"):
        shutil.copyfile(recorded / name, project / name)
    outcome = evsys("history", "--near", "good.yaml")
    assert (outcome.code, outcome.err) == (0, "")
    assert re.match(
        rf"{ids['bad']}/one: \w+, effect .*\n  the model is simulated by mock\n  it is look 2 of 2 .*\n  the same config\n{ids['good']}/",
        outcome.out,
    )
    config = project / "good.yaml"
    text = config.read_text(encoding="utf-8").replace("learning_rate: 0.05", "learning_rate: 0.06")
    config.write_text(text.replace("learning_rate: 0.01", "learning_rate: 0.07"), encoding="utf-8")
    document = evsys("history", "--near", config, "--tag", "fine", "--json").json
    jsonschema.Draft202012Validator(result_schema("history")).validate(document)
    ((nearest,), total) = (document["near"], document["total"])
    assert (nearest["experiment_id"], nearest["same"], total) == (
        ids["good"],
        ["model", "data", "algorithm"],
        1,
    )
    assert nearest["differences"] == [
        {"path": "algorithm.params.learning_rate", "one": "0.06", "other": "0.05"}
    ]


def test_what_is_near_has_its_own_order(evsys, project):
    outcome = evsys("history", "--near", "good.yaml", "--sort", "name")
    assert outcome.code == 2
    assert "--near lists experiments, the nearest first" in outcome.err


def test_a_child_is_found_by_its_parent(evsys, project, ids):
    path = project / ".evsys/experiments" / ids["bad"] / "experiment.json"
    tree = json.loads(path.read_bytes()) | {"parent_experiment_id": ids["good"]}
    path.write_text(json.dumps(tree), encoding="utf-8")
    document = evsys("history", "--parent", "good", "--json").json
    assert [each["experiment_id"] for each in document["experiments"]] == [ids["bad"]]
    assert evsys("show", "bad", "--json").json["ancestors"] == [ids["good"]]
    assert f"children    {ids['bad']}" in evsys("show", "good").out


def test_what_is_not_listed_is_counted(evsys, project):
    assert evsys("history", "--limit", "1").out.splitlines()[-1] == "1 of 2; --limit 0 lists all"
    assert "lists all" not in evsys("history", "--limit", "0").out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--status", "complete"),
            "Invalid value for '--status': 'complete' is not one of completed, partial",
        ),
        (("--outcome", "won"), "'won' is not one of"),
        (("--sort", "size"), "'size' is not one of started, finished"),
        (("--since", "soon"), "'soon' is not a valid time; write 30m"),
        (("--text", "?"), "contains no word to search for"),
        (("--parent", "goood"), "there is no experiment 'goood' in"),
        (("--records", "nowhere"), "nowhere is not a folder"),
    ],
)
def test_an_option_that_says_nothing_is_refused(evsys, project, options, said):
    outcome = evsys("history", *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err


def test_nothing_on_record_and_nothing_like_that_are_told_apart(evsys, tmp_path):
    said = f"No experiment on record in {tmp_path}/.evsys/experiments; use --records for another project.\n"
    assert evsys("history").out == said
    assert list(tmp_path.iterdir()) == []


def test_where_none_is_like_that_their_number_is_said(evsys, project):
    assert evsys("history", "--tag", "none").out == "None of 2 experiments match.\n"
    assert evsys("history", "--tag", "none", "--runs").out == "None of 4 runs match.\n"


def test_a_folder_inside_of_the_project_and_another_place_show_the_same(
    evsys, project, monkeypatch, tmp_path_factory
):
    here = evsys("history").out
    (project / "data").mkdir()
    monkeypatch.chdir(project / "data")
    assert evsys("history").out == here
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert evsys("history", "--records", project).out == here
    assert evsys("history", "--records", project / ".evsys" / "experiments").out == here


def listed(count):
    past = [
        PastExperiment(
            experiment_id=f"20261128-0846{n:02d}-a-rather-long-name-of-a-sweep",
            status="completed",
            verdict="SUPPORTED",
            effect=0.25,
            low=0.1,
            high=0.4,
            metric="held_out.mean_reward",
            tags=("one", "two"),
        )
        for n in range(count)
    ]
    return History(records="r", index=None, full_text="like", total=count, experiments=tuple(past))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_the_table_fits_the_terminal_and_shows_what_matters_most(monkeypatch, width):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(history_tables, "terminal_width", lambda: width)
    lines = list(history_lines(listed(3)))
    assert max(map(len, lines)) <= max(width, 54)
    assert any("completed" in line for line in lines)
    assert any("SUPPORTED" in line for line in lines)
    assert any("held_out" in line for line in lines) == (width >= 120)


# --- show ---------------------------------------------------------------------------------------------------------


def test_an_experiment_is_shown_as_its_run_ended_and_with_what_it_was_for(evsys, ids):
    outcome = evsys("show", "good")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(
        f"{ids['good']}\nname        good\nhypothesis  Repetition helps.\nstatus      completed, "
    )
    assert re.search(r"^val \(val\) +mean_reward\n  untrained +\d\.\d+ \[", outcome.out, re.MULTILINE)
    assert re.search(r"^(REFUTED|INCONCLUSIVE|SUPPORTED|CANDIDATE) ", outcome.out, re.MULTILINE)
    assert re.search(r"^files +conclusion\.json \d", outcome.out, re.MULTILINE)


def test_failures_are_shown_with_their_place(evsys, ids):
    assert re.search(r"^two-s0: failed: .*torn\.jsonl:1: .*", evsys("show", "last").out, re.MULTILINE)
    run = evsys("show", "last", "two")
    assert run.out.startswith(f"{ids['bad']}/two-s0\nstatus      failed\ntrains ")
    assert re.search(r"^failure     data: .*torn\.jsonl:1", run.out, re.MULTILINE)
    assert re.search(r"^attempt     1: start, \d{4}-", run.out, re.MULTILINE)
    assert "Traceback" not in run.out
    assert "Traceback" in evsys("show", "last", "two", "--verbose").out


@pytest.mark.parametrize(
    ("name", "meant"),
    [("last", "bad"), ("-1", "bad"), ("-2", "good"), ("last-1", "good"), ("good", "good"), ("bad", "bad")],
)
def test_names_that_people_use_are_understood(evsys, ids, name, meant):
    assert evsys("show", name, "--json").json["experiment"]["experiment_id"] == ids[meant]


def test_the_beginning_of_an_id_is_enough_where_no_other_begins_so(evsys, ids):
    assert evsys("show", ids["bad"][:-1]).out.startswith(ids["bad"])
    outcome = evsys("show", "20", "--json")
    assert outcome.code == 2
    assert "'20' may be 3 experiments" in outcome.json["error"]["message"]


def test_a_dry_run_is_shown_by_its_id(evsys, ids):
    assert "(dry run)" in evsys("show", ids["dry"]).out
    assert evsys("show", "last").out.startswith(ids["bad"])


def test_a_folder_is_a_name_from_anywhere(evsys, project, ids, monkeypatch, tmp_path_factory):
    folder = project / ".evsys/experiments" / ids["bad"]
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert evsys("show", folder).out.startswith(ids["bad"])
    assert evsys("show", folder / "runs", "one").out.startswith(f"{ids['bad']}/one-s0\n")
    assert evsys("show", folder / "runs" / "one-s0").out.startswith(f"{ids['bad']}/one-s0\n")


@pytest.mark.parametrize("name", ["{bad}/one-s0", "last/one", "bad/one-s0"])
def test_a_run_may_be_named_together_with_its_experiment(evsys, ids, name):
    assert evsys("show", name.format(**ids)).out.startswith(f"{ids['bad']}/one-s0\n")


def test_documents_fit_their_published_schema_and_only_a_named_run_is_whole(evsys, ids):
    validator = jsonschema.Draft202012Validator(result_schema("show"))
    whole = evsys("show", "bad", "--json").json
    validator.validate(whole)
    assert [run["result"] for run in whole["runs"]] == [None, None]
    assert [score["step"] for score in whole["runs"][0]["scores"]] == [0, 2]
    one = evsys("show", "bad", "one-s0", "--json").json
    validator.validate(one)
    assert one["runs"][0]["result"]["run_id"] == "one-s0"
    assert "run.json" in {file["path"] for file in one["runs"][0]["files"]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("gooood",), "did you mean 'good'"),
        (("-9",), "there is no experiment -9: only 2 are on record"),
        (("last", "three"), "has no run 'three'; on record: one-s0, two-s0"),
        (("--jsno", "last"), "No such option"),
    ],
)
def test_what_is_not_there_is_said_with_what_comes_close(evsys, project, arguments, said):
    outcome = evsys("show", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_ended_early_alone_is_not_to_be_gone_on_with(evsys, project, goes_on):
    from evsys_runtime.experiment import Experiment

    rows = {"a": [("a", "x"), ("b", "x")], "b": [("c", "y"), ("d", "y")]}
    for name, said in rows.items():
        lines = [{"prompt": f"say {word}", "completion": answer} for word, answer in said]
        (project / f"{name}.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in lines * 4), encoding="utf-8"
        )
        verifier = {"name": "exact_match", "expected": said[0][1]}
        tasks = [
            {"task_id": f"{w}{i}", "instruction": f"say {w} {i}", "verifier": verifier}
            for w, _ in said
            for i in range(6)
        ]
        (project / f"t{name}.jsonl").write_text(
            "".join(json.dumps(task) + "\n" for task in tasks), encoding="utf-8"
        )
    (project / "continual.yaml").write_text(CONTINUAL, encoding="utf-8")
    made = Experiment.from_yaml(project / "continual.yaml", quiet=True).run()
    assert [arm.status for arm in made.arms] == ["completed", "completed", "skipped"]
    if goes_on:
        path = Path(made.directory) / "runs" / made.arms[1].run_id / "run_result.json"
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {"status": "failed"}), encoding="utf-8")
    assert ("To resume" in evsys("show", made.experiment_id).out) is goes_on


def test_an_experiment_whose_process_is_gone_is_shown_as_crashed_with_what_it_had(evsys, project, ids):
    folder = project / ".evsys/experiments" / ids["bad"]
    path = folder / "experiment.json"
    tree = json.loads(path.read_bytes()) | {"status": "running", "finished": None}
    del tree["seconds"], tree["usage"], tree["exit_code"]
    path.write_text(json.dumps(tree), encoding="utf-8")
    (folder / "runs/two-s0/run_result.json").unlink()
    outcome = evsys("show", "last")
    assert "status      crashed, began" in outcome.out
    assert "NO VERDICT: its process ended without a word" in outcome.out
    assert "two-s0: crashed\n" in outcome.out
    assert f"crashed; record: {folder}\n" in outcome.out
    assert f"To resume: evsys resume {ids['bad']}\n" in outcome.out
    assert re.search(r"^  one  +\d\.\d+ \[", outcome.out, re.MULTILINE)
    assert evsys("history", "--status", "crashed", "--json").json["total"] == 1


def test_a_record_that_can_not_be_read_is_shown_with_the_reason_and_ends_with_1(evsys, project, ids):
    (project / ".evsys/experiments" / ids["bad"] / "experiment.json").write_text("{", encoding="utf-8")
    outcome = evsys("show", ids["bad"])
    assert outcome.code == 1
    assert "It can't be read: " in outcome.out
    listed = evsys("history")
    assert (listed.code, f"{ids['bad']} can't be read: " in listed.out) == (0, True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("evsys show ", ["last", "dry", "bad", "good"]),
        ("evsys show la", ["last"]),
        ("evsys show last ", ["one-s0", "two-s0"]),
        ("evsys show {good} t", ["two-s0"]),
        ("evsys show 20 ", []),
        ("evsys show nothing ", []),
    ],
)
def test_a_shell_completes_experiments_and_runs(evsys, ids, monkeypatch, words, expected):
    words = words.format(**ids)
    monkeypatch.setenv("_EVSYS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    outcome = evsys()
    offered = [line.partition(",")[2] for line in outcome.out.splitlines() if line]
    wanted = [ids.get(name, name) for name in expected]
    assert (outcome.err, offered[:1]) == ("", wanted[:1])
    assert sorted(offered) == sorted(wanted)  # those of one second come in any order


# --- retract ------------------------------------------------------------------------------------------------------


def test_a_retracted_experiment_is_marked_everywhere_and_so_is_what_rests_on_it(evsys, project, ids):
    path = project / ".evsys/experiments" / ids["bad"] / "experiment.json"
    tree = json.loads(path.read_bytes()) | {"parent_experiment_id": ids["good"]}
    path.write_text(json.dumps(tree), encoding="utf-8")
    outcome = evsys("retract", "good", "--reason", "the verifier took every answer")
    assert outcome.code == 0
    assert outcome.out == (
        f"{ids['good']} is retracted: the verifier took every answer\n  {ids['bad']} rests on it\n"
    )
    listed = evsys("history").out
    assert "INCONCLUSIVE (rests on retracted, simulated, look 2 of 2)" in listed
    assert "INCONCLUSIVE (retracted, simulated, look 1 of 2)" in listed
    assert "RETRACTED   the verifier took every answer (2" in evsys("show", "good").out
    assert f"caution     it rests on retracted experiments: {ids['good']}" in evsys("show", "bad").out
    compared = evsys("compare", "good", "bad").err
    assert f"warning: {ids['good']}: it was retracted: the verifier took every answer" in compared
    assert f"warning: {ids['bad']}: it rests on retracted experiments: {ids['good']}" in compared
    assert (
        f"- {ids['good']}: the verifier took every answer (rests on it: {ids['bad']})" in evsys("context").out
    )
    document = evsys("retract", "good", "--reason", "it was right", "--withdraw", "--json").json
    jsonschema.Draft202012Validator(result_schema("retract")).validate(document)
    assert (document["withdrawn"], document["resting"]) == (True, [ids["bad"]])
    assert "retracted" not in evsys("history").out


def test_a_retraction_without_a_reason_or_of_nothing_is_refused(evsys, project, ids):
    assert evsys("retract", "good").code == 2
    assert evsys("retract", "good", "--reason", " ").code == 2
    assert evsys("retract", "nothing", "--reason", "x").code == 2
    assert evsys("retract", "good", "--withdraw", "--reason", "x").code == 2


# --- context ------------------------------------------------------------------------------------------------------


def test_the_context_is_markdown_or_one_line_of_json(evsys, project, ids):
    outcome = evsys("context")
    assert outcome.code == 0
    assert outcome.out.startswith(f"# {project.name}: what is known from 2 experiments, 4 runs\n")
    assert "failed data/JSONDecodeError: 1 run of 1 arm, latest " in outcome.out
    outcome = evsys("context", "--tokens", "2000", "--json")
    assert outcome.out.count("\n") == 1
    jsonschema.Draft202012Validator(result_schema("context")).validate(outcome.json)
    assert outcome.json["fit"]["limit"] == 2000
    assert evsys("context", "--tokens", "10").code == 2


# --- why and next -------------------------------------------------------------------------------------------------


def test_why_tells_numbers_failures_and_what_changed_against_the_parent(evsys, project, ids):
    path = project / ".evsys/experiments" / ids["bad"] / "experiment.json"
    tree = json.loads(path.read_bytes()) | {"parent_experiment_id": ids["good"]}
    path.write_text(json.dumps(tree), encoding="utf-8")
    outcome = evsys("why", "bad")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0] == f"{ids['bad']}: INCONCLUSIVE (simulated, look 2 of 2)"
    first, second = lines[lines.index("looks at this question:") + 1 :][:2]
    assert re.fullmatch(rf"  {ids['good']}: INCONCLUSIVE, effect .*, p .* at level 0\.04", first)
    assert re.fullmatch(rf"  {ids['bad']}: INCONCLUSIVE, effect .*, p .* at level 0\.0039", second)
    assert "  by val.mean_reward, higher is better, against base_model, minimum effect 0.2" in lines
    assert re.search(r"^  one: inconclusive, .* -> .*, effect .*$", outcome.out, re.MULTILINE)
    assert re.search(
        r"^  two-s0: failed data/JSONDecodeError.*: .*torn\.jsonl:1: ", outcome.out, re.MULTILINE
    )
    assert f"against its parent {ids['good']}, INCONCLUSIVE (simulated, look 1 of 2):" in lines
    assert '    data.path: "train.jsonl" -> "torn.jsonl"' in lines
    assert "what would settle it:" in lines
    assert evsys("why", "bad/two").out.count("one:") == 0
    document = evsys("why", "bad", "two-s0", "--json").json
    jsonschema.Draft202012Validator(result_schema("why")).validate(document)
    assert (document["arm"], [each["run_id"] for each in document["failed"]]) == ("two", ["two-s0"])
    assert evsys("why", "bad", "three").code == 2


def test_next_numbers_what_can_be_done_and_prints_its_file(evsys, project, ids):
    outcome = evsys("next")
    assert (outcome.code, outcome.err) == (0, "")
    assert re.match(rf"1\. settle {ids['bad']}/", outcome.out) or re.match(
        rf"1\. settle {ids['good']}/", outcome.out
    )
    document = evsys("next", "--json").json
    jsonschema.Draft202012Validator(result_schema("next")).validate(document)
    assert document["total"] == len(document["steps"]) >= 1
    with_file = next(n for n, step in enumerate(document["steps"], start=1) if step["config"])
    assert f"{with_file}. " in outcome.out
    file = evsys("next", "--config", str(with_file)).json
    assert file == document["steps"][with_file - 1]["config"]
    assert evsys("next", "--config", "99").code == 2


def test_next_on_an_empty_record_says_that_nothing_is_open(evsys):
    assert evsys("next").out.startswith("Nothing on record asks for more")


# --- reindex ------------------------------------------------------------------------------------------------------


def test_reindex_counts_what_it_read_and_says_where_the_index_is(evsys, project):
    index = project / ".evsys" / "index.sqlite"
    outcome = evsys("reindex")
    assert outcome.code == 0
    assert re.fullmatch(rf"2 experiments and 1 dry, 4 runs in \d+\.\d s; {index}\n", outcome.out)
    document = evsys("reindex", "--json").json
    jsonschema.Draft202012Validator(result_schema("reindex")).validate(document)
    assert (document["experiments"], document["index"], document["unreadable"]) == (2, str(index), [])


def test_reindex_finds_what_no_time_or_size_tells(evsys, project, ids):
    path = project / ".evsys/experiments" / ids["good"] / "experiment.json"
    for each in (project / ".evsys/experiments").rglob("*"):
        os.utime(each, (1_700_000_000, 1_700_000_000))
    assert evsys("history", "--tag", "fine", "--json").json["total"] == 1
    with path.open("r+b") as file:
        changed = file.read().replace(b'"fine"', b'"fire"')
        file.seek(0)
        file.write(changed)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    assert evsys("history", "--tag", "fire", "--json").json["total"] == 0
    evsys("reindex")
    assert evsys("history", "--tag", "fire", "--json").json["total"] == 1


def test_reindex_names_what_can_not_be_read(evsys, project, ids):
    (project / ".evsys/experiments" / ids["good"] / "runs/one-s0/run.json").write_text("{", encoding="utf-8")
    outcome = evsys("reindex")
    assert outcome.code == 0
    assert f"{ids['good']}/one-s0 can't be read: " in outcome.out


def test_long_work_says_how_far_it_is_on_standard_error(evsys, project, monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    outcome = evsys("reindex", "--json")
    assert outcome.err.splitlines() == [f"read {n} of 3 experiments" for n in (1, 2, 3)]


def test_a_damaged_index_is_told_of_on_standard_error_and_spoils_no_document(evsys, project):
    evsys("history")
    (project / ".evsys" / "index.sqlite").write_bytes(b"no database")
    outcome = evsys("history", "--json")
    assert outcome.json["total"] == 2
    assert outcome.err.count("\n") == 1
    assert "is damaged" in outcome.err


def test_every_command_that_repeats_a_verdict_marks_a_simulated_model(evsys, project, ids):
    lines = {
        ("show", "good"): "caution     the model is simulated by mock",
        ("why", "good"): f"{ids['good']}: INCONCLUSIVE (simulated, look 1 of 2)",
        ("compare", "good", "bad"): "INCONCLUSIVE (simulated, look 2 of 2)",
        ("next",): "(simulated, look ",
        ("context",): "[simulated, look 2 of 2]",
        ("history",): "INCONCLUSIVE (simulated, look 1 of 2)",
    }
    for command, line in lines.items():
        assert line in evsys(*command).out, command
    assert f"{ids['good']}: the model is simulated by mock" in evsys("compare", "good", "bad").err


def test_the_json_of_every_command_has_subject_and_marks(evsys, project, ids):
    compared = evsys("compare", "good", "bad", "--json").json
    found = [
        evsys("show", "good", "--json").json["experiment"],
        evsys("why", "good", "--json").json,
        compared["one"],
        compared["other"],
        *evsys("next", "--json").json["steps"],
        *evsys("history", "--json").json["experiments"],
    ]
    for each in found:
        assert [mark["kind"] for mark in each["marks"]] == ["simulated", "look"]
        assert each["subject"] is None
    for asked in evsys("context", "--json").json["open"]:
        assert asked["marks"] == ["simulated", "look"]
        assert "all looks: INCONCLUSIVE +0, INCONCLUSIVE +0" in asked["says"]


def test_an_edited_conclusion_is_marked(evsys, project, ids):
    path = project / ".evsys" / "experiments" / ids["good"] / "conclusion.json"
    path.write_text(path.read_text(encoding="utf-8").replace("INCONCLUSIVE", "SUPPORTED"), encoding="utf-8")
    assert re.search(
        rf"{ids['good']} .* SUPPORTED \(this checkpoint, edited, simulated, look 1 of 2\)",
        evsys("history").out,
    )
    assert "caution     its conclusion.json was edited" in evsys("show", "good").out
    known = evsys("context", "--json").json
    assert known["supported"] == []
    assert known["verdicts"] == {"INCONCLUSIVE": 1, "edited": 1}
    (taken_back,) = known["retracted"]
    assert taken_back["experiment"] == ids["good"]

"""Commands as people and agents use them: output, errors, exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from evsys_cli.table import COMMANDS
from evsys_runtime.experiment.result_schemas import validate_result


def test_help_lists_every_command(evsys):
    outcome = evsys("--help")
    assert outcome.code == 0
    for name in COMMANDS:
        assert re.search(rf"^  {name} ", outcome.out, re.MULTILINE)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_explains_itself(evsys, name):
    outcome = evsys(name, "--help")
    assert outcome.code == 0
    assert outcome.out.startswith(f"Usage: evsys {name}")
    _, _, subcommands = outcome.out.partition("\nCommands:\n")
    assert "..." not in subcommands  # their first lines fit


def test_version_names_the_distribution(evsys):
    assert re.match(r"evsys \d+\.\d+\.\d+$", evsys("--version").out)


def test_run_trains_scores_and_says_where_the_record_is(evsys, config):
    outcome = evsys("run", config, "--quiet")
    assert outcome.code == 0, outcome.err
    assert re.search(r"^val \(val\) +mean_reward\n  untrained +0\.000 \[", outcome.out, re.MULTILINE)
    assert re.search(r"^(REFUTED|INCONCLUSIVE|SUPPORTED)", outcome.out, re.MULTILINE)
    assert re.search(r"record: .*\.evsys/experiments/\d{8}-\d{6}-trial", outcome.out)
    assert outcome.err == ""


def test_verbose_lists_each_scoring_at_the_end(evsys, config):
    line = "run-s0  val (val), untrained: mean_reward"
    assert line in evsys("run", config, "--quiet", "--verbose").out
    assert line not in evsys("run", config, "--quiet").out


def test_quiet_silences_a_progress_callback_that_the_file_names_too(evsys, config):
    named = config.read_text(encoding="utf-8") + "callbacks: [{kind: print_progress}]\n"
    config.write_text(named, encoding="utf-8")
    assert "4 steps" in evsys("run", config).err
    assert evsys("run", config, "--quiet").err == ""


def test_run_json_is_one_document_that_fits_its_schema(evsys, config):
    outcome = evsys("run", config, "--json", "--full")
    assert outcome.code == 0
    validate_result(outcome.json, "experiment_result")
    assert outcome.json["status"] == "completed"


def test_set_changes_the_run_and_is_recorded(evsys, config):
    outcome = evsys("run", config, "--json", "--full", "--set", "run.algorithm.params.steps=2")
    assert outcome.json["arms"][0]["run"]["steps"] == 2


def test_dry_says_that_it_concludes_nothing(evsys, config):
    outcome = evsys("run", config, "--dry", "--quiet")
    assert outcome.code == 0
    assert "dry run: no verdict" in outcome.out


def test_a_failed_arm_ends_with_1_and_names_what_failed(evsys, config, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/algorithms.py").write_text(
        "from evsys_sdk import SFT, register_algorithm\n\n"
        "@register_algorithm('breaks')\n"
        "class Breaks(SFT):\n"
        "    async def build_batch(self, step_idx):\n"
        "        raise RuntimeError('out of luck')\n",
        encoding="utf-8",
    )
    outcome = evsys("run", config, "--quiet", "--set", "run.algorithm.kind=breaks")
    assert outcome.code == 1
    assert "out of luck" in outcome.out
    assert "algorithms.py:6" in outcome.out


def test_validate_counts_arms_and_runs(evsys, config):
    assert evsys("validate", config).out == f"{config}: valid; 1 arm, 1 run\n"
    assert evsys("validate", config, "--json").json["runs"] == 1


def test_every_problem_is_reported_at_once_with_its_place(evsys, config):
    text = config.read_text(encoding="utf-8")
    config.write_text(
        text.replace("steps: 4", "stepps: 4").replace("kind: mock", "kind: mok"), encoding="utf-8"
    )
    outcome = evsys("validate", config)
    assert outcome.code == 2
    assert re.search(rf"{config}:8:\d+: .*unknown key 'stepps'.*steps", outcome.err)
    assert re.search(rf"{config}:9:\d+: .*mok.*mock", outcome.err)


def test_problems_as_json_have_path_line_and_hint(evsys, config):
    config.write_text(config.read_text(encoding="utf-8").replace("kind: mock", "kind: mok"), encoding="utf-8")
    outcome = evsys("validate", config, "--json")
    assert outcome.code == 2
    (problem,) = outcome.json["error"]["problems"]
    assert (problem["path"], problem["line"]) == ("$.run.backend.kind", 9)
    assert "mock" in problem["hint"]


def test_a_missing_file_is_a_wrong_config(evsys):
    outcome = evsys("run", "nowhere.yaml")
    assert outcome.code == 2
    assert "nowhere.yaml" in outcome.err


def test_bad_rows_end_with_4_and_their_line(evsys, config, tmp_path):
    (tmp_path / "train.jsonl").write_text(
        '{"prompt": "a", "completion": "b"}\n{"prompt": \n', encoding="utf-8"
    )
    outcome = evsys("run", config, "--quiet")
    assert outcome.code == 4
    assert "train.jsonl:2" in outcome.out


def test_broken_project_code_ends_with_3_and_its_place(evsys, config, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/metrics.py").write_text("import nothing_like_this\n", encoding="utf-8")
    outcome = evsys("validate", config)
    assert outcome.code == 3
    assert "metrics.py:1" in outcome.err


def project_code(tmp_path, text):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/plugins.py").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("command", [["list", "metric"], ["schema", "--experiment"], ["validate", "CONFIG"]])
def test_no_project_imports_no_code_of_the_folder(evsys, config, tmp_path, monkeypatch, command):
    monkeypatch.delenv("EVSYS_NO_PROJECT", raising=False)
    (tmp_path / ".evsys").mkdir(exist_ok=True)
    (tmp_path / "src").mkdir(exist_ok=True)
    (tmp_path / "src" / "hostile.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    arguments = [str(config) if word == "CONFIG" else word for word in command]
    assert evsys("--no-project", *arguments).code == 0
    assert not (tmp_path / "ran").exists()
    assert "EVSYS_NO_PROJECT" not in os.environ
    evsys(*arguments)
    assert (tmp_path / "ran").exists()


def test_what_a_plugin_prints_does_not_spoil_the_json_document(evsys, config, tmp_path):
    project_code(tmp_path, "print('loading')\n")
    outcome = evsys("validate", config, "--json")
    assert outcome.json["valid"] is True
    assert outcome.err == "loading\n"


def test_a_wrong_option_is_a_json_document_too(evsys, config):
    outcome = evsys("run", config, "--json", "--full", "--fast")
    assert outcome.code == 2
    assert outcome.json["error"]["exit_code"] == 2
    assert "--fast" in outcome.json["error"]["message"]


def test_a_plugin_that_exits_where_nobody_looks_ends_with_a_message_and_1(evsys, config, monkeypatch):
    from evsys_runtime.config import validate

    monkeypatch.setattr(validate, "find_project_root", lambda path: sys.exit(0))
    outcome = evsys("validate", config, "--json")
    assert outcome.code == 1
    assert outcome.json["error"]["message"] == "A plugin called sys.exit(0), so nothing was finished."
    assert "Traceback" in outcome.err


def test_data_preview_marks_what_is_trained(evsys, config):
    outcome = evsys("data", "preview", config, "--rows", "1")
    assert outcome.code == 0, outcome.err
    assert "⟦a<|im_end|>⟧" in outcome.out
    row = evsys("data", "preview", config, "--rows", "1", "--json").json["rows"][0]
    assert "".join(span["text"] for span in row["spans"] if span["trained"]) == "a<|im_end|>"


@pytest.mark.parametrize(("no_color", "coloured"), [(None, True), ("", True), ("1", False)])
def test_data_preview_colours_what_is_trained_on_a_terminal_unless_its_user_wants_no_colours(
    evsys, config, monkeypatch, no_color, coloured
):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm")
    outcome = evsys("data", "preview", config, "--rows", "1")
    assert ("\x1b[32m" in outcome.out) is coloured
    assert ("⟦a<|im_end|>⟧" in outcome.out) is not coloured


def test_completion_scripts_name_the_command(evsys):
    assert "_EVSYS_COMPLETE" in evsys("completion", "bash").out


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_ends_with_130_and_a_cancelled_record(config, tmp_path):
    config.write_text(
        config.read_text(encoding="utf-8").replace("steps: 4", "steps: 100000"), encoding="utf-8"
    )
    # A shell may have started this test run in the background, where SIGINT is ignored and children inherit that.
    process = subprocess.Popen(
        [sys.executable, "-m", "evsys_cli.main", "run", str(config)],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".evsys/experiments/*/runs/run-s0/training/metrics.jsonl")):
            assert time.monotonic() < deadline
            assert process.poll() is None
            os.sched_yield()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    (record,) = tmp_path.glob(".evsys/experiments/*/experiment.json")
    assert json.loads(record.read_text(encoding="utf-8"))["status"] == "cancelled"
    assert b"Interrupted" in said

"""The hook answers as the hosts' formats ask for, counts what it does, and never fails silently."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evsys_agents import hook
from evsys_agents.briefing import TOKENS
from evsys_agents.gates import Veto, judgement_key
from evsys_agents.knowledge import _keep
from evsys_agents.project import Project
from evsys_agents.vetoes import counts, vetoes


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs the hook on a document; gives the exit code and both outputs."""
    monkeypatch.setattr(hook, "_start", lambda project, words: started.append(words))
    started: list[list[str]] = []

    def run(event: str, document: object, *options: str) -> tuple[int, str, str]:
        text = document if isinstance(document, bytes) else json.dumps(document).encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        code = hook.main([event, *options])
        done = capsys.readouterr()
        return code, done.out, done.err

    run.started = started
    return run


def call(project: Project, command: str) -> dict[str, Any]:
    return {
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": command},
        "cwd": str(project.root),
    }


READS = "cat data/benchmark/final/tasks.jsonl"


def test_a_refusal_ends_with_2_and_its_reason_on_standard_error(project: Project, answer: Any):
    code, out, err = answer("pre-tool-use", call(project, READS))
    assert (code, out) == (2, "")
    assert "sealed rows" in err


def test_a_refusal_is_a_permission_for_cursor(project: Project, answer: Any):
    document = {
        "tool_name": "Shell",
        "tool_input": {"command": READS},
        "workspace_roots": [str(project.root)],
    }
    code, out, _ = answer("pre-tool-use", document, "--host", "cursor")
    assert code == 2
    assert json.loads(out)["permission"] == "deny"
    assert "sealed rows" in json.loads(out)["agent_message"]


def test_what_passes_prints_nothing(project: Project, answer: Any):
    assert answer("pre-tool-use", call(project, "ls")) == (0, "", "")


def test_vetoes_and_calls_are_counted(project: Project, answer: Any):
    for command in (READS, "ls", READS, "pytest -q"):
        answer("pre-tool-use", call(project, command))
    by_gate = {each.gate: each for each in counts(project)}
    assert (by_gate["sealed"].calls, by_gate["sealed"].vetoes) == (4, 2)
    assert by_gate["sealed"].hit_rate == 0.5
    assert by_gate["run"].hit_rate is None
    assert [(each["gate"], each["tool"], each["host"]) for each in vetoes(project)] == [
        ("sealed", "Bash", "claude")
    ] * 2
    assert (project.root / ".evsys/.gitignore").read_text().endswith("*\n")


def test_outside_of_a_project_everything_passes(tmp_path: Path, answer: Any):
    document = {"tool_name": "Bash", "tool_input": {"command": READS}, "cwd": str(tmp_path)}
    assert answer("pre-tool-use", document) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("document", [b"{", b"[]", b"\xff", b'{"cwd": 3, "tool_input": 5, "tool_name": {}}'])
def test_a_document_that_cannot_be_read_never_refuses(document: bytes, answer: Any):
    code, out, err = answer("pre-tool-use", document)
    assert code in {0, 1}
    assert out == ""
    assert code == 0 or "the call wasn't checked" in err


def test_a_failure_of_the_hook_is_reported_and_refuses_nothing(
    project: Project, answer: Any, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(hook, "vetoes_of", broken)
    code, out, err = answer("pre-tool-use", call(project, READS))
    assert (code, out) == (1, "")
    assert "OSError: no space left; the call wasn't checked" in err


@pytest.mark.parametrize("words", [[], ["stop"], ["pre-tool-use", "more"]])
def test_an_unknown_event_is_a_failure(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert hook.main(words) == 1
    assert "usage" in capsys.readouterr().err


def test_hooks_can_be_turned_off(project: Project, answer: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EVSYS_HOOKS", "off")
    assert answer("pre-tool-use", call(project, READS)) == (0, "", "")


# --- runs -----------------------------------------------------------------------------------------------------------------


def keep(project: Project, config: str, *found: Veto, sets: tuple[str, ...] = ()) -> None:
    key = judgement_key((project.root / config).read_bytes(), sets)
    _keep(project, f"judged/{key}.json", {"stamp": project.stamp(), "vetoes": list(found)})


RUN = "experiments/first/config.yaml"
DECIDED = Veto("run", RUN, "20250101-000000-old decided this already: REFUTED.", "20250101-000000-old")


def test_a_run_that_is_decided_is_refused_by_the_name_of_its_experiment(project: Project, answer: Any):
    keep(project, RUN, DECIDED)
    code, _, err = answer("pre-tool-use", call(project, f"evsys run {RUN}"))
    assert code == 2
    assert "20250101-000000-old" in err
    assert vetoes(project)[0]["experiment"] == "20250101-000000-old"


def test_a_judged_file_is_not_judged_again(project: Project, answer: Any, monkeypatch: pytest.MonkeyPatch):
    keep(project, RUN)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("judged again"))
    assert answer("pre-tool-use", call(project, f"evsys run {RUN}"))[0] == 0


@pytest.mark.parametrize("change", ["file", "set", "record"])
def test_a_judgement_holds_for_its_file_values_and_record(
    change: str, project: Project, answer: Any, monkeypatch: pytest.MonkeyPatch
):
    keep(project, RUN, DECIDED)
    asked: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: asked.append(command))
    words = f"evsys run {RUN}"
    if change == "file":
        (project.root / RUN).write_text("version: 1\nname: other\n")
    elif change == "set":
        words += " --set name=other"
    else:
        (project.experiments / "20260101-000000-new").mkdir(parents=True)
    assert answer("pre-tool-use", call(project, words))[0] == 0
    assert asked[0][1:5] == ["-m", "evsys_agents.knowledge", str(project.root), "judge"]


def test_a_written_experiment_file_is_judged_ahead(project: Project, answer: Any):
    document = {"tool_name": "Write", "tool_input": {"file_path": RUN}, "cwd": str(project.root)}
    assert answer("post-tool-use", document) == (0, "", "")
    answer("post-tool-use", call(project, f"evsys plan {RUN} --json"))
    assert answer.started == [["judge", str(project.root / RUN)]] * 2


# --- briefings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", ["session-start", "pre-compact"])
def test_a_briefing_names_what_runs_and_what_is_known(
    event: str, project: Project, running: str, answer: Any
):
    text = "# lab: what is known\n" + "".join(
        f"- experiment {number} " + "x" * 80 + "\n" for number in range(90)
    )
    _keep(project, "known.json", {"stamp": "older", "at": "2026-01-01 00:00 UTC", "text": text})
    code, out, err = answer(event, {"cwd": str(project.root)})
    assert (code, err) == (0, "")
    assert running in out
    assert "More rows help." in out
    assert "# lab: what is known" in out
    assert "As of 2026-01-01" in out
    assert len(out.encode()) <= TOKENS * 4 + 1
    assert answer.started == [["refresh"]]


def test_a_current_briefing_says_nothing_of_its_age(project: Project, answer: Any):
    _keep(project, "known.json", {"stamp": project.stamp(), "at": "now", "text": "All of it."})
    _, out, _ = answer("session-start", {"cwd": str(project.root)})
    assert "All of it." in out
    assert "As of" not in out
    assert "Nothing is running." in out
    assert answer.started == []


def test_cursor_gets_a_briefing_as_json(project: Project, answer: Any):
    _, out, _ = answer("session-start", {"workspace_roots": [str(project.root)]}, "--host", "cursor")
    assert "Nothing is running." in json.loads(out)["additional_context"]


def test_a_call_imports_nothing_but_the_standard_library_and_the_root_finder(project: Project):
    (project.root / ".evsys/agents").mkdir(parents=True)  # else the settings mark the project
    code = (
        "import json, sys; before = set(sys.modules); from evsys_agents.hook import main; main(['pre-tool-use']); "
        "sys.stderr.write(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(call(project, "ls")).encode(),
        capture_output=True,
        check=True,
    )
    names = {name.partition(".")[0] for name in json.loads(done.stderr)} - set(sys.stdlib_module_names)
    assert names == {"evsys_agents", "evsys_runtime"}
    assert not {"asyncio", "subprocess", "hashlib", "tomllib"} & set(json.loads(done.stderr))

"""`evsys-hook EVENT`: what a coding agent's host runs before and after tool calls, at its start and before compaction.

Standard input is the host's JSON. Exit codes are those of Claude Code's hook format, which Codex and Cursor share: 0 lets the call
pass, 2 refuses it with the reason on standard error, and 1 is a failure of the hook itself, which hosts show and then continue.
Outside of a project every call passes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evsys_agents.calls import Call, call_of, run_requests
from evsys_agents.gates import Veto, asked_gates, judgement_key, read_judgement, vetoes_of
from evsys_agents.project import Project

__all__ = ["main"]

PASSED, FAILED, REFUSED = 0, 1, 2
EVENTS = ("session-start", "pre-compact", "pre-tool-use", "post-tool-use")
OFF = "EVSYS_HOOKS"
"""If this variable is `off`, every call passes and nothing is printed."""

JUDGE_SECONDS = 20
"""The longest that an experiment file is judged; the run itself reports the same as warnings."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer one event of a host."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    host = "claude"
    if "--host" in words[:-1]:
        place = words.index("--host")
        host = words[place + 1]
        del words[place : place + 2]
    if len(words) != 1 or words[0] not in EVENTS:
        return _fail(f"usage: evsys-hook {{{'|'.join(EVENTS)}}} [--host HOST] < JSON")
    if os.environ.get(OFF, "").casefold() == "off":
        return PASSED
    try:
        document = json.loads(sys.stdin.buffer.read() or b"{}")
        if not isinstance(document, dict):
            return _fail(f"expected a JSON object on standard input, got {type(document).__name__}")
        return _answer(words[0], host, document)
    except Exception as exc:  # a host must get an exit code that it understands, whatever went wrong here
        return _fail(f"{type(exc).__name__}: {exc}")


def _fail(message: str) -> int:
    """Report a failure of the hook, which no host takes for a refusal."""
    sys.stderr.write(f"evsys-hook: {message}; the call wasn't checked\n")
    return FAILED


def _answer(event: str, host: str, document: Mapping[str, Any]) -> int:
    call = call_of(document)
    project = Project.around(call.cwd)
    if project is None:
        return PASSED
    if event in ("session-start", "pre-compact"):
        return _brief(project, event, host)
    if event == "post-tool-use":
        return _prepare(project, call)
    return _check(project, call, host)


def _brief(project: Project, event: str, host: str) -> int:
    from evsys_agents.briefing import briefing, is_stale

    text = briefing(project)
    if host == "cursor":
        key = "additional_context" if event == "session-start" else "user_message"
        text = json.dumps({key: text})
    sys.stdout.write(text + "\n")
    if is_stale(project):
        _start(project, ["refresh"])
    return PASSED


def _check(project: Project, call: Call, host: str) -> int:
    gates = list(asked_gates(call))
    if not gates:
        return PASSED
    judged = [(config, _judgement(project, call, config, sets)) for config, sets in run_requests(call)]
    found = list(vetoes_of(call, project, judged))
    from evsys_agents.vetoes import count_call, record_veto

    for gate in gates:
        count_call(project, gate)
    if not found:
        return PASSED
    for veto in found:
        record_veto(project, veto, host=host, tool=call.tool)
    reason = "\n".join(f"evsys: {veto.reason}" for veto in found)
    if host == "cursor":
        sys.stdout.write(
            json.dumps({"permission": "deny", "user_message": reason, "agent_message": reason}) + "\n"
        )
    sys.stderr.write(reason + "\n")
    return REFUSED


def _judgement(project: Project, call: Call, config: str, sets: Sequence[str]) -> Sequence[Veto]:
    """The reasons against the arms of an experiment file: as it was judged before, else after another process judges it."""
    path = str(Path(call.cwd, config))
    try:
        key = judgement_key(Path(path).read_bytes(), sets)
    except OSError:
        return ()  # `evsys run` reports it
    stamp = project.stamp()
    kept = read_judgement(project, key, stamp)
    if kept is not None:
        return kept
    import subprocess  # costs as much as all of the rest, and is seldom needed

    subprocess.run(
        _knowledge(project, ["judge", path, *sets]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=JUDGE_SECONDS,
        check=False,
    )
    return read_judgement(project, key, stamp) or ()


def _prepare(project: Project, call: Call) -> int:
    """Judge an experiment file as soon as it is written or planned, so that its run needn't wait for that."""
    written = [path for path in call.edits if path.endswith((".yaml", ".yml"))]
    for command in call.commands:
        if command.program == "evsys" and {"validate", "plan", "new-experiment"} & set(command.words[1:2]):
            written += [word for word in command.words[2:] if word.endswith((".yaml", ".yml"))]
    for path in written[:4]:
        if project.relative(path, call.cwd) is not None:
            _start(project, ["judge", str(Path(call.cwd, path))])
    return PASSED


def _knowledge(project: Project, words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "evsys_agents.knowledge", str(project.root), *words]


def _start(project: Project, words: Sequence[str]) -> None:
    """Compute something in a process of its own, which outlives this one."""
    import subprocess

    subprocess.Popen(
        _knowledge(project, words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


if __name__ == "__main__":
    sys.exit(main())

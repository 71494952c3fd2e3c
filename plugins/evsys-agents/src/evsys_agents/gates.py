"""The gates: what a coding agent may not do while an experiment runs, with sealed rows, and with arms whose outcome is known."""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from evsys_agents.calls import Call, Command, run_requests
from evsys_agents.project import Project, Running

__all__ = ["Veto", "asked_gates", "judgement_key", "read_judgement", "vetoes_of"]

_HARMLESS = frozenset(
    {
        *(
            "basename",
            "chmod",
            "chown",
            "cd",
            "dirname",
            "du",
            "echo",
            "evsys",
            "file",
            "find",
            "ls",
            "md5sum",
        ),
        *(
            "mkdir",
            "printf",
            "pwd",
            "realpath",
            "rm",
            "rmdir",
            "sha256sum",
            "stat",
            "test",
            "touch",
            "tree",
            "wc",
            "[",
        ),
    }
)
"""Programs that print no contents of the files they are given."""

_ONLY_READS = _HARMLESS - {"chmod", "chown", "rm", "rmdir", "touch", "find"} | {
    *(
        "cat",
        "cmp",
        "diff",
        "egrep",
        "fgrep",
        "grep",
        "head",
        "jq",
        "less",
        "more",
        "od",
        "rg",
        "sort",
        "tail",
        "uniq",
        "xxd",
    ),
}
_SEARCHES = frozenset({"grep", "egrep", "fgrep", "rg", "ag", "ack"})
_QUIET_GIT = frozenset({"add", "commit", "ls-files", "mv", "rm", "status"})
_READING_GIT = frozenset({"add", "blame", "commit", "diff", "grep", "log", "ls-files", "show", "status"})
_GLOB = re.compile(r"[*?\[]")
_REGISTERED = re.compile(r"register_verifier(?:_fn)?\(\s*[\"']([^\"']+)[\"']")
_MOST_OF_TASKS = 1 << 20
_MOST_MATCHES = 1000


class Veto(NamedTuple):
    """A refused call: the gate, what it concerns, why, and the experiment that the reason comes from."""

    gate: str
    target: str
    reason: str
    experiment: str | None = None


def asked_gates(call: Call) -> Iterator[str]:
    """The gates that a call has to pass."""
    if call.edits or call.commands:
        yield "benchmark"
    if call.reads or call.commands:
        yield "sealed"
    if any(True for _ in run_requests(call)):
        yield "run"


def vetoes_of(call: Call, project: Project, judged: Sequence[tuple[str, Sequence[Veto]]]) -> Iterator[Veto]:
    """Why a call is refused, if it is.

    Args:
        call: the tool call.
        project: the one that it is made in.
        judged: the experiment files that it runs, each with what is known against its arms.
    """
    yield from _edits(call, project)
    yield from _reads(call, project)
    for _, found in judged:
        yield from found


def judgement_key(config: bytes, overrides: Sequence[str]) -> str:
    """The name under which the outcome of an experiment file's judgement is kept."""
    import hashlib  # seldom needed

    return hashlib.sha256(config + b"\0" + "\0".join(overrides).encode()).hexdigest()[:32]


# --- benchmarks and verifiers of running experiments ----------------------------------------------------------------------


def _edits(call: Call, project: Project) -> Iterator[Veto]:
    named = [*call.edits, *(word for command in call.commands for word in _write_targets(command))]
    places = {path: word for word in named if (path := project.relative(word, call.cwd)) not in (None, ".")}
    running = project.running() if places else []
    for experiment in running:
        resolved = experiment.document("resolved.json")
        protected = list(_benchmark_places(resolved.get("benchmarks") or ()))
        for path in places:
            assert path is not None
            if any(_within(path, place) or _within(place, path) for place in protected):
                what = "a benchmark"
            elif (
                path.startswith("src/")
                and path.endswith(".py")
                and _verifies(path, project, experiment, protected)
            ):
                what = "a verifier"
            else:
                continue
            reason = (
                f"{path} is {what} of {experiment.experiment_id}, which is running: its scores before and after the "
                f"change would not be comparable. Wait for its end (evsys wait {experiment.experiment_id}) or stop it, "
                "or make a new version under another name."
            )
            yield Veto("benchmark", path, reason, experiment.experiment_id)


def _write_targets(command: Command) -> Iterator[str]:
    """The words of a command that may name a file it changes."""
    yield from command.outputs
    reading = command.program in _ONLY_READS
    if command.program == "sed":
        reading = not any(word.startswith(("-i", "--in-place")) for word in command.words)
    if command.program == "git":
        reading = set(command.words[1:2]) <= _READING_GIT
    if not reading:
        yield from _words(command)


def _words(command: Command) -> Iterator[str]:
    for word in command.words[1:]:
        for part in {word, word.rpartition("=")[2], word.rpartition(":")[2]}:
            if part and not part.startswith("-"):
                yield part


def _benchmark_places(entries: Sequence[dict[str, object]]) -> Iterator[str]:
    for entry in entries:
        if path := entry.get("path"):
            yield os.path.normpath(str(path))
        elif name := entry.get("name"):
            yield from (f"data/{folder}/{name}" for folder in ("validation", "benchmark"))
        if identity := entry.get("id"):
            yield f".evsys/cache/benchmarks/{identity}"


def _verifies(path: str, project: Project, experiment: Running, protected: Sequence[str]) -> bool:
    """Whether a module registers a verifier that the experiment's tasks or arms name."""
    try:
        text = (project.root / path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    names = [f'"{name}"' for name in _REGISTERED.findall(text)]
    if "register_verifier" not in text:
        return False
    if not names:  # named by its class or function: it can't be known which tasks use it
        return True
    texts = [(experiment.folder / "resolved.json").read_text(encoding="utf-8")]
    for place in protected:
        for file in (project.root / place, project.root / place / "tasks.jsonl"):
            if file.is_file():
                with file.open(encoding="utf-8", errors="replace") as stream:
                    texts.append(stream.read(_MOST_OF_TASKS))
    return any(name in each for name in names for each in texts)


# --- sealed rows ----------------------------------------------------------------------------------------------------------


def _reads(call: Call, project: Project) -> Iterator[Veto]:
    named = [(word, False) for word in call.reads]
    if call.tool == "Glob":  # prints names
        named = []
    for command in call.commands:
        quiet = command.program in _HARMLESS or (
            command.program == "git" and set(command.words[1:2]) <= _QUIET_GIT
        )
        if not quiet:
            named += [(word, command.program in _SEARCHES) for word in _words(command)]
    if not named:
        return
    sealed = project.sealed()
    for word, searches in named:
        for path in _paths_of_word(word, call.cwd, project):
            opened = searches or (project.root / path).is_dir()
            place = next((place for place in sealed if _is_sealed(path, place, opened=opened)), None)
            if place is not None:
                reason = (
                    f"{path} holds sealed rows ({place}): an agent that has read them can't be measured by them. "
                    "Select on the validation set; `evsys` scores the sealed tasks itself, with a `split: test` entry."
                )
                yield Veto("sealed", path, reason)
                return


def _paths_of_word(word: str, cwd: str, project: Project) -> Iterator[str]:
    """The paths that a word means, relative to the root: what a pattern matches now, or the word as it is."""
    words = [word]
    if _GLOB.search(word):
        import glob  # seldom needed

        words = glob.glob(os.path.join(cwd, word))[:_MOST_MATCHES]  # noqa: PTH118, PTH207 - pathlib refuses absolute patterns
    for each in words:
        path = project.relative(each, cwd)
        if path not in (None, "."):
            yield str(path)


def _is_sealed(path: str, place: str, *, opened: bool) -> bool:
    """Whether a path is at or below a sealed place, or for a folder that is opened, above one inside of `data/`."""
    parts, pattern = path.split("/"), place.rstrip("/").split("/")
    inside = len(parts) >= len(pattern) and _match(parts, pattern)
    above = opened and len(parts) < len(pattern) and parts[0] == "data" and _match(parts, pattern)
    return inside or above


def _match(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    return all(fnmatch.fnmatchcase(part, wanted) for part, wanted in zip(parts, pattern, strict=False))


def _within(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}/")


# --- memory of judgements -------------------------------------------------------------------------------------------------


def read_judgement(project: Project, key: str, stamp: str) -> list[Veto] | None:
    """The reasons against an experiment file; None if it was never judged, or if the record has changed since."""
    try:
        kept = json.loads((project.folder / "judged" / f"{key}.json").read_bytes())
        found = [Veto(*each) for each in kept["vetoes"]]
        if kept["stamp"] == stamp:
            return found
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None

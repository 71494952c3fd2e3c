"""A tool call of a coding agent, in one shape for all hosts: the commands it runs, and the files it names.

Hosts send JSON on standard input. Claude Code and Codex name shell commands `Bash`, Cursor `Shell`; Codex edits with patches. Only the
standard library, and little of it, since this is imported for every tool call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Call", "Command", "call_of", "run_requests"]

SHELLS = frozenset({"Bash", "Shell", "shell", "local_shell", "exec_command", "run_terminal_cmd"})
EDITS = frozenset(
    {
        "Edit",
        "MultiEdit",
        "Write",
        "NotebookEdit",
        "apply_patch",
        "Delete",
        "StrReplace",
        "edit_file",
        "search_replace",
    }
)
READS = frozenset({"Read", "Grep", "Glob", "read_file", "grep_search"})

_PATHS = ("file_path", "path", "notebook_path", "target_file", "filePath")
_COMMANDS = ("command", "cmd")
_PATCHED = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)
_SEPARATORS = re.compile(r"[;&|()\n]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_WRAPPERS = frozenset(
    {"command", "env", "exec", "nice", "nohup", "stdbuf", "sudo", "time", "timeout", "xargs"}
)
_RUNNERS = frozenset({"poetry", "pdm", "hatch", "uv"})
_SHELL_NAMES = frozenset({"bash", "dash", "sh", "zsh"})


class Command(NamedTuple):
    """A simple command: the words of its call, and the files that its output goes to."""

    words: tuple[str, ...]
    outputs: tuple[str, ...] = ()

    @property
    def program(self) -> str:
        """The name of the program, without its folder."""
        return Path(self.words[0]).name if self.words else ""


class Call(NamedTuple):
    """A tool call: `edits` and `reads` are paths as the agent wrote them, `commands` those of a shell.

    `tool` is the host's name of the tool; `arguments` what it was called with.
    """

    tool: str
    cwd: str
    edits: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()
    arguments: Mapping[str, Any] = {}


def call_of(document: Mapping[str, Any]) -> Call:
    """The call in what a host sent; one that concerns nothing for a tool that neither edits, reads nor runs anything."""
    tool = str(document.get("tool_name") or "")
    arguments = _mapping(document.get("tool_input"))
    cwd = _first(arguments, ("working_directory", "workdir")) or str(document.get("cwd") or "")
    roots = document.get("workspace_roots")
    cwd = cwd or (str(roots[0]) if isinstance(roots, list) and roots else str(Path.cwd()))
    named = tuple(text for key in _PATHS if (text := _first(arguments, (key,))))
    text = _command_text(arguments)
    if tool in SHELLS or (tool not in EDITS | READS and text and not named):
        return Call(tool, cwd, commands=tuple(_commands(text)), arguments=arguments)
    if tool in EDITS:
        return Call(tool, cwd, edits=named or tuple(_PATCHED.findall(text)), arguments=arguments)
    if tool in READS:
        return Call(tool, cwd, reads=named, arguments=arguments)
    return Call(tool, cwd, arguments=arguments)


def _mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {"command": value}
    return value if isinstance(value, dict) else {}


def _first(arguments: Mapping[str, Any], keys: Sequence[str]) -> str:
    return next((value for key in keys if isinstance(value := arguments.get(key), str) and value), "")


def _command_text(arguments: Mapping[str, Any]) -> str:
    """The shell text; of a list of words, as Codex gives them, what a shell would make the same words of."""
    for key in (*_COMMANDS, "input", "patch"):
        value = arguments.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value:
            import shlex

            return shlex.join(map(str, value))
    return ""


# --- shell text -----------------------------------------------------------------------------------------------------------


def _commands(text: str, depth: int = 3) -> Iterator[Command]:
    """The simple commands of a shell text, those given to another shell included."""
    for words in _split(text):
        command = _simple_command(words)
        if depth and command.program in _SHELL_NAMES and "-c" in command.words[:-1]:
            yield from _commands(command.words[command.words.index("-c") + 1], depth - 1)
        elif command.words or command.outputs:
            yield command


def _split(text: str) -> Iterator[list[str]]:
    import shlex

    lexer = shlex.shlex(
        text.replace("\\\n", " ").replace("\n", " ; "), posix=True, punctuation_chars="();<>|&"
    )
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        for token in lexer:
            if token.strip("();|&"):
                words.append(token)
            elif words:
                yield words
                words = []
    except ValueError:  # a quote without an end, as in a here-document: take the words as they come
        for part in _SEPARATORS.split(text):
            if part.split():
                yield [word.strip("'\"") for word in part.split()]
        return
    if words:
        yield words


def _simple_command(words: list[str]) -> Command:
    """A command without the assignments and programs in front of it, and with its redirections taken out."""
    plain: list[str] = []
    outputs: list[str] = []
    following = iter(words)
    for word in following:
        if set(word) <= set("<>&") and ">" in word:
            outputs.append(next(following, ""))
        elif "<" in word and set(word) <= set("<"):
            plain.append(next(following, ""))
        else:
            plain.append(word)
    while plain:
        name = Path(plain[0]).name
        if _ASSIGNMENT.match(plain[0]) or (name in _WRAPPERS and len(plain) > 1):
            plain = plain[1:]
        elif name in _RUNNERS and plain[1:2] == ["run"]:
            plain = plain[2:]
        elif plain[0].startswith("-") or plain[0].rstrip("smhd").replace(".", "").isdigit():
            plain = plain[1:]  # an option, or the number, of what was in front
        else:
            break
    return Command(tuple(plain), tuple(filter(None, outputs)))


# --- runs -----------------------------------------------------------------------------------------------------------------


def run_requests(call: Call) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The experiment files that a call runs for real, each with the values that `--set` overrides."""
    for command in call.commands:
        words = list(command.words)
        if command.program.startswith("python") and words[1:3] == ["-m", "evsys_cli.main"]:
            words = ["evsys", *words[3:]]
        elif command.program.startswith("python") and words[1:] and Path(words[1]).name == "run.py":
            yield str(Path(words[1]).parent / "config.yaml"), ()
        if words and Path(words[0]).name == "evsys" and "run" in words[1:3]:
            yield from _evsys_run(words[words.index("run") + 1 :])
    if call.tool.startswith("mcp") or call.tool.startswith("MCP"):
        config = _first(call.arguments, ("config", "experiment_file"))
        if call.tool.endswith(("run", "plan")) and config:
            sets = call.arguments.get("set") or call.arguments.get("overrides") or ()
            yield config, tuple(map(str, sets)) if isinstance(sets, list) else ()


def _evsys_run(words: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    config, overrides = "", []
    following = iter(words)
    for word in following:
        if word in {"--dry", "--resume", "-h", "--help"}:
            return
        if word == "--set":
            overrides.append(next(following, ""))
        elif word.startswith("--set="):
            overrides.append(word.removeprefix("--set="))
        elif not word.startswith("-") and not config:
            config = word
    if config:
        yield config, tuple(overrides)

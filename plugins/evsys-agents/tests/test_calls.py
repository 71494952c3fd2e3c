"""What hosts send is read in one shape."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys_agents.calls import call_of, run_requests


def shell(text: str, tool: str = "Bash"):
    return call_of({"tool_name": tool, "tool_input": {"command": text}, "cwd": "/lab"})


def programs(text: str) -> list[tuple[str, ...]]:
    return [command.words for command in shell(text).commands]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cat a b", [("cat", "a", "b")]),
        ("cd x && cat a; ls | wc -l", [("cd", "x"), ("cat", "a"), ("ls",), ("wc", "-l")]),
        ("A=1 nohup time cat a &", [("cat", "a")]),
        ("timeout 30s cat a", [("cat", "a")]),
        ("uv run evsys run c.yaml", [("evsys", "run", "c.yaml")]),
        ("bash -c 'cat a && head b'", [("cat", "a"), ("head", "b")]),
        ("(cat a)\ncat b", [("cat", "a"), ("cat", "b")]),
        ("cat \\\n  a", [("cat", "a")]),
        ("wc -l < a", [("wc", "-l", "a")]),
        ("echo 'it is", [("echo", "it", "is")]),
        ("", []),
    ],
)
def test_a_shell_text_is_split_into_simple_commands(text: str, words: list[tuple[str, ...]]):
    assert programs(text) == words


def test_redirections_are_outputs():
    (command,) = shell("python make.py > data/x.jsonl 2>> log").commands
    assert command.outputs == ("data/x.jsonl", "log")
    assert command.words[:2] == ("python", "make.py")


@given(st.text(max_size=200))
def test_any_text_is_read(text: str):
    for command in shell(text).commands:
        assert command.words or command.outputs


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from(["Bash", "Edit", "Read", "Shell", "apply_patch", "mcp__evsys__run", ""]),
    st.dictionaries(st.sampled_from(["command", "file_path", "path", "config", "set"]), json_values)
    | json_values,
)
def test_any_arguments_are_read(tool: str, arguments: object):
    call = call_of({"tool_name": tool, "tool_input": arguments, "cwd": "/lab"})
    assert call.tool == tool
    list(run_requests(call))


@pytest.mark.parametrize("tool", ["Write", "Edit"])
def test_edits_of_claude_and_cursor_name_a_file(tool: str):
    for key in ("file_path", "path"):
        assert call_of({"tool_name": tool, "tool_input": {key: "src/a.py"}, "cwd": "/lab"}).edits == (
            "src/a.py",
        )


def test_a_patch_of_codex_names_its_files():
    patch = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n+y\n*** Add File: b.txt\n+z\n*** End Patch\n"
    call = call_of({"tool_name": "apply_patch", "tool_input": {"command": patch}, "cwd": "/lab"})
    assert call.edits == ("src/a.py", "b.txt")


def test_a_list_of_words_is_a_command():
    call = call_of({"tool_name": "shell", "tool_input": {"command": ["cat", "a b"]}, "cwd": "/lab"})
    assert [command.words for command in call.commands] == [("cat", "a b")]


def test_arguments_may_be_json_text():
    call = call_of({"tool_name": "MCP:plan", "tool_input": json.dumps({"config": "c.yaml"}), "cwd": "/lab"})
    assert list(run_requests(call)) == [("c.yaml", ())]


def test_cursor_names_the_workspace_instead_of_a_folder():
    assert call_of({"tool_name": "Read", "workspace_roots": ["/lab"]}).cwd == "/lab"


@pytest.mark.parametrize(
    ("text", "requests"),
    [
        ("evsys run c.yaml", [("c.yaml", ())]),
        ("cd x && .venv/bin/evsys run --json c.yaml --set a=1 --set=b=2", [("c.yaml", ("a=1", "b=2"))]),
        ("python -m evsys_cli.main run c.yaml", [("c.yaml", ())]),
        ("python experiments/x/run.py", [("experiments/x/config.yaml", ())]),
        ("evsys run c.yaml --dry", []),
        ("evsys run --help", []),
        ("evsys plan c.yaml", []),
        ("echo evsys run c.yaml", []),
    ],
)
def test_runs_are_found_with_their_overrides(text: str, requests: list[tuple[str, tuple[str, ...]]]):
    assert list(run_requests(shell(text))) == requests

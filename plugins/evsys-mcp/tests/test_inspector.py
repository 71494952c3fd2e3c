"""The server driven by MCP Inspector's command line, a client written by others. `nox -s mcp` installs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

INSPECTOR = os.environ.get("EVSYS_MCP_INSPECTOR")

pytestmark = pytest.mark.skipif(INSPECTOR is None, reason="EVSYS_MCP_INSPECTOR isn't set; run `nox -s mcp`")

SERVER = [sys.executable, "-m", "evsys_cli.main", "mcp"]


@pytest.fixture
def inspect(project):
    def call(method, *words):
        command = [INSPECTOR, "--cli", "--connect-timeout", "150000", *SERVER, "--method", method, *words]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
        return json.loads(done.stdout)

    return call


def test_tools_are_listed(inspect):
    names = [tool["name"] for tool in inspect("tools/list")["tools"]]
    assert names[:4] == ["context", "next", "plan", "run"]


def test_a_tool_answers(inspect):
    done = inspect("tools/call", "--tool-name", "show", "--tool-arg", "experiment=last")
    assert done["structuredContent"]["experiment"]["status"] == "invalid"
    assert json.loads(done["content"][0]["text"]) == done["structuredContent"]


def test_an_unknown_argument_is_an_error(inspect):
    done = inspect("tools/call", "--tool-name", "show", "--tool-arg", "experimnt=last")
    assert done["isError"]
    assert "did you mean 'experiment'" in done["content"][0]["text"]


def test_the_whole_of_a_shortened_answer_has_a_template(inspect):
    (template,) = inspect("resources/templates/list")["resourceTemplates"]
    assert template["uriTemplate"] == "evsys://answers/{id}"

"""The command as agents start it, over real standard input and output."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from mcp import Client, StdioServerParameters

ARGS = ["-m", "evsys_cli.main", "mcp"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_experiment_is_planned_run_and_read(project, mode):
    import os

    server = StdioServerParameters(command=sys.executable, args=ARGS, cwd=project, env=dict(os.environ))
    async with Client(server, mode=mode) as client:
        planned = await client.call_tool("plan", {"config": "config.yaml", "set": [f"name=over-{mode}"]})
        token = planned.structured_content["token"]
        launched = (await client.call_tool("run", {"token": token})).structured_content
        waited = await client.call_tool("wait", {"experiment": launched["experiment_id"]})
        assert waited.structured_content["reason"] == "end"
        shown = await client.call_tool("show", {"experiment": launched["experiment_id"]})
        assert shown.structured_content["experiment"]["name"] == f"over-{mode}"
        assert (await client.call_tool("run", {"token": token})).is_error


def test_standard_output_has_the_protocol_alone(project):
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    asked = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "schema", "arguments": {}}},
    ]
    with subprocess.Popen(
        [sys.executable, *ARGS], cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for message in asked:
            process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
        assert process.stdout.read() == ""
    assert process.returncode == 0
    assert [answer["id"] for answer in answers] == [1, 2]
    assert "experiment" in answers[1]["result"]["structuredContent"]["names"]

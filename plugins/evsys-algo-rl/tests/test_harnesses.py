"""Agents of all kinds, each trained for a few steps on exactly what the sampler said."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import aiohttp
import pytest
from harness_runs import by_seed, sampled_turns, train, trained_turns

from evsys.types import Message
from evsys_runtime.evaluation.agents import FunctionAgent
from evsys_std.agents import ChatAgent

ANSWERS = by_seed("hello ab", "café! abc")
CALL = '<tool_call>{"name": "look", "arguments": {"at": "abc"}}</tool_call>'


def user(text):
    return Message(role="user", content=text)


async def in_process(task, model, ctx):
    """A user's own function: two turns."""
    messages = [user(task.instruction)]
    for asked in ("go on", None):
        [completion] = await model.generate(messages, ctx.sampling)
        # What a framework does that keeps texts only.
        messages.append(Message(role="assistant", content=completion.message.content))
        messages.append(user(asked or ""))
    return completion.message.content


async def ask(session, endpoint, messages, **body):
    asked = {"model": endpoint.model, "messages": messages, **body}
    async with session.post(f"{endpoint.base_url}/chat/completions", json=asked) as response:
        answer = await response.json()
    return answer["choices"][0]["message"]


async def over_http(task, ctx):
    """Knows an address, and nothing of evsys."""
    endpoint = await ctx.endpoint()
    messages = [{"role": "user", "content": task.instruction}]
    async with aiohttp.ClientSession() as session:
        for asked in ("go on", "and on"):
            messages.append(await ask(session, endpoint, messages))
            messages.append({"role": "user", "content": asked})
        return (await ask(session, endpoint, messages))["content"]


PROGRAM = """
import json, os, sys, time, urllib.request

assert "evsys" not in sys.modules
messages = [{"role": "user", "content": sys.argv[1]}]
for asked in ("go on", None):
    body = {"model": sys.argv[2], "messages": messages}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    answer = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    messages += [answer, {"role": "user", "content": asked}]
    if asked and len(sys.argv) > 3:
        print("waiting", flush=True)
        time.sleep(100)
print(json.dumps(answer["content"]))
"""

OPENAI_PROGRAM = """
import json, sys
import openai

client = openai.OpenAI()
messages = [{"role": "user", "content": sys.argv[1]}]
tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
for _ in range(3):
    answer = client.chat.completions.create(model=sys.argv[2], messages=messages, tools=[tool]).choices[0].message
    messages.append(answer)
    if not answer.tool_calls:
        messages.append({"role": "user", "content": "go on"})
    for call in answer.tool_calls or ():
        said = f"nothing at {json.loads(call.function.arguments)['at']}"
        messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
parts = client.chat.completions.create(model=sys.argv[2], messages=messages, tools=[tool], stream=True)
print(json.dumps("".join(part.choices[0].delta.content or "" for part in parts if part.choices)))
"""


async def in_a_process(python, program, *arguments, endpoint, started=None):
    env = {**os.environ, **endpoint.env, "PYTHONUTF8": "1"}
    process = await asyncio.create_subprocess_exec(
        *(python, "-c", program, *arguments),
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        if started is not None:
            await started(process)
        said, complaint = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RuntimeError(f"the program ended with {process.returncode}: {complaint.decode()[-300:]}")
    return json.loads(said.decode().splitlines()[-1])


async def black_box(task, ctx):
    """A program that is told an address by its environment."""
    endpoint = await ctx.endpoint()
    return await in_a_process(sys.executable, PROGRAM, task.instruction, endpoint.model, endpoint=endpoint)


def test_a_users_async_function(tmp_path, registry):
    client, _ = train(tmp_path / "run", registry, FunctionAgent(in_process), ANSWERS)
    assert len(client.log) == 2 * 2 * 2 * 2
    assert trained_turns(client) == sampled_turns(client)
    assert len(client.data) == 8


def test_max_turns_binds_whoever_acts_and_is_told(tmp_path, registry):
    for name, agent in (("function", in_process), ("program", over_http)):
        client, rollouts = train(
            tmp_path / name, registry, FunctionAgent(agent), ANSWERS, steps=1, max_turns=1
        )
        assert len(client.log) == 2 * 2
        assert trained_turns(client) == sampled_turns(client)
        assert [(rollout["truncated"], rollout["error"]) for rollout in rollouts] == [(True, None)] * 4


def test_the_chat_agent_with_tools_over_several_turns(tmp_path, registry):
    def says(prompt, seed):
        return CALL if "nothing at abc" not in prompt else ("hello ab", "abc")[seed % 2]

    agent = ChatAgent(tools=("harness_runs:look",))
    client, _ = train(tmp_path / "run", registry, agent, says, max_turns=3)
    assert len(client.log) == 2 * 2 * 2 * 2
    assert trained_turns(client) == sampled_turns(client)
    assert len(client.data) == 8


def test_an_agent_that_knows_an_address_alone(tmp_path, registry):
    client, rollouts = train(tmp_path / "run", registry, FunctionAgent(over_http), ANSWERS)
    assert len(client.log) == 2 * 2 * 2 * 3
    assert trained_turns(client) == sampled_turns(client)
    assert len(client.data) == 8
    assert sorted(rollout["policy_version"] for rollout in rollouts) == [0] * 4 + [1] * 4


def test_a_program_that_is_told_an_address_by_its_environment(tmp_path, registry):
    client, _ = train(tmp_path / "run", registry, FunctionAgent(black_box), ANSWERS, steps=1)
    assert len(client.log) == 2 * 2 * 2
    assert trained_turns(client) == sampled_turns(client)
    assert len(client.data) == 4


def test_killing_the_agents_process_in_the_midst_of_a_rollout_costs_one_rollout(tmp_path, registry):
    killed = []

    async def kill(process):
        assert await process.stdout.readline() == b"waiting\n"
        os.kill(process.pid, signal.SIGKILL)
        killed.append(process.pid)

    async def agent(task, ctx):
        endpoint = await ctx.endpoint()
        one = not killed and ctx.sample_index == 1 and task.task_id == "task-0"
        more = {"started": kill} if one else {}
        arguments = [task.instruction, endpoint.model, *(["wait"] if one else [])]
        return await in_a_process(sys.executable, PROGRAM, *arguments, endpoint=endpoint, **more)

    client, rollouts = train(tmp_path / "run", registry, FunctionAgent(agent), ANSWERS, steps=1, group_size=3)
    assert len(killed) == 1
    [lost] = [rollout for rollout in rollouts if rollout["error"]]
    assert "ended with -9" in lost["error"]
    assert len(lost["turns"]) == 1
    assert len(rollouts) == 6
    assert len(client.data) == 5
    left = sampled_turns(client)
    turn = lost["turns"][0]
    left.remove((turn["prompt_tokens"], turn["tokens"], turn["logprobs"]))
    assert trained_turns(client) == left


@pytest.mark.skipif("EVSYS_OPENAI_PYTHON" not in os.environ, reason="`nox -s openai` has the official client")
def test_the_official_openai_client_in_a_process_of_its_own(tmp_path, registry):
    python = os.environ["EVSYS_OPENAI_PYTHON"]
    assert Path(python).is_file()

    async def agent(task, ctx):
        endpoint = await ctx.endpoint()
        return await in_a_process(python, OPENAI_PROGRAM, task.instruction, endpoint.model, endpoint=endpoint)

    def says(prompt, seed):
        return CALL if seed % 3 == 0 else ("hello ab", "café! abc")[seed % 2]

    client, rollouts = train(tmp_path / "run", registry, FunctionAgent(agent), says)
    assert [rollout["error"] for rollout in rollouts] == [None] * 8
    assert len(client.log) == 2 * 2 * 2 * 4
    assert trained_turns(client) == sampled_turns(client)
    assert len(client.data) == 8

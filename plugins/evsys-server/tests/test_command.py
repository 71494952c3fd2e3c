import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import aiohttp
import pytest
from click.testing import CliRunner
from wire_client import Model, WireClient, datum

from evsys_server.command import serve


@contextmanager
def served(folder, *arguments: str, **environment: str):
    command = [
        sys.executable,
        "-m",
        "evsys_cli.main",
        "serve",
        "--backend",
        "mock",
        "--port",
        "0",
        *arguments,
    ]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if name != "EVSYS_SERVE_KEY"},
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def document(process) -> dict:
    """What it says when it listens: one line, since its output has no end that could be waited for."""
    return json.loads(process.stdout.readline())


def get(url: str, key: str = "") -> dict:
    request = urllib.request.Request(url, headers={"X-API-Key": key})
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_when_it_listens_and_stops_when_told(tmp_path, number):
    with served(tmp_path, "--json", "--quiet") as process:
        ready = document(process)
        assert ready["pid"] == process.pid
        assert (ready["format"], ready["backend"], ready["models"]) == (1, "mock", ["evsys/tiny"])
        assert ready["openai_base_url"] == ready["base_url"] + "/v1"
        assert get(ready["base_url"] + "/api/v1/healthz") == {"status": "ok"}
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (0, "", "")
    assert (tmp_path / ".evsys/server/checkpoints").is_dir()
    assert (tmp_path / ".evsys/server/server.log.jsonl").is_file()


def test_it_speaks_to_people_and_asks_for_the_key_of_the_environment(tmp_path):
    with served(
        tmp_path, "--key-env", "MY_KEY", "--model", "a", "--model", "b", MY_KEY="tml-mine"
    ) as process:
        line = process.stdout.readline()
        assert line.startswith("Serving a, b on http://127.0.0.1:")
        url = line.split()[4]
        models = get(url + "/api/v1/get_server_capabilities", "tml-mine")["supported_models"]
        assert [model["model_name"] for model in models] == ["a", "b"]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(url + "/api/v1/get_server_capabilities", "tml-other")


def test_it_makes_a_key_where_none_is_set_and_prints_it(tmp_path):
    with served(tmp_path) as process:
        url = process.stdout.readline().split()[3]
        name, _, key = process.stdout.readline().split()[-1].partition("=")
        assert name == "EVSYS_SERVE_KEY"
        assert key.startswith("tml-")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(url + "/api/v1/get_server_capabilities", "tml-other")
        assert get(url + "/api/v1/get_server_capabilities", key)["supported_models"]


def test_two_servers_make_two_keys_and_json_has_them(tmp_path):
    keys = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        with served(tmp_path / name, "--json", "--quiet") as process:
            keys.append(document(process)["key"])
    assert len(set(keys)) == 2


def test_a_server_without_a_key_is_asked_for(tmp_path):
    with served(tmp_path, "--json", "--quiet", "--no-key") as process:
        ready = document(process)
        assert ready["key"] is None
        assert get(ready["base_url"] + "/api/v1/get_server_capabilities")["supported_models"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--param", "workers"], "isn't NAME=VALUE"),
        (["--host", "0.0.0.0", "--no-key"], "there is no key"),
        (["--param", "nonsense=1"], "nonsense"),
        (["--backend", "nobody"], "nobody"),
    ],
)
def test_what_cant_be_is_told(tmp_path, arguments, message, monkeypatch):
    monkeypatch.delenv("EVSYS_SERVE_KEY", raising=False)
    result = CliRunner().invoke(serve, ["--directory", str(tmp_path / "d"), "--port", "0", *arguments])
    assert result.exit_code != 0
    assert message in result.output + str(result.exception)


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path):
    async def save(url: str):
        async with aiohttp.ClientSession() as session:
            model = await WireClient(url, session).new_model()
            await model.forward_backward([datum()])
            await model.optim_step()
            before = (await model.forward_backward([datum()], forward_only=True)).metrics
            return (await model.call("save_weights", path="kept"))["path"], before

    async def load(url: str, path: str):
        async with aiohttp.ClientSession() as session:
            client = WireClient(url, session)
            made = await client.promised(
                "load_weights",
                session_id=await client.new_session(),
                model_seq_id=0,
                path=path,
                optimizer=True,
            )
            model = Model(client, "", made["model_id"])
            return (await model.forward_backward([datum()], forward_only=True)).metrics

    with served(tmp_path, "--json", "--quiet", "--no-key") as process:
        path, before = asyncio.run(save(document(process)["base_url"]))
        process.kill()
    with served(tmp_path, "--json", "--quiet", "--no-key") as process:
        assert asyncio.run(load(document(process)["base_url"], path)) == before

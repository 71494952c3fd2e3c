import asyncio
import io
import json
import os
import socket
import time
from pathlib import Path

import aiohttp
import pytest
from wire_client import PROTOBUF, FailedError, WireClient, WireError, datum

from evsys.errors import ConfigError, EvsysError, StoreError
from evsys_runtime.logging import configure, run_logger
from evsys_runtime.rendering.resolve import load_renderer
from evsys_runtime.serving.server import SHUTDOWN_SECONDS
from evsys_server.app import make_app
from evsys_server.limits import Limits
from evsys_server.promises import Promise


async def _serve(folder: Path, **options) -> None:
    async with make_app(directory=folder, **options):
        pass


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "evsys.invalid"])
@pytest.mark.parametrize("key", [None, ""])
def test_an_address_that_others_reach_needs_a_key(tmp_path: Path, host, key):
    with pytest.raises(ConfigError, match="can be reached from other machines"):
        asyncio.run(_serve(tmp_path, host=host, key=key))


def test_a_port_that_is_taken_is_told(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(
            ConfigError, match=r"can.t listen on 127.0.0.1:\d+: [^\[(]*in use; choose another port"
        ):
            asyncio.run(_serve(tmp_path, port=taken.getsockname()[1]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "nobody"}, "nobody"),
        ({"backend": "local", "models": ["none/such"]}, "not in the cache"),
        ({"backend": "local", "params": {"worker": 3}}, "worker"),
    ],
)
def test_what_cant_be_served_is_told_before_it_listens(tmp_path: Path, options, message):
    with pytest.raises(EvsysError, match=message):
        asyncio.run(_serve(tmp_path, **options))


def test_a_key_is_asked_for_and_the_watcher_needs_none(with_server):
    async def work(client):
        statuses = {}
        for name, headers in (("wrong", {"X-API-Key": "tml-other"}), ("none", {"X-API-Key": ""})):
            with pytest.raises(WireError) as refused:
                await client.call("GET", "get_server_capabilities", headers=headers)
            statuses[name] = refused.value.status
        statuses["right"] = len((await client.call("GET", "get_server_capabilities"))["supported_models"])
        health = await client.call("GET", "healthz", headers={"X-API-Key": ""})
        openai = client.url.replace("/api/v1", "/v1/models")
        async with client.session.get(openai) as response:
            statuses["openai"] = response.status
        async with client.session.get(openai, headers={"Authorization": "Bearer tml-secret"}) as response:
            statuses["bearer"] = response.status
        return statuses, health

    statuses, health = with_server(work, key="tml-secret")
    assert statuses == {"wrong": 401, "none": 401, "right": 1, "openai": 401, "bearer": 200}
    assert health == {"status": "ok"}


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8410", "10.0.0.1", "", "[", "localhost.evil.example"]
)
@pytest.mark.parametrize("path", ["/api/v1/checkpoints", "/api/v1/healthz", "/v1/models"])
def test_without_a_key_a_name_that_was_led_here_is_refused(with_server, host, path):
    async def work(client):
        url = client.url.replace("/api/v1", path)
        async with client.session.get(url, headers={"Host": host}) as response:
            return response.status, await response.json()

    status, body = with_server(work)
    assert status == 403
    assert "start it with a key" in str(body["error"])


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://evil.example", 403),
        ("null", 403),
        ("http://127.0.0.1.evil.example", 403),
        ("http://localhost:3000", 200),
        ("http://[::1]:3000", 200),
    ],
)
def test_without_a_key_pages_of_others_are_refused(with_server, origin, status):
    async def work(client):
        headers = {"Origin": origin, "Content-Type": "text/plain"}
        async with client.session.post(f"{client.url}/create_session", data="{}", headers=headers) as answer:
            return answer.status

    assert with_server(work) == status


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:8410", "127.9.9.9", "[::1]:80"])
def test_without_a_key_this_machine_is_served_by_any_of_its_names(with_server, host):
    async def work(client):
        return await client.call("GET", "healthz", headers={"Host": host})

    assert with_server(work)


def test_with_a_key_any_name_may_lead_here(with_server):
    async def work(client):
        headers = {"Host": "models.example", "Origin": "http://page.example"}
        return await client.call("GET", "checkpoints", headers=headers)

    assert with_server(work, key="tml-secret")


def test_a_second_server_on_a_folder_is_refused_and_takes_nothing_away(tmp_path: Path):
    def checkpoints():
        return sorted(tmp_path.rglob("checkpoint.json"))

    async def main():
        async with make_app(directory=tmp_path) as base_url, aiohttp.ClientSession() as session:
            model = await WireClient(base_url, session).new_model()
            await model.sampler()
            before = checkpoints()
            with pytest.raises(StoreError, match=f"is in use by process {os.getpid()} on "):
                await _serve(tmp_path)
            return before, checkpoints()

    before, after = asyncio.run(main())
    assert len(before) == 1
    assert after == before
    asyncio.run(_serve(tmp_path))  # the folder is free again


def test_a_server_that_couldnt_start_leaves_the_folder_free(tmp_path: Path):
    with pytest.raises(EvsysError):
        asyncio.run(_serve(tmp_path, backend="nobody"))
    asyncio.run(_serve(tmp_path))


def test_clients_are_told_how_to_talk(with_server):
    async def work(client):
        config = await client.post("client/config", sdk_version="0.38.0")
        return config, await client.post("client/dynamic_config"), await client.post("telemetry", events=[])

    config, dynamic, telemetry = with_server(work)
    assert config["proto_compress_fwdbwd"] is False
    assert dynamic == {}
    assert telemetry == {"status": "accepted"}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("asample", b"{", 400),
        ("asample", b"[]", 400),
        ("asample", b"{}", 400),
        ("create_model", b'{"session_id": 3}', 400),
        ("optim_step", b'{"model_id": "x", "seq_id": 1}', 404),
        ("optim_step", b'{"model_id": "x", "seq_id": true}', 400),
        ("optim_step", b'{"model_id": "x", "seq_id": 0}', 400),
        ("retrieve_future", b'{"request_id": "nothing"}', 410),
        ("create_session", b'"' + b"x" * 5000 + b'"', 413),
    ],
)
def test_bodies_that_cant_be_are_refused(with_server, path, body, status):
    async def work(client):
        async with client.session.post(f"{client.url}/{path}", data=body) as response:
            return response.status, set(await response.json())

    assert with_server(work, limits=Limits(body_bytes=4000)) == (status, {"error", "category"})


def test_a_conversation_has_a_bound_of_its_own(with_server):
    async def work(client):
        url = client.url.replace("/api/v1", "/v1/chat/completions")
        async with client.session.post(
            url, json={"model": "evsys/tiny", "messages": ["x" * 5000]}
        ) as response:
            return response.status

    assert with_server(work, limits=Limits(conversation_bytes=4000)) == 413


def test_an_answer_that_takes_longer_is_asked_for_again(with_server):
    async def work(client):
        model = await client.new_model()
        promise = await model.send(model.request([datum()], seq_id=2))
        body = {"request_id": promise["request_id"]}
        async with client.session.post(f"{client.url}/retrieve_future", json=body) as response:
            return response.status, await response.json()

    status, answer = with_server(work, limits=Limits(poll_seconds=0.01))
    assert status == 408
    assert (answer["type"], answer["queue_state"]) == ("try_again", "active")


def test_a_binary_answer_isnt_forced_on_who_cant_read_it(with_server):
    async def work(client):
        model = await client.new_model()
        promise = await model.send(model.request([datum()]))
        await client.fetch(promise)
        statuses = []
        for accept in ("application/json", PROTOBUF):
            async with client.session.post(
                f"{client.url}/retrieve_future",
                json={"request_id": promise["request_id"]},
                headers={"Accept": accept},
            ) as response:
                statuses.append(response.status)
        return statuses

    assert with_server(work) == [406, 200]


def test_a_reply_that_was_lost_is_fetched_again(with_server):
    async def work(client):
        model = await client.new_model()
        promise = await model.send(model.request([datum()]))
        return [await client.fetch(promise) for _ in range(3)]

    one, two, three = with_server(work)
    assert one == two == three


def test_a_model_that_learned_answers_openai_clients(with_server):
    async def work(client):
        model = await client.new_model()
        path = (await model.call("save_weights_for_sampler", path="chat"))["path"]
        openai = client.url.replace("/api/v1", "/v1")
        answers = {}
        async with client.session.get(f"{openai}/models") as response:
            names = [one["id"] for one in (await response.json())["data"]]
        for name in (*names, "tinker://x:train:0/sampler_weights/none"):
            body = {
                "model": name,
                "messages": [{"role": "user", "content": "hi"}],
                "max_tokens": 4,
                "seed": 1,
            }
            async with client.session.post(f"{openai}/chat/completions", json=body) as response:
                answers[name] = response.status, (await response.json()).get("choices")
        return path, names, answers

    path, names, answers = with_server(work)
    assert names == ["evsys/tiny", path]
    assert [status for status, _ in answers.values()] == [200, 200, 404]
    assert answers["evsys/tiny"] == answers[path]  # untrained


def test_tokenizer_and_template_are_to_be_had(with_server, tmp_path: Path):
    async def work(client):
        found = await client.call("GET", "evsys/models/evsys/tiny/rendering")
        with pytest.raises(WireError):
            await client.call("GET", "evsys/models/other/rendering")
        return found

    found = with_server(work)
    assert found["model"] == "evsys/tiny"
    assert "<|im_start|>" in found["files"]["chat_template.jinja"]


def test_tokenizer_files_of_a_model_make_a_renderer_elsewhere(tmp_path: Path, monkeypatch):
    from evsys_server.rendering import rendering_files

    tokenizers = pytest.importorskip("tokenizers")
    source, copy = tmp_path / "source", tmp_path / "copy"
    for folder in (source, copy):
        folder.mkdir()
    words = {"hi": 0, "[UNK]": 1, "</s>": 2}
    tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]")).save(
        str(source / "tokenizer.json")
    )
    (source / "tokenizer_config.json").write_text('{"eos_token": "</s>"}', encoding="utf-8")
    (source / "chat_template.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")
    (source / "model.safetensors").write_bytes(b"weights")
    files = rendering_files(str(source))
    for name, content in files.items():
        (copy / name).write_text(content, encoding="utf-8")
    assert sorted(files) == ["chat_template.jinja", "tokenizer.json", "tokenizer_config.json"]
    assert load_renderer(copy).tokenizer.encode("hi") == load_renderer(source).tokenizer.encode("hi") == [0]


def test_a_compressed_body_is_refused(with_server):
    async def work(client):
        async with client.session.post(
            f"{client.url}/forward_backward",
            data=b"\x28\xb5\x2f\xfd",
            headers={"Content-Encoding": "zstd", "Content-Type": PROTOBUF},
        ) as response:
            return response.status

    assert with_server(work) in {400, 415}


def test_a_body_that_isnt_compressed_as_it_says_is_the_clients_fault(with_server):
    async def work(client):
        headers = {"Content-Encoding": "gzip"}
        url = f"{client.url}/create_session"
        async with client.session.post(url, data=b"no gzip", headers=headers) as response:
            return response.status, (await response.json())["category"]

    assert with_server(work) == (400, "user")


def test_a_client_that_goes_away_leaves_the_server_as_it_was(with_server):
    async def work(client):
        model = await client.new_model()
        promise = await model.send(model.request([datum()], seq_id=2))
        async with aiohttp.ClientSession() as other:
            with pytest.raises(TimeoutError):
                async with other.post(
                    f"{client.url}/retrieve_future",
                    json={"request_id": promise["request_id"]},
                    timeout=aiohttp.ClientTimeout(total=0.05),
                ):
                    pass
        await model.forward_backward([datum()], seq_id=1)
        return await client.fetch(promise)

    assert with_server(work)


def test_who_waits_when_the_server_stops_is_told_at_once(tmp_path: Path, monkeypatch):
    async def main():
        arrived, wait = asyncio.Event(), Promise.wait

        async def noticed(self, seconds):
            arrived.set()
            return await wait(self, seconds)

        async with aiohttp.ClientSession() as session:
            async with make_app(directory=tmp_path) as base_url:
                client = WireClient(base_url, session)
                model = await client.new_model()
                waiting = await model.send(model.request([datum()], seq_id=2))
                monkeypatch.setattr(Promise, "wait", noticed)
                fetching = asyncio.create_task(client.fetch(waiting))
                await arrived.wait()
                began = time.perf_counter()
            seconds = time.perf_counter() - began
            with pytest.raises(FailedError, match="has ended"):
                await fetching
            return seconds

    assert asyncio.run(main()) < SHUTDOWN_SECONDS  # the connections weren't waited for


def test_a_key_that_is_no_utf8_is_wrong_and_counted(with_server, tmp_path: Path):
    async def work(client):
        host, _, port = client.url.removeprefix("http://").partition("/")[0].rpartition(":")
        statuses = []
        for path, header in (("api/v1/checkpoints", "X-API-Key: "), ("v1/models", "Authorization: Bearer ")):
            reader, writer = await asyncio.open_connection(host, int(port))
            head = f"GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}".encode()
            writer.write(head + b"\xff\xfe\x80\r\n\r\n")
            statuses.append((await reader.read()).split()[1])
            writer.close()
        return statuses

    path = tmp_path / "log.jsonl"
    log = run_logger(path, configure(console_level=None))
    assert with_server(work, key="tml-secret", log=log) == [b"401", b"401"]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["count"] for line in lines if line["event"] == "key.refused"] == [1, 2]
    assert not any("traceback" in line for line in lines)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("create_session", {"display_name": "x" * 30_000_000}, 413),
        ("create_session", {"display_name": "x" * 5_000}, 400),
        ("create_session", {"sdk_version": "x" * 5_000}, 400),
        ("create_session", {"tags": ["x" * 100] * 200}, 400),
        ("create_session", {"tags": [{"deep": 1}]}, 400),
        ("create_session", {"user_metadata": {"x" * 20_000: "y"}}, 400),
        ("session_heartbeat", {"session_id": "x" * 30_000_000}, 413),
        ("asample", {"sampling_session_id": "x" * 8_000_000}, 413),
        ("asample", {"sampling_session_id": "x" * 2_000_000}, 400),
    ],
)
def test_what_the_server_would_keep_is_bounded(with_server, path, body, status):
    async def work(client):
        sent = io.BytesIO(json.dumps(body).encode())
        async with client.session.post(f"{client.url}/{path}", data=sent) as response:
            return response.status, len(await response.text())

    found, length = with_server(work)
    assert found == status
    assert length < 1_000


def test_a_long_name_comes_back_shortened(with_server):
    async def work(client):
        model = await client.new_model()
        with pytest.raises(FailedError) as failed:
            await model.forward_backward([datum()], loss_fn="x" * 1_000_000)
        return str(failed.value)

    message = with_server(work)
    assert len(message) < 5_000
    assert "more characters" in message


def test_other_requests_are_answered_while_many_tokens_are_sampled(with_server):
    async def work(client):
        session = await client.new_session()
        sampler = await client.post(
            "create_sampling_session", session_id=session, sampling_session_seq_id=0, base_model="evsys/tiny"
        )
        asked = {
            "sampling_session_id": sampler["sampling_session_id"],
            "seq_id": 1,
            "num_samples": 1024,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3]}]},
            "sampling_params": {"max_tokens": 512, "stop": [0]},
        }
        sampling = asyncio.create_task(client.promised("asample", **asked))
        answered = 0
        while not sampling.done():
            await client.call("GET", "healthz")
            answered += not sampling.done()
        await sampling
        return answered

    assert with_server(work) >= 5

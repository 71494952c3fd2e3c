"""The request log of the server."""

import json
import stat

import pytest


@pytest.fixture
def ask():
    def ask(**fields):
        async def work(client):
            url = client.url.replace("/api/v1", "/v1/chat/completions")
            body = {
                "model": "evsys/tiny",
                "messages": [{"role": "user", "content": "hi"}],
                "max_tokens": 3,
                "seed": 1,
            }
            headers = {"X-Conversation-Id": "c-1"}
            async with client.session.post(url, json={**body, **fields}, headers=headers) as response:
                return response.status

        return work

    return ask


def test_a_conversation_is_logged_with_its_answer_and_without_logprobs(tmp_path, with_server, ask):
    assert with_server(ask(logprobs=True, return_token_ids=True), log_requests=True) == 200
    path = tmp_path / "server" / "requests.jsonl"
    [line] = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert line["request"]["messages"] == [{"role": "user", "content": "hi"}]
    assert line["conversation_id"] == "c-1"
    [choice] = line["response"]["choices"]
    assert set(choice) == {"index", "message", "finish_reason"}
    assert choice["message"]["role"] == "assistant"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_in_a_conversation_is_not_logged(tmp_path, with_server, ask):
    key = "hf_" + "a1B2" * 10
    with_server(ask(messages=[{"role": "user", "content": f"my key is {key}"}]), log_requests=True)
    assert key not in (tmp_path / "server" / "requests.jsonl").read_text(encoding="utf-8")


def test_nothing_is_logged_unless_asked(tmp_path, with_server, ask):
    assert with_server(ask()) == 200
    assert not (tmp_path / "server" / "requests.jsonl").exists()

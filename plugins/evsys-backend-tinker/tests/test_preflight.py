"""What is wrong with a server, in one message each and in seconds."""

import time

import pytest
from small_server import small_server

from evsys.errors import ConfigError
from evsys_backend_tinker.http_json import JsonApi
from evsys_backend_tinker.preflight import look_at

HEALTH, CONFIG, SERVES = "/api/v1/healthz", "/api/v1/client/config", "/api/v1/get_server_capabilities"
MODELS = {
    "supported_models": [
        {"model_name": "Qwen/Qwen3-8B", "max_context_length": 32768},
        {"model_name": "evsys/tiny"},
        {"model_name": "old/model", "trainable": False},
    ]
}
WELL = {HEALTH: (200, {"status": "ok"}), CONFIG: (200, {}), SERVES: (200, MODELS)}


def look(answers: dict, model: str = "Qwen/Qwen3-8B", key: str | None = "tml-secret", seconds: float = 5.0):
    with small_server({**WELL, **answers}) as small:
        return look_at(
            JsonApi(base_url=small.base_url, key=key), model, version="0.38.0", seconds=seconds
        ), small


def test_a_server_that_is_well_tells_its_models_and_how_long_a_sequence_may_be():
    server, small = look({})
    assert server.max_length("Qwen/Qwen3-8B") == 32768
    assert server.max_length("evsys/tiny") is None
    assert [path for _, path, _, _ in small.asked] == [HEALTH, CONFIG, SERVES]
    assert all(headers["X-Api-Key"] == "tml-secret" for _, _, headers, _ in small.asked)
    assert small.asked[1][3] == b'{"sdk_version": "0.38.0"}'


@pytest.mark.parametrize(
    ("told", "deterministic"), [(True, True), (False, False), (None, None), ("no", None)]
)
def test_a_server_of_ours_tells_whether_its_samples_depend_on_company(told, deterministic):
    assert look({SERVES: (200, {**MODELS, "evsys_deterministic": told})})[0].deterministic is deterministic
    assert look({})[0].deterministic is None


@pytest.mark.parametrize(("told", "simulated"), [(True, True), (False, False), (None, False), ("yes", False)])
def test_a_server_of_ours_tells_whether_it_only_imitates_a_model(told, simulated):
    assert look({SERVES: (200, {**MODELS, "evsys_simulated": told})})[0].simulated is simulated
    assert look({})[0].simulated is False


@pytest.mark.parametrize(
    ("answers", "model", "message"),
    [
        ({HEALTH: (404, {})}, "evsys/tiny", r"base_url: .*is not a server of the Tinker protocol"),
        (
            {CONFIG: (404, {})},
            "evsys/tiny",
            r"base_url: .*speaks an older Tinker protocol than .*tinker 0\.38\.0",
        ),
        (
            {CONFIG: (401, {"error": "who are you?"})},
            "evsys/tiny",
            r"api_key_env: .*doesn't take the key \(401: who are",
        ),
        ({SERVES: (403, {})}, "evsys/tiny", r"api_key_env: .*doesn't take the key"),
        ({HEALTH: (503, {"detail": "starting"})}, "evsys/tiny", r"base_url: .*isn't well.*503: starting"),
        (
            {SERVES: (500, b"<html>")},
            "evsys/tiny",
            r"base_url: .*isn't well: asked what it serves, it answers 500",
        ),
        ({HEALTH: (302, "http://elsewhere.example/")}, "evsys/tiny", r"base_url: .*it answers 302"),
        (
            {},
            "Qwen/Qwen3-8b",
            r"\$\.model\.name: .*has no model 'Qwen/Qwen3-8b'; did you mean 'Qwen/Qwen3-8B'\?",
        ),
        ({}, "zzz", r"\$\.model\.name: .*it has: Qwen/Qwen3-8B, evsys/tiny, old/model"),
        ({}, "old/model", r"\$\.model\.name: .*doesn't train 'old/model'"),
    ],
)
def test_each_thing_that_is_wrong_has_its_own_message(answers: dict, model: str, message: str):
    with pytest.raises(ConfigError, match=message) as refused:
        look(answers, model)
    assert len(refused.value.problems) == 1
    assert "tml-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("http://127.0.0.1:9", "nothing listens there"),
        ("http://no-such-host.invalid", "its name isn't known|URLError|reached"),
        ("127.0.0.1:8000", "not an address that starts with http"),
        ("file:///etc/passwd", "not an address that starts with http"),
    ],
)
def test_a_wrong_address_is_said_at_once(address: str, why: str):
    with pytest.raises(ConfigError, match=f"can't be reached: .*({why})"):
        look_at(JsonApi(base_url=address), "evsys/tiny", version="0.38.0")


def test_a_server_that_never_answers_costs_no_more_than_the_time_that_is_given():
    started = time.monotonic()
    with pytest.raises(ConfigError, match="it doesn't answer"):
        look({CONFIG: None}, seconds=0.3)
    assert time.monotonic() - started < 5


def test_a_server_that_lists_nothing_is_taken_at_its_word():
    server, _ = look({SERVES: (404, {})}, model="anything")
    assert server.models is None


def test_a_server_that_wants_a_token_for_the_key_gets_it_exchanged():
    token = (200, {"jwt": "eyJ-token"})
    answers = {**WELL, CONFIG: (200, {"pjwt_auth_enabled": True}), "/api/v1/auth/token": token}
    with small_server(answers) as small:
        server = look_at(JsonApi(base_url=small.base_url, key="tml-secret"), "evsys/tiny", version="0.38.0")
        assert small.asked[-1][2]["X-Api-Key"] == "eyJ-token"
        small.answers["/api/v1/auth/token"] = (200, {"jwt": "eyJ-later"})  # tokens live for minutes
        assert server.api().key == "eyJ-later"
    assert "tml-secret" not in repr(server)

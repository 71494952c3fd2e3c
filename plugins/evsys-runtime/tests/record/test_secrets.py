import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys_runtime.record.secrets import REDACTED, Redactor, is_secret_name, redact

CANARY = 'sk-"canary"\\1234567890'


@pytest.fixture
def redactor():
    return Redactor.from_environment(
        {
            "OPENAI_API_KEY": CANARY,
            "HF_TOKEN": "hf_abcdefgh",
            "DB_PASSWORD": "hunter-22",
            "SHORT_KEY": "1",
            "HOME": "/home/canary-home",
        }
    )


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "API-KEY",
        "apikey",
        "token",
        "hf_token",
        "access_token",
        "Authorization",
        "password",
        "x-api-key",
        "client_secret",
        "aws.secret_access_key",
        "cookie",
        "private_key",
        "db_passwd",
    ],
)
def test_names_of_secrets(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "key",
        "cluster_key",
        "breakdown_keys",
        "tokens",
        "prompt_tokens",
        "max_tokens",
        "eos_token",
        "pad_token",
        "tokenizer",
        "task_id",
        "secretary",
        "keyword",
        "stop_token",
        "monkey",
    ],
)
def test_names_of_no_secrets(name):
    assert not is_secret_name(name)


def test_text_under_a_secret_name_goes_and_everything_else_stays(redactor):
    tree = {
        "backend": {"kind": "remote", "params": {"api_key": "abc", "base_url": "http://h.test:1/v1"}},
        "headers": [{"Authorization": "Basic abc"}],
        "credentials": {"user": "me", "number": 3},
        "token": 17,
        "seeds": (1, 2),
    }
    assert redactor.tree(tree) == {
        "backend": {"kind": "remote", "params": {"api_key": REDACTED, "base_url": "http://h.test:1/v1"}},
        "headers": [{"Authorization": REDACTED}],
        "credentials": {"user": REDACTED, "number": 3},
        "token": 17,
        "seeds": [1, 2],
    }


def test_a_reference_to_a_variable_is_no_secret(redactor):
    assert redactor.tree({"api_key": "${OPENAI_API_KEY}"}) == {"api_key": "${OPENAI_API_KEY}"}


def test_the_value_of_a_secret_variable_goes_wherever_it_stands(redactor):
    assert redactor.text(f"failed: key {CANARY} refused") == f"failed: key {REDACTED} refused"
    assert redactor.tree({"note": ["the hf_abcdefgh token"]}) == {"note": [f"the {REDACTED} token"]}


def test_a_value_is_found_in_a_line_of_json(redactor):
    import json

    line = json.dumps({"error": f"bad key {CANARY}"})
    assert json.loads(redactor.values(line)) == {"error": f"bad key {REDACTED}"}


def test_short_values_and_other_variables_are_left(redactor):
    assert redactor.text("1 of 1 in /home/canary-home") == "1 of 1 in /home/canary-home"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GET https://user:pa55@host.test/x?a=b@c", f"GET https://{REDACTED}@host.test/x?a=b@c"),
        (
            "postgres://me@db:5432/x and redis://:pw@r",
            f"postgres://{REDACTED}@db:5432/x and redis://{REDACTED}@r",
        ),
        ("https://host.test/path?mail=a@b.c", "https://host.test/path?mail=a@b.c"),
        ("Authorization: Bearer abc.def-123456", f"Authorization: Bearer {REDACTED}"),
        ("authorization: bearer abcdefgh12", f"authorization: bearer {REDACTED}"),
        ("bearer of news", "bearer of news"),
    ],
)
def test_addresses_and_headers_in_text(redactor, text, expected):
    assert redactor.text(text) == expected


def test_objects_are_looked_into(redactor):
    import attrs

    @attrs.frozen
    class Params:
        api_key: str
        rank: int = 8

    assert redactor.tree({"params": Params("abc")}) == {"params": {"api_key": REDACTED, "rank": 8}}


@given(st.recursive(st.none() | st.integers() | st.text("ab:/@ "), lambda inner: st.lists(inner)))
@settings(deadline=None)
def test_redacting_twice_changes_nothing_more(tree):
    once = Redactor().tree(tree)
    assert Redactor().tree(once) == once


def test_only_what_can_not_be_a_word_counts_as_leaked():
    redactor = Redactor({"CACHE_KEY": "quickstart-words", "API_KEY": "sk-0123456789abcdef"})
    assert redactor.leaked("name: quickstart-words") == []
    assert redactor.leaked("key: sk-0123456789abcdef") == ["API_KEY"]


def test_redact_knows_the_environment_of_now(monkeypatch):
    monkeypatch.setenv("SOME_SERVICE_TOKEN", "verysecretvalue")
    assert redact({"a": "verysecretvalue"}) == {"a": REDACTED}

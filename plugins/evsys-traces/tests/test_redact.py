"""`redact` takes planted secrets and personal data out, and leaves everything else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys_traces.redact import Redact

KEY = "hf_" + "a1B2" * 10


def clean(text, **params):
    [row] = Redact(**params)([{"text": text}])
    return row["text"]


@pytest.mark.parametrize(
    "address",
    ["ada@example.org", "a.b+c@mail.example.co.uk", "ADA_99@EXAMPLE.ORG", "o-n_e%x@x-y.example"],
)
@pytest.mark.parametrize("text", ["{}", "write to <{}>, please", "mail:{}.", "({})", '"{}"', "{}, or call"])
def test_an_e_mail_address_goes(address, text):
    assert clean(text.format(address)) == text.format("[email 1]")


@pytest.mark.parametrize(
    "number",
    [
        "+49 221 123456",
        "+1 (415) 555-2671",
        "0221 1234567",
        "(0221) 123456",
        "415-555-2671",
        "0049 221 12 34 56",
    ],
)
@pytest.mark.parametrize("text", ["{}", "call {}, please", "Tel.: {}.", "({})"])
def test_a_phone_number_goes(number, text):
    assert clean(text.format(number)) == text.format("[phone 1]")


@pytest.mark.parametrize(
    "text",
    [
        "on 2026-11-30 at 10:15",
        "version 1.2.3.4",
        "it costs 1,234,567.89 euros",
        "a@b",
        "12345678901234567890",
        "order 4711 of 2026",
        "3.14159265358979",
        "192.168.0.1:8080",
        "@someone wrote it",
        "x = [1000000, 2000000]",
        "0.0001234567",
        "id 550e8400-e29b-41d4-a716-446655440000",
    ],
)
def test_ordinary_text_stays(text):
    assert clean(text) == text


def test_a_key_goes():
    assert clean(f"use {KEY}") == "use [redacted]"


def test_equal_values_of_a_row_get_equal_numbers():
    row = {
        "messages": [
            {"role": "user", "content": "from ada@example.org to bob@example.org"},
            {
                "role": "assistant",
                "content": "ADA@example.org?",
                "tool_calls": [{"arguments": {"to": "bob@example.org"}}],
            },
        ],
        "metadata": {"conversation_id": "ada@example.org", "n": 1},
    }
    redact = Redact()
    [found] = redact([row])
    assert found["messages"][0]["content"] == "from [email 1] to [email 2]"
    assert found["messages"][1]["content"] == "[email 1]?"
    assert found["messages"][1]["tool_calls"][0]["arguments"] == {"to": "[email 2]"}
    assert found["metadata"] == {"conversation_id": "[email 1]", "n": 1}
    assert redact.replaced == {"email": 5, "secret": 0}


def test_kinds_can_be_chosen_and_added():
    text = "ada@example.org ordered ORD-17"
    assert (
        clean(text, kinds=("phone",), patterns={"order": "ORD-[0-9]+"}) == "ada@example.org ordered [order 1]"
    )


@given(st.text(alphabet=st.sampled_from("0123456789+-(). @ab"), max_size=3000))
def test_no_text_takes_long_or_breaks(text):
    clean(text)
    assert clean(clean(text)) == clean(text)

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys import Registry
from evsys.errors import PluginLoadError
from evsys_verifiers_std.json_process import answer_to
from evsys_verifiers_std.json_schema import JsonSchema

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("output", "params", "reward"),
    [
        ('{"name": "Ada", "age": 36}', {}, 1.0),
        (' {"name": "Ada"}\n', {}, 1.0),
        ('```json\n{"name": "Ada"}\n```', {}, 1.0),
        ('```\n{"name": "Ada"}\n```', {}, 1.0),
        ('```json\n{"name": "Ada"}\n```', {"fenced": False}, 0.0),
        ('Here: ```json\n{"name": "Ada"}\n```', {}, 0.0),
        ('{"name": "Ada"} and more', {}, 0.0),
        ('{"name": "Ada", "age": -1}', {}, 0.0),
        ('{"name": "Ada", "age": 1.5}', {}, 0.0),
        ('{"name": "Ada", "nick": "A"}', {}, 0.0),
        ('{"age": 3}', {}, 0.0),
        ("[]", {}, 0.0),
        ("Ada", {}, 0.0),
        ("", {}, 0.0),
        ('{"name": "Ada", "age": NaN}', {}, 0.0),
        ("[" * 100_000, {}, 0.0),
        ('{"name": "\ud83d"}', {}, 1.0),
    ],
)
def test_an_answer_is_json_that_fits_and_nothing_else(output, params, reward):
    assert JsonSchema(**params)(output, PERSON, {}).value == reward
    assert JsonSchema(schema=PERSON)(output, "ignored", params).value == reward


def test_a_score_says_why_an_answer_does_not_fit():
    assert JsonSchema()('{"name": 3}', PERSON, {}).metadata == {"error": "$.name: 3 is not of type 'string'"}
    assert JsonSchema()("no", PERSON, {}).metadata["error"].startswith("no JSON: ")
    assert (
        len(JsonSchema()(f'{{"name": "{"a" * 999}", "b": 1}}', {"maxProperties": 1}, {}).metadata["error"])
        == 300
    )
    assert JsonSchema()('{"name": "Ada"}', PERSON, {}).metadata == {}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (None, "there is no schema"),
        (3, "there is no schema"),
        ({"type": "strin"}, r"at \$\.type: 'strin' is not valid"),
        ({"properties": {"a": {"minimum": "1"}}}, r"at \$\.properties\.a\.minimum"),
        ({"pattern": "("}, r"at \$\.pattern"),
        ({"$ref": "http://127.0.0.1:9/person"}, "http://127.0.0.1:9/person"),
        ({"$ref": "#/$defs/person"}, "person"),
    ],
)
def test_what_cannot_be_validated_against_is_refused_before_anything_runs(schema, message):
    with pytest.raises(ValueError, match=message):
        JsonSchema().check(schema)
    with pytest.raises(ValueError, match=message):
        JsonSchema()("{}", schema, {})


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"n": {"type": "integer"}}, "items": {"$ref": "#/$defs/n"}},
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"n": {}},
            "$ref": "#/definitions/n",
        },
        {"const": {"$ref": "nowhere"}},
        {"$id": "http://x.test/a", "$defs": {"b": {"$id": "b", "type": "array"}}, "$ref": "b"},
        {},
    ],
)
def test_references_inside_a_schema_are_fine(schema):
    JsonSchema().check(schema)
    assert JsonSchema()("[1]" if "const" not in schema else '{"$ref": "nowhere"}', schema, {}).value == 1.0


def test_a_schema_that_refers_to_itself_and_an_answer_without_end_give_no_crash():
    nested = {"type": "array", "items": {"$ref": "#"}}
    assert JsonSchema()("[[[]]]", nested, {}).value == 1.0
    assert JsonSchema()("[" * 5000 + "]" * 5000, nested, {}).metadata == {"error": "nested too deeply"}


def test_a_pattern_that_backtracks_without_end_is_stopped_and_the_next_one_works():
    with pytest.raises(TimeoutError, match=r"took longer than 0\.3 s"):
        JsonSchema(timeout_seconds=0.3)(f'"{"a" * 40}!"', {"pattern": "(a+)+$"}, {})
    assert JsonSchema()('"aaa"', {"pattern": "(a+)+$"}, {}).value == 1.0


def test_without_the_package_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    registry = Registry(entry_points=())
    registry.register("verifier", "json_schema", JsonSchema)
    with pytest.raises(
        PluginLoadError, match=r"needs the package `jsonschema`; pip install 'evsys-verifiers-std\[json\]'"
    ):
        registry.build("verifier", "json_schema")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=20)
@given(JSON)
def test_every_json_value_fits_the_schema_that_holds_it_alone(value):
    import json

    request = {"schema": {"const": value}, "text": json.dumps(value), "fenced": True}
    assert answer_to(request) == {"error": None}
    assert answer_to({**request, "schema": {"not": {"const": value}}})["error"] is not None


@settings(max_examples=50)
@given(st.text())
def test_any_text_is_judged(text):
    assert answer_to({"schema": {"type": "null"}, "text": text, "fenced": True}).keys() == {"error"}

"""Schema and converter tell the same story: what one takes the other takes, what one refuses the other refuses."""

import copy
import enum
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import attrs
import jsonschema
import pydantic
import pytest
from attrs import validators as v
from hypothesis import given, settings
from hypothesis import strategies as st

import evsys
from evsys import schema_for_config, structure, unstructure
from evsys.errors import ConfigError, PluginContractError


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen(kw_only=True)
class Leaf:
    """A leaf of the tree."""

    size: int = evsys.option(..., "Its size.", ge=0, le=9)
    label: str = "x"


@dataclass
class Data:
    count: int
    names: list[str] = field(default_factory=list)


@attrs.frozen(kw_only=True)
class Cosine:
    kind: Literal["cosine"]
    floor: float = evsys.option(0.0, "Where it ends.", ge=0, lt=1)


@attrs.frozen(kw_only=True)
class Linear:
    kind: Literal["linear"]
    end: float


@attrs.frozen(kw_only=True)
class Tree:
    value: int
    children: "tuple[Tree, ...]" = ()


class Model(pydantic.BaseModel):
    count: int = pydantic.Field(1, ge=0)
    name: Literal["a", "b"] = "a"


FIELDS: dict[str, tuple[Any, Any]] = {
    "integer": (int, evsys.option(3, "I.", ge=-5, le=5)),
    "open_integer": (int, evsys.option(3, "I.", gt=0)),
    "number": (float, evsys.option(1e-4, "N.", gt=0, lt=1, source="Adam 2014", aliases=("rate", "lr"))),
    "required": (float, evsys.option(..., "R.")),
    "required_alias": (str, evsys.option(..., "R.", aliases=("other",))),
    "text": (str, evsys.option("abc", "T.", min_len=2)),
    "pattern": (str, attrs.field(default="a1", validator=v.matches_re(r"[a-z]\d+"))),
    "short": (str, attrs.field(default="", validator=v.max_len(3))),
    "flag": (bool, False),
    "nothing": (None, None),
    "mode": (Literal["auto", "on", 3, None], "auto"),
    "colour": (Colour, Colour.RED),
    "choice": (str, evsys.option("a", "C.", choices=("a", "b"))),
    "optional_choice": (int | None, evsys.option(None, "C.", choices=(1, 2))),
    "optional": (int | None, evsys.option(None, "O.", ge=1)),
    "path": (Path, Path("x")),
    "names": (tuple[str, ...], evsys.option(("a",), "N.", min_len=1)),
    "numbers": (
        list[float],
        attrs.field(factory=list, validator=v.deep_iterable(v.and_(v.ge(0), v.le(1)), v.max_len(3))),
    ),
    "maybe_numbers": (
        Sequence[int] | None,
        attrs.field(default=None, validator=v.optional(v.deep_iterable(v.ge(0)))),
    ),
    "pair": (tuple[int, str], (1, "a")),
    "mapping": (Mapping[str, int], attrs.field(factory=dict, validator=v.optional(v.min_len(0)))),
    "bounded_mapping": (
        dict[str, int],
        attrs.field(factory=dict, validator=v.deep_mapping(v.instance_of(str), v.ge(1))),
    ),
    "by_number": (dict[int, str], attrs.field(factory=dict)),
    "by_choice": (dict[Literal["p", "q"], bool], attrs.field(factory=dict)),
    "leaf": (Leaf | None, None),
    "leaves": (dict[str, Leaf], attrs.field(factory=dict)),
    "data": (Data | None, None),
    "schedule": (Cosine | Linear | None, None),
    "tree": (Tree | None, None),
    "mixed": (int | str | list[int], 1),
    "free": (Any, None),
    "model": (Model | None, None),
    "_hidden": (int, 1),
}


def class_of(names: Sequence[str]) -> type:
    """A Config with these fields. Fields are made anew, since an attrs field belongs to one class."""
    body = {name: copy.copy(FIELDS[name][1]) for name in names}
    return attrs.frozen(kw_only=True)(
        type("Config", (), {**body, "__annotations__": {name: FIELDS[name][0] for name in names}})
    )


EVERYTHING = class_of(list(FIELDS))
VALIDATOR = jsonschema.Draft202012Validator


def merged(part: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    inner = {
        key: {**part[key], **rest[key]}
        for key in ("items", "additionalProperties")
        if key in part and key in rest
    }
    return {**part, **rest, **inner}


def values(schema: dict[str, Any], root: dict[str, Any], depth: int = 3) -> st.SearchStrategy[Any]:
    """Values of our dialect of JSON Schema."""
    inside = lambda part: values(part, root, depth)  # noqa: E731
    if "$ref" in schema:
        target = root
        for step in schema["$ref"].removeprefix("#").strip("/").split("/") if schema["$ref"] != "#" else ():
            target = target[step]
        return values(target, root, depth - 1)
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    if "anyOf" in schema:
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        options = [merged(part, rest) for part in schema["anyOf"] if depth > 0 or "$ref" not in part]
        return st.one_of(*(inside(option) for option in options))
    match schema.get("type"):
        case "integer":
            low = max(schema.get("minimum", -1000), schema.get("exclusiveMinimum", -1001) + 1)
            return st.integers(low, schema.get("maximum", 1000))
        case "number":
            bounds = {
                "min_value": schema.get("minimum", schema.get("exclusiveMinimum", -1e9)),
                "max_value": schema.get("maximum", schema.get("exclusiveMaximum", 1e9)),
                "exclude_min": "exclusiveMinimum" in schema,
                "exclude_max": "exclusiveMaximum" in schema,
            }
            return st.floats(**bounds)
        case "string" if "pattern" in schema:
            return st.from_regex(schema["pattern"], fullmatch=True)
        case "string":
            return st.text(min_size=schema.get("minLength", 0), max_size=schema.get("maxLength", 5))
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array" if "prefixItems" in schema:
            return st.tuples(*map(inside, schema["prefixItems"])).map(list)
        case "array":
            low = schema.get("minItems", 0)
            return st.lists(
                inside(schema["items"]), min_size=low, max_size=min(schema.get("maxItems", 3), low + 3)
            )
        case "object" if "properties" in schema:
            return objects(schema, root, depth)
        case "object":
            names = inside({"type": "string", **schema["propertyNames"]})
            return st.dictionaries(names, inside(schema["additionalProperties"]), max_size=3)
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3), st.lists, max_leaves=3
    )


@st.composite
def objects(draw, schema: dict[str, Any], root: dict[str, Any], depth: int) -> dict[str, Any]:
    wanted = [
        name for name in schema["properties"] if name in schema.get("required", []) or draw(st.booleans())
    ]
    for clause in schema.get("allOf", []):
        if "oneOf" in clause:
            names = [each["required"][0] for each in clause["oneOf"]]
            wanted = [name for name in wanted if name not in names] + [draw(st.sampled_from(names))]
        else:
            for first, second in (each["required"] for each in clause["not"]["anyOf"]):
                if first in wanted and second in wanted:
                    wanted.remove(second)
    return {name: draw(values(schema["properties"][name], root, depth)) for name in wanted}


configs = st.lists(st.sampled_from(sorted(FIELDS)), unique=True, max_size=6).map(class_of)


def taken_by_converter(config: type, tree: Any) -> bool:
    try:
        structure(config, tree)
    except ConfigError:
        return False
    return True


# --- the property -----------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_what_the_schema_allows_is_structured_and_comes_back_equal_through_json(data):
    config = data.draw(configs)
    schema = schema_for_config(config)
    VALIDATOR.check_schema(schema)
    tree = data.draw(values(schema, schema))
    VALIDATOR(schema).validate(tree)
    made = structure(config, tree)
    again = json.loads(json.dumps(unstructure(made)))
    VALIDATOR(schema).validate(again)
    assert structure(config, again) == made


JUNK = [None, True, 0, -1, 1.5, 1e9, "", "zzz", [], ["zzz"], [1.5], {}, {"zzz": 1}, {"kind": "zzz"}]


@pytest.mark.parametrize("name", sorted(FIELDS))
@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_converter_and_schema_agree_on_every_kind_of_wrong_value(name, junk):
    config = class_of([name])
    tree = {attrs.fields(config)[0].alias: junk}
    schema = schema_for_config(config)
    assert VALIDATOR(schema).is_valid(tree) == taken_by_converter(config, tree)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_mutation_that_one_refuses_the_other_refuses(data):
    config = data.draw(configs)
    schema = schema_for_config(config)
    tree = data.draw(values(schema, schema))
    mutation = data.draw(st.sampled_from(["unknown", "missing", "type"]))
    if mutation == "unknown":
        tree["surely_unknown"] = 1
        assert not taken_by_converter(config, tree)
    elif tree and mutation == "missing":
        del tree[data.draw(st.sampled_from(sorted(tree)))]
    elif tree:
        tree[data.draw(st.sampled_from(sorted(tree)))] = data.draw(st.sampled_from(JUNK))
    assert VALIDATOR(schema).is_valid(tree) == taken_by_converter(config, tree)


def test_defaults_validate():
    schema = schema_for_config(EVERYTHING)
    for name, prop in schema["properties"].items():
        if "default" in prop:
            VALIDATOR({**prop, "$defs": schema["$defs"]}).validate(prop["default"]), name


# --- what it says -----------------------------------------------------------------------------------------------


def test_a_schema_tells_meaning_source_default_and_bounds():
    @attrs.frozen(kw_only=True)
    class Config:
        """How to train.

        More of it.
        """

        rate: float = evsys.option(1e-4, "Learning rate.", gt=0, source="Kingma and Ba, 2014")
        rank: int = attrs.field(default=8, metadata={"help": "Rank.", "scale": "log", "mutable": False})

    assert schema_for_config(Config) == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Config",
        "description": "How to train.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "rate": {
                "type": "number",
                "exclusiveMinimum": 0,
                "default": 1e-4,
                "description": "Learning rate.",
                "x-evsys-source": "Kingma and Ba, 2014",
            },
            "rank": {
                "type": "integer",
                "default": 8,
                "description": "Rank.",
                "x-evsys-scale": "log",
                "x-evsys-mutable": False,
            },
        },
    }


@pytest.mark.parametrize(
    ("annotation", "validator", "expected"),
    [
        (int, v.ge(1), {"minimum": 1}),
        (int, v.gt(1), {"exclusiveMinimum": 1}),
        (int, v.le(1), {"maximum": 1}),
        (int, v.lt(1), {"exclusiveMaximum": 1}),
        (int, v.and_(v.ge(1), v.le(3)), {"minimum": 1, "maximum": 3}),
        (int, [v.ge(1), v.le(3)], {"minimum": 1, "maximum": 3}),
        (int, v.in_([1, 2]), {"enum": [1, 2]}),
        (Colour, v.in_([Colour.RED]), {"enum": ["red"]}),
        (int | None, v.optional(v.in_((1, 2))), {"enum": [1, 2, None]}),
        (int | None, v.optional([v.ge(1), v.le(3)]), {"minimum": 1, "maximum": 3}),
        (str, v.matches_re("a+"), {"pattern": "^(?:a+)$"}),
        (str, v.matches_re("a+", func=re.match), {"pattern": "^(?:a+)"}),
        (str, v.matches_re("a+", func=re.search), {"pattern": "a+"}),
        (str, v.min_len(2), {"minLength": 2}),
        (str, v.max_len(2), {"maxLength": 2}),
        (list[int], v.min_len(2), {"minItems": 2}),
        (tuple[int, ...], v.max_len(2), {"maxItems": 2}),
        (dict[str, int], v.min_len(2), {"minProperties": 2}),
        (str | list[str] | None, v.optional(v.min_len(1)), {"minLength": 1, "minItems": 1}),
        (
            list[int],
            v.deep_iterable(v.ge(1), v.min_len(1)),
            {"items": {"type": "integer", "minimum": 1}, "minItems": 1},
        ),
        (
            dict[str, int],
            v.deep_mapping(None, v.ge(1)),
            {"additionalProperties": {"type": "integer", "minimum": 1}},
        ),
    ],
)
def test_each_validator_of_attrs_is_understood(annotation, validator, expected):
    """Their classes are private to attrs, so a new release that changes one fails here."""
    config = attrs.make_class("Config", {"x": attrs.field(type=annotation, validator=validator)})
    prop = schema_for_config(config)["properties"]["x"]
    assert {key: prop[key] for key in expected} == expected


@pytest.mark.parametrize(
    "validator",
    [
        v.instance_of(str),
        v.in_("abc"),
        v.matches_re("A", re.IGNORECASE),
        v.not_(v.in_(["a"])),
        v.or_(v.in_(["a"])),
        lambda *_: None,
    ],
)
def test_a_validator_that_schemas_have_no_words_for_is_left_to_the_converter(validator):
    config = attrs.make_class("Config", {"x": attrs.field(type=str, validator=validator)})
    assert schema_for_config(config)["properties"]["x"] == {"type": "string"}


def test_nested_classes_are_defined_once_and_may_hold_themselves():
    schema = schema_for_config(class_of(["leaf", "leaves", "tree"]))
    assert set(schema["$defs"]) == {"Leaf", "Tree"}
    assert schema["$defs"]["Leaf"]["description"] == "A leaf of the tree."
    assert schema["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert schema_for_config(Tree)["properties"]["children"]["items"] == {"$ref": "#"}


def test_two_nested_classes_of_one_name_stay_apart():
    def make(annotation):
        @attrs.frozen
        class Part:
            x: annotation

        return Part

    config = attrs.make_class(
        "Config",
        {
            "a": attrs.field(type=make(int)),
            "b": attrs.field(type=make(str)),
            "c": attrs.field(type=make(bool)),
        },
    )
    schema = schema_for_config(config)
    kinds = [
        schema["$defs"][schema["properties"][x]["$ref"].rpartition("/")[2]]["properties"]["x"] for x in "abc"
    ]
    assert kinds == [{"type": "integer"}, {"type": "string"}, {"type": "boolean"}]


def test_other_names_of_a_field_are_there_and_only_one_may_be_given():
    schema = schema_for_config(class_of(["number", "required_alias"]))
    assert schema["properties"]["lr"]["x-evsys-alias-of"] == "number"
    assert schema["properties"]["lr"]["description"] == "another name for 'number'"
    assert "x-evsys-alias-of" not in schema["properties"]["number"]
    assert not any("deprecated" in prop for prop in schema["properties"].values())
    for tree, right in [
        ({"other": "x"}, True),
        ({}, False),
        ({"other": "x", "required_alias": "y"}, False),
        ({"other": "x", "lr": 0.5, "rate": 0.5}, False),
    ]:
        assert VALIDATOR(schema).is_valid(tree) is right


def test_a_deprecated_name_or_field_names_the_version():
    @attrs.frozen(kw_only=True)
    class Config:
        steps: int = evsys.option(1, "How long.", aliases={"max_steps": None, "iterations": "0.4"})
        speed: float = evsys.option(1.0, "Use `rate`.", deprecated="0.5")

    properties = schema_for_config(Config)["properties"]
    assert "deprecated" not in properties["steps"]
    assert "deprecated" not in properties["max_steps"]
    assert properties["iterations"]["deprecated"] is True
    assert properties["iterations"]["description"] == "another name for 'steps' (deprecated since 0.4)"
    assert properties["speed"]["deprecated"] is True
    assert properties["speed"]["description"] == "Use `rate`. (deprecated since 0.5)"
    owned = schema_for_config(Config, "my-package")["properties"]
    assert owned["speed"]["description"] == "Use `rate`. (deprecated since my-package 0.5)"


def test_a_default_without_json_form_is_left_out():
    @attrs.frozen
    class Config:
        free: Any = attrs.field(factory=object)
        own: Any = attrs.field(default=attrs.Factory(lambda self: 1, takes_self=True))

    assert schema_for_config(Config)["properties"] == {"free": {}, "own": {}}


def test_a_pydantic_model_gives_its_own_schema_closed_for_unknown_keys():
    class Outer(pydantic.BaseModel):
        model: Model

    schema = schema_for_config(Outer)
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["Model"]["additionalProperties"] is False
    assert schema["$defs"]["Model"]["properties"]["count"]["minimum"] == 0

    class Open(pydantic.BaseModel, extra="allow"):
        a: int = 1

    assert schema_for_config(Open)["additionalProperties"] is True


def test_a_dataclass_does_not_show_its_generated_docstring():
    assert "description" not in schema_for_config(Data)


def test_an_annotation_without_meaning_names_class_and_field():
    config = attrs.make_class("Config", {"x": attrs.field(type=complex)})
    with pytest.raises(
        PluginContractError, match=r"Config\.x: its annotation <class 'complex'> has no meaning"
    ):
        schema_for_config(config)

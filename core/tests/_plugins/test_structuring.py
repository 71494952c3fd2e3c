import datetime as dt
import enum
import json
import math
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NewType, Optional, Union

import attrs
import pydantic
import pytest
from attrs import validators

import evsys
from evsys import structure, unstructure
from evsys._plugins import structuring
from evsys.errors import ConfigError, PluginContractError

type Alias = int | None
type Endless = int | list[Endless]
Name = NewType("Name", str)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@pytest.fixture(autouse=True, params=[10**9, 0], ids=["examined", "compiled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """The first values of a class and all later ones go different ways, which have to lead to the same."""
    monkeypatch.setattr(structuring, "_COMPILE_AFTER", request.param)
    structuring._hook.cache_clear()
    yield
    structuring._hook.cache_clear()


def problems(annotation: Any, tree: Any, path: str = "$") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        structure(annotation, tree, path=path)
    return [str(problem) for problem in caught.value.problems]


# --- scalars ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "given", "made"),
    [
        (int, 3, 3),
        (int, 3.0, 3),
        (int, 10**30, 10**30),
        (float, 2, 2.0),
        (float, 2e-5, 2e-5),
        (str, "2e-5", "2e-5"),
        (str, "", ""),
        (bool, True, True),
        (None, None, None),
        (Any, {"a": [object]}, {"a": [object]}),
        (object, 1, 1),
        (Path, "a/b", Path("a/b")),
        (Path, Path("a"), Path("a")),
        (PurePosixPath, "a", PurePosixPath("a")),
        (Literal["a", 1, True, None], None, None),
        (Literal["a", 1, True], True, True),
        (Literal["a", 1], 1.0, 1),
        (Colour, "red", Colour.RED),
        (Colour, Colour.BLUE, Colour.BLUE),
        (Level, 2, Level.HIGH),
        (Alias, None, None),
        (Name, "x", "x"),
        (Annotated[int, {"un": "hashable"}] | None, 1, 1),
        (Optional[int], None, None),  # noqa: UP045
        (Union[int, str], "x", "x"),  # noqa: UP007
    ],
)
def test_what_fits_is_made(annotation, given, made):
    @attrs.frozen
    class Holder:
        value: annotation

    result = structure(Holder, {"value": given}).value
    assert result == made
    assert type(result) is type(made)


@pytest.mark.parametrize(
    ("annotation", "given", "message"),
    [
        (int, 1.9, "expected an integer, got 1.9"),
        (int, True, "expected an integer, got true"),
        (int, "8", "expected an integer, got '8'; write 8 without quotes"),
        (int, "8x", "expected an integer, got '8x'"),
        (int, None, "expected an integer, got null"),
        (int, math.inf, "expected an integer, got inf"),
        (float, "2e-5", "expected a finite number, got '2e-5'; write 2e-05 without quotes"),
        (float, "nan", "expected a finite number, got 'nan'"),
        (float, "fast", "expected a finite number, got 'fast'"),
        (float, False, "expected a finite number, got false"),
        (float, math.nan, "expected a finite number, got nan"),
        (float, -math.inf, "expected a finite number, got -inf"),
        (float, [1.0], "expected a finite number, got a list"),
        (str, 2026, "expected text, got 2026; write it in quotes: '2026'"),
        (str, True, "expected text, got true; write it in quotes: 'true'"),
        (str, dt.date(2026, 1, 1), "expected text, got a date"),
        (str, {"a": 1}, "expected text, got a mapping"),
        (bool, 1, "expected true or false, got 1"),
        (bool, "Yes", "expected true or false, got 'Yes'; write true"),
        (bool, "off", "expected true or false, got 'off'; write false"),
        (None, 0, "expected null, got 0"),
        (Path, 3, "expected a path, got 3"),
        (Literal["auto", 3], "atuo", "expected 'auto' or 3, got 'atuo'; did you mean 'auto'?"),
        (Literal[1], True, "expected 1, got true"),
        (Literal[True], 1, "expected true, got 1"),
        (Colour, "rde", "expected 'red' or 'blue', got 'rde'; did you mean 'red'?"),
        (Level, True, "expected 1 or 2, got true"),
        (Level, 3, "expected 1 or 2, got 3"),
        (str, "x" * 100, None),
        (int, "x" * 100, f"expected an integer, got '{'x' * 55}..."),
    ],
)
def test_what_does_not_fit_is_refused_with_what_was_expected(annotation, given, message):
    if message is None:
        assert structure(annotation, given) == given
    else:
        assert problems(annotation, given, "$.a") == [f"$.a: {message}"]


def test_a_number_beyond_floats_is_refused():
    assert len(problems(float, 10**400)) == 1


def test_a_field_may_allow_what_is_not_finite():
    @attrs.frozen
    class Config:
        bound: float | None = attrs.field(default=0.0, metadata={"non_finite": True})

    assert structure(Config, {"bound": math.inf}).bound == math.inf
    assert math.isnan(structure(Config, {"bound": math.nan}).bound)
    assert structure(Config, {"bound": None}).bound is None
    assert problems(Config, {"bound": "x"}) == ["$.bound: expected a finite number or null, got 'x'"]


# --- containers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "given", "made"),
    [
        (list[int], [1, 2], [1, 2]),
        (list[int], (1, 2), [1, 2]),
        (list, [1, "a"], [1, "a"]),
        (Sequence[float], [1], (1.0,)),
        (Collection[str], ["a"], ("a",)),
        (tuple[int, ...], [1], (1,)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple, [1], (1,)),
        (set[int], [1, 1], {1}),
        (frozenset[str], ["a"], frozenset("a")),
        (AbstractSet[int], {1}, frozenset({1})),
        (dict[str, float], {"a": 1}, {"a": 1.0}),
        (Mapping[str, Any], OrderedDict(a=1), {"a": 1}),
        (dict, {"a": 1}, {"a": 1}),
        (dict[int, str], {"1": "a", 2: "b"}, {1: "a", 2: "b"}),
        (dict[Literal["a"], int], {"a": 1}, {"a": 1}),
        (list[list[int]], [[1], []], [[1], []]),
    ],
)
def test_containers_are_made(annotation, given, made):
    result = structure(annotation, given)
    assert result == made
    assert type(result) is type(made)


@pytest.mark.parametrize(
    ("annotation", "given", "messages"),
    [
        (list[str], "abc", ["$: expected a list, got 'abc'; write [abc]"]),
        (tuple[str, ...], 1, ["$: expected a list, got 1; write [1]"]),
        (list[int], {"a": 1}, ["$: expected a list, got a mapping"]),
        (list[int], {1}, ["$: expected a list, got a set"]),
        (
            list[int],
            [1, "x", 2, None],
            ["$[1]: expected an integer, got 'x'", "$[3]: expected an integer, got null"],
        ),
        (tuple[int, str], [1], ["$: expected 2 items, got 1"]),
        (tuple[int, str], "ab", ["$: expected a list, got 'ab'; write [ab]"]),
        (
            tuple[int, str],
            ["a", 1],
            ["$[0]: expected an integer, got 'a'", "$[1]: expected text, got 1; write it in quotes: '1'"],
        ),
        (dict[str, int], [1], ["$: expected a mapping, got a list"]),
        (dict[str, int], {1: 2}, ["$[1]: expected text, got 1; write it in quotes: '1'"]),
        (dict[int, int], {"a": 2}, ["$.a: expected an integer, got 'a'"]),
        (dict[str, int], {"a.b": "x"}, ["$['a.b']: expected an integer, got 'x'"]),
        (set[Any], [[1]], None),
    ],
)
def test_containers_report_every_item_with_its_place(annotation, given, messages):
    if messages is None:

        @attrs.frozen
        class Holder:
            value: annotation

        assert "unhashable" in problems(Holder, {"value": given})[0]
    else:
        assert problems(annotation, given) == messages


# --- unions -----------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Cosine:
    kind: Literal["cosine"]
    floor: float = 0.0


@attrs.frozen(kw_only=True)
class Linear:
    kind: Literal["linear", "lin"]
    end: float


@attrs.frozen(kw_only=True)
class Untagged:
    name: str
    params: Mapping[str, Any] = attrs.field(factory=dict)


@pytest.mark.parametrize(
    ("annotation", "given", "made"),
    [
        (int | None, None, None),
        (float | int, 1, 1),
        (int | float, 2.0, 2.0),
        (int | None, 2.0, 2),
        (str | list[str], ["a"], ["a"]),
        (Literal["auto"] | int, "auto", "auto"),
        (str | Untagged, {"name": "a"}, Untagged(name="a")),
        (Cosine | Linear | None, {"kind": "lin", "end": 1}, Linear(kind="lin", end=1.0)),
        (Cosine | dict[str, int], {"a": 1}, {"a": 1}),
        (Cosine | None, Cosine(kind="cosine"), Cosine(kind="cosine")),
        (Any | None, 3, 3),
    ],
)
def test_the_member_of_a_union_that_fits_is_made(annotation, given, made):
    result = structure(annotation, given)
    assert result == made
    assert type(result) is type(made)


@pytest.mark.parametrize(
    ("annotation", "given", "messages"),
    [
        (int | str, True, ["$: expected an integer or text, got true; write it in quotes: 'true'"]),
        (int | None, "8", ["$: expected an integer or null, got '8'; write 8 without quotes"]),
        (float | None, math.nan, ["$: expected a finite number, got nan"]),
        (Literal["auto"] | int, "atuo", ["$: expected 'auto' or an integer, got 'atuo'"]),
        (str | Untagged, 3, ["$: expected text or a mapping, got 3; write it in quotes: '3'"]),
        (str | Untagged, {"nam": "x"}, ["$.nam: unknown key 'nam'; did you mean 'name'?"]),
        (list[int] | int, ["x"], ["$[0]: expected an integer, got 'x'"]),
        (
            Cosine | Linear,
            {"kind": "linear", "floor": 1},
            ["$.floor: unknown key 'floor'; known: kind, end", "$.end: is missing"],
        ),
        (
            Cosine | Linear,
            {"kind": "cosin"},
            ["$.kind: expected 'cosine' or 'linear' or 'lin', got 'cosin'; did you mean 'cosine'?"],
        ),
    ],
)
def test_a_union_explains_itself_by_the_member_that_was_meant(annotation, given, messages):
    assert problems(annotation, given) == messages


# --- classes ----------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Inner:
    a: int
    b: float = evsys.option(1.0, "B.", gt=0)


@attrs.frozen(kw_only=True)
class Config:
    learning_rate: float = evsys.option(..., "Rate.", gt=0, aliases=("lr", "rate"))
    steps: int = evsys.option(10, "Steps.", ge=1, le=100)
    inner: Inner | None = None
    inners: tuple[Inner, ...] = ()
    by_name: Mapping[str, Inner] = attrs.field(factory=dict)
    _hidden: int = 0
    made: int = attrs.field(init=False, default=7)


def test_all_problems_of_a_tree_come_at_once_with_their_paths():
    tree = {
        "learning_rte": "2e-5",
        "steps": 0,
        "inner": {"b": -1, "c": 1},
        "inners": [{"a": 1}, {"a": "x"}, 3],
        "by_name": {"one.two": {"a": None}},
        "hidden": True,
    }
    assert problems(Config, tree, "$.run.params") == [
        "$.run.params.learning_rte: unknown key 'learning_rte'; did you mean 'learning_rate'?",
        "$.run.params.inner.c: unknown key 'c'; known: a, b",
        "$.run.params.inner.a: is missing",
        "$.run.params.inner.b: 'b' must be > 0: -1.0",
        "$.run.params.inners[1].a: expected an integer, got 'x'",
        "$.run.params.inners[2]: expected a mapping, got 3",
        "$.run.params.by_name['one.two'].a: expected an integer, got null",
        "$.run.params.hidden: expected an integer, got true",
        "$.run.params.steps: 'steps' must be >= 1: 0",
    ]


def test_validators_of_several_fields_all_speak():
    assert problems(Config, {"lr": -1, "steps": 101}) == [
        "$.lr: 'learning_rate' must be > 0: -1.0",
        "$.steps: 'steps' must be <= 100: 101",
    ]


@pytest.mark.parametrize("name", ["learning_rate", "lr", "rate"])
def test_a_field_goes_by_each_of_its_names(name):
    assert structure(Config, {name: 1}).learning_rate == 1.0


def test_a_field_given_under_two_names_is_refused():
    assert problems(Config, {"lr": 1, "rate": 2}) == ["$.rate: means the same as 'lr'; keep one of them"]


def test_private_attributes_go_by_their_alias_and_computed_ones_not_at_all():
    assert structure(Config, {"lr": 1, "hidden": 3})._hidden == 3
    assert "unknown key '_hidden'" in problems(Config, {"lr": 1, "_hidden": 3})[0]
    assert "unknown key 'made'" in problems(Config, {"lr": 1, "made": 3})[0]


@pytest.mark.parametrize("tree", [[], "", None, 3, [["lr", 1]]])
def test_what_is_no_mapping_is_no_config(tree):
    assert problems(Config, tree)[0].startswith("$: expected a mapping, got")


def test_an_object_that_is_made_already_is_kept():
    inner = Inner(a=1)
    assert structure(Config, {"lr": 1, "inner": inner}).inner is inner


def test_keys_that_are_no_text_are_unknown():
    assert problems(Inner, {"a": 1, 3: 4, None: 5}) == [
        "$[3]: unknown key 3; known: a, b",
        "$[None]: unknown key None; known: a, b",
    ]


def test_validators_that_look_at_other_fields_work_and_are_silent_when_those_are_wrong():
    @attrs.frozen(kw_only=True)
    class Range:
        low: int
        high: int = attrs.field()

        @high.validator
        def _check(self, attribute, value):
            if value < self.low:
                raise ValueError("high must not be below low")

    assert structure(Range, {"low": 1, "high": 2}) == Range(low=1, high=2)
    assert problems(Range, {"low": 3, "high": 2}) == ["$.high: high must not be below low"]
    assert problems(Range, {"low": "x", "high": 2}) == ["$.low: expected an integer, got 'x'"]


def test_a_class_that_refuses_as_a_whole_is_a_problem_of_its_path():
    @attrs.frozen(kw_only=True)
    class Both:
        a: int = 0
        b: int = 0

        def __attrs_post_init__(self):
            if self.a and self.b:
                raise ValueError("a and b exclude each other")

    assert problems(Both, {"a": 1, "b": 1}, "$.x") == ["$.x: a and b exclude each other"]


def test_converters_run_after_structuring_and_their_failures_are_problems():
    @attrs.frozen
    class Config:
        name: str = attrs.field(converter=str.upper, validator=validators.in_(["A"]))

    assert structure(Config, {"name": "a"}).name == "A"
    assert problems(Config, {"name": 1}) == ["$.name: expected text, got 1; write it in quotes: '1'"]
    assert "must be in ['A']" in problems(Config, {"name": "b"})[0]


def test_any_exception_of_a_validator_is_a_problem():
    @attrs.frozen
    class Config:
        a: int = attrs.field(validator=lambda *_: {}["gone"])
        b: Any = attrs.field(default=0, validator=validators.instance_of(int))

    assert problems(Config, {"a": 1, "b": "x"})[0] == "$.a: KeyError: 'gone'"
    assert "'b' must be <class 'int'>" in problems(Config, {"a": 1, "b": "x"})[1]


def test_dataclasses_work_the_same():
    @dataclass
    class Data:
        a: int
        tags: list[str] = field(default_factory=list)
        hidden: int = field(init=False, default=3)

    assert structure(Data, {"a": 1, "tags": ["x"]}) == Data(1, ["x"])
    assert problems(Data, {"a": 1.5, "tag": []}) == [
        "$.tag: unknown key 'tag'; did you mean 'tags'?",
        "$.a: expected an integer, got 1.5",
    ]


def test_a_class_may_hold_itself():
    tree = {"kind": "and", "parts": [{"kind": "or", "parts": [{"kind": "leaf"}]}]}
    assert structure(Node, tree).parts[0].parts[0] == Node(kind="leaf")
    assert problems(Node, {"kind": "a", "parts": [{"kind": 1}]}) == [
        "$.parts[0].kind: expected text, got 1; write it in quotes: '1'"
    ]


@attrs.frozen(kw_only=True)
class Node:
    kind: str
    parts: "tuple[Node, ...]" = ()


def test_a_config_inside_a_plugin_may_name_its_neighbours():
    assert structure(Outer.Config, {"part": {"a": 1}}).part == Outer.Part(a=1)
    assert structure(Outer.Data, {"part": {"a": 1}}).part == Outer.Part(a=1)


class Outer:
    @attrs.frozen
    class Part:
        a: int

    @attrs.frozen
    class Config:
        part: "Part"  # noqa: F821

    @dataclass
    class Data:
        part: "Part"  # noqa: F821


def test_untyped_attributes_take_anything():
    @attrs.define
    class Old:
        a = attrs.field(default=1)
        b = attrs.field(default=2, type=int)

    assert structure(Old, {"a": "x"}).a == "x"
    assert problems(Old, {"b": "x"}) == ["$.b: expected an integer, got 'x'"]


@pytest.mark.parametrize(
    "annotation",
    [
        Callable[[], int],
        complex,
        bytes,
        list[complex],
        dict[str, bytes] | None,
        Literal[Colour.RED],
        Literal[b"x"],
        enum.Enum("Pairs", {"A": (1, 2)}),
    ],
)
def test_an_annotation_without_meaning_names_class_and_field(annotation):
    @attrs.frozen
    class Config:
        callback: annotation = None

    with pytest.raises(
        PluginContractError, match=r"test_structuring\..*Config\.callback: its annotation .* no meaning"
    ):
        structure(Config, {})


def test_an_alias_that_names_itself_is_refused_by_class_and_field():
    @attrs.frozen
    class Config:
        value: Endless = 1

    with pytest.raises(PluginContractError, match=r"Config\.value: its annotation"):
        structure(Config, {})


def test_an_annotation_that_is_not_defined_names_class_and_field():
    @attrs.frozen
    class Config:
        fine: int = 0
        lost: "list[NowhereToBeFound]" = attrs.field(factory=list)  # noqa: F821

    with pytest.raises(
        PluginContractError, match=r"Config\.lost: 'NowhereToBeFound' .*isn't defined; define or import"
    ):
        structure(Config, {})


# --- pydantic, told by its shape --------------------------------------------------------------------------------


class Model(pydantic.BaseModel):
    count: int = 1
    rate: float = 0.5
    name: str = "x"
    where: Path = Path("x")
    colour: Colour = Colour.RED
    pair: tuple[int, str] = (1, "a")


class Nest(pydantic.BaseModel):
    model: Model
    models: list[Model] = []


def test_a_pydantic_model_reads_json_strictly():
    made = structure(Model, {"rate": 1, "where": "a", "colour": "blue", "pair": [2, "b"]})
    assert made == Model(rate=1.0, where=Path("a"), colour=Colour.BLUE, pair=(2, "b"))
    for wrong in ({"count": True}, {"count": "1"}, {"count": 1.9}, {"name": 1}, {"rate": "1"}):
        assert len(problems(Model, wrong)) == 1


def test_a_pydantic_model_reports_all_problems_with_their_paths_and_closes_unknown_keys():
    found = problems(Nest, {"model": {"count": "x", "nmae": 1}, "models": [{"rate": "y"}], "x": 1}, "$.p")
    paths = [each.partition(": ")[0] for each in found]
    assert sorted(paths) == ["$.p.model.count", "$.p.model.nmae", "$.p.models[0].rate", "$.p.x"]
    assert structure(Nest, {"model": {}}).model == Model()
    assert len(problems(Nest, {})) == 1


def test_models_among_which_one_allows_more_keys_keep_their_own_rules():
    class Open(pydantic.BaseModel, extra="allow"):
        a: int = 1

    class Outer(pydantic.BaseModel):
        inner: Open
        free: dict[str, Any] = {}

    assert structure(Outer, {"inner": {"b": 2}, "free": {"c": 3}}).inner.b == 2
    schema = evsys.schema_for_config(Outer)
    assert schema["$defs"]["Open"]["additionalProperties"] is True
    assert "additionalProperties" not in schema


def test_a_pydantic_model_hints_at_the_key_that_was_meant():
    assert problems(Model, {"cuont": 1}) == ["$.cuont: Extra inputs are not permitted; did you mean 'count'?"]


def test_a_pydantic_model_takes_no_value_that_json_has_not():
    assert "nan" in problems(Model, {"rate": math.nan})[0]
    assert structure(Model, {"where": Path("a")}).where == Path("a")


def test_pydantic_models_and_attrs_classes_nest():
    @attrs.frozen
    class Config:
        model: Model | None = None

    assert structure(Config, {"model": {"count": 2}}).model == Model(count=2)
    assert problems(Config, {"model": {"count": "x"}})[0].startswith("$.model.count: ")
    assert structure(Config, {"model": Model()}).model == Model()


def test_pydantic_is_never_imported_for_configs_of_other_makes():
    import subprocess

    code = (
        "import attrs, sys, evsys\n"
        "@attrs.frozen\nclass C:\n    a: int = 1\n"
        "evsys.structure(C, {}); evsys.schema_for_config(C)\n"
        "assert 'pydantic' not in sys.modules and 'asyncio' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- and back ---------------------------------------------------------------------------------------------------


def test_unstructuring_gives_what_json_can_hold_and_structuring_takes_it_back():
    @attrs.frozen
    class Everything:
        colour: Colour = Colour.BLUE
        level: Level = Level.HIGH
        path: Path = Path("a/b")
        pair: tuple[int, str] = (1, "a")
        numbers: frozenset[int] = frozenset({2, 1})
        by_number: dict[int, Inner] = attrs.field(factory=lambda: {1: Inner(a=1)})
        model: Model = attrs.field(factory=Model)
        node: Node = attrs.field(factory=lambda: Node(kind="a", parts=(Node(kind="b"),)))
        _hidden: int = 3

    tree = unstructure(Everything())
    assert structure(Everything, json.loads(json.dumps(tree))) == Everything()
    assert tree["colour"] == "blue"
    assert tree["path"] == "a/b"
    assert tree["numbers"] == [1, 2]
    assert tree["by_number"] == {"1": {"a": 1, "b": 1.0}}
    assert tree["hidden"] == 3


def test_unstructuring_takes_arrays_for_lists_and_their_numbers_for_numbers():
    numpy = pytest.importorskip("numpy")
    tree = {"a": numpy.arange(3), "b": numpy.float32(0.5), "c": numpy.int64(2), "d": numpy.bool_(True)}
    assert json.dumps(unstructure(tree)) == '{"a": [0, 1, 2], "b": 0.5, "c": 2, "d": true}'


@pytest.mark.parametrize("thing", [object(), len, {"a": [complex(1, 2)]}])
def test_unstructuring_refuses_what_json_has_no_words_for(thing):
    with pytest.raises(TypeError, match="can't be written as JSON"):
        unstructure(thing)


# --- speed, by count --------------------------------------------------------------------------------------------


def test_many_right_values_take_the_fast_way_from_the_eleventh_on(monkeypatch):
    examined = []
    monkeypatch.setattr(structuring, "_COMPILE_AFTER", 10)
    monkeypatch.setattr(structuring, "_examine", lambda cls, value: examined.append(cls))
    for _ in range(30):
        structure(Config, {"learning_rate": 1})
    assert examined == [Config] * 10
    tree = {"learning_rate": 1, "inner": {"a": 1}, "inners": [{"a": 2, "b": 3}], "by_name": {"x": {"a": 1}}}
    monkeypatch.setattr(structuring, "_COMPILE_AFTER", 0)
    structuring._hook.cache_clear()
    assert structure(Config, tree).inners[0].b == 3.0
    assert len(examined) == 10


def test_a_file_with_few_values_does_not_import_what_makes_many_fast():
    code = (
        "import sys, attrs, evsys\n"
        "@attrs.frozen\nclass C:\n    a: int\n"
        "for _ in range(10): evsys.structure(C, {'a': 1})\n"
        "assert 'cattrs' not in sys.modules\n"
        "evsys.structure(C, {'a': 1})\n"
        "assert 'cattrs' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

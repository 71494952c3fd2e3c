import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evsys import Registry
from evsys.errors import ConfigError
from evsys_runtime.config.later import later_names
from evsys_runtime.config.model import BenchmarkConfig, ExperimentConfig, MetadataConfig, RunConfig
from evsys_runtime.config.schema import experiment_schema
from evsys_runtime.config.validate import load_experiment

GOOD = {
    "version": 1,
    "name": "x",
    "run": {
        "data": {"path": "data/train.jsonl"},
        "model": {"name": "evsys/tiny"},
        "algorithm": {"kind": "sft", "params": {"learning_rate": 1e-4}},
        "backend": {"kind": "mock"},
    },
    "metadata": {
        "benchmark": [
            {"path": "data/val.jsonl", "metrics": ["pass@3", {"kind": "mean_reward"}], "num_samples": 3}
        ]
    },
}


@pytest.fixture
def validator(registry: Registry) -> jsonschema.Draft202012Validator:
    schema = experiment_schema(registry)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def changed(path: str, value: Any) -> dict:
    tree = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    place: Any = tree
    for key in parents:
        place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
    if value is ...:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = value
    return tree


def test_it_is_plain_json_and_every_reference_leads_somewhere(registry: Registry):
    schema = experiment_schema(registry)
    text = json.dumps(schema)
    for reference in {part.split('"')[0] for part in text.split('"$ref": "')[1:]}:
        target: Any = schema
        for key in reference.removeprefix("#/").split("/"):
            target = target[key]
    assert schema["$schema"].endswith("2020-12/schema")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name", "y"),
        ("run.algorithm", {"kind": "sft"}),
        ("run.algorithm", {"kind": "project/sft", "params": {"lora_rank": 2}}),
        ("run.algorithm.params.learning_rate", 1),
        ("run.agent", {"kind": "chat"}),
        ("run.agent", {"import_path": "evsys_std.agents:ChatAgent", "params": {"max_turns": 1}}),
        ("run.tags", ["a"]),
        ("metadata.benchmark", {"path": "data/val.jsonl", "engine": "auto"}),
        ("metadata.benchmark", {"path": "data/val.jsonl", "engine": {"kind": "direct"}}),
        (
            "metadata.benchmark.0.metrics",
            ["pass@1", {"kind": "pass@k", "params": {"k": 2}}, {"kind": "pass@2"}],
        ),
        (
            "metadata.benchmark.0.metrics",
            [{"kind": "pass@k", "params": {"k": 2}}, {"kind": "pass@k", "params": {"k": 3}}],
        ),
        ("callbacks", [{"kind": "local_logger"}]),
        ("data_store", {"kind": "local"}),
        ("data_store", None),
    ],
)
def test_what_the_schema_takes_is_loaded(validator, project: Path, registry: Registry, path: str, value: Any):
    tree = changed(path, value)
    assert [error.message for error in validator.iter_errors(tree)] == []
    assert loads(tree, project, registry) is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("nme", 1), ("name", ...), ("name", 3), ("version", 2), ("n_repeats", 0), ("n_repeats", 1.5), ("n_repeats", True),
        ("run", ...), ("runs", []), ("run.sed", 1), ("run.seed", -1), ("run.seed", "1"), ("run.data", ...), ("run.model.name", None),
        ("run.algorithm", "sft"), ("run.algorithm", {"params": {}}), ("run.algorithm.kind", "sftt"), ("run.algorithm.kind", "mock"),
        ("run.algorithm.params", [1]), ("run.algorithm.params.learning_rte", 1), ("run.algorithm.params.learning_rate", "1e-4"),
        ("run.algorithm.params.learning_rate", 0), ("run.algorithm.params.lora_rank", 0), ("run.algorithm.extra", 1),
        ("run.data.transforms", [{"kind": "nothing"}]), ("run.data.transforms", {"kind": "jsonl_to_chat"}),
        ("run.agent", {}), ("run.agent", {"kind": "nobody"}),
        ("metadata.hypothess", "x"), ("metadata.direction", "up"),
        ("metadata.benchmark.0.split", "dev"), ("metadata.benchmark.0.splitt", "val"), ("metadata.benchmark.0.num_samples", 0),
        ("metadata.benchmark.0.metrics", ["pass@x"]), ("metadata.benchmark.0.metrics", ["nothing"]), ("metadata.benchmark.0", {}),
        ("metadata.benchmark.0.metrics", [{"kind": "pass@k"}]), ("metadata.benchmark.0.metrics", [{"kind": "pass@2", "params": {"k": 2}}]),
        ("metadata.benchmark.0.engine", "nothing"), ("callbacks", [{"kind": "nothing"}]), ("data_store", {"kind": "local", "params": {"x": 1}}),
        ("log_store", {"kind": "nothing"}),
    ],
)  # fmt: skip
def test_what_the_schema_refuses_is_refused_in_a_file_too(
    validator, project: Path, registry: Registry, path: str, value: Any
):
    tree = changed(path, value)
    assert not validator.is_valid(tree)
    assert loads(tree, project, registry) is not None


def loads(tree: dict, project: Path, registry: Registry) -> str | None:
    """What is wrong with a tree as a file, or None."""
    (project / "exp.yaml").write_text(json.dumps(tree), encoding="utf-8")
    try:
        load_experiment(project / "exp.yaml", registry=registry)
    except ConfigError as exc:
        return str(exc)
    return None


# --- schema and converter agree ----------------------------------------------------------------------------------------------

TEXT = st.text("abc/.", max_size=4)
RIGHT = {
    "n_repeats": st.integers(1, 3),
    "base_seed": st.integers(0, 9),
    "description": TEXT | st.none(),
    "deterministic": st.booleans() | st.none(),
    "metadata.tags": st.lists(TEXT, max_size=2),
    "metadata.minimum_effect": st.floats(0, 1) | st.integers(0, 2) | st.none(),
    "metadata.baseline": st.just("base_model"),
    "metadata.benchmark.0.max_tokens": st.integers(1, 9),
    "metadata.benchmark.0.temperature": st.floats(0, 2) | st.none(),
    "metadata.benchmark.0.pass_threshold": st.floats(-2, 2),
    "metadata.benchmark.0.tags": st.just(["val"]) | st.just([]),
    "run.seed": st.integers(0, 5) | st.none(),
    "run.tags": st.lists(TEXT, max_size=2),
    "run.data.on_bad_row": st.sampled_from(["error", "skip"]),
    "run.data.transforms": st.lists(
        st.just({"kind": "jsonl_to_chat", "params": {"column": "a"}}), max_size=2
    ),
    "run.algorithm.params.lora_rank": st.integers(1, 64),
    "run.algorithm.params.learning_rate": st.floats(1e-9, 1),
    "run.algorithm.params.notes": TEXT,
    "run.backend.params": st.just({"device": "gpu", "port": 3}),
}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats(-2, 2) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["kind", "params", "name", "x"]), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
# A deterministic mock, a benchmark of two tasks and one arm: whatever is drawn, only types and bounds are at stake.


def apply(changes: dict[str, Any]) -> dict:
    tree = copy.deepcopy(GOOD)
    for path, value in changes.items():
        *parents, last = path.split(".")
        place: Any = tree
        for key in parents:
            place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
        place[last] = value
    return tree


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_files_drawn_from_the_schema_load(validator, project: Path, registry: Registry, data: st.DataObject):
    keys = data.draw(st.lists(st.sampled_from(sorted(RIGHT)), unique=True, max_size=6))
    tree = apply({key: data.draw(RIGHT[key]) for key in keys})
    assert [error.message for error in validator.iter_errors(tree)] == []
    assert loads(tree, project, registry) is None


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(RIGHT)), ANYTHING)
def test_for_any_value_of_a_key_schema_and_converter_agree(
    validator, project: Path, registry: Registry, key: str, value: Any
):
    if key == "metadata.baseline" and value != "base_model":
        return  # that the arm exists is beyond a schema
    tree = apply({key: value})
    wrong = loads(tree, project, registry)
    assert validator.is_valid(tree) == (wrong is None), wrong


# --- what it says ------------------------------------------------------------------------------------------------------------


def test_broken_plugins_are_listed_and_left_out(registry: Registry):
    from evsys import PluginEntry

    broken = PluginEntry("transform", "gone", "some-dist", "1.0", "no_such_module_here:Thing")
    mixed = Registry(entry_points=[broken])
    for entry in registry.entries():
        mixed.register(entry.kind, entry.name, registry.get(entry.kind, entry.name))
    schema = experiment_schema(mixed)
    (listed,) = schema["x-evsys-unavailable"]
    assert {key: listed[key] for key in ("kind", "name", "distribution")} == {
        "kind": "transform",
        "name": "gone",
        "distribution": "some-dist",
    }
    assert "no_such_module_here" in listed["error"]
    kinds = [branch["properties"]["kind"] for branch in schema["$defs"]["transform_plugin"]["oneOf"]]
    assert kinds == [{"const": "jsonl_to_chat"}, {"const": "project/jsonl_to_chat"}]


def test_a_name_that_two_distributions_offer_is_taken_in_its_qualified_spelling_only(registry: Registry):
    from evsys import PluginEntry

    two = [PluginEntry("callback", "same", dist, "1.0", "json:JSONDecoder") for dist in ("one", "two")]
    schema = experiment_schema(Registry(entry_points=two))
    kinds = [branch["properties"]["kind"]["const"] for branch in schema["$defs"]["callback_plugin"]["oneOf"]]
    assert kinds == ["one/same", "two/same"]


def test_nested_definitions_of_plugins_do_not_collide(registry: Registry):
    @attrs.frozen(kw_only=True)
    class Part:
        size: int
        inner: "Part | None" = None

    class One(registry.get("transform", "jsonl_to_chat")):
        @attrs.frozen(kw_only=True)
        class Config:
            part: Part

    Part.__module__ = __name__
    globals()["Part"] = Part

    @attrs.frozen(kw_only=True)
    class OtherPart:
        weight: float

    OtherPart.__qualname__ = OtherPart.__name__ = "Part"

    class Two(registry.get("transform", "jsonl_to_chat")):
        @attrs.frozen(kw_only=True)
        class Config:
            part: OtherPart

    One.Config.__annotations__["part"] = Part
    Two.Config.__annotations__["part"] = OtherPart
    registry.register("transform", "one", One)
    registry.register("transform", "two", Two)
    validator = jsonschema.Draft202012Validator(experiment_schema(registry))

    def valid(kind: str, params: dict) -> bool:
        return validator.is_valid(changed("run.data.transforms", [{"kind": kind, "params": params}]))

    assert valid("one", {"part": {"size": 1, "inner": {"size": 2}}})
    assert valid("two", {"part": {"weight": 0.5}})
    assert not valid("one", {"part": {"weight": 0.5}})
    assert not valid("one", {"part": {"size": 1, "inner": {"weight": 2}}})


def test_every_key_has_a_help_text_and_later_ones_are_marked(registry: Registry):
    schema = experiment_schema(registry)
    definitions = {**schema["$defs"], "ExperimentConfig": schema}
    for cls in (ExperimentConfig, MetadataConfig, BenchmarkConfig, RunConfig):
        for field in attrs.fields(cls):
            assert definitions[cls.__name__]["properties"][field.name]["description"]
    marked = {
        scope: {key for key, value in definitions[cls]["properties"].items() if value.get("x-evsys-later")}
        for scope, cls in (
            ("experiment", "ExperimentConfig"),
            ("run", "RunConfig"),
            ("benchmark", "BenchmarkConfig"),
        )
    }
    assert marked == {scope: set(later_names(scope)) for scope in marked}


def test_a_base_run_may_lack_what_axes_give(validator):
    tree = {key: value for key, value in GOOD.items() if key != "run"}
    base = {key: value for key, value in GOOD["run"].items() if key != "algorithm"}
    axes = {"run.algorithm.kind": ["sft"], "seed": {"values": [1, 2], "when": {"backend.kind": "mock"}}}
    assert validator.is_valid({**tree, "base_run": base, "matrix": {"axes": axes}})
    assert validator.is_valid({**tree, "matrix": {"axes": axes, "base_run": base}})
    assert not validator.is_valid({**tree, "base_run": {**base, "sed": 1}, "matrix": {"axes": axes}})
    assert not validator.is_valid({**tree, "base_run": base, "matrix": {"axes": {"seed": 3}}})


def test_the_installed_plugins_are_the_default():
    schema = experiment_schema()
    assert "oneOf" in schema["$defs"]["transform_plugin"]


def test_making_it_needs_neither_yaml_nor_the_other_rooms():
    code = (
        "import sys; from evsys import Registry; from evsys_runtime.config.schema import experiment_schema; "
        "experiment_schema(Registry(entry_points=())); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(done.stdout.split())
    assert "evsys_runtime.config.schema" in loaded
    assert not loaded & {"ruamel.yaml", "cattrs", "numpy", "asyncio"}
    assert not any(name.startswith(("evsys_runtime.data", "evsys_record")) for name in loaded)

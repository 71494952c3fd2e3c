"""What every plugin keeps, whatever its kind."""

from __future__ import annotations

import copy
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings

from evsys import current_registry, structure, unstructure, use_registry
from evsys.errors import ConfigError, EvsysError, PluginLoadError
from evsys_conformance.declare import check, check_of, checks_of
from evsys_conformance.dialect import accepts, property_of, values
from evsys_conformance.offline import blocked
from evsys_conformance.pytest_plugin import SELECTION
from evsys_conformance.rules import is_own_rule
from evsys_conformance.signatures import methods_of
from evsys_conformance.subject import FACTS, Subject

__all__ = ["PROFILE", "EntryConformance", "PluginConformance"]

PROFILE = settings(derandomize=True, deadline=None, max_examples=25, database=None)
"""Every run draws the same examples."""

settings.register_profile("evsys-conformance", PROFILE)

_SECRET = "sk-canary-5f0b2c"
_SECRET_NAME = re.compile(
    r"(?i)(.*[_-])?((api|access|auth|private|secret|account)[_-]?key|apikey|secret|password|passwd|token|credentials?)"
)
_UNKNOWN = "evsys_no_such_key"
_ODD_VALUES: tuple[Any, ...] = (
    "x",
    "",
    "1",
    0,
    1,
    -1,
    1.5,
    1e308,
    True,
    None,
    [],
    [1],
    ["x"],
    {},
    {"x": 1},
    {"x": "y"},
)


class EntryConformance:
    """What can be said of any entry point.

    Fixtures to override in a subclass: `plugin`, the object under test; `params`, what it is made from; `make`, a
    function that makes another one.
    """

    is_evsys_conformance: ClassVar[bool] = True
    kind: ClassVar[str | None] = None

    @pytest.fixture
    def entry_point(self) -> Any:
        """The entry under test, given by --evsys-conformance."""
        return None

    @pytest.fixture
    def subject(self, request: pytest.FixtureRequest, entry_point: Any) -> Subject:
        """The plugin and the registry that knows it."""
        assert self.kind is not None
        if entry_point is not None:
            registry = request.config.stash[SELECTION].registry
            return Subject(self.kind, entry_point.qualified, registry, entry_point)
        if inspect.getattr_static(type(self), "plugin") is vars(EntryConformance)["plugin"]:
            pytest.fail(
                f"{type(self).__name__} must override the fixture `plugin`, which makes what is checked"
            )
        return Subject.handed_over(self.kind, request.getfixturevalue("plugin"))

    @pytest.fixture
    def loaded(self, subject: Subject) -> Any:
        """The class, function or module that the entry names."""
        try:
            return subject.load()
        except EvsysError as exc:
            pytest.skip(f"can't be loaded, as test_loads tells: {exc}")

    @pytest.fixture
    def facts(self, loaded: Any, subject: Subject) -> dict[str, Any]:
        """What the plugin says in its attribute `conformance`."""
        return subject.facts

    @pytest.fixture
    def params(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """What the plugin is made from: its own example, else nothing."""
        return copy.deepcopy(dict(facts.get("params", {})))

    @pytest.fixture
    def home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: Mapping[str, Any]) -> Path:
        """An empty folder to work in, with the plugin's example files."""
        monkeypatch.chdir(tmp_path)
        for name, text in facts.get("files", {}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    @pytest.fixture
    def plugin(self, subject: Subject, params: Mapping[str, Any], home: Path) -> Any:
        """The object under test."""
        return self._built(subject, params)

    @pytest.fixture
    def make(self, subject: Subject, params: Mapping[str, Any], plugin: Any) -> Callable[[], Any]:
        """Makes another object like `plugin`."""
        if subject.entry is None:
            return lambda: copy.deepcopy(plugin)
        return lambda: subject.build(params)

    def _built(self, subject: Subject, params: Mapping[str, Any]) -> Any:
        try:
            return subject.build(params)
        except PluginLoadError as exc:
            pytest.skip(f"something that it needs isn't installed: {exc}")
        except Exception as exc:
            pytest.skip(f"can't be built, as test_builds tells: {exc}")

    @pytest.fixture(autouse=True)
    def offline(self, request: pytest.FixtureRequest) -> Iterator[list[str]]:
        """No network meanwhile; the list of what was asked for."""
        if request.config.getoption("evsys_live"):
            yield []
            return
        with blocked() as tried:
            yield tried

    @pytest.fixture(autouse=True)
    def applies(self, request: pytest.FixtureRequest, offline: list[str]) -> Iterator[None]:
        """Skip what the plugin is too old for or doesn't claim; the plugin's registry is the current one meanwhile."""
        said = check_of(request.function)
        if said is not None and not said.before_loading and self.kind is not None:
            loaded = request.getfixturevalue("loaded")
            speaks = getattr(loaded, "protocol", 1)
            if speaks < said.since_protocol:
                pytest.skip(f"for protocol {said.since_protocol}, and the plugin speaks {speaks}")
            if said.needs is not None and not _declares(loaded, said.needs):
                pytest.skip(f"the plugin doesn't declare {said.needs!r}")
        selection = request.config.stash.get(SELECTION, None)
        with use_registry(selection.registry if selection is not None else current_registry()):
            yield

    @check(before_loading=True)
    def test_loads(self, subject: Subject) -> None:
        """The entry point can be imported and offers what its kind's protocol asks for."""
        try:
            subject.load()
        except EvsysError as exc:
            pytest.fail(str(exc), pytrace=False)

    @check()
    def test_is_known_by_its_name(self, loaded: Any, subject: Subject) -> None:
        """The name that the plugin says is the name of its entry point, and one that a file can hold."""
        name = subject.name.partition("/")[2]
        assert re.fullmatch(r"[^\s/:,]+", name), "a name holds no white space and none of / : ,"
        said = getattr(loaded, "name", name)
        assert said == name, f"the entry point is called {name!r}, the plugin says {said!r}"

    @check()
    def test_needs_no_network_to_be_made(self, plugin: Any, offline: list[str]) -> None:
        """Loading and building asks nobody: `evsys validate` works without a network."""
        assert offline == []

    @check(before_loading=True)
    def test_no_check_is_overridden(self, request: pytest.FixtureRequest) -> None:
        """A subclass changes fixtures, never checks: what is known to fail stands in `evsys_xfail` with its reason."""
        excused = {line.partition(" = ")[0].strip() for line in request.config.getini("evsys_xfail")}
        cls = type(self)
        changed = {
            name
            for base in cls.__mro__
            if base.__module__.startswith("evsys_conformance.")
            for name, function in checks_of(base)
            if _replaced(cls, name, function) and f"{cls.__name__}::{name}" not in excused
        }
        assert not changed, (
            f"overridden: {', '.join(sorted(changed))}; list it in evsys_xfail with a reason instead"
        )


class PluginConformance(EntryConformance):
    """What every plugin keeps that an experiment file can name."""

    @pytest.fixture
    def config(self, loaded: Any, subject: Subject) -> type:
        """The class of its params; checks of params are skipped where it takes none."""
        found = subject.config
        if found is None:
            pytest.skip("it takes no params")
        return found

    @pytest.fixture
    def schema(self, config: type, subject: Subject) -> dict[str, Any]:
        """The schema of its params."""
        try:
            return subject.schema
        except EvsysError as exc:
            pytest.skip(f"has no schema, as test_schema_can_be_made tells: {exc}")

    @check()
    def test_says_only_what_the_suite_understands(self, loaded: Any) -> None:
        """The attribute `conformance` is a mapping of known words."""
        said = getattr(loaded, "conformance", {})
        assert isinstance(said, Mapping), "`conformance` is a mapping"
        assert set(said) - FACTS == set(), f"`conformance` knows {', '.join(sorted(FACTS))}"

    @check()
    def test_builds(self, subject: Subject, params: Mapping[str, Any], home: Path) -> None:
        """It can be made from its example params by keyword, all fields given."""
        if subject.entry is None:
            return  # a subclass has made it
        try:
            subject.build(params)
        except PluginLoadError as exc:
            pytest.skip(f"something that it needs isn't installed: {exc}")
        except EvsysError as exc:
            pytest.fail(f"made from {dict(params)}: {exc}", pytrace=False)

    @check()
    def test_signatures_are_those_of_the_protocol(self, loaded: Any, subject: Subject) -> None:
        """Each method can be called in every way in which the protocol allows to call it."""
        bound = subject.schema["properties"] if not isinstance(loaded, type) else ()
        faults = [fault for m in methods_of(subject.kind, loaded) for fault in m.signature_faults(bound)]
        assert faults == []

    @check()
    def test_async_where_the_protocol_is(self, loaded: Any, subject: Subject) -> None:
        """`async def` where the protocol has it, and nowhere else."""
        faults = [method.asyncness_fault for method in methods_of(subject.kind, loaded)]
        assert [fault for fault in faults if fault] == []

    @check()
    def test_schema_can_be_made(self, config: type, subject: Subject) -> None:
        """The params have a JSON Schema of an object, which can be written as JSON."""
        schema = subject.schema
        assert schema["type"] == "object"
        json.dumps(schema, allow_nan=False)

    @check()
    def test_what_the_schema_allows_is_accepted(
        self, config: type, schema: dict[str, Any], params: Mapping[str, Any]
    ) -> None:
        """Each value drawn from the schema structures, unless a rule of the Config's own refuses it."""
        accepted = 0

        @PROFILE
        @given(values({"type": "object", **_each_required(schema)}, schema))
        def draw(drawn: dict[str, Any]) -> None:
            nonlocal accepted
            for name, value in drawn.items():
                tree = {**params, name: value}
                problems = _refusals(config, tree)
                wrong = [str(problem) for problem in problems if not is_own_rule(config, tree, problem)]
                assert not wrong or not accepts(schema, tree), (
                    f"the schema allows {name}={value!r}: {wrong[0]}"
                )
                accepted += not problems

        draw()
        assert accepted or not schema.get("properties"), "nothing that the schema allows is accepted"

    @check()
    def test_what_the_schema_forbids_is_refused(
        self, config: type, schema: dict[str, Any], params: Mapping[str, Any]
    ) -> None:
        """Wrong types, values out of range and missing fields are refused by the schema and by the converter."""
        for name in schema.get("properties", {}):
            for value in (*_ODD_VALUES, *_beyond(property_of(schema, name))):
                tree = {**params, name: value}
                if not accepts(schema, tree):
                    assert _refusals(config, tree), f"the schema forbids {name}={value!r}, and it is accepted"
        for name in schema.get("required", ()):
            tree = {key: value for key, value in params.items() if key != name}
            assert _refusals(config, tree), f"{name} is required, and may be left out"

    @check()
    def test_unknown_keys_are_refused(
        self, subject: Subject, loaded: Any, params: Mapping[str, Any], home: Path
    ) -> None:
        """A key that the plugin doesn't know is an error, for the schema and for the converter."""
        if not isinstance(loaded, type) and subject.kind == "verifier":
            pytest.skip("a verifier that is a function gets its params when it is called")
        schema = subject.schema
        assert not accepts(schema, {**params, _UNKNOWN: 1}), "the schema allows unknown keys"
        with pytest.raises(ConfigError):
            subject.build({**params, _UNKNOWN: 1})

    @check()
    def test_config_round_trips(
        self, config: type, schema: dict[str, Any], params: Mapping[str, Any]
    ) -> None:
        """What a config becomes as JSON, and back, is the same config."""

        @PROFILE
        @given(values({"type": "object", **_each_required(schema)}, schema))
        def draw(drawn: dict[str, Any]) -> None:
            for tree in [dict(params), *({**params, name: value} for name, value in drawn.items())]:
                if not _refusals(config, tree):
                    first = unstructure(structure(config, tree))
                    again = unstructure(structure(config, json.loads(json.dumps(first))))
                    assert again == first

        draw()

    @check()
    def test_repr_carries_no_secret(
        self,
        subject: Subject,
        params: Mapping[str, Any],
        plugin: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Neither the object nor its Config shows a key or a password, given as a param or by the environment."""
        for variable in ("EVSYS_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HF_TOKEN", "WANDB_API_KEY"):
            monkeypatch.setenv(variable, _SECRET)
        fields = subject.schema.get("properties", {}) if subject.config is not None else {}
        secret = {name: _SECRET for name in fields if _SECRET_NAME.fullmatch(name)}
        given_params = {**params, **secret}
        config = subject.config
        if config is not None and not _refusals(config, given_params):
            assert _SECRET not in repr(structure(config, given_params)), "the Config's repr shows a secret"
        if subject.entry is not None:
            plugin = self._built(subject, given_params)
        assert _SECRET not in repr(plugin), "the object's repr shows a secret"


def _declares(loaded: Any, capability: str) -> bool:
    declared: Any = getattr(loaded, "capabilities", getattr(loaded, "supports", frozenset()))
    return capability in declared or any(str(one).startswith(f"{capability}:") for one in declared)


def _replaced(cls: type, name: str, function: Any) -> bool:
    """True when a class outside this package has put something else in a check's place."""
    for base in cls.__mro__:
        if name in vars(base):
            return not base.__module__.startswith("evsys_conformance.") and vars(base)[name] is not function
    return True


def _refusals(config: type, tree: Mapping[str, Any]) -> tuple[Any, ...]:
    """The problems for which the converter refuses a tree; any other exception passes through."""
    try:
        structure(config, dict(tree))
    except ConfigError as exc:
        return exc.problems
    return ()


def _each_required(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of a schema, all of them present, so that each example tries each."""
    properties = {k: v for k, v in schema.get("properties", {}).items() if not v.get("deprecated")}
    return {"properties": properties, "required": list(properties), "additionalProperties": False}


def _beyond(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Values just outside the bounds of a property, and of each of its alternatives."""
    for part in (schema, *schema.get("anyOf", ())):
        for word, step in (("minimum", -1), ("maximum", 1), ("exclusiveMinimum", 0), ("exclusiveMaximum", 0)):
            if word in part:
                yield part[word] + step
        if "enum" in part:
            yield "evsys-no-such-choice"
        if part.get("minLength"):
            yield "x" * (part["minLength"] - 1)
        if part.get("minItems"):
            yield ["x"] * (part["minItems"] - 1)

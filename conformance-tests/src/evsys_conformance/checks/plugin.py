"""The contract of every plugin that an experiment file can name: its methods' signatures, and its params."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from evsys import structure, unstructure
from evsys.errors import ConfigError, EvsysError, PluginLoadError
from evsys_conformance.checks.entry import EntryConformance
from evsys_conformance.declare import check, words_of
from evsys_conformance.dialect import accepts, property_of, values
from evsys_conformance.drawing import for_each
from evsys_conformance.findings import Words, breach, require, require_equal
from evsys_conformance.places import describe_error
from evsys_conformance.rules import fields_read_more_widely, is_own_rule
from evsys_conformance.signatures import methods_of
from evsys_conformance.subject import Subject

__all__ = ["PluginConformance"]

_SECRET = "sk-canary-5f0b2c"
_SECRET_NAME = re.compile(
    r"(?i)(.*[_-])?((api|access|auth|private|secret|account)[_-]?key|apikey|secret|password|passwd|token|credentials?)"
)
_UNKNOWN = "evsys_no_such_key"
_ODD_VALUES: tuple[Any, ...] = (
    *("x", "", "1", 0, 1, -1, 1.5, 1e308, True, None),
    *([], [1], ["x"], {}, {"x": 1}, {"x": "y"}),
)


class PluginConformance(EntryConformance):
    """Checks of every plugin that an experiment file can name."""

    @pytest.fixture
    def config(self, loaded: Any, subject: Subject) -> type:
        """The class of its params; checks of params are skipped where it takes none."""
        try:
            found = subject.config
        except Exception as exc:
            pytest.skip(f"after test_schema_can_be_made: it has no usable Config: {describe_error(exc)}")
        if found is None:
            pytest.skip("it takes no params")
        return found

    @pytest.fixture
    def schema(self, config: type, subject: Subject) -> dict[str, Any]:
        """The schema of its params."""
        return self._schema(subject)

    def why_not_called(self, request: pytest.FixtureRequest) -> str | None:
        """Methods that can't be called as evsys calls them show nothing else."""
        loaded, subject = request.getfixturevalue("loaded"), request.getfixturevalue("subject")
        bound = _names_of_params(subject) if not isinstance(loaded, type) else ()
        for method in methods_of(subject.kind, loaded):
            if any(method.signature_faults(bound)):
                return f"after test_signatures_are_those_of_the_protocol: {method.name} can't be called"
            if method.asyncness_fault:
                return f"after test_async_where_the_protocol_is: {method.asyncness_fault}"
        return None

    def _schema(self, subject: Subject) -> dict[str, Any]:
        try:
            return subject.schema
        except Exception as exc:
            pytest.skip(f"after test_schema_can_be_made: it has no schema: {describe_error(exc)}")

    @check(calls=False)
    def test_says_only_what_the_suite_understands(self, loaded: Any) -> None:
        """The attribute `conformance` is a mapping of words that the suite knows for its kind."""
        said = getattr(loaded, "conformance", {})
        require(
            isinstance(said, Mapping), "`conformance` isn't a mapping", seen=said, wanted="{'params': {...}}"
        )
        known = words_of(type(self))
        require(
            set(said) <= set(known),
            f"`conformance` says what the suite doesn't know of a {self.kind}",
            seen=Words(", ".join(sorted(map(str, set(said) - set(known))))),
            wanted=f"any of {', '.join(sorted(known))}",
        )

    @check(calls=False)
    def test_builds(self, subject: Subject, params: Mapping[str, Any], home: Path) -> None:
        """It can be made from its example params by keyword, all fields given."""
        if subject.entry is None:
            return  # a subclass has made it
        self._schema(subject)
        try:
            subject.build(params)
        except PluginLoadError as exc:
            pytest.skip(f"something that it needs isn't installed: {exc}")
        except Exception as exc:
            breach(
                f"it can't be made: {exc if isinstance(exc, EvsysError) else describe_error(exc)}",
                seen=dict(params),
                wanted="params that it needs belong in its class: conformance = {'params': {...}}",
            )

    @check(calls=False)
    def test_signatures_are_those_of_the_protocol(self, loaded: Any, subject: Subject) -> None:
        """Each method can be called in every way in which the protocol allows to call it."""
        bound = _names_of_params(subject) if not isinstance(loaded, type) else ()
        for method in methods_of(subject.kind, loaded):
            for fault in method.signature_faults(bound):
                breach(fault, wanted=f"{method.name}{method.wanted}")

    @check(calls=False)
    def test_async_where_the_protocol_is(self, loaded: Any, subject: Subject) -> None:
        """`async def` where the protocol has it, and nowhere else."""
        for method in methods_of(subject.kind, loaded):
            fault = method.asyncness_fault
            require(fault is None, str(fault), wanted=f"{method.keyword} {method.name}{method.wanted}")

    @check(calls=False)
    def test_schema_can_be_made(self, loaded: Any, subject: Subject) -> None:
        """The params have a JSON Schema of an object, which can be written as JSON."""
        try:
            if subject.config is None:
                pytest.skip("it takes no params")
            schema = subject.schema
        except Exception as exc:
            breach(
                f"its params have no JSON Schema: {describe_error(exc)}",
                seen=getattr(loaded, "Config", loaded),
            )
        require_equal(schema["type"], "object", "the schema of its params isn't that of an object")
        try:
            json.dumps(schema, allow_nan=False)
        except (TypeError, ValueError) as exc:
            breach(
                f"its schema can't be written as JSON: {exc}",
                seen=schema,
                wanted="defaults and choices that JSON has",
            )

    @check(calls=False)
    def test_what_the_schema_allows_is_accepted(
        self, config: type, schema: dict[str, Any], params: Mapping[str, Any]
    ) -> None:
        """Each value drawn from the schema structures, unless a rule of the Config's own refuses it."""
        if _refusals(config, params):
            pytest.skip("after test_builds: its example params are refused: conformance = {'params': {...}}")
        accepted = 0

        def try_each(drawn: dict[str, Any]) -> None:
            nonlocal accepted
            for name, value in drawn.items():
                tree = {**params, name: value}
                problems = _refusals(config, tree)
                wrong = [str(problem) for problem in problems if not is_own_rule(config, tree, problem)]
                if wrong and accepts(schema, tree):
                    breach(
                        f"its schema allows a value of {name} that its Config refuses: {wrong[0]}",
                        seen=value,
                        wanted="the schema forbids what is refused, so that an editor can show it",
                    )
                accepted += not problems

        _for_each_value(schema, try_each)
        require(
            accepted or not schema.get("properties"),
            "nothing that its schema allows is accepted by its Config",
            seen=schema["properties"],
            wanted="example params with which single values can be tried: conformance = {'params': {...}}",
        )

    @check(calls=False)
    def test_what_the_schema_forbids_is_refused(
        self, config: type, schema: dict[str, Any], params: Mapping[str, Any]
    ) -> None:
        """Wrong types, values out of range and missing fields are refused by the schema and by the converter.

        A schema says what a field holds. A pydantic validator that runs first (`mode="before"`) may make that of other values.
        """
        lenient = fields_read_more_widely(config)
        for name in schema.get("properties", {}):
            if name in lenient:
                continue
            for value in (*_ODD_VALUES, *_beyond(property_of(schema, name))):
                tree = {**params, name: value}
                require(
                    accepts(schema, tree) or _refusals(config, tree),
                    f"its schema forbids a value of {name} that its Config accepts",
                    seen=value,
                    wanted="a validator that refuses it, or a schema that allows it",
                )
        for name in sorted({*schema.get("required", ())} - lenient):
            tree = {key: value for key, value in params.items() if key != name}
            require(
                _refusals(config, tree), f"its schema requires {name}, and its Config takes params without it"
            )

    @check(calls=False)
    def test_unknown_keys_are_refused(
        self,
        subject: Subject,
        loaded: Any,
        params: Mapping[str, Any],
        home: Path,
    ) -> None:
        """A key that the plugin doesn't know is an error, for the schema and for the converter."""
        if not isinstance(loaded, type) and subject.kind == "verifier":
            pytest.skip("a verifier that is a function gets its params when it is called")
        tree = {**params, _UNKNOWN: 1}
        wanted = "an error that names it (in a pydantic model: extra='forbid')"
        schema = self._schema(subject)
        require(not accepts(schema, tree), "its schema allows unknown keys", seen=tree, wanted=wanted)
        try:
            subject.build(tree)
        except ConfigError:
            return
        breach("it can be made with a key that it doesn't know", seen=tree, wanted=wanted)

    @check(calls=False)
    def test_config_round_trips(
        self, config: type, schema: dict[str, Any], params: Mapping[str, Any]
    ) -> None:
        """A config survives the way to JSON and back."""

        def there_and_back(tree: dict[str, Any]) -> None:
            if not _refusals(config, tree):
                first = unstructure(structure(config, tree))
                again = unstructure(structure(config, json.loads(json.dumps(first))))
                require_equal(again, first, f"made from {tree}, the Config changes on its way through JSON")

        def try_each(drawn: dict[str, Any]) -> None:
            for name, value in drawn.items():
                there_and_back({**params, name: value})

        there_and_back(dict(params))
        _for_each_value(schema, try_each)

    @check(calls=False)
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
        fields = self._schema(subject).get("properties", {})
        secret = {name: _SECRET for name in fields if _SECRET_NAME.fullmatch(name)}
        given_params = {**params, **secret}
        config = subject.config
        if config is not None and not _refusals(config, given_params):
            shows = repr(structure(config, given_params))
            wanted = "no secret: attrs.field(repr=False), dataclasses.field(repr=False), pydantic.SecretStr"
            require(_SECRET not in shows, "the repr of its Config shows a secret", seen=shows, wanted=wanted)
        if subject.entry is not None:
            plugin = self._build_plugin(subject, given_params)
        require(
            _SECRET not in repr(plugin),
            "its repr shows a secret",
            seen=repr(plugin),
            wanted="no secret in it",
        )


def _names_of_params(subject: Subject) -> Collection[str]:
    """Names of the params of a bare function; none if they can't be read, which other checks report."""
    try:
        return list(subject.schema["properties"])
    except EvsysError:
        return ()


def _refusals(config: type, tree: Mapping[str, Any]) -> tuple[Any, ...]:
    """The problems for which the converter refuses a tree; any other exception passes through."""
    try:
        structure(config, dict(tree))
    except ConfigError as exc:
        return exc.problems
    return ()


def _for_each_value(schema: Mapping[str, Any], holds: Callable[[dict[str, Any]], None]) -> None:
    """Call with examples of all properties of a schema together."""
    drawn = values({"type": "object", **_each_required(schema)}, schema)
    for_each(drawn, holds, of=json.dumps(schema, sort_keys=True, default=repr))


def _each_required(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of a schema, all of them present, so that each example tries each."""
    properties = {k: v for k, v in schema.get("properties", {}).items() if "x-evsys-alias-of" not in v}
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

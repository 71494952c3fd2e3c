"""The contract of every entry point, regardless of its kind, and the set-up of each check."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evsys import current_registry, use_registry
from evsys._plugins.refusals import known_names
from evsys.errors import EvsysError, PluginLoadError
from evsys.optional import misspelt
from evsys_conformance.budget import QUICK_SECONDS, Import
from evsys_conformance.declare import check, check_of, checks_of
from evsys_conformance.findings import Words, breach, require
from evsys_conformance.offline import block_network
from evsys_conformance.places import describe_error
from evsys_conformance.pytest_plugin import HUNG, SELECTION, owner_of
from evsys_conformance.subject import Subject

__all__ = ["EntryConformance"]


class EntryConformance:
    """Checks of any entry point.

    Fixtures to override in a subclass: `plugin`, the object under test; `params`, what it is made from; `make`, a
    function that makes another one.
    """

    pytestmark: ClassVar[pytest.MarkDecorator] = pytest.mark.evsys_conformance
    kind: ClassVar[str | None] = None
    words: ClassVar[Mapping[str, str]] = {
        "params": "example params that it is made from; by default none",
        "files": "`{path: text}`: files that lie in the working directory meanwhile",
        "service": "true when it only works with a service of its own: what it does is then tried with `--evsys-live` alone",
    }
    """The keys of a plugin's attribute `conformance`, with their meanings; subclasses add those of their kind."""

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
        home = next(base for base in type(self).__mro__ if "plugin" in vars(base))
        if home.__module__.startswith("evsys_conformance."):
            breach(f"{type(self).__name__} must override the fixture `plugin`, which makes what is checked")
        return Subject.handed_over(self.kind, request.getfixturevalue("plugin"))

    @pytest.fixture
    def loaded(self, subject: Subject) -> Any:
        """The class, function or module that the entry names."""
        try:
            return subject.load()
        except EvsysError:
            pytest.skip("after test_loads: it can't be loaded")

    @pytest.fixture
    def imported(self, request: pytest.FixtureRequest, loaded: Any, subject: Subject) -> Import:
        """The effects of importing it in a fresh process of its own."""
        if subject.entry is None:
            pytest.skip("what a subclass makes is imported already; --evsys-conformance looks at its import")
        selection = request.config.stash[SELECTION]
        return selection.imports(subject.entry.distribution)[subject.kind, subject.entry.qualified]

    @pytest.fixture
    def facts(self, loaded: Any, subject: Subject) -> dict[str, Any]:
        """The plugin's attribute `conformance`."""
        return subject.facts

    @pytest.fixture
    def params(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The params that the plugin is made from: its own example, or none."""
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
        return self._build_plugin(subject, params)

    @pytest.fixture
    def make(self, subject: Subject, params: Mapping[str, Any], plugin: Any) -> Callable[[], Any]:
        """A function that makes another object like `plugin`."""
        if subject.entry is not None:
            return lambda: subject.build(params)

        def another() -> Any:
            try:
                return copy.deepcopy(plugin)
            except Exception as exc:
                pytest.skip(f"it can't be copied ({exc}): override the fixture `make`, which makes another")

        return another

    def _build_plugin(self, subject: Subject, params: Mapping[str, Any]) -> Any:
        try:
            return subject.build(params)
        except PluginLoadError as exc:
            pytest.skip(f"something that it needs isn't installed: {exc}")
        except Exception as exc:
            pytest.skip(f"after test_builds: it can't be made: {describe_error(exc)}")

    @pytest.fixture(autouse=True)
    def offline(self, request: pytest.FixtureRequest) -> Iterator[list[str]]:
        """No network meanwhile; the list of what was asked for."""
        if request.config.getoption("evsys_live"):
            yield []
            return
        with block_network() as tried:
            yield tried

    @pytest.fixture(autouse=True)
    def applies(self, request: pytest.FixtureRequest, offline: list[str]) -> Iterator[None]:
        """Skip what the plugin is too old for or doesn't claim; the plugin's registry is the current one meanwhile."""
        said = check_of(request.function)
        if said is not None and not said.before_loading and self.kind is not None:
            hung = request.config.stash.get(HUNG, {}).get(owner_of(request.node))
            if hung is not None:
                pytest.skip(f"after {hung}: it hung there")
            loaded = request.getfixturevalue("loaded")
            speaks = getattr(loaded, "protocol", 1)
            if speaks < said.since_protocol:
                pytest.skip(f"for protocol {said.since_protocol}, and the plugin speaks {speaks}")
            if said.needs is not None and not _declares(loaded, said.needs):
                pytest.skip(f"the plugin doesn't declare {said.needs!r}")
            if said.calls and _wants_service(request) and not request.config.getoption("evsys_live"):
                pytest.skip("the plugin says that it needs a service; run it with --evsys-live")
            why_not = self.why_not_called(request) if said.calls else None
            if why_not is not None:
                pytest.skip(why_not)
        selection = request.config.stash.get(SELECTION, None)
        with use_registry(selection.registry if selection is not None else current_registry()):
            yield

    def why_not_called(self, request: pytest.FixtureRequest) -> str | None:
        """The reason why checks that call the plugin's methods would show nothing new; None if there is none."""
        return None

    @check(before_loading=True)
    def test_loads(self, subject: Subject) -> None:
        """The entry point can be imported and offers what its kind's protocol asks for."""
        try:
            subject.load()
        except EvsysError as exc:
            breach(str(exc))

    @check(calls=False)
    def test_is_known_by_its_name(self, loaded: Any, subject: Subject) -> None:
        """The name that the plugin says is the name of its entry point, and one that a file can hold."""
        name = subject.name.partition("/")[2]
        require(
            re.fullmatch(r"[^\s/:,]+", name),
            "the plugin's name can't be written in an experiment file",
            seen=name,
            wanted="a name without white space and without / : ,",
        )
        said = getattr(loaded, "name", name)
        require(
            said == name,
            "the plugin's attribute `name` isn't the name of its entry point",
            seen=said,
            wanted=f"name = {name!r}, or no attribute `name` at all",
        )

    @check(calls=False)
    def test_optional_members_are_spelt_right(self, loaded: Any, subject: Subject) -> None:
        """No public member of a class has nearly the name of an optional member: a misspelt one is never asked for."""
        if not isinstance(loaded, type):
            pytest.skip("it isn't a class")
        found = misspelt(subject.kind, loaded)
        require(
            not found,
            "a public member has nearly the name of an optional member, so evsys does not see it",
            seen=Words(", ".join(found)),
            wanted=f"{', '.join(found.values())}; or, for a member of its own, another name or one with an underscore",
        )

    @check(before_loading=True)
    def test_name_is_not_that_of_a_built_in(self, subject: Subject) -> None:
        """No plugin of evsys itself has its kind and name: a config that says the name would be ambiguous."""
        if subject.entry is None:
            pytest.skip("what a subclass makes has no entry point; --evsys-conformance looks at its name")
        entry = subject.entry
        owner = _built_in_owner(entry.kind, entry.name)
        require(
            owner in {None, entry.distribution},
            f"{owner} has a {entry.kind} called {entry.name!r}",
            seen=str(entry),
            wanted="a name of its own",
        )

    @check(calls=False)
    def test_needs_no_network_to_be_made(self, plugin: Any, offline: list[str]) -> None:
        """Building it asks no one: `evsys validate` works without a network."""
        require(
            not offline,
            "it asked for the network while it was made",
            seen=Words(f"asked for {', '.join(offline)}"),
            wanted="connections are made by its methods, when they are called",
        )

    @check(calls=False)
    def test_import_needs_no_network(self, imported: Import) -> None:
        """Importing it asks no one: `evsys list` and `evsys schema` work without a network."""
        require(
            not imported.network,
            "its module asks for the network while it is imported",
            seen=Words(f"asked for {', '.join(imported.network)}"),
            wanted="connections are made by its methods, when they are called",
        )

    @check(calls=False)
    def test_import_prints_nothing(self, imported: Import) -> None:
        """Importing it writes neither to standard output nor to standard error, which belong to the command that runs."""
        require(
            not imported.said.strip(),
            "its module prints while it is imported",
            seen=imported.said,
            wanted="nothing; what users should know is logged when the plugin is made, or raised",
        )

    @check(calls=False)
    def test_import_is_quick(self, imported: Import) -> None:
        """Importing it takes no time that anyone notices, since every command that names it waits for that."""
        require(
            imported.seconds <= QUICK_SECONDS,
            "its module takes long to import",
            seen=Words(f"{imported.seconds:.1f} s, the better of two times"),
            wanted=f"at most {QUICK_SECONDS} s: what takes long, such as loading a model or a large library, belongs into "
            "the function that needs it",
        )

    @check(before_loading=True)
    def test_no_check_is_overridden(self, request: pytest.FixtureRequest) -> None:
        """A subclass changes fixtures, never checks: what is known to fail is in `evsys_xfail` with its reason."""
        excused = {line.partition(" = ")[0].strip() for line in request.config.getini("evsys_xfail")}
        cls = type(self)
        changed = {
            name
            for base in cls.__mro__
            if base.__module__.startswith("evsys_conformance.")
            for name, function in checks_of(base)
            if _replaced(cls, name, function) and f"{cls.__name__}::{name}" not in excused
        }
        require(
            not changed,
            f"{cls.__name__} overrides checks of the suite",
            seen=Words(", ".join(sorted(changed))),
            wanted=f"in the ini file, a line of evsys_xfail: {cls.__name__}::{min(changed, default='')} = reason",
        )


def _built_in_owner(kind: str, name: str) -> str | None:
    """The distribution of evsys that has a plugin of this kind and name, or of the family that `name` is a member of."""
    family = re.sub(r"([@^])[1-9][0-9]*$", r"\1k", name)
    owners = known_names()["built_in"].get(kind, {}).items()
    return next((owner for owner, names in owners if name in names or family in names), None)


def _wants_service(request: pytest.FixtureRequest) -> bool:
    """True for an entry that says so; what a subclass makes has a service, or a fake of it."""
    if request.getfixturevalue("subject").entry is None:
        return False
    return bool(request.getfixturevalue("facts").get("service"))


def _declares(loaded: Any, capability: str) -> bool:
    declared: Any = getattr(loaded, "capabilities", getattr(loaded, "supports", frozenset()))
    return capability in declared or any(str(one).startswith(f"{capability}:") for one in declared)


def _replaced(cls: type, name: str, function: Any) -> bool:
    """True when a class outside this package has put something else in a check's place."""
    for base in cls.__mro__:
        if name in vars(base):
            return not base.__module__.startswith("evsys_conformance.") and vars(base)[name] is not function
    return True

import json
import pickle
import subprocess
import sys
import time
import types
from importlib.resources import files

import attrs
import pytest

from evsys import Registry, current_registry, use_registry
from evsys.errors import PluginConflictError, PluginLoadError, PluginNotFoundError
from evsys.protocols import KINDS

A_METRIC = """
    class Mean:
        def compute(self, task_rewards):
            return 1.0
"""


class Mean:
    def compute(self, task_rewards):
        return 0.0


class Other:
    def compute(self, task_rewards):
        return 0.5


# --- names ------------------------------------------------------------------------------------------------------


def test_an_installed_plugin_is_found_and_imported_when_asked_for(site):
    site.install("evsys-test-a", {"evsys.metrics": {"m": "site_a:Mean"}}, {"site_a": A_METRIC})
    registry = Registry()
    assert registry.find("metric", "m").qualified == "evsys-test-a/m"
    assert "site_a" not in sys.modules
    assert registry.get("metric", "m") is sys.modules["site_a"].Mean


def test_entries_are_sorted_by_kind_and_name_and_hold_local_ones(site, registry):
    site.install("evsys-test-a", {"evsys.metrics": {"b": "x:M", "a": "x:M"}, "evsys.backends": {"z": "x:B"}})
    registry = Registry(allow=["evsys-test-a"])
    registry.register("metric", "aa", Mean)
    assert [(entry.kind, entry.name, entry.local) for entry in registry.entries()] == [
        ("backend", "z", False),
        ("metric", "a", False),
        ("metric", "aa", True),
        ("metric", "b", False),
    ]
    assert [entry.name for entry in registry.entries("metric")] == ["a", "aa", "b"]


def test_two_distributions_with_one_name_conflict_only_when_the_name_is_used(site):
    for letter in "ab":
        site.install(
            f"evsys-test-{letter}",
            {"evsys.metrics": {"m": f"site_{letter}:Mean"}},
            {f"site_{letter}": A_METRIC},
        )
    registry = Registry()
    assert [entry.qualified for entry in registry.entries("metric") if entry.name == "m"] == [
        "evsys-test-a/m",
        "evsys-test-b/m",
    ]
    with pytest.raises(PluginConflictError, match="write 'evsys-test-a/m' or 'evsys-test-b/m'"):
        registry.get("metric", "m")
    assert registry.get("metric", "evsys-test-b/m").__module__ == "site_b"
    assert registry.get("metric", "Evsys_Test_A/m").__module__ == "site_a"


def test_one_distribution_that_lists_a_name_twice_says_so(site):
    site.install("evsys-test-a", "[evsys.metrics]\nm = a:M\nm = a:N\n")
    with pytest.raises(PluginConflictError, match=r"\(a:M\) and .*\(a:N\); reinstall evsys-test-a"):
        Registry().find("metric", "m")


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        ("metric", "paas_rate", "did you mean 'pass_rate'?"),
        ("metric", "qqq", "installed: mean, pass_rate"),
        ("launcher", "qqq", "no launcher is installed"),
        ("algorithm", "sft", "install it with: pip install evsys-algo-sft"),
    ],
)
def test_an_unknown_name_comes_with_what_to_do(registry, kind, name, hint):
    registry.register("metric", "mean", Mean)
    registry.register("metric", "pass_rate", Mean)
    with pytest.raises(PluginNotFoundError) as caught:
        registry.find(kind, name)
    assert str(caught.value) == f"no {kind} is called {name!r}; {hint}"
    assert isinstance(caught.value, LookupError)


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("launcher", "ray", "launcher 'ray' is not in this version; use 'processes', which gives each arm a process on this machine"),
        ("log_store", "evsys_logger", "log_store 'evsys_logger' is not in this version; `local_logger` writes the same record"),
    ],
)  # fmt: skip
def test_a_planned_plugin_is_said_to_be_one_and_is_found_once_somebody_brings_it(registry, kind, name, text):
    with pytest.raises(PluginNotFoundError) as caught:
        registry.find(kind, name)
    assert str(caught.value) == text
    registry.register(kind, name, Mean)
    assert registry.find(kind, name).local


def test_a_planned_name_that_is_installed_but_kept_out_is_said_to_be_kept_out(site):
    site.install("evsys-test-a", "[evsys.launchers]\nray = a:Ray\n")
    with pytest.raises(PluginNotFoundError, match="EVSYS_PLUGINS_DENY keeps it out"):
        Registry(deny=["evsys-test-a"]).find("launcher", "ray")


def test_what_is_planned_and_what_can_be_installed_have_nothing_in_common():
    known = json.loads(files("evsys._plugins").joinpath("known.json").read_text(encoding="utf-8"))
    assert set(known["planned"]) | set(known["install"]) <= set(KINDS)
    assert not [
        (kind, name)
        for kind, names in known["install"].items()
        for name in names
        if name in known["planned"].get(kind, {})
    ]


def test_another_name_of_a_plugin_means_it_unless_something_has_that_very_name(registry):
    with pytest.raises(PluginNotFoundError, match="no metric is called 'latency'"):
        registry.find("metric", "latency")
    registry.register("metric", "time_per_task", Mean)
    assert registry.find("metric", "latency").name == "time_per_task"
    registry.register("metric", "latency", Mean)
    assert registry.find("metric", "latency").name == "latency"


def test_a_name_that_other_tools_use_says_what_to_use_instead(registry):
    with pytest.raises(PluginNotFoundError, match="no backend is called 'trl'; use 'local'"):
        registry.find("backend", "trl")


def test_an_unknown_kind_names_the_closest(registry):
    for ask in (lambda: registry.find("metrics", "m"), lambda: registry.entries("metrics")):
        with pytest.raises(
            PluginNotFoundError, match="unknown kind of plugin 'metrics'; did you mean 'metric'"
        ):
            ask()
    with pytest.raises(PluginNotFoundError, match="kinds: algorithm, backend"):
        registry.register("zzz", "m", Mean)


def test_a_name_that_looks_qualified_can_not_be_registered(registry):
    with pytest.raises(ValueError, match="metric 'evsys-test-a/m': a name can't contain '/'"):
        registry.register("metric", "evsys-test-a/m", Mean)


# --- families ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "family", "k"), [("pass@3", "pass@k", 3), ("pass^12", "pass^k", 12)])
def test_a_family_is_found_by_its_members(registry, name, family, k):
    registry.register("metric", family, Mean)
    entry = registry.find("metric", name)
    assert (entry.name, entry.params, entry.qualified) == (family, {"k": k}, f"project/{name}")
    assert registry.find("metric", entry.qualified) == entry
    assert registry.get("metric", name) is Mean


def test_an_exact_name_comes_before_its_family(registry):
    registry.register("metric", "pass@k", Mean)
    registry.register("metric", "pass@2", Other)
    assert registry.get("metric", "pass@2") is Other
    assert registry.find("metric", "pass@2").params == {}


@pytest.mark.parametrize(
    "name", ["pass@", "pass@x", "pass@-1", "pass@03", "pass@1.5", "pass3", "@3", f"pass@{'9' * 5000}"]
)
def test_what_is_no_member_of_a_family_is_not_found(registry, name):
    registry.register("metric", "pass@k", Mean)
    with pytest.raises(PluginNotFoundError):
        registry.find("metric", name)


# --- local registrations ----------------------------------------------------------------------------------------


def test_a_local_plugin_wins_over_an_installed_one_with_a_warning(site):
    site.install("evsys-test-a", {"evsys.metrics": {"m": "site_a:Mean"}}, {"site_a": A_METRIC})
    registry = Registry()
    registry.register("metric", "m", Mean)
    assert registry.get("metric", "m") is Mean
    assert registry.get("metric", "m") is Mean
    assert registry.warnings == ["metric 'm' is the project's own and hides metric evsys-test-a/m (1.0)"]
    assert registry.get("metric", "evsys-test-a/m") is not Mean
    assert registry.get("metric", "project/m") is Mean


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_hidden_plugin_of_any_kind_is_reported_once_however_often_its_name_is_looked_up(site, kind):
    site.install("evsys-test-a", {KINDS[kind]: {"m": "site_a:Mean"}})
    registry = Registry()
    for plugin in (Mean, Mean):
        registry.register(kind, "m", plugin)
        assert registry.find(kind, "m").local
    assert registry.warnings == [f"{kind} 'm' is the project's own and hides {kind} evsys-test-a/m (1.0)"]


@pytest.mark.parametrize("own", ["pass@2", "pass@k"])
def test_a_plugin_that_hides_a_member_of_a_family_is_reported(site, own):
    site.install("evsys-test-a", {"evsys.metrics": {"pass@k": "site_a:PassAtK"}})
    registry = Registry(allow=["evsys-test-a"])
    registry.register("metric", own, Mean)
    assert registry.find("metric", "pass@2").local
    assert registry.warnings == [
        "metric 'pass@2' is the project's own and hides metric evsys-test-a/pass@2 (1.0)"
    ]
    assert registry.find("metric", "pass@3").local is (own == "pass@k")


def test_registering_one_object_twice_is_no_clash(registry):
    registry.register("metric", "m", Mean)
    registry.register("metric", "m", Mean)
    assert [entry.name for entry in registry.entries()] == ["m"]


def test_registering_another_object_under_a_taken_name_is_a_conflict(registry):
    registry.register("metric", "m", Mean)
    with pytest.raises(PluginConflictError, match=r"registered twice: .*:Mean and .*:Other; give one"):
        registry.register("metric", "m", Other)
    assert registry.get("metric", "m") is Mean


def test_a_definition_that_is_run_again_replaces_the_former(registry):
    def define():
        class Metric:
            def compute(self, task_rewards):
                return 0.0

        return Metric

    first, second = define(), define()
    registry.register("metric", "m", first)
    assert registry.get("metric", "m") is first
    registry.register("metric", "m", second)
    assert registry.get("metric", "m") is second


def test_a_name_found_before_a_registration_is_looked_up_anew(site, registry):
    site.install("evsys-test-a", {"evsys.metrics": {"m": "site_a:Mean"}}, {"site_a": A_METRIC})
    registry = Registry()
    assert registry.get("metric", "m") is not Mean
    registry.register("metric", "m", Mean)
    assert registry.get("metric", "m") is Mean


# --- allow and deny ---------------------------------------------------------------------------------------------


@pytest.fixture
def two(site):
    site.install("evsys-test-a", {"evsys.metrics": {"m": "x:M", "n": "x:N"}})
    site.install("evsys-test-b", {"evsys.metrics": {"b": "x:B"}})


def names(registry: Registry) -> list[str]:
    return [entry.name for entry in registry.entries("metric") if entry.distribution.startswith("evsys-test")]


@pytest.mark.parametrize(
    ("allow", "deny", "left"),
    [
        (None, [], ["b", "m", "n"]),
        (["evsys-test-a"], [], ["m", "n"]),
        (["Evsys_Test_A"], ["metric:m"], ["n"]),
        (["metric:b", "metric:m"], [], ["b", "m"]),
        (None, ["evsys-test-a"], ["b"]),
        (["Evsys_Test.A/m"], [], ["m"]),
        (None, ["evsys-test-a/m", "evsys-test-b/m"], ["b", "n"]),
        (["evsys-test-a"], ["evsys-test-a"], []),
        ([], [], []),
    ],
)
def test_allow_and_deny_lists_choose_distributions_and_plugins(two, allow, deny, left):
    assert names(Registry(allow=allow, deny=deny)) == left


def test_allow_and_deny_lists_come_from_the_environment(two, monkeypatch):
    monkeypatch.setenv("EVSYS_PLUGINS_ALLOW", "evsys-test-a, metric:b")
    monkeypatch.setenv("EVSYS_PLUGINS_DENY", "metric:n,")
    assert names(Registry()) == ["b", "m"]


def test_a_qualified_name_in_a_list_keeps_the_signs_of_the_plugins_name(site):
    site.install("evsys-test-a", {"evsys.metrics": {"a_b.c": "x:M", "a-b-c": "x:N"}})
    assert names(Registry(deny=["evsys_test_a/a_b.c"])) == ["a-b-c"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("evsys-test-aa", "; did you mean 'evsys-test-a'?"),
        ("metrics:m", "; did you mean 'metric:m'?"),
        ("evsys-test-a/mm", "; did you mean 'evsys-test-a/m'?"),
        ("b", "; did you mean 'evsys-test-b/b' or 'metric:b'?"),
        ("zzzzzzzz", "; see evsys list"),
    ],
)
def test_a_name_in_a_list_that_nothing_has_is_warned_about_with_the_closest(two, monkeypatch, name, hint):
    for variable in ("EVSYS_PLUGINS_ALLOW", "EVSYS_PLUGINS_DENY"):
        with monkeypatch.context() as environment:
            environment.setenv(variable, f"evsys-test-a,{name}")
            registry = Registry()
            registry.entries()
        told = [warning for warning in registry.warnings if "EVSYS_PLUGINS" in warning]
        assert told == [f"{variable} names {name!r}, which no installed plugin is{hint}"]


def test_lists_of_names_that_are_there_are_not_warned_about(two):
    registry = Registry(allow=["evsys-test-a", "metric:b"], deny=["evsys-test-a/m", "evsys-test-b"])
    registry.entries()
    assert not [warning for warning in registry.warnings if "EVSYS_PLUGINS" in warning]


def test_a_blocked_plugin_is_said_to_be_blocked(two):
    with pytest.raises(
        PluginNotFoundError, match=r"metric evsys-test-b/b \(1.0\) is installed, but EVSYS_PLUGINS"
    ):
        Registry(deny=["evsys-test-b"]).find("metric", "b")


def test_a_blocked_clash_is_no_clash(site):
    for letter in "ab":
        site.install(f"evsys-test-{letter}", {"evsys.metrics": {"m": "x:M"}})
    assert Registry(deny=["evsys-test-b"]).find("metric", "m").distribution == "evsys-test-a"


# --- all of them ------------------------------------------------------------------------------------------------


def test_check_reports_each_plugin_and_one_broken_stops_nothing(site):
    site.install("evsys-test-a", {"evsys.metrics": {"good": "site_a:Mean"}}, {"site_a": A_METRIC})
    site.install(
        "evsys-test-b", {"evsys.metrics": {"bad": "site_b:M"}}, {"site_b": "raise OSError('no disk')"}
    )
    outcome = {entry.name: error for entry, error in Registry(allow=["evsys-test-a", "evsys-test-b"]).check()}
    assert outcome["good"] is None
    assert isinstance(outcome["bad"], PluginLoadError)
    assert "OSError: no disk" in str(outcome["bad"])


def test_check_reads_the_params_too(registry):
    import pydantic

    class Unreadable(pydantic.BaseModel, arbitrary_types_allowed=True):
        x: type(iter([])) = None

    for name, config in {
        "annotation": attrs.make_class("Config", {"x": attrs.field(type=complex)}),
        "class": object,
        "model": Unreadable,
        "good": attrs.make_class("Config", {"x": attrs.field(type=int)}),
    }.items():
        registry.register("metric", name, type("M", (Mean,), {"Config": config}))
    outcome = {entry.name: error and str(error) for entry, error in registry.check()}
    assert outcome["good"] is None
    assert "Config.x: its annotation <class 'complex'>" in outcome["annotation"]
    assert "Config is not an attrs class" in outcome["class"]
    assert "plugin 'project/model' failed: PydanticInvalidForJsonSchema" in outcome["model"]


def test_check_says_which_took_long_to_import_and_how_long(site, monkeypatch):
    clock = types.SimpleNamespace(now=0.0)
    monkeypatch.setitem(sys.modules, "site_clock", clock)
    monkeypatch.setattr(time, "process_time", lambda: clock.now)
    for name, seconds in {"a": 2.46, "b": 0.9}.items():
        module = f"    import site_clock\n    site_clock.now += {seconds}\n{A_METRIC}"
        site.install(
            f"evsys-test-{name}", {"evsys.metrics": {"m": f"site_{name}:Mean"}}, {f"site_{name}": module}
        )
    registry = Registry(allow=["evsys-test-a", "evsys-test-b"])
    registry.check()
    assert registry.warnings == ["metric evsys-test-a/m (1.0) (site_a:Mean) took 2.5 s to import"]


def test_metadata_warnings_reach_the_registry(site):
    site.install("evsys-test-a", {"evsys.metric": {"m": "a:M"}})
    registry = Registry()
    registry.entries()
    assert any("unknown group 'evsys.metric'" in warning for warning in registry.warnings)


# --- which registry ---------------------------------------------------------------------------------------------


def test_the_current_registry_is_one_for_the_process_unless_another_is_in_use(registry):
    outside = current_registry()
    with use_registry(registry) as inside:
        assert inside is registry
        assert current_registry() is registry
    assert current_registry() is outside


def test_the_current_registry_follows_the_context_of_a_task(registry):
    import asyncio

    async def seen():
        return current_registry()

    async def main():
        with use_registry(registry):
            task = asyncio.create_task(seen())
        return await task, current_registry()

    assert asyncio.run(main()) == (registry, current_registry())


def test_listing_imports_neither_attrs_nor_anything_heavy():
    code = "import sys; from evsys import current_registry; current_registry().entries(); print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    unwanted = {
        "asyncio",
        "attr",
        "attrs",
        "cattrs",
        "dataclasses",
        "importlib.metadata",
        "inspect",
        "numpy",
        "pluggy",
    }
    assert unwanted & set(modules) == set()


def test_entries_are_plain_values(registry):
    registry.register("metric", "m", Mean)
    [entry] = registry.entries()
    assert pickle.loads(pickle.dumps(entry)) == entry
    assert str(entry) == "metric project/m"


def test_a_registry_can_be_given_its_entries():
    from evsys import PluginEntry

    registry = Registry(entry_points=[PluginEntry("metric", "m", "evsys-x", "1.0", f"{__name__}:Mean")])
    assert [entry.qualified for entry in registry.entries()] == ["evsys-x/m"]


def test_config_and_schema_are_those_of_the_plugin(registry):
    @attrs.frozen(kw_only=True)
    class Config:
        k: int = 1

    registry.register("metric", "m", type("M", (Mean,), {"Config": Config}))
    assert registry.config_of("metric", "m") is Config
    assert registry.schema("metric", "m")["properties"] == {"k": {"type": "integer", "default": 1}}

import functools
import logging
import os
import pickle
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import attrs
import pytest

from evsys import Registry, protocols
from evsys._plugins import loading
from evsys.errors import PluginContractError, PluginIncompatibleError, PluginLoadError


def installed(
    site, source: str, *, group: str = "evsys.transforms", attribute: str = ":Thing", **options
) -> Registry:
    site.install("evsys-test-a", {group: {"thing": f"site_a{attribute}"}}, {"site_a": source}, **options)
    return Registry(allow=["evsys-test-a"])


def load_error(registry: Registry) -> PluginLoadError:
    with pytest.raises(PluginLoadError) as caught:
        registry.get("transform", "thing")
    return caught.value


# --- importing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("x = 1", "AttributeError: module 'site_a' has no attribute 'Thing'"),
        ("from json import nothing", "ImportError: cannot import name 'nothing'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
    ],
)
def test_any_failure_names_kind_name_distribution_version_and_cause(site, source, cause):
    error = load_error(installed(site, source, version="2.3"))
    prefix = "transform evsys-test-a/thing (2.3) (site_a:Thing) can't be loaded: "
    assert str(error).startswith(prefix + cause)
    assert isinstance(error, ImportError)
    assert error.__cause__ is not None
    assert {key: error.facts[key] for key in ("kind", "name", "distribution", "version")} == {
        "kind": "transform",
        "name": "thing",
        "distribution": "evsys-test-a",
        "version": "2.3",
    }
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_distribution_whose_module_is_gone_is_told_from_one_with_a_missing_dependency(site):
    site.install("evsys-test-a", {"evsys.transforms": {"thing": "site_gone.part:Thing"}})
    error = load_error(Registry(allow=["evsys-test-a"]))
    assert "its module 'site_gone' is gone; reinstall or uninstall evsys-test-a" in str(error)


def test_a_submodule_that_is_gone_is_named(site):
    (site.folder / "site_pkg").mkdir()
    (site.folder / "site_pkg/__init__.py").touch()
    site.install("evsys-test-a", {"evsys.transforms": {"thing": "site_pkg.part:Thing"}})
    assert str(load_error(Registry(allow=["evsys-test-a"]))).endswith(
        "its module 'site_pkg.part' is gone; reinstall or uninstall evsys-test-a, or correct its entry point"
    )


def test_a_missing_dependency_is_named(site):
    error = load_error(installed(site, "import torchless.nn"))
    assert "it needs 'torchless', which isn't installed; install it, or reinstall evsys-test-a" in str(error)


def test_a_missing_dependency_that_an_extra_brings_comes_with_the_extra(site):
    registry = installed(
        site, "import tool_box.x", requires=("numpy>=1", "Tool-Box[all]>=2 ; extra == 'fast'")
    )
    assert "install it with: pip install 'evsys-test-a[fast]'" in str(load_error(registry))


def test_a_missing_dependency_of_a_distribution_without_metadata_is_named(site):
    registry = installed(site, "import torchless")
    for info in site.folder.glob("*.dist-info"):
        (info / "METADATA").unlink()
    assert "it needs 'torchless'" in str(load_error(registry))


def test_a_module_that_fails_through_its_own_lazy_names_is_wrapped_too(site):
    error = load_error(installed(site, "def __getattr__(name):\n    import torchless"))
    assert "it needs 'torchless'" in str(error)


def test_extras_and_nested_attributes_in_an_entry_point_are_understood(site):
    source = "class Outer:\n    class Thing:\n        def __call__(self, rows):\n            return rows"
    registry = installed(site, source, attribute=":Outer.Thing [fast]")
    assert registry.get("transform", "thing").__qualname__ == "Outer.Thing"


def test_a_module_can_be_a_plugin_of_ambient_hooks(site):
    registry = installed(site, "def evsys_run_started(ctx): ...", group="evsys.plugins", attribute="")
    assert registry.get("plugin", "thing") is sys.modules["site_a"]


def test_a_plugin_that_failed_is_tried_again(site):
    registry = installed(site, "import torchless_later")
    load_error(registry)
    Path(site.folder / "torchless_later.py").touch()
    Path(site.folder / "site_a.py").write_text("import torchless_later\ndef Thing(rows): return rows\n")
    assert registry.get("transform", "thing")([1]) == [1]


@pytest.fixture
def told(monkeypatch):
    """Messages of slow imports, told at once; the module `site_a` may wait for the first."""
    records, heard = [], threading.Event()
    handler = logging.Handler()
    handler.emit = lambda record: (records.append(record.getMessage()), heard.set())
    monkeypatch.setattr(loading, "SLOW_SECONDS", 0.0)
    monkeypatch.setitem(sys.modules, "site_waits", types.SimpleNamespace(wait=lambda: heard.wait(10)))
    logging.getLogger("evsys.plugins").addHandler(handler)
    yield records
    logging.getLogger("evsys.plugins").removeHandler(handler)


# Waits on standard error itself, which is all that this process shows of it.
UNTIL_TOLD = """
    import sys
    import threading

    told = threading.Event()

    class Heard:
        def write(self, text, write=sys.stderr.write):
            told.set()
            return write(text)

        flush = sys.stderr.flush

    sys.stderr = Heard()
    while not told.is_set():
        sum(range(10_000))

    def Thing(rows):
        return rows
"""
SLOW = "import site_waits\nsite_waits.wait()\ndef Thing(rows): return rows\n"


def test_a_slow_import_is_named_while_it_lasts_and_once(site, told):
    registry = installed(site, SLOW, version="2.3")
    registry.get("transform", "thing")
    registry.get("transform", "thing")
    assert told == ["still importing transform evsys-test-a/thing (2.3) (site_a:Thing), which takes long"]


@pytest.mark.skipif(
    not hasattr(time, "pthread_getcpuclockid"), reason="threads have no clocks of their own here"
)
def test_what_other_threads_compute_does_not_make_an_import_slow():
    clock, spent = loading._cpu_clock(), []
    before = clock()

    def work():
        began = time.thread_time()
        while time.thread_time() - began < 0.2:
            sum(range(1000))
        spent.append(time.thread_time() - began)

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert clock() - before < spent[0] / 2


def test_a_thread_that_ends_with_its_import_ends_the_watch_of_it():
    clocks, done = [], threading.Event()
    worker = threading.Thread(target=lambda: clocks.append(loading._cpu_clock()))
    worker.start()
    worker.join()
    done.set()
    loading._watch("a plugin", done, clocks[0])


def test_an_import_that_waits_for_long_is_reported_though_it_takes_no_cpu_time(site, told, monkeypatch):
    monkeypatch.setattr(loading, "SLOW_SECONDS", 1000.0)
    monkeypatch.setattr(loading, "SILENT_SECONDS", 0.0)
    installed(site, SLOW).get("transform", "thing")
    assert told == ["still importing transform evsys-test-a/thing (1.0) (site_a:Thing), which takes long"]


def test_a_slow_plugin_that_nobody_uses_is_neither_waited_for_nor_told(site, told):
    registry = installed(site, SLOW)
    assert [entry.name for entry in registry.entries("transform")] == ["thing"]
    assert registry.find("transform", "thing").version == "1.0"
    assert told == []
    assert "site_a" not in sys.modules


def test_a_slow_import_is_shown_on_standard_error_without_any_setting_up(site):
    site.install("evsys-test-a", {"evsys.transforms": {"thing": "site_a:Thing"}}, {"site_a": UNTIL_TOLD})
    code = "from evsys import Registry; Registry().get('transform', 'thing')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(site.folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == (
        "still importing transform evsys-test-a/thing (1.0) (site_a:Thing), which takes long\n"
    )


def test_a_quick_import_is_not_told(site, caplog):
    installed(site, "def Thing(rows): return rows").get("transform", "thing")
    assert caplog.messages == []


def test_a_name_that_its_module_does_not_have_any_more_says_to_reinstall(site):
    error = load_error(installed(site, "class Other: ...", attribute=":Thing.part"))
    assert str(error).endswith("has no attribute 'Thing'; reinstall evsys-test-a")


def test_a_misspelt_name_comes_with_the_one_that_is_meant(site):
    error = load_error(installed(site, "class Think: ...", attribute=":Thing.part"))
    assert str(error).endswith("has no attribute 'Thing'; did you mean 'Think'?")


# --- the contract -----------------------------------------------------------------------------------------------

NEEDS = {
    "algorithm": "train",
    "backend": "prepare', 'teardown', 'capabilities",
    "loss": "__call__",
    "transform": "__call__",
    "verifier": "__call__",
    "metric": "compute' or 'compute_rollouts",
    "data_store": "pull",
    "log_store": "write', 'close",
    "inference_client": "generate",
    "rollout_engine": "run",
    "environment": "start', 'stop",
    "agent": "run",
    "renderer": "render_prompt', 'render_training', 'parse",
    "deployer": "deploy",
    "search": "ask",
    "researcher": "propose",
    "launcher": "submit', 'find', 'poll', 'cancel', 'close', 'workers', 'poll_seconds",
}


def contract_error(registry: Registry, kind: str, plugin: object) -> str:
    registry.register(kind, "thing", plugin)
    with pytest.raises(PluginContractError) as caught:
        registry.get(kind, "thing")
    return str(caught.value)


def test_every_kind_that_an_experiment_names_asks_for_something_except_callbacks():
    assert set(NEEDS) == set(protocols.KINDS) - {"callback", "plugin", "command"}


@pytest.mark.parametrize(("kind", "member"), NEEDS.items())
def test_a_class_without_what_its_kind_asks_for_is_refused(registry, kind, member):
    class Empty:
        pass

    assert f"{kind} project/thing has no '{member}', which its kind asks for" in contract_error(
        registry, kind, Empty
    )


@pytest.mark.parametrize(("kind", "member"), [item for item in NEEDS.items() if item[0] != "metric"])
def test_empty_methods_inherited_from_the_protocol_do_not_count(registry, kind, member):
    protocol = getattr(protocols, kind.title().replace("_", ""))
    assert f"has no '{member}'" in contract_error(registry, kind, type("Mine", (protocol,), {}))


def test_a_class_that_inherits_from_the_protocol_and_implements_it_is_fine(registry):
    class Mine(protocols.Transform):
        def __call__(self, rows):
            return rows

    class Derived(Mine):
        pass

    registry.register("transform", "thing", Derived)
    assert registry.get("transform", "thing") is Derived


def test_what_every_object_has_is_no_hint(registry):
    class Idle:
        def call(self, rows):
            return rows

    assert "__lt__" not in contract_error(registry, "transform", Idle)


def test_a_misspelt_method_is_hinted_at(registry):
    class Trainer:
        async def trian(self, ctx): ...

    assert contract_error(registry, "algorithm", Trainer).endswith("; did you mean 'trian'?")


def test_a_metric_over_rollouts_is_a_metric(registry):
    class Cost:
        def compute_rollouts(self, task_rollouts):
            return 0.0

    registry.register("metric", "thing", Cost)
    assert registry.get("metric", "thing") is Cost


@pytest.mark.parametrize("kind", ["loss", "transform", "verifier", "agent"])
def test_functions_are_plugins_of_the_kinds_that_are_one_call(registry, kind):
    def thing(*args): ...

    registry.register(kind, "thing", thing)
    assert registry.get(kind, "thing") is thing
    registry.register(kind, "bound", functools.partial(thing, 1))
    assert registry.get(kind, "bound").func is thing


def test_a_function_is_no_algorithm(registry):
    def train(ctx): ...

    assert "has no 'train'" in contract_error(registry, "algorithm", train)


def test_slots_and_properties_count_as_members(registry):
    @attrs.frozen
    class Mine:
        capabilities: frozenset[str] = frozenset()

        async def prepare(self, model, run_dir, seed, restore=None): ...

        async def teardown(self, client): ...

    registry.register("backend", "thing", Mine)
    assert registry.get("backend", "thing") is Mine


# --- protocol versions ------------------------------------------------------------------------------------------


def versioned(version: object) -> type:
    return type("Mine", (), {"__call__": lambda self, rows: rows, "protocol": version})


@pytest.mark.parametrize("version", protocols.PROTOCOL_VERSIONS)
def test_the_protocol_versions_of_this_core_are_accepted(registry, version):
    registry.register("transform", "thing", versioned(version))
    registry.get("transform", "thing")


@pytest.mark.parametrize(("version", "side"), [(99, "upgrade evsys-core"), (0, "upgrade project")])
def test_another_protocol_version_says_which_side_to_upgrade(registry, version, side):
    registry.register("transform", "thing", versioned(version))
    with pytest.raises(PluginIncompatibleError, match=f"speaks protocol {version}, .* speaks 1; {side}"):
        registry.get("transform", "thing")


@pytest.mark.parametrize("version", ["1", 1.0, True, None])
def test_a_protocol_that_is_no_integer_is_refused(registry, version):
    assert f"declares protocol = {version!r}" in contract_error(registry, "transform", versioned(version))


# --- a Config that isn't called so ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["config", "CONFIG", "Configs", "Confg", "Conifg"])
def test_a_class_that_is_nearly_called_config_is_refused(registry, name):
    class Thing:
        def __call__(self, rows):
            return rows

    setattr(Thing, name, type(name, (), {}))
    registry.register("transform", "thing", Thing)
    with pytest.raises(
        PluginContractError, match=rf"a class '{name}', and params are read from 'Config'; call it"
    ):
        registry.get("transform", "thing")


def test_a_function_with_a_class_that_is_nearly_called_config_is_refused_too(registry):
    def thing(rows):
        return rows

    thing.config = attrs.make_class("Config", {})
    registry.register("transform", "thing", thing)
    with pytest.raises(PluginContractError, match="'config'"):
        registry.get("transform", "thing")


def test_what_only_sounds_like_a_config_is_left_alone(registry):
    class Thing:
        config = None
        _Config = int
        Contest = str

        class Confirmation:
            pass

        def configs(self):
            return []

        def __call__(self, rows):
            return rows

    registry.register("transform", "thing", Thing)
    assert registry.get("transform", "thing") is Thing


def test_beside_a_config_or_in_a_class_of_fields_another_name_is_no_mistake(registry):
    class Thing:
        Config = attrs.make_class("Config", {})
        config = Config

        def __call__(self, rows):
            return rows

    @attrs.frozen
    class Fields:
        config = int

        def __call__(self, rows):
            return rows

    for name, plugin in {"thing": Thing, "fields": Fields}.items():
        registry.register("transform", name, plugin)
        assert registry.get("transform", name) is plugin


# --- what modules print -----------------------------------------------------------------------------------------


def test_what_a_module_prints_while_it_is_imported_goes_to_standard_error(site, capsys):
    installed(site, "print('hello')\ndef Thing(rows): return rows").get("transform", "thing")
    sys.stdout.write("answer")
    assert capsys.readouterr() == ("answer", "hello\n")


def test_standard_output_is_back_after_an_import_that_failed(site, capsys):
    load_error(installed(site, "print('hello')\n1 / 0"))
    sys.stdout.write("answer")
    assert capsys.readouterr() == ("answer", "hello\n")


def test_standard_output_is_back_after_imports_that_overlapped(capsys):
    first, second = loading.importing("a"), loading.importing("b")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    sys.stdout.write("by b")
    second.__exit__(None, None, None)
    sys.stdout.write("answer")
    assert capsys.readouterr() == ("answer", "by b")

"""What `evsys` offers is what it lists, and asking costs only what is asked for."""

import subprocess
import sys

import pytest

import evsys
from evsys import errors, hookspecs, protocols

SURFACE = [
    "HookManager",
    "PluginEntry",
    "Registry",
    "boundary",
    "current_registry",
    "errors",
    "hookimpl",
    "option",
    "protocols",
    "register_agent",
    "register_algorithm",
    "register_backend",
    "register_callback",
    "register_data_store",
    "register_deployer",
    "register_environment",
    "register_inference",
    "register_inference_client",
    "register_launcher",
    "register_log_store",
    "register_loss",
    "register_metric",
    "register_renderer",
    "register_rollout_engine",
    "register_search",
    "register_transform",
    "register_verifier",
    "register_verifier_fn",
    "schema_for_config",
    "structure",
    "types",
    "unstructure",
    "use_registry",
]


def test_the_surface_is_pinned():
    assert sorted(SURFACE) == list(evsys.__all__)


@pytest.mark.parametrize("name", SURFACE)
def test_each_name_is_there(name):
    assert getattr(evsys, name) is not None


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'evsys' has no attribute 'nothing'"):
        getattr(evsys, "nothing")  # noqa: B009
    with pytest.raises(AttributeError, match="register_nothing"):
        getattr(evsys, "register_nothing")  # noqa: B009


def test_importing_evsys_imports_nothing_else():
    code = "import sys; before = set(sys.modules); import evsys; print(*sorted(set(sys.modules) - before))"
    new = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {name.partition(".")[0] for name in new} - set(sys.stdlib_module_names) == {"evsys"}
    assert not {"asyncio", "inspect", "importlib.metadata"} & set(new)


@pytest.mark.parametrize(
    ("names", "unwanted"),
    [
        ("current_registry use_registry Registry", "attrs cattrs pluggy numpy asyncio"),
        ("register_transform", "attrs cattrs pluggy numpy asyncio"),
        ("schema_for_config option unstructure", "cattrs pluggy numpy asyncio"),
        ("structure boundary types protocols", "pluggy numpy asyncio"),
        ("hookimpl HookManager", "cattrs numpy asyncio"),
    ],
)
def test_a_name_imports_what_it_needs(names, unwanted):
    code = f"import sys; from evsys import {', '.join(names.split())}; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(unwanted.split()) & set(modules) == set()


@pytest.mark.parametrize("module", [errors, protocols, hookspecs, evsys.types])
def test_public_lists_name_what_is_there(module):
    assert [name for name in getattr(module, "__all__", []) if not hasattr(module, name)] == []


def test_every_kind_has_a_group_and_a_protocol():
    for kind, group in protocols.KINDS.items():
        assert group == f"evsys.{kind}{'es' if kind in {'loss', 'search'} else 's'}"
        if kind not in {"plugin", "command"}:
            assert getattr(protocols, kind.title().replace("_", ""))._is_protocol

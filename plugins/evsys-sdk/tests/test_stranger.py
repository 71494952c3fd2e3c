"""The modules in `stranger/`, whose types two checkers look at (`nox -s types`), run as well and leave nothing out."""

import ast
import asyncio
import json
import sys
from contextlib import chdir
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from small_project import Project

import evsys
import evsys_sdk
from evsys import Registry, protocols, use_registry

FOLDER = Path(__file__).with_name("stranger")
MODULES = {path.stem: path for path in sorted(FOLDER.glob("*.py")) if path.stem != "mistakes"}
DECORATORS = {name for name in evsys.__all__ if name.startswith("register_")}
ALIASES = {"register_inference", "register_verifier_fn"}


def imported(path: Path, module: str) -> set[str]:
    """The names that a file imports from a module."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    found = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == module]
    return {alias.name for node in found for alias in node.names}


@pytest.fixture(scope="module")
def ran():
    """What each module defines, and the registry that they have filled."""
    registry, modules = Registry(), {}
    with use_registry(registry):
        for name, path in MODULES.items():
            spec = spec_from_file_location(f"stranger_{name}", path)
            modules[name] = sys.modules[spec.name] = module_from_spec(spec)
            spec.loader.exec_module(modules[name])
    yield modules, registry
    for module in modules.values():
        del sys.modules[module.__name__]


@pytest.mark.parametrize("module", ["evsys_sdk", "evsys"])
def test_strangers_use_the_whole_surface(module):
    used = {
        name
        for path in MODULES.values()
        for source in {module, "evsys_sdk"}
        for name in imported(path, source)
    }
    assert set({"evsys_sdk": evsys_sdk, "evsys": evsys}[module].__all__) - used == set()


def test_every_decorator_that_can_refuse_something_has_a_mistake_that_it_refuses():
    anything_goes = {"register_callback"}
    assert imported(FOLDER / "mistakes.py", "evsys_sdk") & DECORATORS == DECORATORS - ALIASES - anything_goes


def test_each_module_runs_and_registers_plugins_that_keep_their_contracts(ran):
    _, registry = ran
    local = [(entry, error) for entry, error in registry.check() if entry.local]
    assert [(str(entry), str(error)) for entry, error in local if error] == []
    assert {entry.kind for entry, _ in local} == set(protocols.KINDS) - {"plugin", "command"}


def test_plugins_with_attrs_dataclass_and_pydantic_configs_are_built_from_their_params(ran):
    _, registry = ran
    assert registry.build("verifier", "starts_with", {"least": 2})("abc", "ab", {}) == 1.0
    assert asyncio.run(registry.build("verifier", "mentions", {"words": ["a", "z"]})("abc", None, {})) == 0.5
    assert list(
        registry.build("transform", "short_only", {"limit": 1})([{"prompt": "a"}, {"prompt": "bc"}])
    ) == [{"prompt": "a"}]
    assert registry.build("metric", "best@2").compute([[0.0, 0.5, 1.0]]) == 0.5


@pytest.mark.parametrize("kind", ["sft", "focal", "echo", "one_step"])
def test_algorithms_of_strangers_train(ran, tmp_path, kind):
    modules, registry = ran
    project = Project(tmp_path)
    config = project.config()
    config.write_text(
        config.read_text(encoding="utf-8").replace("kind: sft", f"kind: {kind}"), encoding="utf-8"
    )
    with use_registry(registry):
        result = evsys_sdk.Experiment.from_yaml(config, quiet=True).run()
        [loss] = modules["experiments"].losses(config)
    assert result.status == "completed"
    assert loss > 0


def test_what_came_of_an_experiment_can_be_read(ran, tmp_path):
    stranger = ran[0]["experiments"]
    config = Project(tmp_path).config()
    lines = stranger.told(config)
    assert any(line.startswith("run-s0 val@6 mean_reward=") for line in lines)
    assert asyncio.run(stranger.side_by_side([config])) == [6]
    assert stranger.explained(config) == []


def test_what_is_wrong_can_be_told(ran, tmp_path):
    explained = ran[0]["experiments"].explained
    project = Project(tmp_path)
    assert explained(project.config("run: 3\n"))[0].startswith("$.run ")
    (tmp_path / "tasks.jsonl").write_text("{", encoding="utf-8")
    assert "tasks.jsonl:1" in explained(project.config())[0]


def test_a_dataset_of_the_project_can_be_read(ran, tmp_path):
    folder = tmp_path / "data/datasets/words/v1"
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_text(json.dumps({"prompt": "a"}) + "\n", encoding="utf-8")
    assert ran[0]["experiments"].rows_of(tmp_path, "words") == 1


def test_registries_configs_and_hooks_can_be_used_alone(ran):
    stranger = ran[0]["registries"]
    assert "evsys-algo-sft/sft" in stranger.names("algorithm")
    assert stranger.read({"rate": 0.5, "words": ["a"]}).words == ("a",)
    assert asyncio.run(stranger.hear()) == []


def test_experiments_can_be_written_in_python(ran, tmp_path):
    stranger = ran[0]["in_python"]
    project = Project(tmp_path)
    assert stranger.scored("tasks.jsonl", str(tmp_path)) == 1.0
    assert stranger.typed() == 1
    run = {
        "data": {"dataset_name": "words", "transforms": [{"kind": "jsonl_to_chat"}]},
        "model": {"name": "evsys/tiny"},
        "algorithm": {"kind": "sft", "params": {"steps": 2, "batch_size": 4}},
        "backend": {"kind": "mock"},
    }
    assert len(stranger.arms(run)) == 2
    with chdir(project.root):
        result = stranger.injected({"name": "trial", "run": run}, "tasks.jsonl")
    assert (result.status, result.arms[0].evaluations[-1].metrics["mean_reward"].value) == ("completed", 0.0)

"""Dependencies point one way: between distributions, and between the rooms of the runtime."""

import re
import sys
from pathlib import Path

import pytest
from house import EXPERIMENT, ROOT, Distribution, Import, distributions, imports

ALL = distributions()
OURS = {dist.import_name: dist.name for dist in ALL}
STANDARD_SET = {
    *(
        "evsys-algo-distill",
        "evsys-algo-dpo",
        "evsys-algo-rl",
        "evsys-algo-sft",
        "evsys-backend-local",
        "evsys-backend-mock",
        "evsys-cli",
        "evsys-dashboard",
    ),
    *("evsys-core", "evsys-record", "evsys-runtime", "evsys-stats", "evsys-std", "evsys-verifiers-std"),
}

# Below the runtime, each on core alone: the record on disk, and the statistics.
LIBRARIES = {"evsys-record", "evsys-stats"}

# A room imports only rooms on lower floors, and none on its own.
FLOORS = {
    **dict.fromkeys(["data", "losses"], 0),
    **dict.fromkeys(["accounting", "config", "rendering"], 1),
    **dict.fromkeys(["audit", "evaluation", "serving"], 2),
    "training": 3,
    "experiment": 4,
    "tools": 5,
}

# The highest floor that a distribution may reach into; others may reach all.
REACH = {
    "evsys-backend-local": 1,
    "evsys-backend-mock": 1,
    "evsys-loggers": 1,
    "evsys-rollouts-harbor": 2,
    "evsys-std": 2,
    "evsys-verifiers-std": 2,
    "evsys-algo-distill": 3,
    "evsys-algo-dpo": 3,
    "evsys-algo-rl": 3,
    "evsys-algo-sft": 3,
    "evsys-backend-tinker": 3,
    "evsys-search-optuna": 1,
    "evsys-server": 3,
}

# Imported inside functions when the user has them, and never a dependency of ours.
WHEN_INSTALLED = {"evsys-runtime": {"torch", "jax"}, "evsys-backend-local": {"torch"}}

DISTRIBUTION_OF = {
    "ruamel": "ruamel.yaml",
    "attr": "attrs",
    "_pytest": "pytest",
    "yaml": "pyyaml",
    "math_verify": "math-verify",
    "mlflow": "mlflow-skinny",
}


def allowed(name: str) -> set[str]:
    """The distributions of this workspace that one of them may depend on and import."""
    if name == "evsys-core":
        return set()
    if name in {*LIBRARIES, "evsys-conformance"}:
        return {"evsys-core"}
    if name == "evsys-runtime":
        return {"evsys-core", *LIBRARIES}
    if name == "evsys-sdk":
        return STANDARD_SET
    return {"evsys-core", "evsys-runtime", *LIBRARIES}


def requirement_names(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w.-]+", requirement)[0].lower() for requirement in requirements}


def all_imports(dist: Distribution) -> list[Import]:
    return [found for path in dist.modules for found in imports(path, dist.package)]


def room(module: str) -> str | None:
    """The room of a module of the runtime; None for the package itself and for other packages."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "evsys_runtime" and parts[1] in FLOORS else None


@pytest.mark.parametrize("dist", ALL, ids=lambda dist: dist.name)
def test_declared_dependencies_point_one_way(dist: Distribution):
    ours = requirement_names(dist.pyproject["project"]["dependencies"]) & set(OURS.values())
    assert ours <= allowed(dist.name)


@pytest.mark.parametrize("dist", ALL, ids=lambda dist: dist.name)
def test_extras_name_no_plugin_but_in_the_sdk_and_the_conformance_suite(dist: Distribution):
    extras = {
        "evsys-sdk": STANDARD_SET
        | {
            *(
                "evsys-autoresearch",
                "evsys-backend-tinker",
                "evsys-conformance",
                "evsys-deployers",
                "evsys-loggers",
                "evsys-mcp",
            ),
            "evsys-plots",
            *("evsys-rollouts-harbor", "evsys-search-optuna", "evsys-server", "evsys-traces"),
        },
        "evsys-conformance": {"evsys-core", "evsys-runtime", "evsys-backend-mock"},
    }.get(dist.name, set())
    for requirements in dist.pyproject["project"].get("optional-dependencies", {}).values():
        assert requirement_names(requirements) & set(OURS.values()) <= extras


@pytest.mark.parametrize("dist", ALL, ids=lambda dist: dist.name)
def test_imports_between_distributions_point_one_way(dist: Distribution):
    # The suite parses rows as a run does where its extra has brought the runtime, and says so where it hasn't.
    of_extras = {"evsys-conformance": {"evsys-runtime"}}.get(dist.name, set())
    reachable = allowed(dist.name) | {dist.name} | of_extras
    wrong = [
        str(found) for found in all_imports(dist) if found.top in OURS and OURS[found.top] not in reachable
    ]
    assert not wrong


@pytest.mark.parametrize("dist", ALL, ids=lambda dist: dist.name)
def test_every_third_party_import_is_declared(dist: Distribution):
    project = dist.pyproject["project"]
    declared = requirement_names(project["dependencies"]) | WHEN_INSTALLED.get(dist.name, set())
    for requirements in project.get("optional-dependencies", {}).values():
        declared |= requirement_names(requirements)
    if (dist.package / "commands.py").exists():
        declared.add("click")  # a command is loaded by the command line only, which brings click
    wrong = [
        str(found)
        for found in all_imports(dist)
        if found.top not in OURS
        and not found.typing_only
        and found.top not in sys.stdlib_module_names
        and DISTRIBUTION_OF.get(found.top, found.top) not in declared
    ]
    assert not wrong


def test_an_audit_shares_no_code_with_the_verdict_that_it_checks():
    runtime = next(dist for dist in ALL if dist.name == "evsys-runtime")
    found = [
        found
        for path in sorted((runtime.package / "audit").glob("*.py"))
        for found in imports(path, runtime.package)
    ]
    assert len(found) > 20
    wrong = [one for one in found if room(one.module) in {"evaluation", "experiment", "training"}]
    assert not [str(one) for one in (*wrong, *(one for one in found if one.top == "evsys_stats"))]


def test_every_room_of_the_runtime_has_a_floor():
    package = next(dist.package for dist in ALL if dist.name == "evsys-runtime")
    rooms = {path.name for path in package.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert rooms <= set(FLOORS)


def test_a_room_of_the_runtime_imports_only_rooms_below_it():
    runtime = next(dist for dist in ALL if dist.name == "evsys-runtime")
    wrong = []
    for path in runtime.modules:
        here = room(f"evsys_runtime.{path.relative_to(runtime.package).parts[0].removesuffix('.py')}")
        for found in imports(path, runtime.package):
            there = room(found.module)
            if here and there and here != there and FLOORS[there] >= FLOORS[here]:
                wrong.append(f"{found} (from {here}/ to {there}/)")
    assert not wrong


def test_every_folder_of_experiment_has_a_floor():
    package = next(dist.package for dist in ALL if dist.name == "evsys-runtime") / "experiment"
    assert {path.name for path in package.iterdir() if path.is_dir() and any(path.glob("*.py"))} <= set(
        EXPERIMENT
    )


def test_a_folder_of_experiment_imports_only_those_below_it():
    runtime = next(dist for dist in ALL if dist.name == "evsys-runtime")
    wrong = []
    for path in (path for path in runtime.modules if path.is_relative_to(runtime.package / "experiment")):
        here = path.relative_to(runtime.package / "experiment").parts[0].removesuffix(".py")
        if here not in EXPERIMENT:
            continue
        below = EXPERIMENT[: EXPERIMENT.index(here)]
        for found in imports(path, runtime.package):
            parts = found.module.split(".")
            if parts[:2] == ["evsys_runtime", "experiment"] and len(parts) > 2:
                there = parts[2]
                if there != here and there not in below:
                    wrong.append(f"{found} (from {here} to {there})")
    assert not wrong


@pytest.mark.parametrize("dist", [dist for dist in ALL if dist.name in REACH], ids=lambda dist: dist.name)
def test_a_plugin_reaches_no_room_above_its_floor(dist: Distribution):
    wrong = [
        str(found)
        for found in all_imports(dist)
        if (there := room(found.module)) and FLOORS[there] > REACH[dist.name]
    ]
    assert not wrong


def test_no_module_of_ours_imports_pydantic():
    assert not [str(found) for dist in ALL for found in all_imports(dist) if found.top == "pydantic"]


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("def f():\n    from ..training import loop", "evsys_runtime.training"),
        ("from evsys_runtime import training", "evsys_runtime.training"),
        ("import importlib\nimportlib.import_module('evsys_algo_sft')", "evsys_algo_sft"),
        ("from .. import experiment", "evsys_runtime.experiment"),
        ("if False:\n    import numpy.linalg", "numpy.linalg"),
    ],
)
def test_imports_are_found_wherever_they_stand(tmp_path: Path, source: str, module: str):
    path = tmp_path / "evsys_runtime" / "config" / "model.py"
    path.parent.mkdir(parents=True)
    path.write_text(source, encoding="utf-8")
    assert module in [found.module for found in imports(path, tmp_path / "evsys_runtime")]


def test_all_distributions_are_found():
    assert {dist.folder.relative_to(ROOT).parts[0] for dist in ALL} == {
        *("core", "plugins", "evsys-cli", "conformance-tests"),
    }
    assert STANDARD_SET | {"evsys-sdk", "evsys-conformance"} <= set(OURS.values())

"""Every distribution is the same inside, so knowing one is knowing all."""

import ast
import functools
import itertools
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from house import ROOT, Distribution, distributions, lines_of_code

from evsys._plugins.refusals import known_names
from evsys.protocols import KINDS
from evsys_cli.table import COMMANDS

ALL = distributions()
each = pytest.mark.parametrize("dist", ALL, ids=lambda dist: dist.name)


def root_tools() -> dict[str, Any]:
    """The settings of all tools, from the `pyproject.toml` of the workspace."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]


PROJECT_KEYS = [
    *(
        "name",
        "version",
        "description",
        "readme",
        "requires-python",
        "license",
        "license-files",
        "dependencies",
    ),
    *("optional-dependencies", "scripts", "entry-points"),
]


@each
def test_pyproject_has_the_common_keys_in_the_common_order(dist: Distribution):
    project = dist.pyproject["project"]
    assert list(project) == [key for key in PROJECT_KEYS if key in project]
    assert set(PROJECT_KEYS[:8]) <= set(project)
    assert list(dist.pyproject) == ["project", "build-system", "tool"]
    assert list(dist.pyproject["tool"]) == ["hatch"]


@each
def test_pyproject_holds_at_most_35_lines_besides_entry_points(dist: Distribution):
    text = (dist.folder / "pyproject.toml").read_text(encoding="utf-8")
    rest = re.sub(r"^\[project\.entry-points\.[^\n]*\n(?:[^\[\n][^\n]*\n|\n)*", "", text, flags=re.MULTILINE)
    assert len(rest.splitlines()) <= 35


@each
def test_pyproject_says_what_all_say(dist: Distribution):
    project = dist.pyproject["project"]
    common = {key: project[key] for key in ("requires-python", "license", "license-files", "readme")}
    assert common == {
        "requires-python": ">=3.12",
        "license": "Apache-2.0",
        "license-files": ["LICENSE", "NOTICE"],
        "readme": "README.md",
    }
    assert dist.pyproject["build-system"] == {
        "requires": ["hatchling>=1.27"],
        "build-backend": "hatchling.build",
    }


@each
def test_folder_has_the_common_files(dist: Distribution):
    package = dist.package
    expected = [
        dist.folder / "README.md",
        dist.folder / "tests",
        package / "__init__.py",
        package / "py.typed",
    ]
    assert [path for path in expected if not path.exists()] == []
    assert package == dist.folder / "src" / dist.import_name
    assert [
        path.name for path in (dist.folder / "src").iterdir() if not path.name.startswith((".", "__"))
    ] == [dist.import_name]


@each
def test_tests_mirror_the_sources(dist: Distribution):
    """A folder under tests/ is named like a folder under src, so that a reader finds one from the other."""
    free = {"data", "documents", "fixtures", "support", "broken"}
    folders = [
        path for path in (dist.folder / "tests").rglob("*") if path.is_dir() and any(path.glob("test_*.py"))
    ]
    relative = [folder.relative_to(dist.folder / "tests") for folder in folders]
    assert [
        str(path) for path in relative if not (dist.package / path).is_dir() and not free & set(path.parts)
    ] == []


@each
def test_tests_folders_are_no_packages(dist: Distribution):
    assert [
        str(path) for path in (dist.folder / "tests").rglob("__init__.py") if "data" not in path.parts
    ] == []


def test_versions_are_one():
    root = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert {dist.pyproject["project"]["version"] for dist in ALL} == {root}


@each
def test_dependencies_on_each_other_follow_the_version(dist: Distribution):
    major, minor, _ = dist.pyproject["project"]["version"].split(".")
    project = dist.pyproject["project"]
    extras = project.get("optional-dependencies", {}).values()
    requirements = [*project["dependencies"], *itertools.chain.from_iterable(extras)]
    names = {other.name for other in ALL}
    ours = [requirement for requirement in requirements if re.match(r"[\w.-]+", requirement)[0] in names]
    assert [requirement for requirement in ours if not requirement.endswith(f"~={major}.{minor}")] == []


@each
@pytest.mark.parametrize("file", ["LICENSE", "NOTICE"])
def test_licence_files_are_copies_of_the_root(dist: Distribution, file: str):
    assert (dist.folder / file).read_bytes() == (ROOT / file).read_bytes()


def test_the_licence_is_apache_2():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_root_names_every_member_as_a_workspace_source():
    assert root_tools()["uv"]["sources"] == {dist.name: {"workspace": True} for dist in ALL}


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("ruff.lint.isort.known-first-party", [dist.import_name for dist in ALL]),
        ("coverage.run.source_pkgs", [dist.import_name for dist in ALL]),
        ("mypy.mypy_path", [dist.package.parent.relative_to(ROOT).as_posix() for dist in ALL]),
    ],
)
def test_the_lists_of_tools_name_every_member(path: str, names: list[str]):
    assert functools.reduce(lambda table, key: table[key], path.split("."), root_tools()) == sorted(names)


@pytest.mark.parametrize("pattern", [*root_tools()["mypy"]["files"], *root_tools()["ruff"]["src"]])
def test_the_patterns_of_tools_match_only_sources(pattern: str):
    sources = {dist.package.parent for dist in ALL}
    assert set(ROOT.glob(pattern)) <= sources


def test_the_patterns_of_tools_match_all_sources():
    sources = {dist.package.parent for dist in ALL}
    for patterns in (root_tools()["mypy"]["files"], root_tools()["ruff"]["src"]):
        assert sources - {path for pattern in patterns for path in ROOT.glob(pattern)} == set()


def test_a_plain_uv_run_installs_no_developer_tools():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["tool"]["uv"]["default-groups"] == []
    assert settings["project"]["dependencies"] == ["evsys-sdk"]


def test_pinned_resolution_names_no_host():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pins = settings["tool"]["uv"]["constraint-dependencies"]
    assert len(pins) > 40
    assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+(\[[\w,-]+\])?==[\w.+!]+( ; .+)?", pin)] == []


def test_python_versions_are_listed_newest_first():
    assert (ROOT / ".python-version").read_text(encoding="utf-8") == "3.13\n3.12\n"


ENTRY_POINTS = [(dist, *entry) for dist in ALL for entry in dist.entry_points]


@pytest.mark.parametrize(
    ("dist", "group", "name", "target"),
    ENTRY_POINTS,
    ids=[f"{dist.name}-{group}-{name}" for dist, group, name, _ in ENTRY_POINTS],
)
def test_entry_point_names_something_that_exists(dist: Distribution, group: str, name: str, target: str):
    module, _, attribute = target.partition(":")
    parts = module.split(".")
    assert parts[0] == dist.import_name
    base = dist.package.joinpath(*parts[1:])
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    assert path.exists(), f"{group} {name}: no module {module}"
    assert not attribute or attribute in _names(path), f"{group} {name}: {module} has no {attribute}"


def test_built_in_names_are_those_of_the_workspace():
    groups = {group: kind for kind, group in KINDS.items()}
    found: dict[str, dict[str, list[str]]] = {}
    for dist, group, name, _ in ENTRY_POINTS:
        if group in groups:
            found.setdefault(groups[group], {}).setdefault(dist.name, []).append(name)
    found["command"]["evsys-cli"] = [name for name, info in COMMANDS.items() if info.distribution is None]
    wanted = {kind: {dist: sorted(names) for dist, names in by.items()} for kind, by in found.items()}
    assert known_names()["built_in"] == wanted


def _names(path: Path) -> set[str]:
    """Names that a module defines or imports; where it has a `__getattr__`, also those it lists as strings."""
    names: set[str] = set()
    strings: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(node.name)
            case ast.alias():
                names.add(node.asname or node.name)
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
            case ast.Constant(value=str(text)):
                strings.add(text)
    return names | strings if "__getattr__" in names else names


CORE = next(dist for dist in ALL if dist.name == "evsys-core")


def test_the_contract_has_at_most_1620_lines_of_code():
    """What every plugin author may have to read: protocols, values, hooks, errors. No plugin needs the optional members."""
    contract = [path for path in CORE.modules if not {"_plugins", "optional"} & set(path.parts)]
    assert sum(map(lines_of_code, contract)) <= 1620


def test_the_machinery_of_plugins_stays_as_small_as_the_contract():
    machinery = [path for path in CORE.modules if "_plugins" in path.parts]
    assert sum(map(lines_of_code, machinery)) <= 1260


@pytest.mark.parametrize("dist", ALL, ids=lambda dist: dist.name)
def test_modules_stay_small(dist: Distribution):
    limit = 250 if dist is CORE else 400
    counts = {str(path.relative_to(ROOT)): lines_of_code(path) for path in dist.modules}
    assert {path: count for path, count in counts.items() if count > limit} == {}


def test_blank_lines_comments_and_docstrings_are_no_code(tmp_path: Path):
    path = tmp_path / "module.py"
    path.write_text(
        '"""Doc.\n\nMore."""\n\n# why\nx = """a\nb"""\n\n\ndef f():\n    """Doc."""\n    return (\n        x\n    )\n'
    )
    assert lines_of_code(path) == 6

"""The toolkit's public names are pinned, and documents, scaffolds and examples import public names only."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from house import ROOT, distributions
from snippets import blocks, documents

import evsys_record
import evsys_runtime

TOOLKIT = """Answer BUILTIN_LOSSES Band BaseAlgorithm BenchmarkConfig ByteTokenizer CentralStore ChatTemplateRenderer
    CountedFromTheEnd
    Evaluator FixedCatalogue Job Limits PolicyObjective RESULTS RecordingModel RowProblem ServedModel Tool Toolbox
    TrainingLoop TrainingParams Workspace audit_experiment bind_benchmark central_option central_store chat_server
    compute_loss current_scope
    echo experiment_names in_background jobs_of json_option load_dataset load_prices load_renderer
    load_tokenizer loss parse_row print_json proxy_of records_folder records_option result_schema run_groups run_rollout
    scheduled shared_breaker shared_limiter stop_gradient to_datum trajectories with_retries"""

PUBLIC = (
    *(
        "evsys",
        "evsys.errors",
        "evsys.hooks",
        "evsys.hookspecs",
        "evsys.optional",
        "evsys.protocols",
        "evsys.types",
    ),
    *("evsys_sdk", "evsys_sdk.algorithms", "evsys_sdk.experiment", "evsys_sdk.protocols", "evsys_sdk.runner"),
    *("evsys_runtime", "evsys_record", "evsys_stats", "evsys_conformance"),
    *("evsys_algo_sft", "evsys_algo_rl", "evsys_algo_dpo", "evsys_algo_distill"),
)

PAGE = ROOT / "docs/reference/compatibility.md"
SCAFFOLDS = ROOT / "evsys-cli/src/evsys_cli/scaffold"
STATEMENT = re.compile(
    r"^ *(?:from evsys[\w.]* import \([^)]*\)|from evsys[\w.]* import .*|import evsys[\w.]*)", re.MULTILINE
)


def test_the_names_of_the_toolkit_are_pinned():
    assert sorted(evsys_runtime.__all__) == sorted(TOOLKIT.split()) == dir(evsys_runtime)


@pytest.mark.parametrize("name", TOOLKIT.split())
def test_each_name_is_there_and_described(name: str):
    value = getattr(evsys_runtime, name)
    made_by_click = name in {"central_option", "json_option", "records_option"}
    assert not callable(value) or inspect.getdoc(value) or made_by_click


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'evsys_runtime' has no attribute 'nothing'"):
        getattr(evsys_runtime, "nothing")  # noqa: B009


def test_what_type_checkers_see_is_what_is_there():
    tree = ast.parse(Path(evsys_runtime.__file__).read_text(encoding="utf-8"))
    seen = {
        alias.name: node.module
        for guarded in tree.body
        if isinstance(guarded, ast.If) and ast.unparse(guarded.test) == "TYPE_CHECKING"
        for node in guarded.body
        for alias in node.names
    }
    homes = {name: f"evsys_runtime{home}" for name, home in evsys_runtime._HOME.items()}
    assert seen == homes
    assert sorted(homes) == sorted(evsys_runtime.__all__)


def test_importing_the_toolkit_imports_nothing_else():
    code = "import sys; before = set(sys.modules); import evsys_runtime; print(*sorted(set(sys.modules) - before))"
    new = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {name.partition(".")[0] for name in new} - set(sys.stdlib_module_names) == {"evsys_runtime"}
    assert [name for name in new if name.startswith("evsys_runtime.")] == []


def test_the_page_lists_every_name_of_the_toolkit():
    section = PAGE.read_text(encoding="utf-8").split("## The toolkit")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("| ")]
    assert sorted(re.findall(r"`(\w+)`", "\n".join(table))) == sorted(TOOLKIT.split())


@pytest.mark.parametrize("module", PUBLIC)
def test_the_page_lists_every_public_module(module: str):
    listed = PAGE.read_text(encoding="utf-8").split("## Public modules")[1].split("\n## ")[0]
    assert f"`{module}`" in listed or module.startswith("evsys_sdk.")


def sources() -> Iterator[tuple[str, str]]:
    """Code that readers copy: blocks of documents, files of scaffolds, and examples."""
    for path in documents():
        for block in blocks(path, "python"):
            yield str(block), block.code
    files = [path for path in SCAFFOLDS.rglob("*") if path.suffix in {".template", ".toml"}]
    for path in [
        *files,
        *sorted((ROOT / "examples").rglob("*.py")),
        *sorted((ROOT / "docs/kinds").glob("*.py")),
    ]:
        if ".venv" not in path.parts:
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def hidden(module: str, name: str | None) -> bool:
    """True for a module or a name of ours that isn't public."""
    if module.partition(".")[0] not in {one.partition(".")[0] for one in PUBLIC}:
        return False  # the reader's own
    if module.startswith("evsys_sdk.algorithms.") or re.fullmatch(r"evsys_stats\.\w+", module):
        return False  # each of their modules is pinned
    if module not in PUBLIC:
        return True
    public = getattr(importlib.import_module(module), "__all__", None)
    return name is not None and public is not None and name not in public


def test_documents_scaffolds_and_examples_import_public_names_only():
    found = [
        (place, statement.strip())
        for place, code in sources()
        for statement in STATEMENT.findall(code)
        for node in ast.parse(statement.strip()).body
        for module, name in (
            [(node.module, alias.name) for alias in node.names]
            if isinstance(node, ast.ImportFrom)
            else [(alias.name, None) for alias in node.names]
        )
        if hidden(module, name)
    ]
    assert found == []


def test_documents_name_no_hidden_module_of_the_toolkit():
    found = [
        (path.relative_to(ROOT).as_posix(), name)
        for path in documents()
        for name in re.findall(r"`evsys_runtime\.(\w+)", path.read_text(encoding="utf-8"))
        if name not in evsys_runtime.__all__ and path.name != "README.md"
    ]
    assert found == []


def test_distributions_import_public_names_by_their_package():
    """Where a public name lives may change in any version; nothing outside its package depends on that."""
    doors = {package.__name__: set(package.__all__) for package in (evsys_record, evsys_runtime)}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {alias.name} of {node.module}"
        for dist in distributions()
        for path in dist.modules
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and "." in node.module
        for door in [node.module.partition(".")[0]]
        if door in doors and door != dist.package.name
        for alias in node.names
        if alias.name in doors[door]
        and getattr(importlib.import_module(node.module), alias.name, None)
        is getattr(importlib.import_module(door), alias.name)
    ]
    assert found == []

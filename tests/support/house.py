"""The workspace as data: its distributions, their files, and what each source file imports."""

import ast
import io
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

# Inside of experiment/, from the ground up: each imports only those before it. Other modules of experiment/ import all of them.
EXPERIMENT = [
    *("budget", "supervision", "lineage", "state", "verdict", "insight", "stages", "preflight", "prior"),
    *("reuse", "open_session", "search", "arm", "estimate", "resume", "launching", "control"),
]


@dataclass(frozen=True)
class Distribution:
    """One member of the workspace."""

    folder: Path

    @cached_property
    def pyproject(self) -> dict[str, Any]:
        return tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))

    @cached_property
    def name(self) -> str:
        return self.pyproject["project"]["name"]

    @cached_property
    def package(self) -> Path:
        return self.folder / self.pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"][0]

    @property
    def import_name(self) -> str:
        return self.package.name

    @property
    def modules(self) -> list[Path]:
        return sorted(self.package.rglob("*.py"))

    @property
    def entry_points(self) -> list[tuple[str, str, str]]:
        """(group, name, target) of every entry point, console scripts included."""
        project = self.pyproject["project"]
        groups = {**project.get("entry-points", {}), "console_scripts": project.get("scripts", {})}
        return [
            (group, name, target) for group, entries in groups.items() for name, target in entries.items()
        ]


def distributions() -> list[Distribution]:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["uv"][
        "workspace"
    ]["members"]
    folders = {path.parent for pattern in patterns for path in ROOT.glob(f"{pattern}/pyproject.toml")}
    return [Distribution(folder) for folder in sorted(folders)]


@dataclass(frozen=True)
class Import:
    """An imported module, absolute, and where the import stands."""

    module: str
    path: Path
    line: int
    typing_only: bool = False

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: imports {self.module}"

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]


@cache
def imports(path: Path, package: Path) -> tuple[Import, ...]:
    """Every import of a file: relative ones made absolute, function-level ones and `import_module("x")` included.

    `from a import b` yields both `a` and `a.b`, since only the file system knows whether `b` is a module.
    """
    parts = [package.name, *path.relative_to(package).with_suffix("").parts]
    here = parts[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    guarded = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    return tuple(
        Import(module, path, node.lineno, typing_only=node in guarded)
        for node in ast.walk(tree)
        for module in _imported(node, here)
    )


def _imported(node: ast.AST, here: list[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name
    elif isinstance(node, ast.ImportFrom):
        base = here[: len(here) - node.level + 1] if node.level else []
        module = ".".join([*base, *([node.module] if node.module else [])])
        yield module
        for alias in node.names:
            yield f"{module}.{alias.name}"
    elif isinstance(node, ast.Call) and _called(node) in {"import_module", "__import__"}:
        name = node.args[0] if node.args else None
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and not name.value.startswith("."):
            yield name.value


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def lines_of_code(path: Path) -> int:
    """Lines that hold code: blank lines, comments and docstrings are not counted."""
    source = path.read_text(encoding="utf-8")
    docstrings = set()
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node) is not None
        ):
            docstrings.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    silent = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in silent:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)

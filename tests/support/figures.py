"""The figures by which this repository measures its own order, counted in the sources: `uvx nox -s figures`.

A figure counts the sources of all distributions, without tests. `NAME ...` counts some of them, and `--list` prints the counted places.
"""

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from house import EXPERIMENT, ROOT, Distribution, distributions, imports, lines_of_code

Function = ast.FunctionDef | ast.AsyncFunctionDef

LONGEST_FUNCTION = 50
HIGHEST_COMPLEXITY = 20
SMALL_MODULE = 80

# Names of functions and modules say what they do or what they hold: verbs and nouns. A name counts if no word of it is
# either, and so only says that or when something happened: `told`, `said`, `taken_up`, `so_far`.
#
# Not counted: methods, which are read with their object (`slot.used(tokens)`); functions inside functions; and names of
# changed copies of an argument, as Python's own `sorted` and `reversed` (`_LIKE_SORTED`).
_PARTICIPLES = set(
    "begun born bought brought broken built caught chosen come cut done drawn driven fallen felt found given gone grown heard "
    "held hidden kept known laid led left lost made meant met paid put read run said seen sent set shown shut spent "
    "split spoken stood stored sworn taken thought told torn understood won worn written".split()
) - set("cut put read run set shut split".split())  # these are verbs first
_NO_PARTICIPLES = set("bed embed exceed feed indeed need proceed red seed shed speed succeed".split())
_WITHOUT_NOUN = set(
    "after again ahead anew as at away back before below beside by far for from here how in into least most no not of off "
    "on once out over so then there together until up what when where whether which while who why with".split()
)
_LIKE_SORTED = set(
    "averaged bounded centred clipped combined converted copied encoded escaped expanded filtered flipped folded formatted fused "
    "hashed indented joined masked merged mixed normalized ordered oriented padded permuted ranked redacted rendered renamed "
    "replaced rounded scaled scattered shaped shortened stacked summed thinned unweighted weighted widened".split()
)
_IS_NO = re.compile(r"(?<![Tt]here )(?<![Tt]hat )\b(?:is|are) no\b(?! (?:longer|more|less|fewer|other)\b)")


@dataclass(frozen=True)
class Figure:
    """One count, how it is made (a number, or the places that are counted), and the goal that it has."""

    title: str
    count: Callable[[], int | list[str]]
    at_most: int | None = None


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def functions(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(tree(path)) if isinstance(node, Function))


def body_lines(function: Function) -> int:
    """Lines of a function from `def` on, without those of its docstring."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        lines -= (function.body[0].end_lineno or 0) - function.body[0].lineno + 1
    return lines


def complexity(function: Function) -> int:
    """McCabe's number, with comprehensions and the parts of `and` and `or` as decisions of their own, as radon counts it."""
    count = 1
    for node in _own_nodes(function):
        match node:
            case (
                ast.If()
                | ast.IfExp()
                | ast.For()
                | ast.AsyncFor()
                | ast.While()
                | ast.ExceptHandler()
                | ast.Assert()
            ):
                count += 1
            case ast.comprehension():
                count += 1 + len(node.ifs)
            case ast.BoolOp():
                count += len(node.values) - 1
            case ast.match_case():
                count += not isinstance(node.pattern, ast.MatchAs) or node.pattern.pattern is not None
            case _:
                pass
    return count


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions and classes inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Function | ast.ClassDef):
            yield node
            waiting.extend(ast.iter_child_nodes(node))


def circles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The groups of more than one node in which each reaches each other, by Tarjan's algorithm (1972)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in order:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], order[other])
        if lowest[node] == order[node]:
            group = stack[stack.index(node) :]
            del stack[len(stack) - len(group) :]
            if len(group) > 1:
                groups.append(sorted(group))

    for node in edges:
        if node not in order:
            visit(node)
    return sorted(groups)


def import_graph(dists: Iterable[Distribution]) -> dict[str, set[str]]:
    """The modules that each module imports, under TYPE_CHECKING and inside functions too; a package is its `__init__`."""
    files = {module_name(path, dist): (path, dist) for dist in dists for path in dist.modules}
    edges: dict[str, set[str]] = {}
    for name, (path, dist) in files.items():
        targets: dict[int, set[str]] = defaultdict(set)
        for found in imports(path, dist.package):
            if found.module in files:
                targets[found.line].add(found.module)
        # `from a import b` with a module `a.b` takes nothing of the package's own
        edges[name] = {
            target
            for line in targets.values()
            for target in line
            if target != name and not any(other.startswith(f"{target}.") for other in line)
        }
    return edges


def module_name(path: Path, dist: Distribution) -> str:
    parts = path.relative_to(dist.package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_participle_name(name: str) -> bool:
    """True for a name without a noun or a verb, see `_PARTICIPLES`."""
    words = name.strip("_").split("_")
    if len(words) == 1 and words[0] in _LIKE_SORTED:
        return False
    return all(word in _WITHOUT_NOUN or _is_participle(word) for word in words)


def _is_participle(word: str) -> bool:
    return word in _PARTICIPLES or (word.endswith("ed") and word not in _NO_PARTICIPLES)


@cache
def figures() -> dict[str, Figure]:
    """All figures by name; none is counted yet. What they read of the sources is read once a process."""
    dists = distributions()
    sources = [(path, dist) for dist in dists for path in dist.modules]
    everything = [path for path, _ in sources]
    runtime = [path for path, dist in sources if dist.name == "evsys-runtime"]
    graph = cache(lambda: import_graph(dists))
    folders = cache(lambda: _folders_of_experiment(graph()))
    return {
        "folders": Figure(
            "folders of experiment/ in a circle",
            lambda: [name for group in circles(folders()[0]) for name in group],
            at_most=0,
        ),
        "upwards": Figure(
            "imports from a folder of experiment/ to one above it", lambda: folders()[1], at_most=0
        ),
        "circles": Figure(
            "groups of files that import each other",
            lambda: [" <-> ".join(group) for group in circles(graph())],
            at_most=4,
        ),
        "lines": Figure("lines of source", lambda: _lines(everything)),
        "lines-runtime": Figure("lines of source of evsys-runtime", lambda: _lines(runtime)),
        "code": Figure(
            "lines of code, without blank lines, comments and docstrings",
            lambda: sum(map(lines_of_code, everything)),
        ),
        "long": Figure(
            f"functions of more than {LONGEST_FUNCTION} lines without the docstring",
            lambda: _long(everything),
            at_most=14,
        ),
        "complex": Figure(
            f"functions of a complexity above {HIGHEST_COMPLEXITY}", lambda: _complex(everything), at_most=4
        ),
        "members": Figure(
            "optional members asked for by name that core does not know",
            lambda: _unknown_members(everything),
            at_most=0,
        ),
        "is-no": Figure('"X is no Y" in messages', lambda: _is_no(everything), at_most=0),
        "participles": Figure(
            "functions and modules named by participles and prepositions alone",
            lambda: _participles(everything),
            at_most=29,
        ),
        "small": Figure(
            f"modules of at most {SMALL_MODULE} lines with one importer",
            lambda: _one_importer(graph(), sources),
        ),
        "dashboard": Figure(
            "modules of other distributions from which evsys-plots reads a record",
            lambda: _of_a_dashboard(graph()),
            at_most=1,
        ),
        "words": Figure("words of the documentation without code blocks", _words_of_docs, at_most=70_000),
    }


def _words_of_docs() -> int:
    pages = (ROOT / "docs").rglob("*.md")
    return sum(_words(path.read_text(encoding="utf-8")) for path in pages)


def _words(page: str) -> int:
    """Words of a page and its tables, without code blocks and comments."""
    text = re.sub(r"^ *```.*?^ *```$|<!--.*?-->", "", page, flags=re.MULTILINE | re.DOTALL)
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def _lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def _place(path: Path, line: int, words: str) -> str:
    return f"{path.relative_to(ROOT)}:{line}: {words}"


def _folders_of_experiment(graph: Mapping[str, Iterable[str]]) -> tuple[dict[str, set[str]], list[str]]:
    edges: dict[str, set[str]] = {name: set() for name in EXPERIMENT}
    upwards = []
    for module, targets in graph.items():
        here = _folder(module)
        for target in targets:
            there = _folder(target)
            if here is None or there is None or here == there:
                continue
            edges[here].add(there)
            if EXPERIMENT.index(there) > EXPERIMENT.index(here):
                upwards.append(f"{module} -> {target}")
    return edges, sorted(upwards)


def _folder(module: str) -> str | None:
    parts = module.split(".")
    inside = parts[:2] == ["evsys_runtime", "experiment"] and len(parts) > 2
    return parts[2] if inside and parts[2] in EXPERIMENT else None


def _long(paths: Iterable[Path]) -> list[str]:
    found = [(body_lines(one), path, one) for path in paths for one in functions(path)]
    found.sort(key=lambda one: -one[0])
    return [
        _place(path, one.lineno, f"{one.name}: {lines} lines")
        for lines, path, one in found
        if lines > LONGEST_FUNCTION
    ]


def _complex(paths: Iterable[Path]) -> list[str]:
    found = [(complexity(one), path, one) for path in paths for one in functions(path)]
    found.sort(key=lambda one: -one[0])
    return [
        _place(path, one.lineno, f"{one.name}: {number}")
        for number, path, one in found
        if number > HIGHEST_COMPLEXITY
    ]


def _unknown_members(paths: Iterable[Path]) -> list[str]:
    """Names in `getattr(x, "name")` and `hasattr` that classes of ours have, and that are nowhere in core."""
    in_core: set[str] = set()
    members: set[str] = set()
    for path in paths:
        if path.relative_to(ROOT).parts[0] == "core":
            in_core.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
        members.update(_members(path))
    asked = defaultdict(list)
    for path in paths:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"getattr", "hasattr"}:
                name = node.args[1]
                if isinstance(name, ast.Constant) and not name.value.startswith("_"):
                    asked[name.value].append(_place(path, node.lineno, name.value))
    return [f"{name}: {places[0]}" for name, places in sorted(asked.items()) if name in members - in_core]


def _members(path: Path) -> Iterator[str]:
    for cls in (node for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)):
        for node in cls.body:
            if isinstance(node, Function):
                yield node.name
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield node.target.id
            elif isinstance(node, ast.Assign):
                yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _is_no(paths: Iterable[Path]) -> list[str]:
    found = []
    for path in paths:
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node) is not None
        }
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.JoinedStr):
                text = "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
                )
                docstrings.update(id(part) for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            if id(node) not in docstrings and (hit := _IS_NO.search(text)):
                found.append(
                    _place(path, node.lineno, f"... {text[max(0, hit.start() - 30) : hit.end() + 30]!r}")
                )
    return found


def _participles(paths: Iterable[Path]) -> list[str]:
    found = [_place(path, 1, path.stem) for path in paths if is_participle_name(path.stem)]
    for path in paths:
        found += [
            _place(path, node.lineno, node.name)
            for node in _own_functions(tree(path))
            if not node.name.startswith("__") and is_participle_name(node.name)
        ]
    return found


def _own_functions(module: ast.Module) -> Iterator[Function]:
    """The functions of a module itself, in its `if` and `try` statements too."""
    waiting: list[ast.AST] = list(module.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, Function):
            yield node
        elif not isinstance(node, ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(node))


def _one_importer(
    graph: Mapping[str, Iterable[str]], sources: Iterable[tuple[Path, Distribution]]
) -> list[str]:
    importers = defaultdict(list)
    for module, targets in graph.items():
        for target in targets:
            importers[target].append(module)
    loaded = {
        target.partition(":")[0] for _, dist in sources for _, _, target in dist.entry_points
    }  # entry points count as importers
    found = []
    for path, dist in sources:
        name, lines = module_name(path, dist), _lines([path])
        if (
            path.stem != "__init__"
            and name not in loaded
            and len(importers[name]) == 1
            and lines <= SMALL_MODULE
        ):
            found.append(f"{name}: {lines} lines, imported by {importers[name][0]}")
    return found


def _of_a_dashboard(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Modules behind those that draw, without the contract, and without the toolkit of its command and listener."""
    own = {name for name in graph if name.split(".")[0] == "evsys_plots"}
    runtime = {
        target
        for name in own
        for target in graph[name]
        if target not in own and target.split(".")[0] != "evsys" and target != "evsys_runtime"
    }
    return sorted(runtime)


def main(arguments: list[str] | None = None) -> int:
    known = figures()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"figures to count: {', '.join(known)}")
    parser.add_argument("--list", action="store_true", help="print the places that are counted")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"unknown figures: {', '.join(unknown)}")
    for name in options.names or known:
        figure = known[name]
        counted = figure.count()
        value = counted if isinstance(counted, int) else len(counted)
        goal = "" if figure.at_most is None else f"at most {figure.at_most}"
        sys.stdout.write(f"{name:13} {figure.title:65} {value:7,}  {goal}".rstrip() + "\n")
        if options.list and not isinstance(counted, int):
            sys.stdout.writelines(f"  {place}\n" for place in counted)
    return 0


if __name__ == "__main__":
    sys.exit(main())

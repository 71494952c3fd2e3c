"""`run`, `runs` or `matrix` to arms: a plain tree each, and for each of its values the place in the file it came
from.

A check of all arms can look at each distinct part once: equal parts of a matrix's arms are the same object.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, get_type_hints

from evsys import structure
from evsys.errors import ConfigError
from evsys_runtime.config import overrides as overrides_
from evsys_runtime.config.arm_tree import BASE_MODEL, ArmTree, Digests, Origins
from evsys_runtime.config.document import Document
from evsys_runtime.config.expansion import Expansion
from evsys_runtime.config.grid import arms_of_matrix
from evsys_runtime.config.model import MatrixConfig
from evsys_runtime.config.names import slug
from evsys_runtime.config.reading import Reader
from evsys_runtime.config.report import Report
from evsys_runtime.config.scalars import describe
from evsys_runtime.config.searching import space_of_matrix
from evsys_runtime.config.space import Space

__all__ = ["expand", "expand_document", "forms_of", "usable_matrix"]


def expand(document: Document, overrides: Sequence[str] = ()) -> list[ArmTree]:
    """The arms of a document, in the order of the file.

    Raises:
        ConfigError: with every problem of the expansion.
    """
    report = Report()
    report.add(*document.problems)
    document = overrides_.apply(document, overrides, report)
    expansion = expand_document(document, report)
    report.raise_if_any()
    return expansion.arms


def forms_of(tree: Mapping[str, Any]) -> list[str]:
    """Which of `run`, `runs` and `matrix` a file uses."""
    return [key for key in ("run", "runs", "matrix") if key in tree]


def expand_document(
    document: Document,
    report: Report,
    matrix: MatrixConfig | None = None,
    refused: Collection[str] = (),
) -> Expansion:
    """Like `expand`, but problems go to `report`; arms that can't be built are left out.

    Args:
        document: the file.
        report: takes the problems.
        matrix: the structured form of as much of the file's matrix as can be used; left out, it is made here.
        refused: names of axes that can't be used and are reported already.
    """
    tree = document.tree
    forms = forms_of(tree)
    if len(forms) != 1:
        found = f"found {' and '.join(map(repr, forms))}" if forms else "found none of them"
        place = f"$.{forms[1]}" if forms else "$"
        message = f"expected exactly one of 'run', 'runs' and 'matrix'; {found}"
        report.add(document.problem(place, message, "keep one" if forms else "add a 'run'"))
    if "base_run" in tree and forms and "matrix" not in forms:
        report.add(
            document.problem("$.base_run", "'base_run' belongs to a matrix", f"move it into '{forms[0]}'")
        )
    arms: list[ArmTree] = []
    whole = len(forms) == 1
    unknown: frozenset[str] = frozenset()
    space: Space | None = None
    for form in forms:
        if form == "matrix":
            made = matrix or structure(MatrixConfig, tree["matrix"], path="$.matrix")
            expanded = arms_of_matrix if tree.get("search") is None else space_of_matrix
            grid = expanded(document, report, made, refused)
            arms += grid.arms
            whole, unknown, space = whole and grid.whole, grid.unknown, grid.space
        else:
            arms += _expand_list(document, report, form)
    if whole and space is None:
        _refuse_twins(arms, document, report)
    return Expansion(arms=arms, whole=whole, unknown=unknown, space=space)


def _expand_list(document: Document, report: Report, form: str) -> list[ArmTree]:
    given = document.tree[form]
    runs = [("$.run", given)] if form == "run" else _items(given, document, report)
    digests = Digests()
    arms = []
    for number, (place, tree) in enumerate(runs, 1):
        if not isinstance(tree, Mapping):
            hint = "give it data, model, algorithm and backend"
            report.add(document.problem(place, f"a run must be a mapping, got {describe(tree)}", hint))
            continue
        name = tree.get("name")
        default = "run" if form == "run" else f"run-{number}"
        label = slug(name) if isinstance(name, str) else default
        named = tree if name is not None and not isinstance(name, str) else {**tree, "name": label}
        arms.append(ArmTree(name=label, tree=named, origins=Origins(base=place), digest=digests.of(tree)))
    return arms


def _items(given: Any, document: Document, report: Report) -> list[tuple[str, Any]]:
    if not isinstance(given, list) or not given:
        what = "an empty list" if given == [] else describe(given)
        report.add(
            document.problem(
                "$.runs", f"'runs' must be a list of runs, got {what}", "use 'run' for a single one"
            )
        )
        return []
    return [(f"$.runs[{index}]", tree) for index, tree in enumerate(given)]


def _refuse_twins(arms: Sequence[ArmTree], document: Document, report: Report) -> None:
    names: dict[str, ArmTree] = {}
    runs: dict[str, ArmTree] = {}
    for arm in arms:
        if arm.name == BASE_MODEL:
            message = f"an arm can't be called {BASE_MODEL!r}, the name of the untrained model"
            report.add(document.problem(_name_place(arm), message, "give it another name"))
        twin, namesake = runs.setdefault(arm.digest, arm), names.setdefault(arm.name, arm)
        if twin is not arm:
            message = f"the arm {arm.name!r} is the same run as {twin.name!r}"
            hint = "remove one; 'n_repeats' repeats each arm over seeds"
            report.add(document.problem(_difference(twin, arm), message, hint))
        elif namesake is not arm:
            place = _difference(namesake, arm) if arm.origins.axes else f"{arm.origins.base}.name"
            report.add(document.problem(place, f"two arms are called {arm.name!r}", _hint(arm)))


def _name_place(arm: ArmTree) -> str:
    return next((place for path, place in arm.origins.axes if path == "$.name"), f"{arm.origins.base}.name")


def _hint(arm: ArmTree) -> str:
    return "name every axis in 'name_template'" if arm.origins.axes else "give each run a name of its own"


def _difference(one: ArmTree, other: ArmTree) -> str:
    """The place where the second of two arms departs from the first."""
    if one.origins.base != other.origins.base:
        return other.origins.base
    shared = set(one.origins.axes)
    return next(
        (place for mark in other.origins.axes if mark not in shared for place in [mark[1]]),
        other.origins.base,
    )


def usable_matrix(tree: Mapping[str, Any], reader: Reader) -> tuple[MatrixConfig | None, list[str]]:
    """As much of the file's matrix as can be used, what is wrong with the rest being reported, and the names of axes that
    are left out.
    """
    if "matrix" not in tree:
        return None, []
    given = tree["matrix"]
    if not isinstance(given, Mapping):
        reader.add("$.matrix", "a matrix is a mapping", "give it 'axes', and a 'base_run' to vary")
        return MatrixConfig(axes={}), ["axes"]
    given = {key: value for key, value in given.items() if key != "base_run"}
    parts = reader.fields(MatrixConfig, given, "$.matrix")
    refused = [key for key in given if key not in parts]
    if "axes" not in parts:
        listed = given.get("axes")
        axes = listed if isinstance(listed, Mapping) else {}
        usable = {name: axis for name, values in axes.items() for axis in _axis(values)}
        refused = [*axes.keys() - usable.keys(), *refused, "axes"]
        parts["axes"] = usable
    return MatrixConfig(**parts), refused


def _axis(values: Any) -> Iterator[Any]:
    with suppress(ConfigError):  # it is reported with the matrix
        yield structure(get_type_hints(MatrixConfig)["axes"], {"axis": values})["axis"]

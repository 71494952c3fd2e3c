"""`run`, `runs` or `matrix` to arms: a plain tree each, and for each of its values the place in the file it came from.

Trees share what they have in common: two arms with the same value on an axis hold the very same object below it. Whoever
looks at all arms can therefore look at each distinct part once.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import attrs

from evsys_runtime.config import overrides as overrides_
from evsys_runtime.config import paths, trees
from evsys_runtime.config.axes import NOT_SET, Axis, Condition, in_order, read_axes, steps_of
from evsys_runtime.config.document import Document
from evsys_runtime.config.model import MatrixConfig
from evsys_runtime.config.names import slug
from evsys_runtime.config.naming import Namer
from evsys_runtime.config.report import Report
from evsys_runtime.config.scalars import describe

__all__ = ["BASE_MODEL", "MAX_ARMS", "ArmTree", "Origins", "expand", "expand_document", "forms_of"]

MAX_ARMS = 100_000
"""More arms than anybody means; a matrix beyond this is refused before it is built."""

_UNKNOWN = object()
BASE_MODEL = "base_model"
"""The baseline that is no arm: the model as it was before training."""

_UNNAMED = frozenset({"name", "tags"})
"""Keys of a run that don't make it another run."""


@attrs.frozen(kw_only=True, eq=False)
class Origins:
    """Where the values of an arm stand in the file: `base` and, for each axis, a path inside the run and its place."""

    base: str
    axes: tuple[tuple[str, str], ...] = ()

    def locate(self, path: str) -> str:
        """The path in the file of a path in the arm (`$` is the run)."""
        best, place = "$", self.base
        for prefix, where in self.axes:
            inside = path == prefix or (path.startswith(prefix) and path[len(prefix)] in ".[")
            if inside and len(prefix) > len(best):
                best, place = prefix, where
        return place + path[len(best) :]


@attrs.frozen(kw_only=True, eq=False)
class ArmTree:
    """One arm as plain values. `digest` is the hash of what makes it this run: all but its name and tags."""

    name: str
    tree: Mapping[str, Any]
    origins: Origins
    digest: str


def expand(document: Document, overrides: Sequence[str] = ()) -> list[ArmTree]:
    """The arms of a document, in the order of the file.

    Raises:
        ConfigError: with every problem of the expansion.
    """
    report = Report()
    report.add(*document.problems)
    document = overrides_.apply(document, overrides, report)
    arms = expand_document(document, report)
    report.raise_if_any()
    return arms


def forms_of(tree: Mapping[str, Any]) -> list[str]:
    """Which of `run`, `runs` and `matrix` a file uses."""
    return [key for key in ("run", "runs", "matrix") if key in tree]


def expand_document(document: Document, report: Report, matrix: MatrixConfig | None = None) -> list[ArmTree]:
    """Like `expand`, but problems go to `report`; arms that can't be built are left out.

    `matrix` is the structured form of the document's matrix; left out, it is made here.
    """
    forms = forms_of(document.tree)
    if len(forms) != 1:
        found = f"found {' and '.join(map(repr, forms))}" if forms else "found none of them"
        place = f"$.{forms[1]}" if forms else "$"
        message = f"exactly one of 'run', 'runs' and 'matrix' says what is run; {found}"
        report.add(document.problem(place, message, "keep one" if forms else "add a 'run'"))
        return []
    if forms != ["matrix"] and "base_run" in document.tree:
        report.add(
            document.problem("$.base_run", "'base_run' belongs to a matrix", f"move it into '{forms[0]}'")
        )
    arms = _matrix(document, report, matrix) if forms == ["matrix"] else _listed(document, report, forms[0])
    _refuse_twins(arms, document, report)
    return arms


def _listed(document: Document, report: Report, form: str) -> list[ArmTree]:
    given = document.tree[form]
    runs = [("$.run", given)] if form == "run" else _items(given, document, report)
    digests = _Digests()
    arms = []
    for number, (place, tree) in enumerate(runs, 1):
        if not isinstance(tree, Mapping):
            hint = "give it data, model, algorithm and backend"
            report.add(document.problem(place, f"a run is a mapping, this is {describe(tree)}", hint))
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
                "$.runs", f"'runs' is a list of runs, this is {what}", "use 'run' for a single one"
            )
        )
        return []
    return [(f"$.runs[{index}]", tree) for index, tree in enumerate(given)]


def _matrix(document: Document, report: Report, matrix: MatrixConfig | None) -> list[ArmTree]:
    if matrix is None:
        from evsys import structure

        matrix = structure(MatrixConfig, document.tree["matrix"], path="$.matrix")
    base = _base_run(document, report)
    if base is None:
        return []
    place, tree = base
    before = len(report.problems)
    axes = read_axes(matrix, document, report)
    steps = steps_of(axes, matrix, document, report)
    size = math.prod(step.size for step in steps)
    if size > MAX_ARMS and not any(axis.when for axis in axes):
        report.add(_too_many(document, size))
    if len(report.problems) > before:
        return []
    grid = _Grid(document, report, tree, axes)
    naming = Namer(axes, tree, matrix.name_template, document, report)
    origins = [[(axis.run_path, where) for where in axis.places] for axis in axes]
    invented = tuple((path, axis.place) for axis in axes for path in [_invented(axis, tree)] if path)
    arms: list[ArmTree] = []
    for chosen in in_order(steps, axes, grid.holds):
        if len(arms) == MAX_ARMS:
            report.add(_too_many(document, None))
            return []
        run, digest = grid.run(chosen)
        name = naming.name(chosen, run)
        run["name"] = name
        marks = tuple(
            [pairs[index] for pairs, index in zip(origins, chosen, strict=True) if index != NOT_SET]
        )
        marks += invented
        arms.append(ArmTree(name=name, tree=run, origins=Origins(base=place, axes=marks), digest=digest))
    grid.note_unused(arms)
    return [] if len(report.problems) > before else arms


def _invented(axis: Axis, base: Mapping[str, Any]) -> str | None:
    """The mapping on the way to an axis's value that the base run lacks, None where it has all of them."""
    for length in range(1, len(axis.path)):
        if trees.get(base, axis.path[:length]) is trees.MISSING:
            return paths.join(axis.path[:length])
    return None


def _too_many(document: Document, size: int | None) -> Any:
    count = f"{size:,}" if size else "too many"
    return document.problem(
        "$.matrix.axes",
        f"the axes give {count} arms; at most {MAX_ARMS:,} are accepted",
        "shorten an axis or zip some",
    )


def _base_run(document: Document, report: Report) -> tuple[str, Mapping[str, Any]] | None:
    beside = document.tree.get("base_run")
    within = trees.get(document.tree, ("matrix", "base_run"))
    within = None if within is trees.MISSING else within
    if beside is not None and within is not None:
        message = "'base_run' stands beside the matrix and inside it"
        report.add(document.problem("$.base_run", message, "keep one of them"))
        return None
    place, base = ("$.base_run", beside) if within is None else ("$.matrix.base_run", within)
    if base is None:
        hint = "give 'base_run' what all arms share: data, model, algorithm, backend"
        report.add(document.problem("$.matrix", "the matrix has no 'base_run' to vary", hint))
        return None
    if not isinstance(base, Mapping):
        report.add(document.problem(place, f"a run is a mapping, this is {describe(base)}"))
        return None
    return place, base


class _Grid:
    """The base run with the values of the axes set in it; each distinct part is made once."""

    def __init__(
        self, document: Document, report: Report, base: Mapping[str, Any], axes: Sequence[Axis]
    ) -> None:
        self.document = document
        self.report = report
        self.base = base
        self.axes = axes
        self.digests = _Digests()
        self.parts: dict[tuple[Any, ...], Any] = {}
        self.held: set[str] = set()
        # Of two axes in one part, the one that sets the whole comes before the one that sets something in it.
        self.by_key: dict[str, tuple[int, ...]] = {}
        for index in sorted(range(len(axes)), key=lambda index: len(axes[index].path)):
            top = str(axes[index].path[0])
            self.by_key[top] = (*self.by_key.get(top, ()), index)

    def run(self, chosen: Sequence[int]) -> tuple[dict[str, Any], str]:
        """The tree of one arm, and its digest."""
        tree = dict(self.base)
        for top, indices in self.by_key.items():
            part = self._part(top, tuple([chosen[index] for index in indices]))
            if part is not trees.MISSING:
                tree[top] = part
        return tree, self.digests.of(tree)

    def holds(self, condition: Condition, chosen: Sequence[int]) -> bool:
        """Whether a condition is true where these values are chosen."""
        top = str(condition.path[0])
        indices = self.by_key.get(top, ())
        part = self._part(top, tuple([chosen[index] for index in indices]))
        value = trees.get(part, condition.path[1:])
        holds = any(_same(value, accepted) for accepted in condition.accepted)
        if holds:
            self.held.add(condition.place)
        return holds

    def _part(self, top: str, values: tuple[int, ...]) -> Any:
        key = (top, values)
        part = self.parts.get(key, _UNKNOWN)
        if part is _UNKNOWN:
            if values:  # what the axes before give is shared by all values of this one
                part = self._part(top, values[:-1])
                if values[-1] != NOT_SET:
                    part = self._set(part, self.axes[self.by_key[top][len(values) - 1]], values[-1])
            else:
                part = self.base.get(top, trees.MISSING)
            self.parts[key] = part
        return part

    def _set(self, part: Any, axis: Axis, value: int) -> Any:
        try:
            return trees.put({axis.path[0]: part}, axis.path, axis.values[value])[axis.path[0]]
        except ValueError as exc:
            self.report.add(self.document.problem(axis.place, f"the axis can't be set: {exc}"))
            return part

    def note_unused(self, arms: Sequence[ArmTree]) -> None:
        """Warn of conditions that hold in no arm, and refuse those that read what no arm has."""
        for axis in self.axes:
            for condition in axis.when:
                if condition.place in self.held:
                    continue
                if all(trees.get(arm.tree, condition.path) is trees.MISSING for arm in arms):
                    name = ".".join(map(str, condition.path))
                    near = get_close_matches(name, sorted(_dotted_paths(arms[0].tree)), n=1) if arms else []
                    hint = f"did you mean {near[0]!r}?" if near else None
                    self.report.add(self.document.problem(condition.place, f"no arm has {name!r}", hint))
                else:
                    self.report.warn(f"the axis {axis.name!r} applies to no arm: its condition never holds")


def _dotted_paths(tree: Any, prefix: str = "") -> list[str]:
    if not isinstance(tree, Mapping):
        return []
    found = []
    for key, value in tree.items():
        found += [f"{prefix}{key}", *_dotted_paths(value, f"{prefix}{key}.")]
    return found


def _same(a: Any, b: Any) -> bool:
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


class _Digests:
    """Hashes of runs, from a hash input that is made once for each distinct part."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[str, Any]] = {}
        self.orders: dict[tuple[str, ...], list[str]] = {}

    def of(self, tree: Mapping[str, Any]) -> str:
        """The hash of a run without its name and tags."""
        keys = tuple(tree)
        order = self.orders.get(keys)
        if order is None:
            order = self.orders[keys] = sorted(set(keys) - _UNNAMED)
        parts = [f"{key}:{self._part(tree[key])}" for key in order]
        return f"sha256:{hashlib.sha256('\n'.join(parts).encode('utf-8')).hexdigest()}"

    def _part(self, value: Any) -> str:
        known = self.known.get(id(value))
        if known is None:
            # The value is kept beside its text, so that its identity can't be given to another.
            known = self.known[id(value)] = (trees.canonical(value), value)
        return known[0]


def _refuse_twins(arms: Sequence[ArmTree], document: Document, report: Report) -> None:
    names: dict[str, ArmTree] = {}
    runs: dict[str, ArmTree] = {}
    for arm in arms:
        if arm.name == BASE_MODEL:
            message = f"an arm can't be called {BASE_MODEL!r}, which stands for the untrained model"
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
    """Where the second of two arms departs from the first."""
    if one.origins.base != other.origins.base:
        return other.origins.base
    shared = set(one.origins.axes)
    return next(
        (place for mark in other.origins.axes if mark not in shared for place in [mark[1]]),
        other.origins.base,
    )

"""`stages` and `continual`: arms that are chains of runs, each of which begins with the weights that the one before ended with.

The recipe is put into each run before axes are set in it, so an axis reaches into a stage; then each arm is taken apart into its stages,
a run each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_type_hints

import attrs

from evsys import structure
from evsys._plugins.refusals import closest
from evsys.errors import ConfigError
from evsys_runtime.config import paths, trees
from evsys_runtime.config.arm_tree import ArmTree, Origins, Stage
from evsys_runtime.config.axes import run_path
from evsys_runtime.config.document import Document
from evsys_runtime.config.model import BenchmarkConfig, ContinualConfig, ExperimentConfig, StageConfig
from evsys_runtime.config.names import slug
from evsys_runtime.config.reading import Reader
from evsys_runtime.config.roles import ROLES

__all__ = [
    "RECIPES",
    "RETENTION_LIMITS",
    "Recipe",
    "check_learned",
    "learned_benchmark",
    "recipe_of",
    "recipe_values",
    "stage_name",
]

RETENTION_LIMITS = ("maximum_loss", "minimum_retention")
"""The keys of `continual` that may end an arm early."""

RECIPES = ("stages", "continual")
"""The keys of the experiment file that make chains of its arms."""

_NOT_BESIDE = {"stages": ("search",), "continual": ("search", "confirm", "control")}
"""Keys that exclude chains: a search identifies runs by their arms, and forgetting is reported for compared arms
alone.
"""

_ONLY_FIRST = ("init_from_checkpoint", "load_checkpoint_path")
"""Keys that set where the first stage begins; the others begin where the one before ended."""

_SET_BY = {"stages": ("data", "algorithm"), "continual": ("data",)}
"""Keys of a run that its stages set."""

_OF_A_STAGE = (*_SET_BY["stages"], *ROLES)
"""Keys of a run that a stage may set."""

_OF_THE_CHAIN = ("name", "benchmark")
"""Keys of a dataset of `continual` that are not keys of a `data` block."""


@attrs.frozen(kw_only=True)
class _Part:
    """The values that a stage sets in the run, and their places in the recipe."""

    name: str
    values: Mapping[str, Any]
    places: Sequence[tuple[str, str]]


@attrs.frozen(kw_only=True, eq=False)
class Recipe:
    """How arms become chains: by the `key` of the file, or not at all. `document` is the file with the recipe in each run."""

    key: str | None
    document: Document
    _models: dict[int, tuple[Any, Any]] = attrs.field(factory=dict)
    _datasets: dict[tuple[int, int], tuple[Any, Any]] = attrs.field(factory=dict)

    def stages(self, arm: ArmTree) -> list[ArmTree]:
        """The stages of an arm in their order; the arm itself where there is no recipe."""
        if self.key is None:
            return [arm]
        given = arm.tree.get(self.key)
        parts = list(self._stage_parts(given) if self.key == "stages" else self._dataset_parts(given))
        origins = attrs.evolve(arm.origins, axes=(*arm.origins.axes, (f"$.{self.key}", f"$.{self.key}")))
        kept = {key: value for key, value in arm.tree.items() if key != self.key}
        made: list[ArmTree] = []
        before: str | None = None
        for index, part in enumerate(parts, 1):
            tree = {**kept, **part.values, **(self._chain_model(kept) if index > 1 else {})}
            stage = Stage(index=index, name=part.name, of=len(parts), before=before)
            # With what came before, since that made the weights that it begins with.
            before = _hash(f"{before} {trees.canonical({**tree, 'name': None, 'tags': None})}")
            origins_here = _move(origins, part.places)
            made.append(ArmTree(name=arm.name, tree=tree, origins=origins_here, digest=before, stage=stage))
        return made

    def _stage_parts(self, given: Any) -> Iterator[_Part]:
        for index, entry in _mappings(given):
            values = {key: entry[key] for key in _OF_A_STAGE if key in entry}
            asked = [key for key in _OF_A_STAGE if key in values or key in _SET_BY["stages"]]
            places = [(f"$.{key}", f"$.stages[{index}].{key}") for key in asked]
            yield _Part(name=stage_name(entry.get("name"), index), values=values, places=places)

    def _dataset_parts(self, given: Any) -> Iterator[_Part]:
        datasets = [entry for _, entry in _mappings(trees.get(given, ("datasets",)))]
        replay = trees.get(given, ("replay",))
        for index, entry in enumerate(datasets):
            data = self._rows(entry)
            places = [("$.data", f"$.continual.datasets[{index}]")]
            if index and replay not in (trees.MISSING, None) and (replay != 0 or isinstance(replay, bool)):
                earlier = [self._rows(each) for each in datasets[:index]]
                data = {**data, "replay": {"ratio": replay, "datasets": earlier}}
                places.append(("$.data.replay.ratio", "$.continual.replay"))
                places += [
                    (f"$.data.replay.datasets[{number}]", f"$.continual.datasets[{number}]")
                    for number in range(index)
                ]
            yield _Part(
                name=stage_name(entry.get("name"), index, default="data"),
                values={"data": self._same(given, index, data)},
                places=places,
            )

    def _rows(self, entry: Mapping[str, Any]) -> Any:
        rows = {key: value for key, value in entry.items() if key not in _OF_THE_CHAIN}
        return self._same(entry, -1, rows)

    def _same(self, of: Any, index: int, made: Any) -> Any:
        """One object for what is made of the same values, so that it is looked at once."""
        return self._datasets.setdefault((id(of), index), (made, of))[0]

    def _chain_model(self, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """The model of a stage that begins where another one ended."""
        model = tree.get("model")
        if not isinstance(model, Mapping):
            return {}
        made = trees.remove_keys(model, [(key,) for key in _ONLY_FIRST])
        return {"model": self._models.setdefault(id(model), (made, model))[0]}


def recipe_of(reader: Reader) -> Recipe:
    """The recipe of a file; what is wrong with it, apart from what its stages hold, is reported."""
    document = reader.document
    given = [key for key in RECIPES if document.tree.get(key) not in (None, [])]
    if not given:
        return Recipe(key=None, document=document)
    if len(given) > 1:
        reader.add("$.continual", "'stages' and 'continual' both define the order of training", "keep one")
    key = given[0]
    for other in _NOT_BESIDE[key]:
        if document.tree.get(other) is not None:
            message = f"{other!r} doesn't go with {key!r} in this version"
            reader.add(f"$.{other}", message, "leave one of them out")
    _check(key, document.tree[key], reader)
    _check_axes(key, document.tree, reader)
    return Recipe(key=key, document=attrs.evolve(document, tree=_with_recipe(key, document.tree, reader)))


def stage_name(given: Any, index: int, *, default: str = "stage") -> str:
    """The name of a stage as it is in names of runs; `index` counts from 0."""
    return slug(given) if isinstance(given, str) and given else f"{default}-{index + 1}"


def learned_benchmark(name: str, benchmark: str | None, labels: Sequence[str]) -> str | None:
    """The label of the benchmark entry of a dataset learnt: the one that it names, else the one of its name."""
    asked = name if benchmark is None else benchmark
    return asked if asked in labels else None


def check_learned(tree: Mapping[str, Any], entries: Sequence[BenchmarkConfig], reader: Reader) -> None:
    """Report datasets of `continual` whose benchmark isn't there, or may not decide whether an arm ends early.

    Args:
        tree: the file.
        entries: its benchmark entries.
        reader: takes the problems.
    """
    given = tree.get("continual")
    if not isinstance(given, Mapping):
        return
    split = {entry.label: entry.split for entry in entries}
    datasets = list(_mappings(given.get("datasets")))
    known: dict[int, str] = {}
    for index, entry in datasets:
        name, asked = stage_name(entry.get("name"), index, default="data"), entry.get("benchmark")
        found = learned_benchmark(name, asked, list(split))
        if found is not None:
            known[index] = found
        elif isinstance(asked, str):
            hint = closest(asked, split) or f"benchmarks: {', '.join(split) or 'none'}"
            place = f"$.continual.datasets[{index}].benchmark"
            reader.add(place, f"no benchmark entry is called {asked!r}", hint)
    if not known:
        reader.report.warn("continual: no dataset has a benchmark entry, so forgetting can't be measured")
    limits = [name for name in RETENTION_LIMITS if given.get(name) is not None]
    if not limits:
        return
    if len(limits) > 1:
        message = "'maximum_loss' and 'minimum_retention' both limit how much may be forgotten"
        reader.add("$.continual.minimum_retention", message, "keep 'maximum_loss'")
    limit = limits[0]
    for index, _ in datasets[:-1]:
        place = f"$.continual.datasets[{index}]"
        if index not in known:
            message = f"{limit!r} needs a benchmark for this dataset to measure what is forgotten"
            reader.add(place, message, "name its entry as 'benchmark'")
        elif split[known[index]] == "test":
            message = f"{limit!r} would be decided by {known[index]!r}, which is a 'test' entry"
            reader.add(place, message, "name a 'val' entry")


def recipe_values(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The structured values of a valid file under the keys of recipes."""
    hints = get_type_hints(ExperimentConfig)
    return {
        key: structure(hints[key], tree[key], path=f"$.{key}") for key in RECIPES if tree.get(key) is not None
    }


def _check(key: str, given: Any, reader: Reader) -> None:
    """The problems of a recipe besides those of its data and algorithms, which are checked with the arms."""
    entries = given if key == "stages" else trees.get(given, ("datasets",))
    root = "$.stages" if key == "stages" else "$.continual.datasets"
    hollow = [_hollow(key, entry) for entry in entries] if isinstance(entries, list) else entries
    try:
        if key == "stages":
            structure(tuple[StageConfig, ...], hollow, path=root)
        else:
            named = isinstance(given, Mapping) and hollow is not trees.MISSING
            structure(ContinualConfig, {**given, "datasets": hollow} if named else given, path="$.continual")
    except ConfigError as exc:
        reader.add_all(exc.problems)
        # What the stages make of a wrong value is an echo.
        reader.report.settled.update(p.path for p in exc.problems if p.path == "$.continual.replay")
    if not isinstance(entries, list):
        return
    if key == "continual" and len(entries) < 2:
        reader.add(
            root, "dataset after dataset is learnt, so there are at least two", "use 'run.data' for one"
        )
    seen: dict[str, int] = {}
    for index, entry in _mappings(entries):
        name = stage_name(entry.get("name"), index, default="stage" if key == "stages" else "data")
        if seen.setdefault(name, index) != index:
            reader.add(f"{root}[{index}].name", f"two stages are called {name!r}", "give it another name")


def _hollow(key: str, entry: Any) -> Any:
    """An entry with values in place of what the arms are checked for."""
    if not isinstance(entry, Mapping):
        return entry
    if key == "stages":
        own = {name: value for name, value in entry.items() if name not in ROLES}
        return {**own, "data": {"path": "-"}, "algorithm": {"kind": "-"}}
    return {name: entry[name] for name in _OF_THE_CHAIN if name in entry}


def _check_axes(key: str, tree: Mapping[str, Any], reader: Reader) -> None:
    """Axes may set what a stage holds, and `continual.replay`; not what the stages say themselves."""
    axes = trees.get(tree, ("matrix", "axes"))
    for name in axes if isinstance(axes, Mapping) else ():
        try:
            path = run_path(name)
        except ValueError:  # a name that is no path is reported as such
            continue
        place = paths.child("$.matrix.axes", name)
        if path[0] in _SET_BY[key]:
            hint = f"write {key}[0].{name}" if key == "stages" else "vary continual.replay"
            reader.add(place, f"{key!r} says what {path[0]!r} is", hint)
        elif path[0] == key and not _may_vary(key, path):
            message = "an axis can't set this"
            hint = (
                "an axis reaches stages[0].algorithm... and stages[0].data..."
                if key == "stages"
                else "of 'continual' an axis reaches continual.replay alone"
            )
            reader.add(place, message, hint)


def _may_vary(key: str, path: Sequence[paths.Segment]) -> bool:
    if key == "continual":
        return tuple(path[1:]) == ("replay",)
    return len(path) > 2 and str(path[1]).isdecimal() and path[2] in ("data", "algorithm")


def _with_recipe(key: str, tree: Mapping[str, Any], reader: Reader) -> dict[str, Any]:
    """The file with the recipe in each of its runs."""
    places: list[tuple[paths.Segment, ...]] = [("run",), ("base_run",), ("matrix", "base_run")]
    runs = tree.get("runs")
    places += [("runs", index) for index in range(len(runs))] if isinstance(runs, list) else []
    made = dict(tree)
    for place in places:
        run = trees.get(tree, place)
        if not isinstance(run, Mapping):
            continue
        for name in (*_SET_BY[key], key):
            if run.get(name) is not None:
                message = f"set by the experiment's {key!r} already"
                reader.add(paths.join((*place, name)), message, f"leave it out, or {key!r}")
        made = trees.put(made, place, {**run, key: tree[key]})
    return made


def _move(origins: Origins, places: Sequence[tuple[str, str]]) -> Origins:
    """Origins of values at the second of each pair of paths, and are at the first."""
    marks = [(to, origins.locate(of)) for to, of in places]
    marks += [
        (to + path[len(of) :], where)
        for to, of in places
        for path, where in origins.axes
        if path.startswith(of) and path[len(of) : len(of) + 1] in (".", "[")
    ]
    return attrs.evolve(origins, axes=(*origins.axes, *marks))


def _hash(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _mappings(given: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The entries of a list that are mappings, by their place; others are reported as what they are not."""
    for index, entry in enumerate(given if isinstance(given, list) else ()):
        if isinstance(entry, Mapping):
            yield index, entry

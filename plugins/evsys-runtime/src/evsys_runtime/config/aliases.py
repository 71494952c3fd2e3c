"""One spelling for keys, params and plugins that have several: aliases become canonical names as soon as a file is read.

Everything after that, the record and a run's identity included, sees canonical names only. Which params a spec takes depends on
its plugin; in a matrix that an axis may choose, a param is renamed if all plugins in question agree on its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from re import Match
from re import sub as substitute
from typing import Any

import attrs

from evsys import Registry
from evsys._plugins.models import is_pydantic
from evsys._plugins.shape import ConfigField, fields_of, shape_of
from evsys.errors import EvsysError
from evsys_runtime.config import paths, placeholders, trees
from evsys_runtime.config.axes import run_path
from evsys_runtime.config.document import Document
from evsys_runtime.config.model import ExperimentConfig, RunConfig
from evsys_runtime.config.paths import Segment
from evsys_runtime.config.report import Report

__all__ = ["Aliases"]

_PLACEHOLDER = r"(?<!\{)\{([^{}]+)\}"
"""A value in a `name_template`."""


@attrs.frozen(kw_only=True)
class _Place:
    """The values allowed at a place in a file: mappings of these classes, which `owner` defines.

    `plugin` is the kind of plugin that they name, if they name one; `nodes` are the values that the file may have
    there.
    """

    classes: tuple[type, ...]
    owner: str = "evsys"
    plugin: str | None = None
    nodes: tuple[Any, ...] = ()

    def field(self, name: Segment) -> ConfigField | None:
        """The field that a name means, if all classes agree on it."""
        found = [
            next((field for field in fields_of(cls) if name in (field.key, *field.aliases)), None)
            for cls in self.classes
        ]
        agreed = {None if field is None else field.key for field in found}
        return found[0] if len(agreed) == 1 else None


@attrs.define(eq=False)
class Aliases:
    """Finds the canonical names, with the params of the plugins in `registry`. Warns of deprecated names in
    `report`.

    The values of secret fields are refused there as well, unless they are `${NAME}`.
    """

    registry: Registry
    report: Report
    _file: Mapping[str, Any] = attrs.field(factory=dict)
    _renamed: dict[str, str] = attrs.field(factory=dict)
    _deprecated: list[tuple[str, str, str | None]] = attrs.field(factory=list)
    _secret: dict[str, str] = attrs.field(factory=dict)

    def document(self, document: Document) -> Document:
        """The document with canonical names only, except where a value has two names at once."""
        tree = self._file = document.tree
        root = _Place(classes=(ExperimentConfig,), nodes=(tree,))
        spelled = self._tree(root, self._success(self._matrix(tree)), "$", "$")
        for place, message, hint in self._deprecated:
            self.report.warn(str(document.problem(place, message, hint)))
        self._deprecated.clear()
        self._refuse_secrets(document)
        if not self._renamed:
            return attrs.evolve(document, tree=spelled)
        moved = attrs.evolve(
            document,
            tree=spelled,
            positions=self._rename_paths(document.positions),
            keys=self._rename_paths(document.keys),
            literals=self._rename_paths(document.literals),
            overrides=self._rename_paths(document.overrides),
        )
        self._renamed.clear()
        return moved

    def _refuse_secrets(self, document: Document) -> None:
        """Refuse what the file spells out for a secret field: the record keeps the file."""
        for place, name in self._secret.items():
            if _is_explicit(trees.get(document.tree, paths.parse(place))):
                variable = substitute(r"\W+", "_", name).upper()
                hint = f"write ${{{variable}}} and export {variable}"
                message = f"{name!r} is a secret, and the record keeps this text"
                self.report.add(document.problem(place, message, hint))
        self._secret.clear()

    def path(self, segments: Sequence[Segment], tree: Mapping[str, Any]) -> tuple[Segment, ...]:
        """A path in the file, such as that of an override, by canonical names."""
        self._file = tree
        first, *inside = segments
        if first in {"run", "base_run"}:
            return (first, *self._path(self._run(), inside))
        if tuple(segments[:2]) == ("matrix", "axes"):
            name = ".".join(map(str, segments[2:]))
            return ("matrix", "axes", self._axis(name)) if name else tuple(segments)
        return self._path(_Place(classes=(ExperimentConfig,), nodes=(tree,)), segments)

    def _axis(self, name: str, where: str | None = None) -> str:
        """The name of an axis by canonical names. `where` is its place, if a deprecated name in it is to be
        reported.
        """
        try:
            segments = paths.parse(name)
        except ValueError:  # reported where the axes are read
            return name
        inside = run_path(name)
        named = segments[: len(segments) - len(inside)]
        of_run = inside[0] in attrs.fields_dict(RunConfig)
        place = self._run() if of_run else _Place(classes=(ExperimentConfig,), nodes=(self._file,))
        canonical = (*named, *self._path(place, inside, where))
        return name if canonical == segments else paths.join(canonical).removeprefix("$.")

    def _matrix(self, tree: dict[str, Any]) -> dict[str, Any]:
        """The file with canonical names in all that names axes: the axes, `when`, `zip` and `name_template`."""
        matrix = tree.get("matrix")
        axes = matrix.get("axes") if isinstance(matrix, Mapping) else None
        if not isinstance(matrix, Mapping) or not isinstance(axes, Mapping):
            return tree

        def spelled(name: Any) -> Any:
            return self._axis(name) if isinstance(name, str) else name

        names = {name: self._axis(name, paths.child("$.matrix.axes", name)) for name in axes}
        if len(set(names.values())) < len(
            names
        ):  # one value by two names is reported where the axes are read
            names = {name: name for name in axes}
        given = dict(matrix)
        given["axes"] = {names[name]: _condition(axis, spelled) for name, axis in axes.items()}
        for old, new in names.items():
            if old != new:
                self._renamed[paths.child("$.matrix.axes", old)] = paths.child("$.matrix.axes", new)
        if isinstance(zipped := matrix.get("zip"), list):
            given["zip"] = [
                list(map(spelled, group)) if isinstance(group, list) else group for group in zipped
            ]
        if isinstance(template := matrix.get("name_template"), str):

            def in_braces(found: Match[str]) -> str:
                return f"{{{spelled(found[1])}}}"

            given["name_template"] = substitute(_PLACEHOLDER, in_braces, template)
        return tree if given == matrix else {**tree, "matrix": given}

    def _run(self) -> _Place:
        """Any run of the file: everything given as one, and what axes put into it that may choose a plugin."""
        matrix = self._file.get("matrix")
        matrix = matrix if isinstance(matrix, Mapping) else {}
        runs = self._file.get("runs")
        nodes = [self._file.get("run"), self._file.get("base_run"), matrix.get("base_run")]
        nodes += [*(runs if isinstance(runs, list) else ()), *_plugin_choices(matrix.get("axes"))]
        return _Place(classes=(RunConfig,), nodes=tuple(node for node in nodes if isinstance(node, Mapping)))

    def _path(
        self, place: _Place, segments: Sequence[Segment], where: str | None = None
    ) -> tuple[Segment, ...]:
        spelled: list[Segment] = []
        for segment in segments:
            if isinstance(segment, int) or segment.isdecimal():
                spelled.append(segment)
                place = attrs.evolve(place, nodes=_children(place.nodes, segment))
                continue
            field = place.field(segment)
            spelled.append(segment if field is None else field.key)
            if where is not None:
                self._note(field, segment, place.owner, where)
            place = self._below(place, field, segment)
        return tuple(spelled)

    def _tree(self, place: _Place, value: Any, old: str, new: str) -> Any:
        """`value` with canonical names; `value` itself where it has no others. `old` and `new` are its paths."""
        if isinstance(value, str):
            return value if place.plugin is None else self._plugin(place.plugin, value)
        if isinstance(value, list):
            return self._items(place, value, old, new)
        if not isinstance(value, Mapping) or not place.classes:
            return value
        fields = {name: place.field(name) if isinstance(name, str) else None for name in value}
        spelled = {name: name if field is None else field.key for name, field in fields.items()}
        twice = {name for name in spelled.values() if list(spelled.values()).count(name) > 1}
        made = {}
        for name, inner in value.items():
            key = name if spelled[name] in twice else spelled[name]
            was, now = paths.child(old, name), paths.child(new, key)
            if key != name:
                self._renamed[was] = now
            self._note(fields[name], name, place.owner, was)
            made[key] = self._tree(self._below(place, fields[name], name), inner, was, now)
        same = made.keys() == value.keys() and all(made[name] is inner for name, inner in value.items())
        return value if same else made

    def _items(self, place: _Place, value: list[Any], old: str, new: str) -> list[Any]:
        items = [
            self._tree(
                attrs.evolve(place, nodes=(item, *_children(place.nodes, index))),
                *(item, paths.child(old, index), paths.child(new, index)),
            )
            for index, item in enumerate(value)
        ]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items

    def _below(self, place: _Place, field: ConfigField | None, name: str) -> _Place:
        """The values allowed under a name in a place."""
        nodes = _children(place.nodes, name)
        if field is None:
            return _Place(classes=())
        if field.key == "base_run":
            return self._run()
        if place.plugin is None or field.key != "params":
            if place.plugin is not None and field.key == "kind":
                return _Place(classes=(), plugin=place.plugin)
            classes = tuple(_classes(field.annotation))
            return _Place(
                classes=classes, owner=place.owner, plugin=field.metadata.get("plugin"), nodes=nodes
            )
        kinds = {
            node["kind"]
            for node in place.nodes
            if isinstance(node, Mapping) and isinstance(node.get("kind"), str)
        }
        configs = [self._config(place.plugin, kind) for kind in sorted(kinds)]
        classes = tuple(config for config, _ in configs if config is not None)
        if len(classes) < len(configs):
            return _Place(classes=())
        return _Place(classes=classes, owner=configs[0][1] if configs else "", nodes=nodes)

    def _plugin(self, kind: str, name: str) -> str:
        """The name of a plugin; one that isn't known stays as it is, and is reported where the plugin is built."""
        with suppress(EvsysError):
            entry = self.registry.find(kind, name)
            if not entry.params and name not in {entry.name, entry.qualified}:
                return entry.name
        return name

    def _success(self, tree: dict[str, Any]) -> dict[str, Any]:
        """The file with the canonical name of the metric that decides."""
        metadata = tree.get("metadata")
        asked = metadata.get("success_metric") if isinstance(metadata, Mapping) else None
        if not isinstance(metadata, Mapping) or not isinstance(asked, str) or "[" in asked:
            return tree
        label, dot, metric = asked.rpartition(".")
        meant = label + dot + self._plugin("metric", metric)
        return tree if meant == asked else {**tree, "metadata": {**metadata, "success_metric": meant}}

    def _config(self, plugin: str, kind: str) -> tuple[type | None, str]:
        """The Config of a plugin, and the distribution that has it; None where it has none that can be looked at."""
        try:
            config = self.registry.config_of(plugin, kind)
            owner = self.registry.find(plugin, kind).distribution
            if config is None or is_pydantic(config):
                return None, owner
            fields_of(config)
        except EvsysError:  # reported where the plugin is built
            return None, ""
        return config, owner

    def _note(self, field: ConfigField | None, name: str, owner: str, place: str) -> None:
        if field is not None and field.metadata.get("secret"):
            self._secret[place] = field.key
        since = None if field is None else field.deprecations.get(name)
        if field is None or since is None:
            return
        hint = f"use {field.key!r}" if name != field.key else field.metadata.get("help")
        self._deprecated.append((place, f"{name!r} is deprecated since {owner} {since}", hint))

    def _rename_paths[T](self, found: Mapping[str, T]) -> dict[str, T]:
        """Facts about paths, by their canonical names."""
        return {self._canonical(path): value for path, value in found.items()}

    def _canonical(self, path: str) -> str:
        for ancestor in paths.ancestors(path):
            if ancestor in self._renamed:
                return self._renamed[ancestor] + path[len(ancestor) :]
        return path


def _plugin_choices(axes: Any) -> Iterator[dict[str, Any]]:
    """A run for each value of an axis that says which plugin is used."""
    for name, axis in axes.items() if isinstance(axes, Mapping) else ():
        values = axis.get("values") if isinstance(axis, Mapping) else axis
        with suppress(ValueError, TypeError):  # reported where the axes are read
            path = run_path(name)
            for value in values if isinstance(values, list) else ():
                if path[-1] == "kind" or isinstance(value, Mapping):
                    yield trees.put({}, path, value)


def _is_explicit(value: Any) -> bool:
    """True if a tree has a value other than null and texts that ask for variables."""
    if isinstance(value, Mapping):
        return any(map(_is_explicit, value.values()))
    if isinstance(value, list):
        return any(map(_is_explicit, value))
    return value is not None and not (isinstance(value, str) and placeholders.names_in(value))


def _children(nodes: Iterable[Any], segment: Segment) -> tuple[Any, ...]:
    found = (trees.get(node, (segment,)) for node in nodes)
    return tuple(value for value in found if value is not trees.MISSING)


def _classes(annotation: Any) -> Iterator[type]:
    """The classes with fields that an annotation takes mappings for, alone or in a list."""
    shape = shape_of(annotation)
    if shape.kind == "object" and not is_pydantic(shape.target):
        yield shape.target
    for part in shape.parts if shape.kind in {"union", "sequence"} else ():
        yield from _classes(part)


def _condition(axis: Any, spelled: Any) -> Any:
    when = axis.get("when") if isinstance(axis, Mapping) else None
    if not isinstance(when, Mapping):
        return axis
    return {**axis, "when": {spelled(name): value for name, value in when.items()}}

"""A search that can be carried out: what is wrong with it otherwise, and the arms that its values make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from evsys.errors import PLUGIN_FAILURES, ConfigError, Problem
from evsys.optional import SupportsKeep, SupportsSize, SupportsSpace
from evsys_runtime.config.arm_tree import BASE_MODEL, ArmTree
from evsys_runtime.config.arms import Arms
from evsys_runtime.config.budgeting import known_steps
from evsys_runtime.config.building import Plugins
from evsys_runtime.config.judging import Judging
from evsys_runtime.config.model import RunConfig, SearchConfig
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.config.reading import Reader
from evsys_runtime.config.selection import SEARCH_BY
from evsys_runtime.config.space import Space

__all__ = ["PlannedSearch", "check_baseline", "check_search", "refuse_search_alone"]

_PLACE = "$.search"

type Repeat = Callable[[Sequence[tuple[ArmTree, RunConfig | None]], Sequence[bool]], tuple[ArmConfig, ...]]


@attrs.frozen(kw_only=True, eq=False)
class PlannedSearch:
    """The search of a plan.

    Attributes:
        spec: the file's block.
        space: what it chooses from.
        size: the arms that it proposes at most; None where no one knows.
        probes: arms with each value of each axis, which were looked at; they aren't run.
        stops: whether it may stop arms in their training.
    """

    spec: SearchConfig
    space: Space
    size: int | None
    stops: bool
    probes: tuple[ArmConfig, ...]
    _checks: Arms
    _repeat: Repeat
    _deterministic: bool | None

    def tree(self, values: Mapping[str, Any]) -> ArmTree:
        """The arm that values make, unchecked.

        Raises:
            ConfigError: they are not an arm of the space.
        """
        wrong = self.space.wrong(values)
        if wrong is None:
            try:
                return self.space.arm(values)
            except ValueError as exc:
                wrong = str(exc)
        raise ConfigError([Problem(path=_PLACE, message=wrong)])

    def arms(self, arm: ArmTree, name: str) -> tuple[ArmConfig, ...]:
        """An arm at each repeat, under a name.

        Raises:
            ConfigError: something in it is wrong, which no value of an axis was by itself.
        """
        arm = attrs.evolve(arm, name=name, tree={**arm.tree, "name": name})
        run, problems = self._checks.check(arm.tree)
        if run is None or problems:
            raise ConfigError(problems)
        unsteady = self._checks.unsteady(arm.tree)
        promised = not unsteady if self._deterministic is None else self._deterministic
        return self._repeat([(arm, run)], [promised])


def refuse_search_alone(tree: Mapping[str, Any], reader: Reader) -> None:
    """A search without anything to choose from is a mistake."""
    if tree.get("search") is not None and "matrix" not in tree:
        hint = "put what it may choose under matrix.axes, next to a base_run"
        reader.add(_PLACE, "a search varies the axes of a matrix, and there is none", hint)


def check_baseline(tree: Mapping[str, Any], reader: Reader) -> bool:
    """Whether the baseline is one that a search can have: its arms are named while it continues."""
    metadata = tree.get("metadata")
    asked = metadata.get("baseline", BASE_MODEL) if isinstance(metadata, Mapping) else BASE_MODEL
    if isinstance(metadata, Mapping) and metadata.get("contrast") is not None:
        message = "a search names its arms as it runs, so none can be named in advance"
        reader.add("$.metadata.contrast", message, f"leave it out, which compares all with {BASE_MODEL!r}")
        return False
    if asked == BASE_MODEL:
        return True
    message = f"a search names its arms as it runs, so {asked!r} can't be known to be one"
    reader.add("$.metadata.baseline", message, f"leave it out, which compares with {BASE_MODEL!r}")
    return False


def check_search(
    spec: SearchConfig | None,
    space: Space | None,
    judging: Judging,
    reader: Reader,
    plugins: Plugins,
    *,
    probes: Sequence[tuple[ArmTree, RunConfig | None]],
) -> tuple[Any, int | None]:
    """Report what keeps a search from being carried out; the search, and the arms that it proposes at most."""
    if spec is None or space is None:
        return None, None
    built = plugins.build("search", spec.kind, spec.params, _PLACE)
    reader.add_all(built.problems)
    search, size = built.plugin, None
    if search is None:
        return None, None
    try:
        for complaint in search.validate_space(space.axes) if isinstance(search, SupportsSpace) else ():
            reader.add("$.matrix.axes", str(complaint))
        size = search.size(space.axes) if isinstance(search, SupportsSize) else None
    except PLUGIN_FAILURES as exc:
        reader.add(_PLACE, f"search {spec.kind!r} can't look at the axes: {type(exc).__name__}: {exc}")
    _check_score(search, spec, judging, reader)
    if isinstance(search, SupportsKeep):
        _warn_unjudged(spec, judging, [run for _, run in probes if run is not None], reader)
    return search, size


def _warn_unjudged(spec: SearchConfig, judging: Judging, runs: Sequence[RunConfig], reader: Reader) -> None:
    """Arms that end before their first score in training are judged by none."""
    label = None if judging.success is None else judging.success.benchmark
    every = next((entry.run_every for entry in judging.benchmarks if entry.label == label), None)
    steps = [known_steps(run) for run in runs]
    known = [one for one in steps if one is not None]
    if every is not None and known and len(known) == len(steps) and max(known) <= every:
        reader.report.warn(
            f"search {spec.kind!r} will stop no arm: {label!r} is scored every {every} steps of a training, and no arm takes more "
            f"than {max(known)}"
        )


def _check_score(search: Any, spec: SearchConfig, judging: Judging, reader: Reader) -> None:
    """A search goes by the scores of a `val` entry."""
    success = judging.success
    if success is None:
        if not reader.report.problems:
            hint = "add a benchmark entry with split: val, and name it in metadata.success_metric"
            reader.add(
                _PLACE, "a search goes by the success metric, and nothing is scored that decides", hint
            )
        return
    entry = next(one for one in judging.benchmarks if one.label == success.benchmark)
    if entry.split == "test":
        message = f"a search goes by {entry.label!r}, which is a 'test' entry"
        reader.add("$.metadata.success_metric", message, SEARCH_BY)
    elif isinstance(search, SupportsKeep) and entry.run_every is None:
        message = f"search {spec.kind!r} stops arms by their scores in training, and {entry.label!r} has none"
        reader.add(f"{_PLACE}.kind", message, f"give {entry.label!r} a 'run_every'")

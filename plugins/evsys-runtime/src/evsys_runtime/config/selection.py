"""How the experiment is judged: which number of which benchmark, which way is better, against which arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import attrs

from evsys._plugins.refusals import closest
from evsys.errors import PluginError
from evsys.optional import declared
from evsys_runtime.config import trees
from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.config.benchmarks import fill_samples, sample_count_problem, with_clients, wrong_direction
from evsys_runtime.config.building import Plugins
from evsys_runtime.config.metrics import samples_needed
from evsys_runtime.config.model import BenchmarkConfig, ContrastConfig, MetadataConfig
from evsys_runtime.config.names import slug
from evsys_runtime.config.plan import SuccessMetric
from evsys_runtime.config.reading import Reader

__all__ = ["BASE_MODEL", "SEARCH_BY", "Selection"]

DEFAULT_METRIC = "mean_reward"

_PLACE = "$.metadata.success_metric"

_MAY_CHOOSE = "choose a 'val' entry, or set metadata.allow_test_selection: true and say so when you report it"

SEARCH_BY = (
    "choose a 'val' entry, regardless of allow_test_selection; name the 'test' entry in confirm.benchmark"
)
"""The fix for a search by a `test` entry."""


@attrs.define(kw_only=True, eq=False)
class Selection:
    """Resolves `success_metric`, `direction`, `baseline` and `contrast`, and checks the claim."""

    reader: Reader
    plugins: Plugins
    metadata: MetadataConfig

    def success_metric(self) -> SuccessMetric | None:
        """The deciding metric; None if nothing is evaluated, or it can't be determined."""
        entries = self.metadata.benchmarks
        asked = self.metadata.success_metric
        if asked is None:
            val = [entry for entry in entries if entry.split == "val" and entry.inference is None]
            return self._with_direction(val[0], _first_metric(val[0])) if len(val) == 1 else None
        if not entries:
            self._add(f"{asked!r} names a number, but nothing is scored", "add a 'metadata.benchmark'")
            return None
        found = self._find_named(asked, entries)
        if found is None:
            return None
        entry, metric = found
        if entry.split == "test" and not (self.metadata.allow_test_selection or entry.allow_test_selection):
            message = f"{entry.label!r} is a 'test' entry, and choosing by it would spoil it"
            self._add(message, _MAY_CHOOSE if self.reader.document.tree.get("search") is None else SEARCH_BY)
            return None
        if entry.inference is not None:
            self._add(
                f"{entry.label!r} is answered by its own 'inference', so training doesn't change its scores",
                "choose an entry without 'inference'; to compare with another model, list it under 'models'",
            )
            return None
        names = entry.metric_names
        if names and metric not in names:
            if not all(self._is_known(spec.kind) for spec in entry.metric_specs):
                return None  # reported where the entry names it, and it may be the one that is meant
            hint = closest(metric, names) or f"add it to the metrics of {entry.label!r}"
            self._add(f"{entry.label!r} has no metric {metric!r}, only {', '.join(names)}", hint)
            return None
        return self._with_direction(entry, metric)

    def _is_known(self, metric: str) -> bool:
        try:
            self.plugins.registry.find("metric", metric)
        except PluginError:
            return False
        return True

    def _find_named(
        self, asked: str, entries: Sequence[BenchmarkConfig]
    ) -> tuple[BenchmarkConfig, str] | None:
        for one in entries:  # a name may have dots in it, of params too
            if asked in {f"{one.label}.{name}" for name in one.metric_names}:
                return one, asked.removeprefix(f"{one.label}.")
        head, bracket, params = asked.partition("[")
        label, dot, metric = head.rpartition(".")
        metric += bracket + params
        labels = [entry.label for entry in entries]
        if dot:
            entry = next((entry for entry in entries if entry.label == label), None)
            if entry is None:
                near = get_close_matches(label, labels, n=1)
                hint = f"did you mean '{near[0]}.{metric}'?" if near else f"benchmarks: {', '.join(labels)}"
                self._add(f"no benchmark is called {label!r}", hint)
                return None
            return entry, metric
        val = [entry for entry in entries if entry.split == "val"]
        if len(val) == 1:
            return val[0], asked
        if val:
            choices = ", ".join(f"{entry.label}.{asked}" for entry in val)
            self._add(f"{asked!r} could be of any of {len(val)} 'val' benchmarks", f"write one of {choices}")
        else:
            self._add(
                f"{asked!r} is read from a 'val' entry, and there is none",
                f"'test' entries: {', '.join(labels)}",
            )
        return None

    def _add(self, message: str, hint: str | None = None, place: str = _PLACE) -> None:
        self.reader.add(place, message, hint)

    def _with_direction(self, entry: BenchmarkConfig, metric: str) -> SuccessMetric | None:
        own = self._direction_of(entry, metric)
        if own is None:
            return None
        asked = self.metadata.direction
        if asked and own not in {"undeclared", asked}:
            message = f"'direction' is {asked!r}, but for {metric!r} {own!r} is better"
            self._add(message, "leave 'direction' out", "$.metadata.direction")
            return None
        if asked:
            return SuccessMetric(benchmark=entry.label, metric=metric, direction=asked)
        if own == "undeclared":
            self.reader.report.warn(
                f"the metric {metric!r} doesn't declare which way is better; taken as 'max'"
            )
            return SuccessMetric(benchmark=entry.label, metric=metric, direction="max", declared=False)
        return SuccessMetric(benchmark=entry.label, metric=metric, direction=own)

    def _direction_of(self, entry: BenchmarkConfig, metric: str) -> Any:
        """`max`, `min`, `undeclared`, or None where the metric isn't usable, which is reported."""
        listed = dict(zip(entry.metric_names, entry.metric_specs, strict=True)).get(metric)
        try:
            plugin = self.plugins.registry.get("metric", listed.kind if listed else metric)
        except PluginError as exc:
            if listed is None:  # else it is reported where it is listed
                built = self.plugins.build("metric", metric, {}, _PLACE)
                self._add(exc.message if not built.problems else built.problems[0].message, exc.hint)
            return None
        direction = declared(plugin, "direction", "undeclared")
        if direction not in {"max", "min", "undeclared"}:
            if listed is None:
                self._add(*wrong_direction(metric, direction))
            return None
        return direction

    def baseline(self, arms: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
        """The name of the baseline, as the arms are called: what a contrast compares with, if there is one."""
        contrast, place = self.metadata.contrast, "$.metadata.baseline"
        asked = self.metadata.baseline
        if contrast is not None and contrast.against is not None:
            asked, place = contrast.against, "$.metadata.contrast.against"
        if asked == BASE_MODEL:
            models = {id(tree.get("model")): tree.get("model") for _, tree in arms}
            different = len({trees.canonical(model) for model in models.values()})
            if different > 1 and self.metadata.benchmarks:
                # Each base has its own untrained score, so "better than untrained" would compare different things.
                self._add(
                    f"the arms start from {different} different models, so 'base_model' is not a common baseline",
                    f"name an arm: {', '.join(name for name, _ in list(arms)[:8])}",
                    place,
                )
            return BASE_MODEL
        return self._arm_called(asked, [name for name, _ in arms], place, f"; or {BASE_MODEL}")

    def contrast(self, arms: Sequence[str], baseline: str) -> ContrastConfig | None:
        """The comparison that decides, as the arms are called; None where every arm is compared.

        Args:
            arms: the names of the arms.
            baseline: what `baseline` gave.
        """
        contrast = self.metadata.contrast
        if contrast is None:
            return None
        arm = self._arm_called(contrast.arm, arms, "$.metadata.contrast.arm", "")
        if arm == baseline:
            self._add(
                f"{arm!r} is compared with itself",
                "name another arm in contrast.against",
                "$.metadata.contrast",
            )
        return attrs.evolve(contrast, arm=arm, against=baseline)

    def _arm_called(self, asked: str, names: Sequence[str], place: str, other: str) -> str:
        for name in (asked, slug(asked)):
            if name in names:
                return name
        near = get_close_matches(slug(asked), names, n=1, cutoff=0.5)
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        hint = f"did you mean {near[0]!r}?" if near else f"arms: {shown}{other}"
        self._add(f"no arm is called {asked!r}", hint, place)
        return asked

    def check_claim(self) -> None:
        """Report a claim that its margin doesn't fit, or that contradicts another key."""
        metadata = self.metadata
        if metadata.minimum_effect is not None:
            if metadata.claim != "better":
                message = (
                    f"'minimum_effect' belongs to the claim 'better', and the claim is {metadata.claim!r}"
                )
                self._add(message, "set metadata.margin instead", "$.metadata.minimum_effect")
            elif metadata.margin is not None and metadata.margin != metadata.minimum_effect:
                message = (
                    f"'margin' is {metadata.margin:g} and 'minimum_effect' is {metadata.minimum_effect:g}"
                )
                self._add(message, "set one of them", "$.metadata.margin")
        elif metadata.claim in ("equal", "no_worse") and not metadata.margin:
            message = f"the claim {metadata.claim!r} needs a margin above 0"
            hint = "set metadata.margin to the largest difference that doesn't matter"
            self._add(message, hint, "$.metadata.margin" if metadata.margin == 0 else "$.metadata.claim")
        contrast, baseline = metadata.contrast, metadata.baseline
        if contrast is not None and baseline != BASE_MODEL and contrast.against not in (None, baseline):
            message = f"'contrast' compares with {contrast.against!r}, and 'baseline' is {baseline!r}"
            self._add(message, "leave one of them out", "$.metadata.contrast.against")

    def filled(
        self, success: SuccessMetric | None, confirm: str | None = None
    ) -> tuple[BenchmarkConfig, ...]:
        """The entries, those without metrics given the plain mean, or the success metric where it is theirs.

        It is also that of the entry `confirm`, on which a winner is confirmed.
        """
        filled = (
            entry
            if entry.metrics
            else attrs.evolve(entry, metrics=(self._default_of(entry, success, confirm),))
            for entry in self.metadata.benchmarks
        )
        registry = self.plugins.registry
        return tuple(with_clients(fill_samples(entry, self.plugins), registry) for entry in filled)

    def _default_of(self, entry: BenchmarkConfig, success: SuccessMetric | None, confirm: str | None) -> str:
        if success is None or entry.label not in (success.benchmark, confirm):
            return DEFAULT_METRIC
        needed = samples_needed(
            self.plugins.build("metric", success.metric, {}, _PLACE).plugin, success.metric
        )
        if entry.num_samples is not None and needed > entry.num_samples:
            self._add(*sample_count_problem(success.metric, needed, entry.num_samples))
        return success.metric


def _first_metric(entry: BenchmarkConfig) -> str:
    names = entry.metric_names
    return names[0] if names else DEFAULT_METRIC

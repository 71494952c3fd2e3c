# ruff: noqa: RUF009 - `key` declares a field, it is no default
"""The suite file: what a candidate has to show before it is promoted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import attrs

from evsys_runtime import BenchmarkConfig
from evsys_runtime.config import document as documents
from evsys_runtime.config.model.fields import key
from evsys_runtime.config.reading import Reader
from evsys_runtime.config.report import Report
from evsys_runtime.config.root import find_project_root

__all__ = ["Suite", "SuiteConfig", "load_suite"]


@attrs.frozen(kw_only=True)
class GuardConfig:
    """Something that must not get worse."""

    benchmark: BenchmarkConfig = key("Its tasks, scored by their first metric.")
    margin: float = key("By how much it may be worse.", gt=0)


@attrs.frozen(kw_only=True)
class RequirementConfig:
    """Something that the candidate must reach, whatever the incumbent does."""

    benchmark: BenchmarkConfig = key("Its tasks, such as a safety suite.")
    at_least: float = key("The lowest mean value of its first metric.", 1.0)


@attrs.frozen(kw_only=True)
class BoundsConfig:
    """Bounds on the candidate next to the incumbent, on the target."""

    tokens: float | None = key("The highest ratio of completion tokens.", None, gt=0)
    seconds: float | None = key(
        "The highest ratio of seconds a rollout takes; scores both afresh.", None, gt=0
    )
    changed: float | None = key("The highest share of tasks with another answer.", None, ge=0, le=1)


@attrs.frozen(kw_only=True)
class SuiteConfig:
    """The keys of a suite file."""

    version: Literal[1] = key("Version of this format.", 1)
    target: BenchmarkConfig = key("The tasks that decide, scored by their first metric.")
    claim: Literal["better", "no_worse"] = key("The claim to show on the target.", "no_worse")
    margin: float = key("`better` by more than this, or `no_worse` by less than this.", 0.02, ge=0)
    slices: Mapping[str, float] = key(
        "Metadata keys of the target; on no value of them may the candidate be worse by the margin given.",
        factory=dict,
    )
    guards: tuple[GuardConfig, ...] = key("Further benchmarks on which it must not be worse.", factory=tuple)
    must_pass: tuple[RequirementConfig, ...] = key("Benchmarks with a score to reach.", factory=tuple)
    bounds: BoundsConfig = key("Bounds on tokens, seconds and changed answers.", factory=BoundsConfig)
    level: float = key("The highest probability of promoting what doesn't deserve it.", 0.05, gt=0, le=0.5)
    seed: int = key("Seed of the samples, the same for both sides.", 0, ge=0)
    allow_selected: bool = key(
        "Promote a checkpoint that its experiment selected by the tasks of the target, on which it was lucky.",
        False,
    )

    @property
    def entries(self) -> tuple[BenchmarkConfig, ...]:
        """All benchmarks, the target first."""
        guards = (each.benchmark for each in self.guards)
        return (self.target, *guards, *(each.benchmark for each in self.must_pass))


@attrs.frozen(kw_only=True)
class Suite:
    """A suite file without problems; `digest` is the SHA-256 of its values."""

    config: SuiteConfig
    project_root: Path
    digest: str


def load_suite(path: str | Path) -> Suite:
    """Read and check a suite file.

    Raises:
        ConfigError: every problem of the file, with its place.
    """
    document = documents.read(path)
    report = Report()
    report.add(*document.problems)
    reader = Reader(document, report)
    values = reader.fields(SuiteConfig, document.tree, "$")
    report.raise_if_any()
    config = SuiteConfig(**values)
    if config.claim == "no_worse" and config.margin == 0:
        reader.add(
            "$.margin",
            "'no_worse' needs a margin above 0",
            "no number of tasks shows that nothing is lost at all",
        )
    for name, margin in config.slices.items():
        if margin <= 0:
            reader.add(f"$.slices.{name}", "the margin of a slice is above 0")
    for place, label in _find_repeated(config):
        reader.add(place, f"two benchmarks are called {label!r}", "give one of them another 'name'")
    report.raise_if_any()
    digest = hashlib.sha256(repr(config).encode()).hexdigest()
    return Suite(config=config, project_root=find_project_root(path), digest=f"sha256:{digest}")


def _find_repeated(config: SuiteConfig) -> Iterator[tuple[str, str]]:
    """The benchmarks that have the label of an earlier one, by their places."""
    places = ["$.target", *(f"$.guards[{i}].benchmark" for i in range(len(config.guards)))]
    places += [f"$.must_pass[{i}].benchmark" for i in range(len(config.must_pass))]
    seen: set[str] = set()
    for place, entry in zip(places, config.entries, strict=True):
        if entry.label in seen:
            yield place, entry.label
        seen.add(entry.label)

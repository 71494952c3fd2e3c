"""Checks of `confirm`, `control` and `reuse_arms`: retrained winners, repeated baselines, and runs from the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evsys._plugins.refusals import closest
from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.config.chain import RECIPES
from evsys_runtime.config.judging import Judging
from evsys_runtime.config.model import BenchmarkConfig, ConfirmConfig
from evsys_runtime.config.plan import SuccessMetric
from evsys_runtime.config.reading import Reader
from evsys_runtime.config.reruns import CONTROL

__all__ = ["check_confirm", "check_control", "check_reuse"]

_PLACE = "$.confirm"


def check_confirm(
    confirm: ConfirmConfig, claim: str, judging: Judging, compared: int | None, reader: Reader
) -> None:
    """Report what keeps a winner from being confirmed.

    Args:
        confirm: the block.
        claim: what the experiment claims.
        judging: the benchmark entries and what is decided by them, as far as that could be made.
        compared: the arms alongside the baseline; None where that isn't known beforehand.
        reader: takes the problems.
    """
    if judging.success is None:
        if not reader.report.problems:
            hint = "add metadata.success_metric, or leave 'confirm' out"
            reader.add(_PLACE, "'confirm' needs a success_metric", hint)
        return
    if claim != "better":
        message = f"a winner is chosen and confirmed under the claim 'better' only, not {claim!r}"
        reader.add("$.metadata.claim", message, "leave 'confirm' or 'search' out, or claim 'better'")
    entries = {entry.label: entry for entry in judging.benchmarks}
    chosen = entries[judging.success.benchmark]
    if chosen.split == "test":
        hint = "choose by a 'val' entry, and name the 'test' entry in confirm.benchmark"
        reader.add(
            "$.metadata.success_metric", f"{chosen.label!r} chooses the winner and is a 'test' entry", hint
        )
    label = confirm.benchmark or chosen.label
    entry = entries.get(label)
    if entry is None:
        hint = closest(label, entries) or f"entries: {', '.join(entries)}"
        reader.add(f"{_PLACE}.benchmark", f"no benchmark entry is called {label!r}", hint)
        return
    if entry is not chosen:
        _check_apart(entry, judging.success, reader)
    if confirm.seeds == 0 and entry is chosen and entry.repeats_answers:
        reader.add(
            f"{_PLACE}.seeds",
            f"at temperature {entry.temperature or 0:g} the trained models would give {label!r} the same answers again",
            "name another entry in confirm.benchmark, or give seeds to retrain",
        )
    if compared == 1:
        reader.report.warn(
            "confirm: only one arm is compared, so there is none to choose and nothing will be confirmed"
        )


def check_control(judging: Judging, arms: Sequence[str], reader: Reader) -> None:
    """Report problems that make equal runs of the baseline useless.

    Args:
        judging: the benchmark entries and the success metric, as far as they could be read.
        arms: the names of the arms.
        reader: takes the problems.
    """
    success, baseline = judging.success, judging.baseline
    if reader.report.problems:
        return
    if success is None:
        hint = "add metadata.success_metric, or leave 'control' out"
        reader.add("$.control", "'control' needs a success_metric", hint)
    elif not arms:
        hint = "leave 'control' out, or list the arms"
        reader.add("$.control", "there is no arm yet that could be repeated", hint)
    elif (called := f"{baseline}-{CONTROL}") in arms:
        reader.add("$.control", f"its runs are called {called!r}, as an arm is", "give that arm another name")
    elif baseline == BASE_MODEL:
        entry = next(entry for entry in judging.benchmarks if entry.label == success.benchmark)
        if entry.repeats_answers:
            reader.add(
                "$.control",
                f"at temperature {entry.temperature or 0:g} untrained weights give {entry.label!r} the same answers each time",
                "name an arm in metadata.baseline, or give the entry a temperature",
            )


def _check_apart(entry: BenchmarkConfig, success: SuccessMetric, reader: Reader) -> None:
    """Check an entry reserved for the confirmation."""
    if entry.metric_names and success.metric not in entry.metric_names:
        hint = f"add it to the metrics of {entry.label!r}"
        message = f"{entry.label!r} has no metric {success.metric!r}, by which the winner is chosen"
        reader.add(f"{_PLACE}.benchmark", message, hint)
    if entry.run_every is not None:
        message = (
            f"{entry.label!r} is scored every {entry.run_every} steps, but a confirmation is scored once"
        )
        reader.add(f"{_PLACE}.benchmark", message, "take 'run_every' out of it, or name another entry")


def check_reuse(values: Mapping[str, Any], tree: Mapping[str, Any], reader: Reader, *, stops: bool) -> None:
    """Report `reuse_arms` in a file of whose runs none can be reused.

    Args:
        values: the checked values of the file.
        tree: the file.
        reader: collects the problems.
        stops: whether a search may end arms early.
    """
    if values.get("reuse_arms") is not True:
        return
    named = next((key for key in RECIPES if tree.get(key)), None)
    if named is not None:  # a stage begins with weights of this experiment
        reader.add("$.reuse_arms", f"runs in {named} are never reused", "remove it")
    elif stops:
        reader.add("$.reuse_arms", "runs of a search that may end them early are never reused", "remove it")

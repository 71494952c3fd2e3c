"""The answer to the experiment's question: each arm against the baseline, as a whole and task by task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evsys_plots.material import Material
from evsys_plots.style import COLOURS, GREY, Plot, key, plain, sheet, shortened
from evsys_record import BASE_MODEL, final_scoring, untrained_scoring

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from evsys.types import EvaluationResult

__all__ = ["differences", "effects", "task_differences"]

BLUE, ORANGE, GREEN = COLOURS[:3]
OUTCOMES: Mapping[str, tuple[str, str]] = {
    "win": (BLUE, "o"),
    "loss": (ORANGE, "X"),
    "tie": (GREEN, "s"),
    "inconclusive": (GREY, "D"),
}
"""Colour and marker of an outcome."""

MANY = 15
"""Arms beyond which rows move together."""

MOST_PANELS = 9


def effects(material: Material) -> Iterator[Plot]:
    """Each arm's effect with its interval, alongside no effect and the smallest that counts."""
    conclusion = material.conclusion
    comparisons: Sequence[Mapping[str, Any]] = conclusion.get("comparisons") or ()
    if not comparisons:
        return
    checkpoints = {c["arm"]: c for c in conclusion.get("checkpoints") or ()}
    count = len(comparisons)
    figure, (axes,) = sheet(
        f"Effect on {material.metric} against {conclusion.get('baseline')}",
        note=_how_to_read(material, checkpoints=bool(checkpoints)),
        size=(
            6.0 + 0.06 * max(len(shortened(c["arm"])) for c in comparisons),
            1.6 + (0.36 if count <= MANY else 0.28) * count,
        ),
    )
    entries = _lines_of(axes, conclusion)
    for place, comparison in enumerate(comparisons):
        other = checkpoints.get(comparison["arm"])
        if other is not None and other.get("effect") is not None:
            drawn = _draw_effect(axes, other, place + 0.22, faint=True)
            entries.setdefault("of these models alone", drawn)
        if comparison.get("effect") is None:
            axes.text(0.0, place, f" {comparison['outcome']}", va="center", color=GREY, fontsize=9)
            continue
        drawn = _draw_effect(axes, comparison, place)
        entries.setdefault(comparison["outcome"], drawn)
    axes.set_yticks(range(count), [shortened(comparison["arm"]) for comparison in comparisons])
    axes.set_ylim(count - 0.4, -0.6)
    axes.set_xlabel(plain(f"difference of {material.metric}; to the right is better"))
    axes.grid(visible=False, axis="y")
    key(figure, entries)
    yield Plot(name="effects", figure=figure)


def _how_to_read(material: Material, *, checkpoints: bool) -> str:
    claims = {c.get("claim") for c in material.conclusion["comparisons"]} - {None}
    said = {"recipe": "recipes", "checkpoint": "the models that were trained"}
    of = " and ".join(said.get(claim, str(claim)) for claim in sorted(map(str, claims)))
    about = f" about {of}" if of else ""
    thin = "; thin: these models, not their recipes" if checkpoints else ""
    return f"bars: {_confidence(material)} intervals{about}{thin}. Verdict: {material.verdict}"


def _confidence(material: Material) -> str:
    """That of all intervals together; records that don't state its level have 95 %."""
    levels = [c["level"] for c in material.conclusion["comparisons"] if c.get("level") is not None]
    return f"{100 * (1 - next(iter(levels), 0.05)):.3g} %"


def _lines_of(axes: Axes, conclusion: Mapping[str, Any]) -> dict[str, Any]:
    """No effect, and the band of effects too small to count."""
    entries: dict[str, Any] = {"no effect": axes.axvline(0.0, color="black", linewidth=1.0)}
    least = conclusion.get("minimum_effect") or 0.0
    if least > 0:
        entries[f"within the minimum effect, {least:g}"] = axes.axvspan(
            -least, least, color="#eeeeee", zorder=0
        )
    return entries


def _draw_effect(axes: Axes, comparison: Mapping[str, Any], place: float, *, faint: bool = False) -> Any:
    colour, marker = OUTCOMES.get(comparison["outcome"], (GREY, "o"))
    effect = float(comparison["effect"])
    low = effect if comparison.get("low") is None else float(comparison["low"])
    high = effect if comparison.get("high") is None else float(comparison["high"])
    looks = {"markersize": 4, "elinewidth": 0.8, "alpha": 0.7} if faint else {"markersize": 7}
    drawn = axes.errorbar(
        [effect],
        [place],
        xerr=[[max(0.0, effect - low)], [max(0.0, high - effect)]],
        color=colour,
        marker=marker,
        capsize=3,
        linestyle="none",
        **looks,
    )
    return drawn.lines[0]  # the mark, which is what the legend shows


# --- task by task -------------------------------------------------------------------------------------------------


def differences(material: Material) -> Iterator[Plot]:
    """The difference of each task's mean reward, arm against baseline, sorted; a panel an arm."""
    found = task_differences(material)
    if not found:
        return
    # Among many, one that differs on no task needs no panel to say so.
    largest = sorted(found, key=lambda arm: (-abs(float(np.mean(found[arm]))), not found[arm].any()))
    largest = [arm for arm in largest if len(found) <= MOST_PANELS or found[arm].any()] or largest[:1]
    shown = [arm for arm in found if arm in largest[:MOST_PANELS]]
    left = f"; the {len(shown)} of {len(found)} arms that differ most" if len(shown) < len(found) else ""
    alone, columns = len(shown) == 1, min(3, len(shown))
    figure, panels = sheet(
        f"Differences task by task on {_entry(material)} against {material.conclusion.get('baseline')}",
        note=f"a bar a task: its mean reward over samples and repeats, less the baseline's{left}",
        panels=len(shown),
        columns=columns,
        size=(8.0, 4.0) if alone else (4.0, 2.8),
    )
    bound = max(max(float(np.abs(found[arm]).max()) for arm in shown) * 1.08, 1e-12)
    for place, (axes, arm) in enumerate(zip(panels, shown, strict=True)):
        _draw_differences(axes, arm, found[arm], bound)
        if place % columns == 0:
            axes.set_ylabel("difference of reward")
        if place + columns >= len(shown):
            axes.set_xlabel("tasks, sorted by their difference")
    yield Plot(name="differences", figure=figure)


def _entry(material: Material) -> str:
    success = material.success
    assert success is not None
    return success[0]


def _draw_differences(axes: Axes, arm: str, values: np.ndarray, bound: float) -> None:
    from matplotlib.ticker import MaxNLocator

    colours = np.where(values > 0, BLUE, np.where(values < 0, ORANGE, GREY))
    axes.bar(np.arange(1, len(values) + 1), values, width=1.0 if len(values) > 60 else 0.8, color=colours)
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.axhline(float(values.mean()), color=GREY, linestyle="--", linewidth=1.0)
    up, down = int((values > 0).sum()), int((values < 0).sum())
    axes.set_title(
        f"{shortened(arm)}\n{up} up, {down} down, {len(values) - up - down} equal; "
        f"mean {values.mean():+.3f} (dashed)",
        loc="left",
        fontsize=9,
    )
    axes.set_ylim(-bound, bound)
    axes.set_xlim(0.4, len(values) + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.grid(visible=False, axis="x")


def task_differences(material: Material) -> dict[str, np.ndarray]:
    """Of each arm but the baseline the differences of tasks that both have scores of, sorted; arms without one are left out."""
    success, baseline = material.success, material.conclusion.get("baseline")
    if success is None or baseline is None:
        return {}
    groups = material.compared
    ended = material.ends(groups.get(baseline, ()))
    before = _task_means([final_scoring(result, success[0]) for result in ended])
    found: dict[str, np.ndarray] = {}
    for arm, results in groups.items():
        if arm == baseline:
            continue
        start = (
            _task_means([untrained_scoring(result, success[0]) for result in results])
            if baseline == BASE_MODEL
            else before
        )
        after = _task_means([final_scoring(result, success[0]) for result in material.ends(results)])
        values = np.sort([after[task] - start[task] for task in after if task in start])
        if len(values):
            found[arm] = values
    return found


def _task_means(scorings: Sequence[EvaluationResult | None]) -> dict[str, float]:
    """The mean reward of each task, over the repeats that scored it."""
    means: dict[str, list[float]] = {}
    for scoring in scorings:
        if scoring is not None and scoring.status == "completed":
            for task, rewards in scoring.task_rewards.items():
                if rewards:
                    means.setdefault(task, []).append(sum(rewards) / len(rewards))
    return {task: sum(values) / len(values) for task, values in means.items()}

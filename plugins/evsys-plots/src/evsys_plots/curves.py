"""Learning curves: what training measured at each step, and scores of benchmark entries as training continues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from evsys_plots.material import Line, Material, Points
from evsys_plots.style import GREY, Plot, ink, key, legend, looks, plain, sheet
from evsys_record import mean_over_repeats, slug

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from evsys.types import EvaluationResult, MetricValue

__all__ = ["Curve", "curve_of", "scores", "training"]

LOSS = "loss"
NO_RESULT = frozenset({"epoch"})
"""Metrics that only count steps in another unit."""

FIRST = (
    *("reward", "entropy", "held_out_nll", "nll", "margin", "accuracy", "grad_norm", "length_mean"),
    *("truncated_share", "kl_sampler_trainer"),
)
"""Metrics looked at before others, so that they have a panel where there are many."""

MOST_POINTS = 500
MOST_BANDS = 8
"""Lines beyond which bands would hide each other."""

MOST_RATIO = 50.0
"""A largest value so many times the middle one calls for a scale of ratios."""

MOST_APART = 0.06
"""Of all steps, the width over which points at one step are spread."""

MOST_TICKS = 9
MOST_PANELS = 12
ROUNDING = 1e-5
UNITS = {
    "grad_norm": "norm of the gradient",
    "learning_rate": "learning rate",
    "loss_tokens": "trained tokens a step",
    "nll": "nats a trained token",
    "rows": "rows a step",
    "seconds": "seconds a step",
    "tokens": "tokens a step",
}


@attrs.frozen(kw_only=True, eq=False)
class Curve:
    """A metric over steps: `steps` [n], the mean over repeats and the smallest and largest of them, each [n]; NaN where no repeat
    has a number. `bin` steps make one point.
    """

    steps: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    repeats: int
    bin: int = 1


def curve_of(repeats: Sequence[Points]) -> Curve:
    """The curve of a metric over the repeats that have it.

    A long one is thinned to `MOST_POINTS`: each point is the mean of a few steps in a row.
    """
    steps = sorted({step for points in repeats for step, _ in points})
    place = {step: index for index, step in enumerate(steps)}
    values = np.full((len(repeats), len(steps)), np.nan)
    for row, points in zip(values, repeats, strict=True):
        for step, value in points:
            row[place[step]] = np.nan if value is None else value
    values[~np.isfinite(values)] = np.nan
    size = max(1, -(-len(steps) // MOST_POINTS))
    where, values = _bin_steps(np.array(steps, dtype=np.float64), values, size)
    known = np.isfinite(values)
    count = known.sum(axis=0)
    total = np.where(known, values, 0.0).sum(axis=0)
    return Curve(
        steps=where,
        mean=np.divide(total, count, out=np.full(len(where), np.nan), where=count > 0),
        low=np.where(count > 0, np.where(known, values, np.inf).min(axis=0, initial=np.inf), np.nan),
        high=np.where(count > 0, np.where(known, values, -np.inf).max(axis=0, initial=-np.inf), np.nan),
        repeats=len(repeats),
        bin=size,
    )


def _bin_steps(
    steps: NDArray[np.float64], values: NDArray[np.float64], size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means of `size` steps in a row: steps [n], values [runs, n]; a mean is that of the finite ones."""
    if size == 1:
        return steps, values
    more = -len(steps) % size
    steps = np.pad(steps, (0, more), constant_values=np.nan).reshape(-1, size)
    parts = np.pad(values, ((0, 0), (0, more)), constant_values=np.nan).reshape(len(values), -1, size)
    known = np.isfinite(parts)
    count = known.sum(axis=2)
    total = np.where(known, parts, 0.0).sum(axis=2)
    means = np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
    return np.nanmean(steps, axis=1), means


# --- training metrics ---------------------------------------------------------------------------------------------


def training(material: Material) -> Iterator[Plot]:
    """The training loss, and small panels of what else was measured at each step and didn't stay the same."""
    lines, best = material.lines, material.best_lines
    names = list(dict.fromkeys(name for run in material.runs for name in run.metrics))
    if LOSS in names:
        yield _plot_metrics("training-loss", "Training loss", [LOSS], lines, best, size=(6.5, 4.0), columns=1)
    names.sort(key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    more = [name for name in names if name not in {LOSS, *NO_RESULT} and _varies(name, lines)]
    if more:
        count = len(more) - MOST_PANELS
        left = f"{count} more in metrics.jsonl" if count > 0 else ""
        yield _plot_metrics(
            "training-metrics",
            "Training metrics by step",
            more[:MOST_PANELS],
            lines,
            best,
            size=(4.0, 2.6) if len(more) > 1 else (6.5, 4.0),
            columns=3,
            left=left,
        )


def _varies(name: str, lines: Sequence[Line]) -> bool:
    """True where a metric changes by more than rounding does."""
    points = [value for line in lines for run in line.runs for _, value in run.metrics.get(name, ())]
    known = [value for value in points if value is not None and np.isfinite(value)]
    if not known:
        return False
    return max(known) - min(known) > ROUNDING * max(1.0, *map(abs, known))


def _plot_metrics(
    name: str,
    title: str,
    metrics: Sequence[str],
    lines: Sequence[Line],
    best: Sequence[str],
    *,
    size: tuple[float, float],
    columns: int,
    left: str = "",
) -> Plot:
    found = {
        metric: {
            line.label: curve_of([run.metrics[metric] for run in line.runs if metric in run.metrics])
            for line in lines
            if any(metric in run.metrics for run in line.runs)
        }
        for metric in metrics
    }
    curves = [curve for of_metric in found.values() for curve in of_metric.values()]
    places = looks([line.label for line in lines], best)
    banded = _has_bands(places)
    note = "; ".join(filter(None, (_over_repeats(curves, banded=banded), _thinned(curves), left)))
    figure, panels = sheet(title, note=note, panels=len(metrics), columns=columns, size=size)
    entries: dict[str, Any] = {}
    for axes, (metric, of_metric) in zip(panels, found.items(), strict=True):
        for label, curve in of_metric.items():
            entries.setdefault(label, _draw_curve(axes, curve, places[label], bands=banded))
        alone = len(metrics) == 1
        _label(axes, metric, alone=alone)
        if _far_apart(list(of_metric.values())):
            axes.set_yscale("log")
            if alone:
                axes.set_ylabel(f"{axes.get_ylabel()} (log scale)")
            else:
                axes.set_title(f"{axes.get_title(loc='left')} (log scale)", loc="left")
    if len(lines) > 1:
        key(figure, legend(entries, places))
    return Plot(name=name, figure=figure)


def _has_bands(places: Mapping[str, int | None]) -> bool:
    """Whether the lines that have looks of their own are few enough for bands and bars."""
    return sum(place is not None for place in places.values()) <= MOST_BANDS


def _far_apart(curves: Sequence[Curve]) -> bool:
    """Whether a few large values would press all others together; a scale of ratios shows both, where all are above 0."""
    values = np.concatenate([curve.mean[np.isfinite(curve.mean)] for curve in curves] or [np.empty(0)])
    return bool(len(values) and values.min() > 0 and values.max() > MOST_RATIO * np.median(values))


def _label(axes: Axes, metric: str, *, alone: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("optimiser steps")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    unit = UNITS.get(metric, "")
    if alone:
        axes.set_ylabel("loss, as the algorithm defines it" if metric == LOSS else plain(metric))
    else:
        axes.set_title(plain(metric), loc="left")
        axes.set_ylabel(plain(unit))


def _draw_curve(axes: Axes, curve: Curve, place: int | None, *, bands: bool) -> Any:
    style = ink(place)
    (line,) = axes.plot(curve.steps, curve.mean, **style, **_dot_style(curve.mean))
    if bands and place is not None and curve.repeats > 1:
        axes.fill_between(curve.steps, curve.low, curve.high, color=style["color"], alpha=0.18, linewidth=0)
    return line


def _dot_style(values: NDArray[np.float64]) -> dict[str, Any]:
    """Points besides the line where there are few, since a line through one, or between gaps, is none."""
    return {"marker": "o", "markersize": 4} if np.isfinite(values).sum() <= 30 else {}


def _over_repeats(curves: Sequence[Curve], *, banded: bool) -> str:
    most = max((curve.repeats for curve in curves), default=1)
    if most == 1:
        return ""
    band = ", band: their range" if banded else ""
    return f"line: mean of up to {most} repeats{band}"


def _thinned(curves: Sequence[Curve]) -> str:
    most = max((curve.bin for curve in curves), default=1)
    return f"a point is the mean of up to {most} steps" if most > 1 else ""


# --- scores -------------------------------------------------------------------------------------------------------


def scores(material: Material) -> Iterator[Plot]:
    """A sheet a benchmark entry: each of its metrics over the steps behind the weights, with its intervals."""
    for benchmark in material.benchmarks:
        found = _scores_by_line(material, benchmark)
        metrics = list(dict.fromkeys(name for scorings in found.values() for _, name in scorings))
        if metrics:
            yield _scores_of(material, benchmark, found, metrics)


type _Scored = Mapping[tuple[int, str], MetricValue]
"""A metric at a step, over the repeats that have it."""


def _scores_by_line(material: Material, benchmark: str) -> dict[str, _Scored]:
    """The completed scorings of an entry, line by line."""
    found: dict[str, _Scored] = {}
    for line in material.lines:
        values: dict[tuple[int, str], list[MetricValue]] = {}
        for run in line.runs:
            for scoring in _own(run.evaluations, benchmark):
                for name, value in scoring.metrics.items():
                    values.setdefault((scoring.step, name), []).append(value)
        found[line.label] = {at: mean_over_repeats(each) for at, each in sorted(values.items())}
    return found


def _own(evaluations: Sequence[EvaluationResult], benchmark: str) -> list[EvaluationResult]:
    return [
        e for e in evaluations if e.benchmark == benchmark and e.model is None and e.status == "completed"
    ]


def _scores_of(
    material: Material, benchmark: str, found: Mapping[str, _Scored], metrics: Sequence[str]
) -> Plot:
    lines = material.lines
    shown = metrics[:MOST_PANELS]
    places = looks([line.label for line in lines], material.best_lines)
    apart = {label: _apart(place, places) for label, place in places.items()}
    banded = _has_bands(places)
    alone = len(shown) == 1
    figure, panels = sheet(
        f"Scores on {_curve(material, benchmark)}",
        note=_scores_note(material, banded=banded),
        panels=len(shown),
        columns=1 if alone else 2,
        size=(6.5, 4.0) if alone else (4.5, 3.2),
    )
    entries: dict[str, Any] = {}
    for axes, metric in zip(panels, shown, strict=True):
        better = _better(found, metric)
        for label, place in places.items():
            bars_too = place is not None and banded
            drawn = _draw_scores(axes, found[label], metric, place, apart[label], bars=bars_too)
            if drawn is not None:
                entries.setdefault(label, drawn)
            if place is not None:
                points = {step: value for (step, name), value in found[label].items() if name == metric}
                _mark_selected(axes, points, _selected_steps(material, label), place)
        for model, value in _models(material, benchmark, metric).items():
            beside = axes.axhline(value, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
            entries.setdefault(model, beside)
        _label(axes, metric, alone=alone)
        _tick_scored(axes, [step for each in found.values() for step, name in each if name == metric])
        axes.set_ylabel(plain(f"{metric} ({better})" if alone else better))
    if len(entries) > 1:
        key(figure, legend(entries, places))
    return Plot(name=f"scores-{slug(benchmark)}", figure=figure)


def _scores_note(material: Material, *, banded: bool) -> str:
    repeats = max(len(line.runs) for line in material.lines)
    parts = [
        f"mean of up to {repeats} repeats" if repeats > 1 else None,
        "bars: 95 % intervals over tasks" if banded else None,
        "ring: the selected checkpoint"
        if any(_selected_steps(material, line.label) for line in material.lines)
        else None,
        "step 0: the weights that training started from",
    ]
    return "; ".join(part for part in parts if part is not None)


def _better(found: Mapping[str, _Scored], metric: str) -> str:
    directions = {
        value.direction for each in found.values() for (_, name), value in each.items() if name == metric
    }
    return "lower is better" if directions == {"min"} else "higher is better"


def _curve(material: Material, benchmark: str) -> str:
    """The name of an entry's scores in loggers: `val/<entry>` or `test/<entry>`."""
    return next(e.curve for run in material.runs for e in _own(run.evaluations, benchmark))


def _apart(place: int | None, places: Mapping[str, int | None]) -> float:
    """How far the points of an arm are moved aside, so that equal ones don't hide each other: a share of all steps."""
    shown = sum(each is not None for each in places.values())
    return 0.0 if place is None else (place - (shown - 1) / 2) * min(0.006, MOST_APART / shown)


def _tick_scored(axes: Axes, steps: Sequence[int]) -> None:
    """Ticks where something was scored, if those are few and far enough apart for their numbers."""
    at = sorted({*steps})
    if 1 < len(at) <= MOST_TICKS and min(np.diff(at)) * MOST_TICKS >= at[-1] - at[0]:
        axes.set_xticks(at)


def _selected_steps(material: Material, label: str) -> list[int]:
    """The steps of the selected checkpoints of a line's runs."""
    runs = [
        run.result.run for line in material.lines if line.label == label for run in line.runs if run.result
    ]
    selected = [run.selected_checkpoint for run in runs if run is not None]
    return sorted({one.step for one in selected if one is not None})


def _mark_selected(axes: Axes, points: Mapping[int, MetricValue], steps: Sequence[int], place: int) -> None:
    """A ring around the score of each checkpoint that counts; `points` has the scores by step."""
    color = ink(place)["color"]
    for step in steps:
        value = points[step].value if step in points else None
        if value is not None:
            axes.plot(
                [step], [value], color=color, marker="o", markersize=10, fillstyle="none", linestyle="none"
            )


def _draw_scores(
    axes: Axes, scored: _Scored, metric: str, place: int | None, apart: float, *, bars: bool
) -> Any:
    """The points of one arm, with their intervals where these don't hide each other."""
    known = [
        (step, v, v.value) for (step, name), v in scored.items() if name == metric and v.value is not None
    ]
    if not known:
        return None
    steps = np.array([step for step, *_ in known], dtype=np.float64)
    values = np.array([value for *_, value in known], dtype=np.float64)
    steps = steps + apart * max(1.0, float(steps.max()))
    if not bars:
        return axes.plot(steps, values, marker="o", markersize=4, **ink(place))[0]
    bounds = np.array(
        [
            (value - (value if v.low is None else v.low), (value if v.high is None else v.high) - value)
            for _, v, value in known
        ]
    ).T
    drawn = axes.errorbar(
        steps,
        values,
        yerr=np.clip(bounds, 0.0, None),
        marker="o",
        markersize=4,
        capsize=2,
        elinewidth=0.9,
        **ink(place),
    )
    return drawn.lines[0]  # the legend needs no bars


def _models(material: Material, benchmark: str, metric: str) -> dict[str, float]:
    """API models scored alongside the arms."""
    found: dict[str, float] = {}
    for run in material.runs:
        for e in run.evaluations:
            if e.benchmark == benchmark and e.model is not None and e.status == "completed":
                value = e.metrics[metric].value if metric in e.metrics else None
                if value is not None:
                    found.setdefault(e.model, value)
    return found

"""Forgetting: the score on each stage's benchmark after each stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evsys_plots.material import Material
from evsys_plots.style import Plot, sheet, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["forgetting"]

STARTED_FROM = "start"
IN_ONE_COLUMN = 3
MOST_PANELS = 12


def forgetting(material: Material) -> Iterator[Plot]:
    """A matrix an arm: rows are benchmarks, columns stages, before them the weights that the first one started from."""
    matrices = _matrices(material.conclusion.get("forgetting"))
    if not matrices:
        return
    shown = _select_matrices(matrices, material.best)
    left = f"; {len(shown)} of {len(matrices)} arms" if len(shown) < len(matrices) else ""
    matrices = shown
    widest = max(len(matrix["stages"]) for matrix in matrices) + 1
    tallest = max(len(matrix["benchmarks"]) for matrix in matrices)
    figure, panels = sheet(
        "Scores after each stage",
        note=f"a row a benchmark, a column a stage; means over repeats with 95 % intervals{left}",
        panels=len(matrices),
        columns=1 if len(matrices) <= IN_ONE_COLUMN else 2,
        size=(max(6.0, 2.2 + 1.1 * widest), 1.2 + 0.55 * tallest),
    )
    bounds = _bounds([value for matrix in matrices for row in matrix["values"] for value in row])
    for axes, matrix in zip(panels, matrices, strict=True):
        _draw(axes, matrix, bounds)
    yield Plot(name="forgetting", figure=figure)


def _select_matrices(matrices: Sequence[Mapping[str, Any]], best: Sequence[str]) -> list[Mapping[str, Any]]:
    """All, or of many those of the best arms, in their order."""
    first = sorted(matrices, key=lambda each: _rank(str(each.get("arm")), best))[:MOST_PANELS]
    return [each for each in matrices if any(each is one for one in first)]


def _rank(arm: str, best: Sequence[str]) -> int:
    return best.index(arm) if arm in best else len(best)


def _matrices(found: Any) -> list[Mapping[str, Any]]:
    """One matrix, or one an arm."""
    if not found:
        return []
    return [found] if isinstance(found, Mapping) else list(found)


def _bounds(values: Sequence[float | None]) -> tuple[float, float]:
    """The ends of the colours, which all arms share: 0 and 1 where the scores are within."""
    known = [value for value in values if value is not None and np.isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    if low >= 0.0 and high <= 1.0:
        return 0.0, 1.0
    return (low, high) if low < high else (low, low + 1.0)


def _draw(axes: Axes, matrix: Mapping[str, Any], bounds: tuple[float, float]) -> None:
    values = np.array(
        [[np.nan if value is None else float(value) for value in row] for row in matrix["values"]]
    )
    stages = list(matrix["stages"])
    if values.shape[1] == len(stages) + 1:
        stages = [STARTED_FROM, *stages]
    image = axes.imshow(
        np.ma.masked_invalid(values), cmap="cividis", aspect="auto", vmin=bounds[0], vmax=bounds[1]
    )
    axes.set_xticks(range(len(stages)), [shortened(stage) for stage in stages])
    axes.set_yticks(
        range(len(matrix["benchmarks"])), [shortened(benchmark) for benchmark in matrix["benchmarks"]]
    )
    axes.grid(visible=False)
    if "arm" in matrix:
        axes.set_title(shortened(str(matrix["arm"])), loc="left")
    middle = sum(bounds) / 2
    for row, column in np.ndindex(values.shape):
        value = float(values[row, column])
        text = _cell(value, _bound(matrix, "low", row, column), _bound(matrix, "high", row, column))
        text += _of_some(matrix, row, column)
        axes.text(
            column,
            row,
            text,
            ha="center",
            va="center",
            fontsize=8.5,
            color="black" if not np.isfinite(value) or value > middle else "white",
        )
    axes.figure.colorbar(image, ax=axes, label="score")


def _bound(matrix: Mapping[str, Any], name: str, row: int, column: int) -> float | None:
    bounds: Sequence[Sequence[float | None]] | None = matrix.get(name)
    return bounds[row][column] if bounds else None


def _of_some(matrix: Mapping[str, Any], row: int, column: int) -> str:
    """Of how many seeds a value is where that aren't all: the remaining ones may be the ones that forgot least."""
    scored: Sequence[Sequence[int]] | None = matrix.get("scored")
    count, seeds = (scored[row][column] if scored else 0), matrix.get("seeds", 1)
    return f"\n{count} of {seeds} seeds" if 0 < count < seeds else ""


def _cell(value: float, low: float | None, high: float | None) -> str:
    if not np.isfinite(value):
        return "not scored"
    return f"{value:.2f}" if low is None or high is None else f"{value:.2f}\n[{low:.2f}, {high:.2f}]"

"""Costs and scores of arms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from evsys.types import ArmResult, MetricValue
from evsys_plots.material import Material
from evsys_plots.style import GREY, Plot, key, legend, looks, mark, plain, sheet
from evsys_record import final_scoring, mean_over_repeats, metric_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Price", "cost", "price_of"]


@attrs.frozen(kw_only=True)
class Price:
    """The cost of a run, in a unit that all runs of the experiment have."""

    unit: str
    of: Callable[[ArmResult], float]


def price_of(results: Sequence[ArmResult]) -> Price:
    """Money where that of every run is known and some cost any, else the time that they took."""
    costs = [result.usage.cost_usd for result in results]
    if None not in costs and any(costs) and not any(result.usage.unpriced for result in results):
        return Price(unit="US dollars", of=lambda result: result.usage.cost_usd or 0.0)
    return Price(unit="seconds", of=lambda result: result.seconds)


def cost(material: Material) -> Iterator[Plot]:
    """The success metric against what a run cost."""
    success, price = material.success, price_of(material.results)
    scored = {} if success is None else _scores_by_arm(material, price, *success)
    if not scored:
        return
    figure, (axes,) = sheet(
        f"Cost against {material.metric}",
        note="a mark an arm, at its mean over repeats; bars: range of the cost, 95 % interval of the score",
        size=(6.5, 4.0),
    )
    places = looks(list(scored), material.best)
    marks = {arm: _draw(axes, costs, score, places[arm]) for arm, (costs, score) in scored.items()}
    entries = legend(marks, places)
    before = [c["before"] for c in material.conclusion.get("comparisons") or () if c["before"] is not None]
    if before:
        line = axes.axhline(float(before[0]), color=GREY, linestyle="--", linewidth=1.0)
        entries[f"baseline: {material.conclusion.get('baseline')}"] = line
    word = "lower" if material.conclusion.get("direction") == "min" else "higher"
    axes.set_xlabel(f"{price.unit} a run, scoring included")
    axes.set_ylabel(plain(f"{material.metric} ({word} is better)"))
    axes.set_xlim(left=0.0)
    key(figure, entries)
    yield Plot(name="cost", figure=figure)


def _scores_by_arm(
    material: Material, price: Price, benchmark: str, metric: str
) -> Mapping[str, tuple[Sequence[float], MetricValue]]:
    """Of each arm with a score what its repeats cost, stages taken together, and the score over them."""
    found: dict[str, tuple[Sequence[float], MetricValue]] = {}
    for arm, results in material.compared.items():
        scorings = [final_scoring(result, benchmark) for result in material.ends(results)]
        values = [value for scoring in scorings if (value := metric_of(scoring, metric)) is not None]
        score = mean_over_repeats(values) if values else None
        if score is not None and score.value is not None:
            costs: dict[int, float] = {}
            for result in results:
                costs[result.repeat] = costs.get(result.repeat, 0.0) + price.of(result)
            found[arm] = (list(costs.values()), score)
    return found


def _draw(axes: Axes, costs: Sequence[float], score: MetricValue, place: int | None) -> Any:
    """The mark of an arm, with error bars if it is highlighted; the legend shows the mark alone."""
    x, y = sum(costs) / len(costs), score.value
    assert y is not None
    if place is None:
        return axes.plot([x], [y], linestyle="none", **mark(place))[0]
    low = y if score.low is None else score.low
    high = y if score.high is None else score.high
    drawn = axes.errorbar(
        [x],
        [y],
        xerr=[[max(0.0, x - min(costs))], [max(0.0, max(costs) - x)]],
        yerr=[[max(0.0, y - low)], [max(0.0, high - y)]],
        elinewidth=0.9,
        capsize=2,
        linestyle="none",
        **mark(place),
    )
    return drawn.lines[0]

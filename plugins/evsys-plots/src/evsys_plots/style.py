"""How plots look: sheets, colours that colour-blind people can distinguish, and texts that stay as they are.

Nothing of matplotlib's state for interactive use is touched: figures are objects, drawn by Agg and as SVG, under
settings of their own, regardless of the user's matplotlibrc.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "FORMATS",
    "GREY",
    "Plot",
    "ink",
    "key",
    "legend",
    "looks",
    "mark",
    "plain",
    "rendered",
    "settings",
    "sheet",
    "shortened",
]

FORMATS = ("png", "svg")
GREY = "#666666"
DPI = 150
LONGEST = 48
MOST_IN_COLUMN = 28

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito's palette (2008), without its yellow, which is hard to see on white."""

MOST_LOOKS = 14
"""Arms distinguished by their looks. Of more, a few are highlighted, and the others are grey."""

STANDING_OUT = 7
FAINT = "#c4c4c4"

DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

_OURS = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10.0,
    "figure.facecolor": "white",
    "font.size": 10.0,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.fontsize": 9.0,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "svg.hashsalt": "evsys",
}
_LOOKS = frozenset(
    (
        *("agg", "axes", "errorbar", "figure", "font", "grid", "hatch", "image", "legend", "lines"),
        *("markers", "mathtext", "patch", "path", "savefig", "svg", "text", "xtick", "ytick"),
    )
)
"""Groups of matplotlib's settings that change what is drawn."""

_DRAWING = threading.Lock()


@attrs.frozen(kw_only=True)
class Plot:
    """A figure and the name of its files."""

    name: str
    figure: Figure


@contextmanager
def settings() -> Iterator[None]:
    """The defaults of matplotlib with ours on top; one thread at a time, since they are the process's."""
    import matplotlib as mpl

    looks: Any = {
        name: value for name, value in mpl.rcParamsDefault.items() if name.partition(".")[0] in _LOOKS
    }
    with _DRAWING, mpl.rc_context(looks | _OURS):
        yield


def sheet(
    title: str,
    *,
    note: str = "",
    panels: int = 1,
    columns: int = 1,
    size: tuple[float, float] = (8.0, 4.5),
) -> tuple[Figure, list[Axes]]:
    """A figure with a title, a smaller line below it, and panels, `columns` side by side.

    Args:
        title: what is shown.
        note: how to read it.
        panels: how many.
        columns: of them in a row.
        size: width and height of a panel in inches, with its labels.
    """
    from matplotlib.figure import Figure

    rows = -(-panels // columns)
    width, height = size
    figure = Figure(
        figsize=(width * min(columns, panels), height * rows + 0.6), dpi=DPI, layout="constrained"
    )
    figure.suptitle(plain(title), x=0.01, ha="left", fontsize=12, fontweight="bold")
    axes = [figure.add_subplot(rows, min(columns, panels), place + 1) for place in range(panels)]
    if note:
        figure.supxlabel(plain(note), x=0.01, ha="left", fontsize=8.5, color=GREY)
    return figure, axes


def looks(labels: Sequence[str], best: Sequence[str]) -> dict[str, int | None]:
    """The number of each label's look; None for those that are grey.

    Args:
        labels: what is drawn, in its order.
        best: those of it that matter most, the first most; where no one knows, all have looks of their own.
    """
    shown = labels
    if len(labels) > MOST_LOOKS and best:
        first = [*dict.fromkeys(best), *(label for label in labels if label not in best)][:STANDING_OUT]
        shown = [label for label in labels if label in first]
    places = {label: place for place, label in enumerate(shown)}
    return {label: places.get(label) for label in labels}


def legend(entries: Mapping[str, Any], places: Mapping[str, int | None]) -> dict[str, Any]:
    """The entries of the legend: highlighted arms in the order of their looks, then the others, then one for all
    grey arms.

    Args:
        entries: the drawn mark of each label.
        places: the looks of labels, as `looks` gives them.
    """
    shown = {
        label: entries[label] for label, place in places.items() if place is not None and label in entries
    }
    beside = {label: drawn for label, drawn in entries.items() if label not in places}
    grey = [entries[label] for label, place in places.items() if place is None and label in entries]
    count = sum(place is None for place in places.values())
    return {**shown, **beside, **({f"{count} other arms": grey[0]} if grey else {})}


def ink(place: int | None) -> dict[str, Any]:
    """Colour and dashes of the line number `place`: 28 that differ, counted from 0; grey and behind the others for None."""
    if place is None:
        return {"color": FAINT, "linestyle": "-", "linewidth": 0.9, "zorder": 1.5}
    return {
        "color": COLOURS[place % len(COLOURS)],
        "linestyle": DASHES[place // len(COLOURS) % len(DASHES)],
    }


def mark(place: int | None) -> dict[str, Any]:
    """Colour and marker of the point number `place`, counted from 0; grey, small and behind the others for None."""
    if place is None:
        return {"color": FAINT, "marker": "o", "markersize": 4, "zorder": 1.5}
    return {
        "markersize": 8,
        "color": COLOURS[place % len(COLOURS)],
        "marker": MARKERS[(place + place // len(COLOURS)) % len(MARKERS)],
    }


def key(figure: Figure, entries: Mapping[str, Any]) -> None:
    """The legend, alongside what is drawn, for which the figure grows; entries are texts with what they represent."""
    if not entries:
        return
    labels = [shortened(label) for label in entries]
    columns = -(-len(labels) // MOST_IN_COLUMN)
    width, height = figure.get_size_inches()
    beside = columns * (0.7 + 0.07 * max(map(len, labels)))
    below = 0.4 + 0.21 * -(-len(labels) // columns)
    figure.set_size_inches(width + beside, max(height, below))
    figure.legend(list(entries.values()), labels, loc="outside right upper", ncols=columns)


def plain(text: str) -> str:
    """A text drawn as it is: a `$` begins no formula."""
    return text.replace("$", r"\$")


def shortened(text: str) -> str:
    """A name, cut in the middle where it is long; its ends distinguish arms."""
    if len(text) > LONGEST:
        half = (LONGEST - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    # matplotlib leaves out entries that begin with an underscore.
    return plain(f"\N{ZERO WIDTH SPACE}{text}" if text.startswith("_") else text)


def rendered(plot: Plot) -> dict[str, bytes]:
    """The files of a plot by name: the same bytes for the same figure and the same matplotlib."""
    figure = plot.figure
    layout = figure.get_layout_engine()
    if layout is not None:  # once for all formats, since it takes longer than drawing
        layout.execute(figure)
        figure.set_layout_engine("none")
    files = {}
    for form in FORMATS:
        buffer = BytesIO()
        details: dict[str, Any] = {"Date": None} if form == "svg" else {}
        figure.savefig(buffer, format=form, dpi=DPI, metadata=details)
        files[f"{plot.name}.{form}"] = buffer.getvalue()
    return files

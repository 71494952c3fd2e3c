"""Draws the pictures of `docs/explanation/statistics.md`; `python docs/pictures.py` writes them, and a test holds them to it.

The numbers are evsys's own: intervals and p-values of its tests, its levels of looks, and the scores of six training runs in `pictures/runs.json`.
The colours follow the reader's choice of light or dark.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from evsys.types import Claim
from evsys_runtime.config.plan import ALPHA
from evsys_stats.alpha_spending import level_of_look
from evsys_stats.claims import claim_p
from evsys_stats.paired import Paired, paired_difference

TARGET = Path(__file__).parent / "explanation" / "pictures"
MARGIN = 0.05
TASKS = 400
LOOKS = 10
PROJECTS = 20_000
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f } .soft { fill: #57606a }
  .line { stroke: #57606a; stroke-width: 1 } .band { fill: #0969da; opacity: .12 } .main { stroke: #0969da; fill: #0969da }
  .other { stroke: #bc4c00; fill: #bc4c00 } .thick { stroke-width: 2.5 } .curve { fill: none; stroke-width: 2.5 } .dash { stroke-dasharray: 5 4 }
  .faint { opacity: .25 } .other-text { fill: #bc4c00 } .main-text { fill: #0969da }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .soft { fill: #9da7b1 } .line { stroke: #9da7b1 } .band { fill: #58a6ff } .main { stroke: #58a6ff; fill: #58a6ff }
    .other { stroke: #f0883e; fill: #f0883e } .curve { fill: none } .other-text { fill: #f0883e; stroke: none } .main-text { fill: #58a6ff }
  }
"""


def claims() -> str:
    """Five results on 400 tasks, the claims that each supports, and a margin of 0.05."""
    results = [(70, 14), (46, 22), (38, 34), (4, 6), (12, 52)]

    def place(effect: float) -> float:
        return 300 + effect * 1000

    body = [
        _rectangle(place(-MARGIN), 34, place(MARGIN) - place(-MARGIN), 38 * len(results) + 12, "band"),
        _line(place(0), 34, place(0), 46 + 38 * len(results), "line"),
        _text(place(0), 24, f"effect, with the margin of ±{MARGIN}", "soft", "middle"),
    ]
    for row, (better, worse) in enumerate(results):
        y = 60 + 38 * row
        found = _paired(better, worse)
        body += [
            _text(8, y + 4, f"{better} better, {worse} worse"),
            _line(place(found.low), y, place(found.high), y, "main thick"),
            _circle(place(found.effect), y, "main"),
            _text(place(0.27), y + 4, ", ".join(_supported(found)) or "nothing"),
        ]
    for tick in (-0.15, -0.1, 0.0, 0.1, 0.2):
        body.append(
            _text(place(tick), 64 + 38 * len(results), f"{tick:+.2f}" if tick else "0", "soft", "middle")
        )
    return _picture(
        820, 72 + 38 * len(results), "Intervals of five results and the claims that they support", body
    )


def _paired(better: int, worse: int) -> Paired:
    arm = np.array([1.0] * better + [0.0] * worse + [0.0] * (TASKS - better - worse))
    base = np.array([0.0] * better + [1.0] * worse + [0.0] * (TASKS - better - worse))
    return paired_difference(arm, base, None, binary=True, largest=1.0)


def _supported(found: Paired) -> Iterator[str]:
    """The claims that a result supports at a first look."""
    asked: list[tuple[Claim, float]] = [
        ("better", 0.0),
        ("better", MARGIN),
        ("no_worse", MARGIN),
        ("equal", MARGIN),
        ("worse", 0.0),
    ]
    for claim, margin in asked:
        if claim_p(claim, margin, found) <= level_of_look(1, ALPHA):
            yield claim if claim != "better" or not margin else f"better by {margin}"


def subjects() -> str:
    """Six training runs of one recipe, each with its interval over tasks, and that of the recipe."""
    known = json.loads((TARGET / "runs.json").read_text(encoding="utf-8"))

    def place(score: float) -> float:
        return 160 + (score - 0.5) * 1100

    (_, low, high), runs = known["runs"][0], known["runs"]
    bottom = 52 + 28 * len(runs)
    body = [
        _text(8, 24, "Which scores does the interval of the first run hold?", "soft"),
        _rectangle(place(low), 36, place(high) - place(low), bottom - 38, "band"),
    ]
    for row, (score, lowest, highest) in enumerate(runs):
        y, inside = 52 + 28 * row, low <= score <= high
        style = "main" if inside else "other"
        body += [
            _text(8, y + 4, f"training run {row + 1}", "" if inside else "other-text"),
            _line(place(lowest), y, place(highest), y, f"{style} thick"),
            _circle(place(score), y, style),
        ]
    score, lowest, highest = known["recipe"]
    body += [
        _line(8, bottom, 730, bottom, "line"),
        _text(8, bottom + 26, "the recipe"),
        _line(place(lowest), bottom + 22, place(highest), bottom + 22, "main thick"),
        _circle(place(score), bottom + 22, "main"),
    ]
    for tick in (0.6, 0.7, 0.8, 0.9, 1.0):
        body.append(_text(place(tick), bottom + 52, f"{tick:.1f}", "soft", "middle"))
    return _picture(740, bottom + 60, "Scores of six training runs of one recipe, with their intervals", body)


def looks() -> str:
    """How many projects without an effect claim one after so many looks, at 5 % each and at evsys's levels."""
    fixed, shared = false_claims()

    def place(look: int, share: float) -> tuple[float, float]:
        return 60 + (look - 1) * 56, 250 - share * 850

    right = place(LOOKS, 0.0)[0]
    body = [_text(8, 20, "projects with a false claim", "soft"), _line(60, 250, right, 250, "line")]
    for share in (0.05, 0.1, 0.15, 0.2, 0.25):
        y = place(1, share)[1]
        body += [
            _text(50, y + 4, f"{share:.0%}", "soft", "end"),
            _line(60, y, right, y, "line dash" if share == 0.05 else "line faint"),
        ]
    for look in range(1, LOOKS + 1):
        body.append(_text(place(look, 0)[0], 270, str(look), "soft", "middle"))
    body.append(_text((60 + right) / 2, 292, "looks at one question whose answer is no", "soft", "middle"))
    for values, style, words in ((fixed, "other", "each at 5 %"), (shared, "main", "evsys's levels")):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(k + 1, v) for k, v in enumerate(values)))
        body.append(f'<polyline class="{style} curve" points="{points}"/>')
        x, y = place(LOOKS, values[-1])
        body.append(_text(x + 10, y + 4, f"{words}: {values[-1]:.1%}", f"{style}-text"))
    return _picture(740, 304, "False claims after one to ten looks", body)


def false_claims() -> tuple[list[float], list[float]]:
    """The share of projects that saw an arm win by looks 1 to 10 although nothing differs: at 5 % a look, and at evsys's levels.

    Each look is an experiment of 100 tasks with fresh samples, of which 30 differ on average, tested by McNemar's test as evsys does.
    """
    drawing = np.random.default_rng(20_250_101)
    discordant = drawing.binomial(100, 0.3, (PROJECTS, LOOKS))
    better = drawing.binomial(discordant, 0.5)
    p_values = {
        (b, n): paired_difference(*_outcomes(b, n - b), None, binary=True, largest=1.0).p_value
        for b, n in sorted({(int(b), int(n)) for b, n in zip(better.flat, discordant.flat, strict=True)})
        if 2 * b > n
    }
    wins = np.array(
        [
            [p_values.get((int(b), int(n)), 1.0) for b, n in zip(*row, strict=True)]
            for row in zip(better, discordant, strict=True)
        ]
    )
    levels = np.array([level_of_look(k, ALPHA) for k in range(1, LOOKS + 1)])
    return _ever(wins <= 0.05), _ever(wins <= levels)


def _outcomes(better: int, worse: int) -> tuple[np.ndarray, np.ndarray]:
    rest = [0.0] * (100 - better - worse)
    return np.array([1.0] * better + [0.0] * worse + rest), np.array([0.0] * better + [1.0] * worse + rest)


def _ever(won: np.ndarray) -> list[float]:
    return [float(share) for share in np.maximum.accumulate(won, axis=1).mean(axis=0)]


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _rectangle(x: float, y: float, width: float, height: float, style: str) -> str:
    return f'<rect class="{style}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def _circle(x: float, y: float, style: str) -> str:
    return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'


def _text(x: float, y: float, words: str, style: str = "", anchor: str = "start") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def _picture(width: int, height: float, title: str, body: Sequence[str]) -> str:
    size = f'viewBox="0 0 {width} {math.ceil(height)}" width="{width}" height="{math.ceil(height)}"'
    lines = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n{lines}\n</svg>\n"
    )


PICTURES = {"claims.svg": claims, "subjects.svg": subjects, "looks.svg": looks}


def main() -> None:
    """Write all pictures."""
    for name, draw in PICTURES.items():
        (TARGET / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()

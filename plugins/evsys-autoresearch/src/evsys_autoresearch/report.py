"""The report of a research run: one page, the same as Markdown, and all numbers as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from evsys.types import Round
from evsys_record import result_tree, write_atomic
from evsys_record.files import write_json
from evsys_record.text import visible

if TYPE_CHECKING:
    from evsys_autoresearch.result import ResearchResult

__all__ = ["gain_curve", "markdown", "verdict_words", "write_report"]

_WORDS = {
    "improved": "The winner beats the start on the sealed test.",
    "not_improved": "No arm scored better than the start.",
    "not_confirmed": "The best arm isn't confirmed: nothing is claimed.",
    "unsealed": "The winner beats the start with fresh seeds; without a sealed test nothing is claimed.",
    "invalid": "A file that decides scores was changed during the research: nothing is claimed.",
}

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title><style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; }}
th, td {{ padding: .25rem .6rem; text-align: left; border-bottom: 1px solid #8886; vertical-align: top; }}
svg {{ width: 100%; height: auto; }} .curve {{ fill: none; stroke: currentColor; stroke-width: 2; }}
.start {{ stroke: currentColor; stroke-dasharray: 4 4; opacity: .6; }} text {{ fill: currentColor; font-size: 12px; }}
</style></head><body>
<h1>{goal}</h1><p><strong>{verdict}</strong> {facts}</p>
<h2>Best validation score by round</h2>{curve}
{referees}<h2>Rounds</h2>{rounds}
{broken}</body></html>
"""


def write_report(directory: Path, result: ResearchResult) -> None:
    """Write report.json, report.md and report.html."""
    write_json(directory / "report.json", result_tree(result))
    write_atomic(directory / "report.md", markdown(result))
    write_atomic(directory / "report.html", _page(result))


def verdict_words(result: ResearchResult) -> str:
    """The verdict as a sentence."""
    return _WORDS[result.verdict]


def gain_curve(rounds: Sequence[Round], start: float | None, *, larger: bool = True) -> list[float | None]:
    """The best score so far after each round, that of the start before the first; cheap measurements don't count."""
    best, curve = start, [start]
    for each in rounds:
        if each.score is not None and not each.cheap:
            better = best is None or (each.score > best if larger else each.score < best)
            best = each.score if better else best
        curve.append(best)
    return curve


def _facts(result: ResearchResult) -> Iterator[str]:
    start = "unknown" if result.start_score is None else f"{result.start_score:.4g}"
    yield f"{result.metric} of the start {start} on validation."
    if result.winner is not None:
        yield f"Best: round {result.winner.number} with {result.winner.score:.4g} ({result.winner.measurements} measured)."
    if result.confirmation is not None and result.confirmation.get("effect") is not None:
        yield f"With {result.confirmation['seeds']} fresh seeds: {result.confirmation['effect']:+.4g} on validation."
    if result.sealed is not None:
        found = result.sealed
        yield (
            f"Sealed test, one look, {found['tasks']} tasks: {found['start']:.4g} to {found['winner']:.4g}, effect "
            f"{found['effect']:+.4g} (95 % interval {found['low']:.3g} to {found['high']:.3g}; {found['method']})."
        )
        hours = result.spent["seconds"] / 3600
        yield f"Gain per experiment {found['effect'] / max(1.0, result.spent['experiments']):.3g}, per hour {found['effect'] / max(hours, 1e-9):.3g}."
    spent = result.spent
    yield f"Spent: {spent['experiments']:g} experiments, {spent['seconds']:.0f} s, ${spent['money']:.2f}. Ended: {result.reason}."
    if result.unprotected:
        yield "The researcher's programs ran without a sandbox."


def _rows(rounds: Sequence[Round]) -> Iterator[tuple[str, ...]]:
    yield ("round", "hypothesis", "score", "effect", "status")
    for each in rounds:
        score = "" if each.score is None else f"{each.score:.4g}" + (" (some tasks)" if each.cheap else "")
        effect = "" if each.effect is None else f"{each.effect:+.3g}"
        status = each.status + (f": {each.reason}" if each.reason else "")
        yield (str(each.number), visible(each.hypothesis), score, effect, visible(status))


def markdown(result: ResearchResult) -> str:
    """The report as Markdown."""

    def cell(text: str) -> str:
        return escape(" ".join(text.split())).replace("|", "\\|").replace("`", "'")

    header, *rows = _rows(result.rounds)
    lines = [
        f"# {cell(result.goal)}",
        "",
        f"**{verdict_words(result)}** {' '.join(map(cell, _facts(result)))}",
        "",
    ]
    lines += [f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
    lines += [f"| {' | '.join(map(cell, row))} |" for row in rows]
    for name, score in result.referees.items():
        lines += [
            "",
            f"Referee {name}, same budget: best validation score {_number(score[-1] if score else None)}.",
        ]
    for broken in result.broken_rules:
        lines += [
            "",
            f"Rule broken in round {broken['number']} ({broken['rule']}): {cell(str(broken['reason']))}",
        ]
    return "\n".join(lines) + "\n"


def _page(result: ResearchResult) -> str:
    header, *rows = _rows(result.rounds)
    table = "<table><tr>" + "".join(f"<th>{each}</th>" for each in header) + "</tr>"
    table += (
        "".join("<tr>" + "".join(f"<td>{escape(each)}</td>" for each in row) + "</tr>" for row in rows)
        + "</table>"
    )
    broken = "".join(
        f"<li>Round {each['number']}, {escape(str(each['rule']))}: {escape(visible(str(each['reason'])))}</li>"
        for each in result.broken_rules
    )
    referees = "".join(
        f"<p>Referee {escape(name)}, same budget: best validation score {_number(curve[-1] if curve else None)}.</p>"
        for name, curve in result.referees.items()
    )
    return _PAGE.format(
        title=escape(result.research_id),
        goal=escape(visible(result.goal)),
        verdict=escape(verdict_words(result)),
        facts=escape(" ".join(_facts(result))),
        curve=_curve(result),
        referees=referees,
        rounds=table,
        broken=f"<h2>Broken rules</h2><ul>{broken}</ul>" if broken else "",
    )


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _curve(result: ResearchResult) -> str:
    """The best score so far over rounds, as SVG."""
    points = [
        (n, value)
        for n, value in enumerate(gain_curve(result.rounds, result.start_score, larger=result.larger))
        if value is not None
    ]
    if len(points) < 2:
        return "<p>Nothing was scored.</p>"
    values = [value for _, value in points]
    low, high = min(values), max(values)
    span = (high - low) or 1.0

    def at(n: int, value: float) -> str:
        return f"{40 + 540 * n / max(1, points[-1][0]):.1f},{180 - 160 * (value - low) / span:.1f}"

    path = " ".join(at(*point) for point in points)
    _, base = at(0, values[0]).split(",")
    return (
        f'<svg viewBox="0 0 600 210" role="img" aria-label="Best score by round: {json.dumps(values)[1:-1]}">'
        f'<line class="start" x1="40" x2="580" y1="{base}" y2="{base}"/><polyline class="curve" points="{path}"/>'
        f'<text x="0" y="24">{high:.3g}</text><text x="0" y="184">{low:.3g}</text>'
        f'<text x="40" y="205">start</text><text x="540" y="205">round {points[-1][0]}</text></svg>'
    )

"""The knowledge from all experiments, as Markdown for a reader who pays by the word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evsys_runtime.experiment.budget.budget import amount_words
from evsys_runtime.experiment.insight.results import (
    BestRecipe,
    Context,
    Finding,
    Retracted,
    Unfinished,
    WayToFail,
)

__all__ = ["LEAST", "SECTIONS", "context_markdown"]

SECTIONS: Mapping[str, str] = {
    "best": "Best so far",
    "retracted": "Retracted or edited: don't build on these",
    "supported": "Worked: SUPPORTED (effect [interval at the level of its look]; recipe or checkpoint, training runs x tasks)",
    "candidates": "Promising: CANDIDATE, the best of several and not confirmed",
    "open": "Open questions: INCONCLUSIVE",
    "failures": "Failed",
    "unfinished": "Unfinished",
    "refuted": "Did not work: REFUTED, no arm beats the baseline",
}
"""The sections by the names that they have in the document, the most useful first, with their headings."""

LEAST = "refuted"
"""The section that gives way to all others."""


def context_markdown(context: Context) -> str:
    """The whole, without a line feed at its end."""
    return "\n".join(_lines(context))


def _lines(context: Context) -> Iterator[str]:
    experiments, runs = (
        f"{n} {what}{'s' * (n != 1)}"
        for n, what in ((context.experiments, "experiment"), (context.runs, "run"))
    )
    yield f"# {context.project}: what is known from {experiments}, {runs}"
    yield ""
    if context.about:
        yield context.about
    for label, counts in (
        ("verdicts", context.verdicts),
        ("decided by", context.metrics),
        ("goals", context.goals),
    ):
        if counts:
            yield f"{label}: {', '.join(f'{name} {count}' for name, count in counts.items())}"
    yield f"spent: {_spending_text(context)}"
    if context.budget:
        yield f"project budget left: {_budget_text(context)}"
    for name, heading in SECTIONS.items():
        entries = getattr(context, name)
        if entries:
            yield f"\n## {heading}\n"
            yield from (f"- {_line(entry)}" for entry in entries)
    yield from _fit(context)


def _line(entry: Any) -> str:
    if isinstance(entry, Finding):
        return _finding(entry)
    if isinstance(entry, BestRecipe):
        return _best(entry)
    if isinstance(entry, WayToFail):
        return _way(entry)
    if isinstance(entry, Retracted):
        resting = f" (rests on it: {', '.join(entry.resting)})" if entry.resting else ""
        return f"{entry.experiment}: {entry.reason}{resting}"
    assert isinstance(entry, Unfinished)
    marks = f" ({', '.join(entry.marks)})" if entry.marks else ""
    return f"{entry.experiment}: {entry.status}{marks}"


def _finding(entry: Finding) -> str:
    says = f"; {entry.says}" if entry.says else ""
    return f"{entry.name}{_effect(entry)}{says}"


def _effect(entry: Finding) -> str:
    if entry.effect is None or entry.effect[0] is None:
        return ""
    effect, low, high = entry.effect
    bounds = "" if low is None or high is None else f" [{low:g}, {high:g}]"
    return f" {effect:+g}{bounds}"


def _way(entry: WayToFail) -> str:
    region = "" if entry.region is None else f" where {entry.region}"
    known = " KNOWN BAD" if entry.known_bad else ""
    says = f". {entry.says}" if entry.says else ""
    runs = f"{entry.runs} run{'s' * (entry.runs != 1)}"
    return f"{entry.way}: {runs} of {entry.arms} arm{'s' * (entry.arms != 1)}{region}{known}, latest {entry.latest}{says}"


def _spending_text(context: Context) -> str:
    spent = context.spent
    unpriced = f" (without {spent.unpriced} experiments of unknown price)" if spent.unpriced else ""
    return (
        f"${spent.cost_usd:.2f}{unpriced}, {spent.trained_tokens:,} tokens trained, {spent.sampled_tokens:,} read and sampled, "
        f"{spent.seconds / 3600:.1f} h"
    )


def _budget_text(context: Context) -> str:
    return ", ".join(
        f"{amount_words(name, each.left)} of {amount_words(name, each.limit)}{'' if name in ('usd', 'wall_seconds') else f' {name}'}"
        for name, each in context.budget.items()
    )


def _best(each: BestRecipe) -> str:
    about = ", ".join([each.verdict, *([f"this {each.subject}"] if each.subject else []), *each.marks])
    parts = [
        each.model,
        each.algorithm and each.algorithm.rpartition("/")[2],
        None if each.rows is None else f"{each.rows} rows",
        None if each.learning_rate is None else f"learning rate {each.learning_rate:g}",
        f"{each.runs} run{'s' * (each.runs != 1)}",
        None if each.cost_usd is None else f"${each.cost_usd:.2g} each",
        None if each.seconds is None else f"{each.seconds:.0f} s each",
        "no checkpoint kept" if each.checkpoint is None else f"checkpoint {each.checkpoint}",
    ]
    recipe = ", ".join(part for part in parts if part)
    return f"{each.metric} {each.score:.3g} by {each.name} ({about}): {recipe}"


def _fit(context: Context) -> Iterator[str]:
    fit = context.fit
    if fit is None:
        return
    yield ""
    if fit.left_out:
        names = ", ".join(f"{count} of {name}" for name, count in fit.left_out.items())
        yield f"Left out for want of room: {names}; `--tokens` gives more, `evsys history` lists all."
    if fit.shortened:
        names = ", ".join(f"{count} of {name}" for name, count in fit.shortened.items())
        yield f"Shortened: {names}; see `evsys why EXPERIMENT`."
    yield f"About {fit.tokens} of at most {fit.limit} tokens (4 bytes each). Next: `evsys next`; one of these: `evsys why EXPERIMENT`."

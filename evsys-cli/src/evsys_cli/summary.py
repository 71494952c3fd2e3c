"""The summary of `evsys run`: the conclusion, the scores behind it, and the problems, in as few lines as possible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from evsys_cli.output import table_lines
from evsys_record.text import list_names, status_words
from evsys_runtime.accounting.usage import cost_words
from evsys_runtime.experiment.verdict.endings import early_ends
from evsys_runtime.experiment.verdict.forgetting_table import forgetting_table
from evsys_runtime.experiment.verdict.health import health_lines
from evsys_runtime.experiment.verdict.prose import (
    comparison_sentence,
    confirmed_line,
    evaluation_line,
    expected_line,
    look_line,
    noise_line,
    tasks_words,
    unflagged_line,
    verdict_line,
)
from evsys_runtime.experiment.verdict.second_models import second_model_lines
from evsys_runtime.experiment.verdict.selection import checkpoint_words
from evsys_runtime.experiment.verdict.tables import (
    Table,
    breakdown_tables,
    comparison_table,
    score_tables,
)

if TYPE_CHECKING:
    from evsys.types import ArmResult, Conclusion, ExperimentResult

__all__ = ["summary_lines"]

MOST_LABELS = 12
"""Lines of a breakdown on the terminal; `conclusion.md` has all of them."""

MOST_RUNS = 4
"""Runs to name individually when several fail in the same way."""


def summary_lines(
    result: ExperimentResult,
    *,
    width: int,
    verbose: bool = False,
    without: Mapping[str, int] | None = None,
) -> list[str]:
    """The summary of an experiment.

    Args:
        result: what `Experiment.run` returned.
        width: columns of the terminal; tables fit into it.
        verbose: also list every evaluation of every run.
        without: how many runs of an arm have no result.
    """
    conclusion = result.conclusion
    lines = ["", *_comparison_lines(conclusion, width)]
    for table in score_tables(result.arms, without):
        lines += [*_layout(table, width), ""]
    for matrix in conclusion.forgetting:
        lines += [*_layout(forgetting_table(matrix), width), ""]
    for table in breakdown_tables(result.arms, conclusion.metric):
        lines += [*_layout(table, width, most=MOST_LABELS), ""]
    if verbose:
        lines += [*_every_scoring(result.arms), ""]
    wrong = [*_failed_runs(result.arms), *_failed_scorings(result.arms), *_stopped_early(result)]
    wrong += [f"health: {line}" for line in health_lines(conclusion.health)]
    wrong += [f"warning: {text}" for text in dict.fromkeys((*conclusion.warnings, *result.warnings))]
    lines += [*wrong, ""] if wrong else []
    lines.append("dry run: no verdict" if result.dry else _without_failures(verdict_line(conclusion), result))
    series = conclusion.looks
    lines += [look_line(series)] if series is not None and (series.earlier or series.scorings > 1) else []
    lines += _worse_at_the_end(conclusion)
    if (expected := expected_line(conclusion)) is not None:
        lines.append(expected)
    once_more = confirmed_line(conclusion)
    lines += [once_more] if once_more is not None else []
    lines += [noise_line(conclusion.noise_floor)] if conclusion.noise_floor is not None else []
    rest = unflagged_line(conclusion)
    lines += [rest] if rest else []
    if conclusion.settle:
        lines.append(f"what would settle it: {conclusion.settle}")
    if result.usage.cost_usd or result.usage.without_price:
        lines.append(f"cost: {cost_words(result.usage).removesuffix(' cost')}")
        lines += second_model_lines(result.arms)
    lines.append(
        f"{status_words(result.status, result.failed)} in {result.seconds:.1f} s; record: {result.directory}"
    )
    return lines


def _worse_at_the_end(conclusion: Conclusion) -> list[str]:
    """The selected checkpoint of each run whose last one is worse; `conclusion.md` has those of all runs."""
    selected = {} if conclusion.selection is None else conclusion.selection.runs
    lines = [f"{run_id}: {checkpoint_words(one)}" for run_id, one in selected.items() if one.last_is_worse]
    more = len(lines) - MOST_RUNS
    return [*lines[:MOST_RUNS], *([f"and {more} more in conclusion.md"] if more > 0 else [])]


def _layout(table: Table, width: int, *, most: int | None = None) -> list[str]:
    lines = table_lines(table.title, table.columns, table.rows[:most], width=width)
    more = len(table.rows) - len(table.rows[:most])
    return [*lines, f"  and {more} more in conclusion.md"] if more else lines


def _comparison_lines(conclusion: Conclusion, width: int) -> Iterator[str]:
    """One arm in a sentence, or several in a table with their common values below."""
    compared = [c for c in conclusion.comparisons if c.effect is not None]
    if len(conclusion.comparisons) == 1:
        for comparison in compared:
            yield comparison_sentence(conclusion, comparison)
            yield ""
    elif compared:
        word = "higher" if conclusion.direction == "max" else "lower"
        yield f"{conclusion.metric}, {word} is better"
        yield from _layout(comparison_table(conclusion), width)
        methods: dict[str, list[str]] = {}
        for c in compared:
            methods.setdefault(f"{c.method}, {tasks_words(c)}, {c.reason}", []).append(c.arm)
        told = (
            methods if len(methods) == 1 else [f"{', '.join(arms)}: {how}" for how, arms in methods.items()]
        )
        correction = (
            f"; p and intervals corrected for {len(conclusion.comparisons)} arms"
            if conclusion.correction
            else ""
        )
        yield f"  {'; '.join(told)}{correction}"
        yield ""


def _every_scoring(arms: Sequence[ArmResult]) -> list[str]:
    width = max((len(arm.run_id) for arm in arms), default=0)
    return [f"  {arm.run_id:<{width}}  {evaluation_line(e)}" for arm in arms for e in arm.evaluations]


def _failed_runs(arms: Sequence[ArmResult]) -> list[str]:
    """Each way in which runs ended early, once, with the runs that it ended."""
    ended: dict[tuple[str, str | None], list[str]] = {}
    for arm in arms:
        if arm.failure is not None:
            said = f"{arm.status}: {arm.failure.placed}"
            ended.setdefault((said, arm.failure.hint), []).append(arm.run_id)
        elif arm.status != "completed":
            said = f"{arm.status}: {(arm.run and arm.run.stop_reason) or 'no reason given'}"
            ended.setdefault((said, None), []).append(arm.run_id)
    lines = []
    for (said, hint), runs in ended.items():
        lines.append(f"{list_names(runs, MOST_RUNS)}: {said}")
        lines += [f"  {hint}"] if hint else []
    return lines


def _stopped_early(result: ExperimentResult) -> list[str]:
    """Runs that a listener ended, which are complete all the same."""
    stopped = early_ends(result)
    more = len(stopped) - MOST_RUNS
    return [
        *stopped[:MOST_RUNS],
        *([f"and {more} more ended early, as conclusion.md shows"] if more > 0 else []),
    ]


def _without_failures(verdict: str, result: ExperimentResult) -> str:
    """The verdict, if the lines above already explain why a run failed."""
    for arm in result.arms:
        if arm.failure is not None:
            why = arm.failure.message.partition("\n")[0]
            verdict = verdict.replace(f"{arm.run_id}: {why}", f"{arm.run_id} {arm.status}")
    return verdict


def _failed_scorings(arms: Sequence[ArmResult]) -> list[str]:
    """Each kind of failure of evaluations or metrics, once, with its places."""
    failed: dict[tuple[str, str], list[str]] = {}
    for arm in arms:
        for e in arm.evaluations:
            where = e.model or f"{arm.run_id} at step {e.step}"
            if e.status != "completed":
                why = f"{e.status}: {e.failure.message if e.failure else 'no reason given'}"
                failed.setdefault((e.benchmark, why), []).append(where)
                continue
            for name, reason in e.failed_metrics.items():
                failed.setdefault((f"{e.benchmark}.{name}", f"failed: {reason}"), []).append(where)
    return [
        f"{benchmark} of {list_names(where, MOST_RUNS)}: {why}" for (benchmark, why), where in failed.items()
    ]

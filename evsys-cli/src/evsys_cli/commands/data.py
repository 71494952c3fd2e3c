"""`evsys data`: training data as the model will see it, and its overlap with the benchmarks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evsys_cli.lazy import GuidedGroup
from evsys_cli.progress import Progress
from evsys_record.text import visible
from evsys_runtime import echo, json_option, print_json
from evsys_runtime.terminal import takes_colours

if TYPE_CHECKING:
    from evsys_runtime.data.contamination import BenchmarkCheck, DataCheck, DatasetCheck, FlaggedTask
    from evsys_runtime.experiment.command_results import PreviewedSequence

__all__ = ["data"]

FLAGGED = 4
"""Exit code of `check --fail` where tasks were found: what is wrong is the data."""

MOST_SHOWN = 20
"""Flagged tasks of a benchmark to list; the others are counted."""


@click.group("data", cls=GuidedGroup)
def data() -> None:
    """Preview training data as the model sees it, and check it for benchmark tasks."""


@data.command()
@click.argument("config", type=click.Path(path_type=Path, readable=False))
@click.option("--arm", help="Name of the arm.  [default: the first]")
@click.option(
    "-n", "--rows", default=3, show_default=True, type=click.IntRange(min=1), help="Number of rows."
)
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Override a value of the file.")
@json_option
def preview(config: Path, *, arm: str | None, rows: int, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show the first training rows as the model sees them.

    The rows of CONFIG are shown after its transforms and the chat template. Trained tokens are green on a terminal, and
    enclosed in ⟦ and ⟧ elsewhere.
    """
    from evsys_record import result_tree
    from evsys_runtime.tools.acting import preview as preview_rows

    found = preview_rows(config, overrides, arm=arm, rows=rows)
    if as_json:
        print_json(result_tree(found))
        return
    for warning in found.warnings:
        echo(f"warning: {warning}", err=True)
    for row in found.rows:
        echo(f"--- row {row.row_id}: {row.tokens} tokens, {row.trained_tokens} trained")
        echo(_mark_controls(row))
    for reason, count in found.dropped.items():
        echo(f"skipped: {count} ({reason})")
    if found.not_read != 0:
        echo(f"not read: {'what follows' if found.not_read is None else found.not_read}")


@data.command()
@click.argument("config", type=click.Path(path_type=Path, readable=False))
@click.option("--arm", help="Check only the data of this arm.  [default: all arms]")
@click.option("--fail", is_flag=True, help=f"Exit with code {FLAGGED} if a task is found.")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Override a value of the file.")
@json_option
def check(config: Path, *, arm: str | None, fail: bool, overrides: tuple[str, ...], as_json: bool) -> int:
    """Find benchmark tasks among the training rows.

    The rows that each arm of CONFIG trains on are searched for the tasks of its benchmarks. A task is flagged if rows have its whole instruction, a text nearly equal to it, 13 of its words in a row, 70 % of its runs of 8
    words, or its long answer. Boilerplate that many different tasks share, such as a template, isn't evidence.
    """
    from evsys_record import result_tree
    from evsys_runtime.config.validate import load_experiment
    from evsys_runtime.experiment.preflight.data_check import check_data

    plan = load_experiment(config, overrides=overrides, records=False)
    progress = Progress()
    try:
        found = check_data(
            plan,
            arm=arm,
            advanced=lambda source, count: progress.tell(f"{source}: looked at {count} rows"),
        )
    finally:
        progress.end()
    if as_json:
        print_json(result_tree(found))
    else:
        for dataset in found.datasets:
            echo(_dataset_line(dataset, found))
            if dataset.unused:
                echo(f"  columns that reach no message: {_columns(dataset.unused)}")
            for benchmark in dataset.benchmarks:
                for line in _check_lines(benchmark):
                    echo(f"  {line}")
    return FLAGGED if fail and found.flagged else 0


def _dataset_line(dataset: DatasetCheck, found: DataCheck) -> str:
    repeats = ""
    if any(other.repeats != dataset.repeats for other in found.datasets):
        repeats = f", repeat {', '.join(str(repeat) for repeat in dataset.repeats)}"
    return f"{dataset.source}: {dataset.rows} rows, trained on by {', '.join(dataset.arms)}{repeats}"


def _check_lines(checked: BenchmarkCheck) -> Iterator[str]:
    from evsys_runtime.data.contamination import count_by_match

    count = len(checked.flagged)
    counts = ", ".join(
        f"{n} {match}" for match, n in count_by_match(t.match for t in checked.flagged).items()
    )
    verb = "is" if count < 2 else "are"
    said = f"{checked.benchmark}: {count or 'none'} of {checked.tasks} tasks {verb} in these rows"
    yield said + (f": {counts}" if counts else "")
    for task in checked.flagged[:MOST_SHOWN]:
        yield f"  {task.task_id}: {_evidence(task)}"
    if count > MOST_SHOWN:
        yield f"  and {count - MOST_SHOWN} more; --json lists all"
    if checked.unused:
        yield f"  question columns missing from the prompt: {_columns(checked.unused)}"
    if checked.whole_text_only:
        yield f"  compared as whole texts only, being short or of shared phrases: {checked.whole_text_only}"
    if checked.not_compared:
        yield f"  not compared, having no text: {checked.not_compared}"


def _columns(unused: Mapping[str, int]) -> str:
    return ", ".join(f"{column} ({count})" for column, count in unused.items())


def _evidence(task: FlaggedTask) -> str:
    said = {
        "instruction": f"whole instruction, {task.match}",
        "near": "nearly equal",
        "words": "its rarer words",
        "ngrams_13": f"{task.ngrams_13.found} of {task.ngrams_13.of} 13-grams",
        "ngrams_8": f"{task.ngrams_8.found} of {task.ngrams_8.of} 8-grams",
        "answer": "long answer",
    }
    parts = [said[kind] for kind in task.evidence]
    if task.answer and "answer" not in task.evidence:
        parts.append("with its answer")
    closest = ", ".join(_row_name(row.row, row.row_id) for row in task.closest)
    more = task.rows_matched - len(task.closest)
    rows = "row" if task.rows_matched == 1 else "rows"
    return f"{', '.join(parts)}; {rows} {closest}{f' and {more} more' if more else ''}"


def _row_name(row: int, row_id: str) -> str:
    return f"{row}" if row_id in {"", f"{row}"} else f"{row} ({row_id})"


def _mark_controls(row: PreviewedSequence) -> str:
    colours = takes_colours(sys.stdout)
    parts = []
    for span in row.spans:
        text = visible(span.text)
        if not span.trained:
            parts.append(text)
        else:
            parts.append(click.style(text, fg="green", bold=True) if colours else f"⟦{text}⟧")
    return "".join(parts)

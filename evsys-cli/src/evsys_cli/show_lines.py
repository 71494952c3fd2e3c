"""A past experiment, or a run of one, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from evsys.types import Conclusion, ExperimentResult, Usage
from evsys_cli.running import to_go_on
from evsys_cli.summary import summary_lines
from evsys_record.text import status_words
from evsys_runtime.accounting.usage import cost_words
from evsys_runtime.experiment.verdict.health import health_lines
from evsys_runtime.experiment.verdict.prose import evaluation_line
from evsys_runtime.experiment.verdict.second_models import second_model_lines
from evsys_runtime.experiment.verdict.selection import checkpoint_words
from evsys_runtime.experiment.verdict.tables import number

if TYPE_CHECKING:
    from evsys_record import PastExperiment
    from evsys_record.past import RecordFile, Shown, ShownRun

__all__ = ["run_lines", "shown_lines"]

_LABEL = 11
_UNFINISHED = {
    "running": "it is still running",
    "crashed": "its process ended without a word",
}
_GO_ON = frozenset({"budget_stopped", "cancelled", "crashed", "failed", "partial", "stalled"})
"""Statuses of experiments of which something may be left to do."""


def shown_lines(found: Shown, *, width: int, verbose: bool) -> list[str]:
    """An experiment: where it belongs, then the summary that `evsys run` ended with, then its files.

    Args:
        found: the experiment on record.
        width: columns of the terminal.
        verbose: also list every evaluation of every run.
    """
    past = found.experiment
    lines = [past.experiment_id, *_about(found)]
    if past.problem is not None:
        return [*lines, f"It can't be read: {past.problem}", *_files(found.files)]
    without = Counter(run.past.arm or "" for run in found.runs if run.result is None)
    lines += summary_lines(_result(found), width=width, verbose=verbose, without=without)
    if past.seconds is None:  # how long it took is known at its end
        lines[-1] = f"{past.status}; record: {found.directory}"
    lines += _without_result(found.runs)
    if (past.status in _GO_ON or past.failed) and not past.dry and not _ended_early_alone(found):
        lines.append(to_go_on(past.experiment_id))
    return [*lines, *_files(found.files)]


def _ended_early_alone(found: Shown) -> bool:
    """Whether all that isn't complete are stages that too little was left for: they would be left out again."""
    if found.conclusion is None or not any(matrix.stopped for matrix in found.conclusion.forgetting):
        return False
    scored = (e for run in found.runs if run.result is not None for e in run.result.evaluations)
    return all(run.past.status in ("completed", "skipped") for run in found.runs) and all(
        scoring.status == "completed" for scoring in scored
    )


def _about(found: Shown) -> Iterator[str]:
    past = found.experiment
    yield from _label_lines("name", past.name)
    yield from _label_lines("about", past.description)
    yield from _label_lines("hypothesis", past.hypothesis)
    yield from _label_lines("status", _status(past))
    if past.retracted is not None:
        yield from _label_lines("RETRACTED", f"{past.retracted} ({_moment(past.retracted_at or '')})")
    for mark in past.marks:
        if mark.kind != "retracted":  # which has a line of its own, with the time
            yield from _label_lines("caution", mark.says)
    for earlier in found.superseded:
        yield from _label_lines(
            "before", f"{earlier.verdict or 'no verdict'}: {earlier.reason} ({earlier.file}, superseded)"
        )
    yield from _label_lines("tags", ", ".join(past.tags))
    yield from _label_lines("goal", past.project_goal_id)
    yield from _label_lines("trains", _trains(past))
    yield from _label_lines("parent", " < ".join(found.ancestors))
    yield from _label_lines("children", ", ".join(found.children))


def _trains(past: PastExperiment) -> str:
    parts = [", ".join(past.algorithms), ", ".join(past.models), ", ".join(past.backends)]
    return "; ".join(part for part in parts if part)


def _status(past: PastExperiment) -> str:
    began = f", began {_moment(past.moment)}" if past.moment else ""
    ended = f", ended {_moment(past.finished)}" if past.finished else ""
    return f"{status_words(past.status, past.failed)}{' (dry run)' if past.dry else ''}{began}{ended}"


def _moment(text: str) -> str:
    return f"{text[:10]} {text[11:19]} UTC"


def _result(found: Shown) -> ExperimentResult:
    """The result, as far as there is one."""
    past = found.experiment
    arms = tuple(run.result for run in found.runs if run.result is not None)
    why = _UNFINISHED.get(past.status, "there is no conclusion")
    return ExperimentResult(
        experiment_id=past.experiment_id,
        name=past.name or "",
        status=past.status,  # type: ignore[arg-type]  # those of unfinished ones besides; it is only printed
        directory=found.directory,
        conclusion=found.conclusion or Conclusion(verdict=None, reason=why),
        arms=arms,
        failed=past.failed,
        dry=past.dry,
        seconds=past.seconds or 0.0,
        usage=past.usage or sum((arm.usage for arm in arms), Usage()),
    )


def _without_result(runs: Iterable[ShownRun]) -> Iterator[str]:
    """Runs that the summary can't report."""
    for run in runs:
        if run.result is None:
            attempt = f", attempt {run.past.attempts}" if run.past.attempts > 1 else ""
            why = run.past.problem or run.past.failure
            problem = f": {why}" if why else ""
            yield f"{run.past.run_id}: {run.past.status}{attempt}{problem}"


def run_lines(found: Shown, *, verbose: bool) -> list[str]:
    """A run: its description, attempts, scores, failure, cost and files.

    Args:
        found: the experiment on record, with this run alone.
        verbose: also print the whole traceback of a failure.
    """
    (run,) = found.runs
    lines = [f"{run.past.experiment_id}/{run.past.run_id}", *_about_run(run)]
    if run.past.problem is not None:
        lines.append(f"It can't be read: {run.past.problem}")
    if run.result is not None:
        lines += _of_result(run, verbose=verbose)
    return [*lines, *_files(run.files)]


def _about_run(run: ShownRun) -> Iterator[str]:
    past = run.past
    yield from _label_lines("status", past.status)
    trained = ", ".join(part for part in (past.algorithm, past.model, past.backend) if part)
    yield from _label_lines("trains", trained)
    yield from _label_lines(
        "arm", None if past.arm is None else f"{past.arm}, repeat {past.repeat}, seed {past.seed}"
    )
    yield from _label_lines("identity", past.identity)
    yield from _label_lines("data", past.data_hash)
    for attempt in run.attempts:
        since = (
            "" if attempt.parent is None else f" from step {attempt.from_step} of attempt {attempt.parent}"
        )
        at = f", {_moment(attempt.started)}" if attempt.started else ""
        yield from _label_lines("attempt", f"{attempt.n}: {attempt.reason}{since}{at}")


def _of_result(run: ShownRun, *, verbose: bool) -> Iterator[str]:
    result = run.result
    assert result is not None
    steps = result.run.steps if result.run else 0
    if result.reused is not None:
        source = result.reused
        yield from _label_lines(
            "reused", f"it is {source.run_id} of {source.experiment_id}, not trained again"
        )
    yield from _label_lines("steps", f"{steps} in {result.seconds:.1f} s, {cost_words(result.usage)}")
    for line in second_model_lines([result]):
        yield from _label_lines("", line)
    metrics = result.run.metrics if result.run else {}
    yield from _label_lines(
        "at the end", ", ".join(f"{name} {number(value)}" for name, value in metrics.items())
    )
    if result.run and result.run.selected_checkpoint is not None:
        selected = result.run.selected_checkpoint
        yield from _label_lines("checkpoint", f"{selected.checkpoint}: {checkpoint_words(selected)}")
    for evaluation in result.evaluations:
        yield from _label_lines("scored", evaluation_line(evaluation))
    if result.run and result.run.stop_reason:
        yield from _label_lines("stopped", result.run.stop_reason)
    if result.failure is not None:
        failure = result.failure
        yield from _label_lines("failure", f"{failure.boundary}: {failure.placed}")
        yield from _label_lines("", failure.hint)
        if verbose and failure.traceback:
            yield failure.traceback.rstrip()
    for line in health_lines({result.run_id: result.health} if result.health else {}):
        yield from _label_lines("health", line)
    for warning in result.warnings:
        yield from _label_lines("warning", warning)


def _files(files: Iterable[RecordFile]) -> Iterator[str]:
    label = "files"
    for file in files:
        yield f"{label:<{_LABEL}} {file.path} {_size(file.bytes)}"
        label = ""


def _size(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def _label_lines(label: str, text: str | None) -> Iterator[str]:
    if text:
        yield f"{label:<{_LABEL}} {text}"

"""`conclusion.md` and the summary on the terminal: sentences made from the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

import attrs

from evsys.types import (
    ArmResult,
    Comparison,
    Conclusion,
    EvaluationResult,
    ExperimentResult,
    Look,
    LookSeries,
    NoiseFloor,
)
from evsys_record.marks import (
    HACKING_SUSPECTED,
    QUESTION_CHANGED,
    doubts_of,
    labels,
    reused_label,
    series_marks,
)
from evsys_record.text import list_names, status_words
from evsys_runtime.accounting.usage import cost_words
from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.experiment.verdict.confirmation import repeat_words
from evsys_runtime.experiment.verdict.endings import early_ends, request_lines
from evsys_runtime.experiment.verdict.forgetting_table import forgetting_lines
from evsys_runtime.experiment.verdict.health import health_lines
from evsys_runtime.experiment.verdict.second_models import second_model_lines
from evsys_runtime.experiment.verdict.selection import checkpoint_words, selection_lines
from evsys_runtime.experiment.verdict.tables import (
    breakdown_tables,
    markdown_table,
    number,
    score_tables,
    signed_text,
    stated_interval,
)

__all__ = [
    "comparison_sentence",
    "conclusion_markdown",
    "confirmed_line",
    "evaluation_line",
    "expected_line",
    "look_line",
    "look_words",
    "noise_line",
    "run_markdown",
    "tasks_words",
    "unflagged_line",
    "verdict_line",
]


def verdict_line(conclusion: Conclusion) -> str:
    """One line: the verdict and why, with its marks: a simulated model, suspected reward hacking, leaked tasks, doubts about graders and
    weights, a changed question, reused runs.
    """
    imitated, suspected = (conclusion.extra.get(name) for name in ("simulated_by", HACKING_SUSPECTED))
    mark = f" (a model simulated by {', '.join(imitated)})" if imitated else ""
    mark += f" (reward hacking suspected in {list_names(suspected)})" if suspected else ""
    leaked = conclusion.extra.get("leaked") if conclusion.verdict != "INVALID" else None
    mark += f" ({leaked:.0%} of the tasks were trained on)" if leaked else ""
    mark += "".join(f" ({label})" for label in labels(doubts_of(conclusion.extra)))
    mark += f" ({QUESTION_CHANGED})" if conclusion.question_changed else ""
    if conclusion.reused:
        mark += f" ({reused_label(dict.fromkeys(conclusion.reused.values()))})"
    return f"{conclusion.verdict or 'NO VERDICT'}{_subject(conclusion)}{mark}{_look(conclusion)}: {conclusion.reason}"


def _look(conclusion: Conclusion) -> str:
    """Which look at the question a verdict follows from, unless it is the only one, and what isn't corrected for."""
    series = conclusion.looks
    if series is None or not series.tested:
        return ""
    place = f"look {series.number} at this question, level {series.level:.2g} of {series.alpha:g}"
    remarks = [*([place] if series.number > 1 else []), *labels(series_marks(series))]
    return "".join(f" ({remark})" for remark in remarks)


def _subject(conclusion: Conclusion) -> str:
    """The subject of a decided verdict, in brackets."""
    if conclusion.verdict not in ("SUPPORTED", "REFUTED") or conclusion.subject is None:
        return ""
    return f" (this {conclusion.subject})"


def unflagged_line(conclusion: Conclusion) -> str | None:
    """The verdict without tasks among training rows, in one line; None where there are none."""
    rest = conclusion.without_flagged
    if rest is None:
        return None
    count = f"{len(rest.tasks)} task" + ("s" if len(rest.tasks) > 1 else "")
    line = f"without {count} of {rest.benchmark} found among the training rows: {rest.verdict}: {rest.reason}"
    effects = [f"{c.arm} {signed_text(c.effect)}" for c in rest.comparisons if c.effect is not None]
    return f"{line} (effect of {', '.join(effects)})" if effects else line


def look_line(series: LookSeries) -> str:
    """Which look at its question a conclusion is, the level that it could spend, and what the looks before it came to, in one line."""
    times = (
        ""
        if series.scorings == 1
        else f", shared by {series.scorings} scorings that could have been the last"
    )
    line = f"look {series.number} at this question, level {series.level:.2g} of {series.alpha:g}{times}"
    if not series.tested:
        return f"{line}; nothing was tested, so nothing is spent"
    return f"{line}; before it {', '.join(map(look_words, series.earlier))}" if series.earlier else line


def look_words(look: Look) -> str:
    """A look in a few words: the experiment, its verdict, the effect."""
    effect = "" if look.effect is None else f" {signed_text(look.effect)}"
    return f"{look.experiment_id} {look.verdict or 'not concluded'}{effect}"


def comparison_sentence(conclusion: Conclusion, comparison: Comparison) -> str:
    """One arm against the baseline in words."""
    head = f"{comparison.arm}: {conclusion.metric} {number(comparison.before)} -> {number(comparison.after)}"
    if comparison.effect is None:
        return f"{head}; {comparison.outcome}: {comparison.reason}"
    ends, confidence = stated_interval(comparison)
    together = " simultaneous" if comparison.correction is not None else ""
    interval = f"{confidence}{together} interval {ends}"
    p = comparison.p_value if comparison.p_corrected is None else comparison.p_corrected
    runs = f"{tasks_words(comparison)}, {comparison.reason}"
    return f"{head}, effect {signed_text(comparison.effect)} ({interval}, p = {p:.2g}, {comparison.method}, {runs}): {comparison.outcome}"


def tasks_words(comparison: Comparison) -> str:
    """How many tasks were compared and, if some belong together, in how many clusters they fall."""
    units = comparison.n_units
    of = "" if units is None or units >= comparison.n_tasks else f" in {units} clusters"
    return f"{comparison.n_tasks} tasks{of}"


def expected_line(conclusion: Conclusion) -> str | None:
    """The expected effect of the best of several winners in a new run; None unless it is an unconfirmed candidate."""
    won = [c for c in conclusion.comparisons if c.outcome == "win" and c.shrunken_effect is not None]
    if conclusion.verdict != "CANDIDATE" or conclusion.confirmed is not None or not won:
        return None
    best = max(won, key=lambda c: c.effect or 0.0)
    return (
        f"{best.arm} is the best of {len(conclusion.comparisons)} arms, so part of its effect of {signed_text(best.effect)} is luck: "
        f"expect {signed_text(best.shrunken_effect)} until it is confirmed"
    )


def confirmed_line(conclusion: Conclusion) -> str | None:
    """The outcome of the confirmation, in one line; None without one."""
    confirmed = conclusion.confirmed
    if confirmed is None:
        return None
    said = comparison_sentence(attrs.evolve(conclusion, metric=confirmed.metric), confirmed.comparison)
    arm, seeds, how = confirmed.comparison.arm, confirmed.seeds, repeat_words(confirmed.seeds)
    each = f" with {seeds} seed{'s' * (seeds != 1)}" if seeds else ""
    why = "" if confirmed.seeds_reason is None else f" ({confirmed.seeds_reason})"
    if conclusion.baseline == BASE_MODEL:
        return f"{arm} {how}{each}{why}, compared with untrained weights: {said}"
    return f"{arm} and {conclusion.baseline} {how}{f'{each} each' if each else ''}{why}: {said}"


def noise_line(noise: NoiseFloor) -> str:
    """How far equal runs fall apart, in one line."""
    of = "" if noise.experiment_id is None else f", of {noise.experiment_id},"
    return (
        f"Noise floor: {len(noise.runs)} equal runs of {noise.baseline}{of} fall up to {number(noise.largest)} apart on {noise.metric} "
        f"(standard deviation of a difference {number(noise.standard_deviation)})"
    )


def evaluation_line(evaluation: EvaluationResult) -> str:
    """One scoring in words."""
    where = evaluation.model or ("untrained" if evaluation.step == 0 else f"step {evaluation.step}")
    values = ", ".join(
        f"{name} {number(value.value)}" if value.reason is None else f"{name} failed ({value.reason})"
        for name, value in evaluation.metrics.items()
    )
    failure = f": {evaluation.failure.message}" if evaluation.failure else ""
    said = values if evaluation.status == "completed" else f"{evaluation.status}{failure}"
    return f"{evaluation.benchmark} ({evaluation.split}), {where}: {said}"


def run_markdown(arm: ArmResult) -> str:
    """A run's own conclusion.md: how it ended and what it scored; what follows from it is the experiment's to say."""
    lines = [
        f"# {arm.run_id}",
        "",
        f"Status {arm.status}, {arm.run.steps if arm.run else 0} steps, {arm.seconds:.1f} s.",
        "",
    ]
    if arm.reused is not None:
        lines += [f"Reused: it is {arm.reused.run_id} of {arm.reused.experiment_id}.", ""]
    if arm.failure is not None:
        lines += [f"{arm.failure.boundary}: {arm.failure.placed}", ""]
    if arm.run is not None and arm.run.stop_reason:
        lines += [f"Ended early: {arm.run.stop_reason}", ""]
    if arm.run is not None and arm.run.selected_checkpoint is not None:
        lines += [f"Selected checkpoint: {checkpoint_words(arm.run.selected_checkpoint)}.", ""]
    lines += _list([evaluation_line(evaluation) for evaluation in arm.evaluations])
    for table in breakdown_tables([arm]):
        lines += ["", *markdown_table(table)]
    lines += (
        ["", *_list([f"health: {line}" for line in health_lines({arm.run_id: arm.health})])]
        if arm.health
        else []
    )
    lines += ["", *_list([f"warning: {warning}" for warning in arm.warnings])] if arm.warnings else []
    return "\n".join(lines) + "\n"


def _list(lines: Sequence[str]) -> list[str]:
    return [f"- {line}" for line in lines]


def _head(result: ExperimentResult, conclusion: Conclusion, hypothesis: str | None) -> list[str]:
    """The verdict, which look at the question it is, and the hypothesis."""
    lines = [f"# {result.name}", "", f"**{verdict_line(conclusion)}**", ""]
    if conclusion.looks is not None:
        line = look_line(conclusion.looks)
        lines += [f"{line[0].upper()}{line[1:]}.", ""]
    if conclusion.reused:
        runs = [f"`{run_id}` of {source}" for run_id, source in conclusion.reused.items()]
        lines += [f"Reused from the record, not trained again: {', '.join(runs)}.", ""]
    return [*lines, f"Hypothesis: {hypothesis}", ""] if hypothesis else lines


def conclusion_markdown(
    result: ExperimentResult,
    conclusion: Conclusion,
    *,
    hypothesis: str | None,
    prose: str | None,
    plots: Sequence[str] = (),
) -> str:
    """The whole page; `prose` is what an `evsys_write_conclusion` listener wrote, placed under the numbers, and `plots` are
    pictures alongside the page.
    """
    warnings = [*conclusion.warnings, *(w for w in result.warnings if w not in conclusion.warnings)]
    links = (f"[{PurePosixPath(path).stem}]({path})" for path in plots)
    lines = [
        *_head(result, conclusion, hypothesis),
        *_comparison_lines(conclusion),
        *_selected_lines(conclusion),
        *(line for matrix in conclusion.forgetting for line in (*forgetting_lines(matrix), "")),
        *_table_lines(result, conclusion),
        *_section("Runs that ended early:", early_ends(result)),
        *_section("Requests from outside:", request_lines(conclusion)),
        *_section("Metrics that left the bands of healthy training:", list(health_lines(conclusion.health))),
        *_paragraph(conclusion.best_arm and f"Best arm by its own score: `{conclusion.best_arm}`."),
        *_paragraph(conclusion.settle and f"To settle it: {conclusion.settle}."),
        *_paragraph(prose and prose.strip()),
        *_paragraph(plots and f"Plots: {', '.join(links)}."),
        *_section("Warnings:", warnings),
        *_usage_lines(result, conclusion),
    ]
    return "\n".join(lines) + "\n"


def _paragraph(text: object) -> list[str]:
    return [str(text), ""] if text else []


def _section(title: str, entries: Sequence[str]) -> list[str]:
    return [title, "", *_list(entries), ""] if entries else []


def _comparison_lines(conclusion: Conclusion) -> list[str]:
    """The comparisons behind the verdict, and their weaknesses."""
    word = "higher" if conclusion.direction == "max" else "lower"
    expected, confirmed, floor = expected_line(conclusion), conclusion.confirmed, conclusion.noise_floor
    return [
        *_section(
            f"Each arm against `{conclusion.baseline}` on `{conclusion.metric}` ({word} is better):",
            [comparison_sentence(conclusion, each) for each in conclusion.comparisons],
        ),
        *_section(
            "For the trained models, not for another run of their recipes:",
            [comparison_sentence(conclusion, each) for each in conclusion.checkpoints],
        ),
        *_paragraph(expected and f"{expected}."),
        *_paragraph(confirmed and f"Confirmation runs, which decide: {confirmed_line(conclusion)}."),
        *_paragraph(floor and f"{noise_line(floor)}."),
        *_unflagged_lines(conclusion),
    ]


def _unflagged_lines(conclusion: Conclusion) -> list[str]:
    rest = conclusion.without_flagged
    if rest is None:
        return []
    metric = (conclusion.metric or "").rpartition(".")[2]
    of_rest = attrs.evolve(conclusion, metric=f"{rest.benchmark}.{metric}")
    sentences = [comparison_sentence(of_rest, each) for each in rest.comparisons]
    return [f"**{unflagged_line(conclusion)}**", "", *([*_list(sentences), ""] if sentences else [])]


def _selected_lines(conclusion: Conclusion) -> list[str]:
    lines = list(selection_lines(conclusion.selection))
    if not lines:
        return []
    first, *rest = lines
    return [f"Checkpoints: {first}.", "", *([*_list(rest), ""] if rest else [])]


def _table_lines(result: ExperimentResult, conclusion: Conclusion) -> list[str]:
    tables = (*score_tables(result.arms), *breakdown_tables(result.arms, conclusion.metric))
    return [line for table in tables for line in (*markdown_table(table), "")]


def _usage_lines(result: ExperimentResult, conclusion: Conclusion) -> list[str]:
    tokens = result.usage.prompt_tokens + result.usage.completion_tokens
    status, cost = status_words(result.status, result.failed), cost_words(result.usage)
    lines = [
        f"Status {status}; {result.usage.trained_tokens} tokens trained, {tokens} sampled, {cost}, {result.seconds:.1f} s.",
        *(f"{line[0].upper()}{line[1:]}." for line in second_model_lines(result.arms)),
    ]
    if (lost := conclusion.cut_off).tokens:
        used = f"{lost.tokens} tokens besides, {cost_words(lost)}"
        lines += ["", f"Work that was cut off and made again used {used}."]
    return lines

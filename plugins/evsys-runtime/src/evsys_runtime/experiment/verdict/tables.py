"""The numbers of an experiment as small tables: a line an arm and benchmark entry, its repeats taken together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from evsys.types import ArmResult, Comparison, Conclusion, EvaluationResult, MetricValue
from evsys_record import final_scoring, is_proof, mean_over_repeats, untrained_scoring

__all__ = [
    "Table",
    "breakdown_tables",
    "comparison_table",
    "confidence",
    "markdown_table",
    "number",
    "score_tables",
    "signed_text",
    "stated_interval",
]

UNTRAINED = "untrained"
ONCE_MORE = "once more"


@attrs.frozen(kw_only=True)
class Table:
    """Texts: a title, which is over the first column, the names of the others, and rows as long as all of them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def number(value: float | None) -> str:
    """A number in as few digits as are meaningful."""
    if value is None:
        return "n/a"
    if 0 < abs(value) < 0.01:
        return f"{value:.2g}"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.1f}" if abs(value) < 10_000 else f"{value:,.0f}"


def signed_text(value: float | None) -> str:
    """A difference, with its sign."""
    return number(value) if value is None or value < 0 else f"+{number(value)}"


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


@attrs.frozen(kw_only=True)
class _Line:
    """The subject of a line: an arm, or untrained weights; `scorings` are the completed evaluations."""

    label: str
    planned: int
    scorings: tuple[EvaluationResult, ...]

    @property
    def runs(self) -> str:
        """How many repeats are behind it; nothing for weights that no run made."""
        count = len(self.scorings)
        return (
            "" if not self.planned else str(count) if count == self.planned else f"{count} of {self.planned}"
        )

    def metric(self, name: str) -> MetricValue | None:
        """A metric over the repeats; None where none has it."""
        values = [scoring.metrics[name] for scoring in self.scorings if name in scoring.metrics]
        return mean_over_repeats(values) if values else None

    def part(self, key: str, label: str, metric: str) -> MetricValue | None:
        """The metric of a part of the benchmark, over the repeats."""
        found = [scoring.breakdown.get(key, {}).get(label, {}) for scoring in self.scorings]
        values = [part[metric] for part in found if metric in part]
        return mean_over_repeats(values) if values else None


def _entries(arms: Sequence[ArmResult]) -> dict[str, str]:
    """The benchmark entries with their splits, in the order in which they were scored."""
    scored = [e for arm in arms for e in arm.evaluations if e.model is None]
    return {e.benchmark: e.split for e in scored if not is_proof(e.benchmark)}


def _lines(
    arms: Sequence[ArmResult], benchmark: str, without: Mapping[str, int] | None = None
) -> list[_Line]:
    """The arms with their repeats, those `without` a result counted; before them the untrained weights, once where all arms have the same scores of them."""
    scored = {
        arm.purpose
        for arm in arms
        if any(e.benchmark == benchmark and e.model is None for e in arm.evaluations)
    }
    groups: dict[str, list[ArmResult]] = {}
    for arm in arms:
        if arm.purpose in scored:  # an entry may be kept for runs that confirm a winner
            groups.setdefault(_group(arm), []).append(arm)
    starts = [
        _line(f"{name}, {UNTRAINED}", group, untrained_scoring, benchmark) for name, group in groups.items()
    ]
    starts = [attrs.evolve(line, planned=0) for line in starts if line.scorings]
    if starts and all(_scores(line) == _scores(starts[0]) for line in starts[1:]):
        starts = [attrs.evolve(starts[0], label=UNTRAINED)]
    trained = [
        _line(name, group, final_scoring, benchmark)
        for name, group in groups.items()
        if not _sampled_alone(group, benchmark)
    ]
    trained = [
        attrs.evolve(line, planned=line.planned + (without or {}).get(line.label, 0)) for line in trained
    ]
    return [*starts, *trained, *_api_model_lines(arms, benchmark)]


def _sampled_alone(group: Sequence[ArmResult], benchmark: str) -> bool:
    """Control runs that sample untrained weights and train nothing, so that no trained score of theirs is missing."""
    return all(
        arm.purpose == "control"
        and arm.status == "completed"
        and untrained_scoring(arm, benchmark) is not None
        and final_scoring(arm, benchmark) is None
        for arm in group
    )


def _group(arm: ArmResult) -> str:
    """Whose repeat a run is: those that confirm a winner are apart from those that made it one, and stages from each other."""
    if arm.stage is not None:
        return f"{arm.arm}, after {arm.stage}"
    return f"{arm.arm}, {ONCE_MORE}" if arm.purpose == "confirm" else arm.arm


def _api_model_lines(arms: Sequence[ArmResult], benchmark: str) -> Iterator[_Line]:
    """The API models scored alongside the arms."""
    for arm in arms:
        for e in arm.evaluations:
            if e.benchmark == benchmark and e.model is not None:
                completed = (e,) if e.status == "completed" else ()
                yield _Line(label=e.model, planned=0, scorings=completed)


def _line(
    label: str,
    group: Sequence[ArmResult],
    scoring_of: Callable[[ArmResult, str], EvaluationResult | None],
    benchmark: str,
) -> _Line:
    found = [scoring_of(result, benchmark) for result in group]
    completed = tuple(e for e in found if e is not None and e.status == "completed")
    return _Line(label=label, planned=len(group), scorings=completed)


def _scores(line: _Line) -> dict[str, MetricValue | None]:
    names = [name for scoring in line.scorings for name in scoring.metrics]
    return {name: line.metric(name) for name in names}


def _cell(value: MetricValue | None, *, interval: bool = True) -> str:
    if value is None:
        return "not scored"
    if value.value is None or not interval or (value.low is None and value.high is None):
        return number(value.value)
    return f"{number(value.value)} [{number(value.low)}, {number(value.high)}]"


def score_tables(arms: Sequence[ArmResult], without: Mapping[str, int] | None = None) -> list[Table]:
    """A table a benchmark entry: a line an arm, a column a metric with its mean over repeats and 95 % interval.

    The number of runs behind a line is in the title, or, if they differ, in a column.

    Args:
        arms: the results.
        without: how many runs of an arm have no result, and are not part of `arms`.
    """
    tables = []
    for benchmark, split in _entries(arms).items():
        lines = _lines(arms, benchmark, without)
        metrics = list(dict.fromkeys(name for line in lines for s in line.scorings for name in s.metrics))
        runs = {line.runs for line in lines if line.planned}
        common = next(iter(runs)) if len(runs) == 1 else None
        title = f"{benchmark} ({split})" + (f", {common} runs" if common not in (None, "1") else "")
        counts = [(line.runs,) if common is None else () for line in lines]
        rows = [
            (line.label, *count, *(_cell(line.metric(name)) for name in metrics))
            for line, count in zip(lines, counts, strict=True)
        ]
        columns = (*(["runs"] if common is None else []), *metrics)
        tables.append(Table(title=title, columns=columns, rows=tuple(rows)))
    return tables


def breakdown_tables(arms: Sequence[ArmResult], success: str | None = None) -> list[Table]:
    """A table a benchmark entry and breakdown key: a line a label, a column an arm.

    Args:
        arms: all of them.
        success: `<benchmark>.<metric>` of the success metric; other entries are shown by their first metric.
    """
    tables = []
    for benchmark in _entries(arms):
        lines = [line for line in _lines(arms, benchmark) if line.scorings]
        parts: dict[str, dict[str, None]] = {}
        for scoring in (s for line in lines for s in line.scorings):
            for key, labels in scoring.breakdown.items():
                parts.setdefault(key, {}).update(dict.fromkeys(labels))
        for key, found in parts.items():
            metric = _metric_note(benchmark, lines, success)
            rows = [_part_row(lines, key, label, metric) for label in found]
            columns = ("tasks", *(line.label for line in lines))
            tables.append(Table(title=f"{benchmark} by {key}: {metric}", columns=columns, rows=tuple(rows)))
    return tables


def _metric_note(benchmark: str, lines: Sequence[_Line], success: str | None) -> str:
    metrics = list(lines[0].scorings[0].metrics)
    return next((name for name in metrics if f"{benchmark}.{name}" == success), metrics[0])


def _part_row(lines: Sequence[_Line], key: str, label: str, metric: str) -> tuple[str, ...]:
    values = [line.part(key, label, metric) for line in lines]
    tasks = max((value.n + value.excluded for value in values if value is not None), default=0)
    return (label, str(tasks), *(_cell(value, interval=False) for value in values))


def stated_interval(comparison: Comparison) -> tuple[str, str]:
    """The interval of an effect, `LOW to HIGH`, and its confidence."""
    return f"{number(comparison.low)} to {number(comparison.high)}", confidence(comparison)


def confidence(comparison: Comparison) -> str:
    """The confidence of an effect's interval; records that don't state its level have 95 %."""
    outside = 100 * (0.05 if comparison.level is None else comparison.level)
    # in 3 digits 99.976 % would be 100 %, which no interval has
    return f"{100 - outside:.3g} %" if outside > 0.05 else f"{100 - float(f'{outside:.2g}'):.9g} %"


def comparison_table(conclusion: Conclusion) -> Table:
    """Each arm against the baseline on the success metric."""
    stated = {c.arm: stated_interval(c) for c in conclusion.comparisons if c.effect is not None}
    rows = tuple(
        (
            c.arm,
            signed_text(c.effect),
            f"[{stated[c.arm][0].replace(' to ', ', ')}]" if c.arm in stated else "",
            "" if c.p_corrected is None else f"{c.p_corrected:.2g}",
            c.outcome,
        )
        for c in conclusion.comparisons
    )
    title = f"against {conclusion.baseline}"
    at = next((at for _, at in stated.values()), "95 %")
    return Table(title=title, columns=("effect", f"{at} interval", "p", "outcome"), rows=rows)


def markdown_table(table: Table) -> list[str]:
    """The lines of a table in Markdown."""
    rows = [(table.title, *table.columns), *table.rows]
    lines = ["| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in rows]
    return [lines[0], "|" + " --- |" * (len(table.columns) + 1), *lines[1:]]

"""`evsys traces`: logs of deployed models to rows, and rollouts to spans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evsys_runtime import echo, json_option, print_json, records_folder, records_option

if TYPE_CHECKING:
    from evsys_traces.importing import ImportReport

__all__ = ["traces"]

_TOLD_EVERY = 100_000
_FORMATS = ("openai", "otlp", "openinference", "langfuse")
_force_option = click.option("--force", is_flag=True, help="Replace files that exist.")


@click.group()
def traces() -> None:
    """Turn logs of deployed models into rows, and rollouts into spans."""


@traces.command("import")
@click.argument(
    "sources", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="SOURCE..."
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("traces.jsonl"),
    show_default=True,
    help="File of the rows.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(_FORMATS),
    help="Read only records of this format.  [default: recognised record by record]",
)
@click.option(
    "--redact",
    "redaction",
    default="redact",
    show_default=True,
    metavar="TRANSFORM",
    help="Transform that takes personal data out, as a name or as JSON {kind, params}.",
)
@click.option("--no-redact", is_flag=True, help="Keep personal data and secrets.")
@_force_option
@json_option
def import_(
    *,
    sources: tuple[Path, ...],
    out: Path,
    format_: str | None,
    redaction: str,
    no_redact: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Write the conversations of logs as rows.

    Each appears once, in its last state. SOURCE is a file of JSON Lines, a JSON array, or a folder of these: OpenAI chat logs, the request log of `evsys serve`,
    OTLP/JSON with the GenAI conventions or OpenInference's, exports of Langfuse. What is left out is counted by reason.
    """
    from evsys_traces.importing import ImportReport, files_of, import_traces
    from evsys_traces.project import write_rows

    report = ImportReport()
    _refuse_existing([out], force=force)
    rows = import_traces(files_of(sources), report, format=format_, progress=_progress)
    if not no_redact:
        rows = _redacted(rows, redaction, report)
    write_rows(out, rows)
    if as_json:
        print_json(_report_tree(report, out))
        return
    for line in _report_lines(report, out):
        echo(line)


@traces.command()
@click.argument("source", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="TRACES")
@click.argument("name")
@click.option(
    "--test-share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.2,
    show_default=True,
    help="Share of the conversations, the latest ones, that become tasks.",
)
@click.option("--after", metavar="TIME", help="Time after which they do instead, in ISO 8601.")
@click.option(
    "--good",
    type=float,
    default=0.5,
    show_default=True,
    help="Mean score of its feedback from which an answer counts as right.",
)
@click.option("--judged-only", is_flag=True, help="Leave out conversations without feedback.")
@click.option(
    "--verifier",
    default="exact_match",
    show_default=True,
    metavar="NAME",
    help="Verifier of the tasks; it expects the answer on record.",
)
@click.option("--params", metavar="JSON", help="Params of the verifier.")
@click.option(
    "--split",
    type=click.Choice(["val", "test"]),
    default="val",
    show_default=True,
    help="Whether the tasks steer decisions (data/validation) or are the final test (data/benchmark).",
)
@json_option
def tasks(
    *,
    source: Path,
    name: str,
    test_share: float,
    after: str | None,
    good: float,
    judged_only: bool,
    verifier: str,
    params: str | None,
    split: str,
    as_json: bool,
) -> None:
    """Make a dataset and a benchmark of conversations.

    Rows of the time before train, those of the time after test. A training row that asks nearly the same as a task is left out
    and counted. Repeating the command with new traces makes the next version of both.
    """
    from evsys_runtime.commands import json_or_text
    from evsys_traces.project import write_version
    from evsys_traces.tasks import Selection, SplitReport
    from evsys_traces.trace import moment

    begin = None if after is None else moment(after)
    if after is not None and begin is None:
        raise click.BadParameter(f"{after!r} is not a time such as 2026-11-30T12:00", param_hint="'--after'")
    settings = {} if params is None else json_or_text(params)
    if not isinstance(settings, Mapping):
        raise click.BadParameter("expected a JSON object", param_hint="'--params'")
    selection = Selection(
        test_share=test_share,
        after=begin,
        good=good,
        unjudged=not judged_only,
        verifier=verifier,
        params=settings,
    )
    report = SplitReport()
    made = write_version(source, name, split, selection, report)
    if as_json:
        import attrs

        print_json({**made, **attrs.asdict(report)})
        return
    echo(f"{report.rows:,} training rows: {made['dataset']}")
    echo(f"{report.tasks:,} tasks: {made['benchmark']}")
    for reason, count in report.left_out.most_common():
        echo(f"  left out {count:,}: {reason}")


@traces.command()
@click.argument("run", metavar="EXPERIMENT/RUN")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("spans.jsonl"),
    show_default=True,
    help="File of the spans.",
)
@click.option(
    "--phase",
    type=click.Choice(["training", "validation", "test"]),
    default="validation",
    show_default=True,
    help="Which rollouts.",
)
@records_option
@_force_option
@json_option
def export(*, run: str, out: Path, phase: str, records: Path | None, force: bool, as_json: bool) -> None:
    """Write the rollouts of EXPERIMENT/RUN as spans.

    They are OTLP/JSON by the GenAI conventions, a trace a line. Send them to a collector, or open them in Phoenix or Langfuse.
    """
    from evsys_record import find_experiment
    from evsys_traces.export import span_documents
    from evsys_traces.project import write_rows

    named, _, run_id = run.partition("/")
    if not run_id:
        raise click.BadParameter(f"{run!r} names no run", param_hint="'EXPERIMENT/RUN'")
    _refuse_existing([out], force=force)
    experiment = find_experiment(named, records_folder(records), tell=lambda line: echo(line, err=True))
    rollouts = write_rows(out, span_documents(experiment.run(run_id), experiment.id, phase))
    if as_json:
        print_json({"file": str(out), "rollouts": rollouts})
    else:
        echo(f"{rollouts:,} rollouts: {out}")


def _progress(records: int) -> None:
    if records % _TOLD_EVERY == 0:
        echo(f"{records:,} records read", err=True)


def _redacted(rows: Iterable[dict[str, Any]], named: str, report: ImportReport) -> Iterator[dict[str, Any]]:
    from evsys import current_registry
    from evsys_runtime.commands import json_or_text

    given = json_or_text(named)
    chosen: Mapping[str, Any] = given if isinstance(given, Mapping) else {"kind": named}
    params: Mapping[str, Any] = chosen.get("params") or {}
    transform = current_registry().build("transform", str(chosen.get("kind")), params)
    yield from transform(rows)
    report.redacted = Counter(getattr(transform, "replaced", {}))


def _refuse_existing(paths: Iterable[Path], *, force: bool) -> None:
    for path in paths:
        if path.exists() and not force:
            raise click.UsageError(f"{path} already exists; --force replaces it")


def _report_tree(report: ImportReport, out: Path) -> dict[str, Any]:
    import attrs

    return {"file": str(out), **attrs.asdict(report)}


def _report_lines(report: ImportReport, out: Path) -> Iterator[str]:
    formats = ", ".join(f"{name} {count:,}" for name, count in report.formats.most_common())
    yield f"{report.rows:,} conversations from {report.records:,} records ({formats or 'no known format'}): {out}"
    for reason, count in report.left_out.most_common():
        place = f" (first: {report.examples[reason]})" if reason in report.examples else ""
        yield f"  left out {count:,}: {reason}{place}"
    if report.feedback or report.feedback_unmatched:
        yield f"  feedback {report.feedback:,} joined, {report.feedback_unmatched:,} on calls that aren't in the log"
    found = {kind: count for kind, count in report.redacted.items() if count}
    if found:
        yield "  redacted " + ", ".join(f"{count:,} of {kind}" for kind, count in found.items())

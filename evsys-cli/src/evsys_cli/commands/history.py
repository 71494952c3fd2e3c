"""`evsys history`: past experiments and their outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evsys_cli.output import for_terminal
from evsys_cli.records import lab_of
from evsys_runtime import (
    central_option,
    central_store,
    echo,
    json_option,
    print_json,
    records_option,
)

if TYPE_CHECKING:
    from evsys_record import History, Question
    from evsys_runtime import CentralStore

__all__ = ["history"]

LIMIT = 50
LIMIT_NEAR = 10


@click.command()
@click.option(
    "--status", "statuses", multiple=True, help="Status: completed, partial, failed, crashed, running, ..."
)
@click.option(
    "--outcome",
    "outcomes",
    multiple=True,
    help="Verdict (supported, refuted, ...), or outcome of an arm (win, tie, loss, ...).",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    help="Only experiments with this tag; repeat for several tags, all required.",
)
@click.option(
    "--algorithm", "algorithms", multiple=True, help="Algorithm, in full or in part; * matches anything."
)
@click.option(
    "--model", "models", multiple=True, help="Base model, with or without its owner; * matches anything."
)
@click.option("--since", help="Started after this date or time (UTC), or within the last 30m, 12h, 7d, 2w.")
@click.option(
    "--text", "words", help="Words, or prefixes of words, that must all occur in the record's text."
)
@click.option("--parent", metavar="EXPERIMENT", help="Only children of this experiment.")
@click.option("--runs", is_flag=True, help="List runs instead of experiments.")
@click.option(
    "--near",
    type=click.Path(path_type=Path, readable=False),
    metavar="CONFIG",
    help="List experiments with arms similar to those of this file, the nearest first, with the differences.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help=f"Maximum number of results; 0 for no limit.  [default: {LIMIT}, with --near {LIMIT_NEAR}]",
)
@click.option(
    "--sort", help="Sort by started, finished, name, status, score, effect, ...  [default: started]"
)
@click.option("--reverse", is_flag=True, help="Reverse the sort order.")
@records_option
@central_option
@json_option
def history(
    *,
    parent: str | None,
    near: Path | None,
    records: Path | None,
    central: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """List past experiments, the newest first, with their verdicts and the effect of their best arm.

    With --near, lists experiments with an arm similar to one of CONFIG: those with the same model, data and algorithm first, then by the number of differences. Repeat an option to match any of its values. Dry runs are not listed. See `evsys show EXPERIMENT` for the details of one.
    """
    from evsys_record import Question, result_tree
    from evsys_runtime.tools.reading import history as find_history

    if near is not None and (options["runs"] or options["sort"] or options["reverse"]):
        raise click.UsageError("--near lists experiments, the nearest first: no --runs, --sort, --reverse.")
    given = _question_from(**options, most=LIMIT if near is None else LIMIT_NEAR)
    question = Question(**given)

    def find(question: Question, parent: str | None = None, near: Path | None = None) -> History:
        if central:
            return _ask_server(central_store(records), question, parent, near)
        return find_history(lab_of(records), question, parent=parent, near=near)

    found = find(question, parent, near)
    if as_json:
        print_json(result_tree(found))
    elif found.total or found.evaluations:
        from evsys_cli.history_tables import history_lines

        echo(for_terminal(history_lines(found)))
    else:
        _print_none(found, find(Question(runs=question.runs, limit=1)).total, runs=question.runs)


def _ask_server(store: CentralStore, question: Question, parent: str | None, near: Path | None) -> History:
    """The answer of a team's server, which lists so many at most."""
    from evsys_record import History

    given = {
        "status": question.statuses,
        "outcome": question.outcomes,
        "tag": question.tags,
        "algorithm": question.algorithms,
        "model": question.models,
        "since": question.since,
        "text": question.words,
        "parent": parent,
        "runs": question.runs,
        "limit": question.limit or 0,
        "sort": question.sort,
        "reverse": question.reverse,
    }
    if near is None:
        found = store.ask(History, "history", given)
    else:
        from evsys_runtime.config.validate import load_experiment
        from evsys_runtime.experiment.state.plan_secrets import refuse_secrets
        from evsys_runtime.experiment.state.resolved_tree import planned_leaves

        plan = load_experiment(near, records=False)
        refuse_secrets(plan)
        found = store.ask(History, "near", body={**given, "arms": planned_leaves(plan)})
    listed = max(len(each) for each in (found.experiments, found.runs, found.near))
    if question.limit is None and listed < found.total:
        echo(f"the server lists the first {listed} of {found.total}", err=True)
    return found


def _question_from(
    *, since: str | None, limit: int | None, sort: str | None, most: int, **given: Any
) -> dict[str, Any]:
    """Build a question from the options; an unknown word is refused with a list of the known ones."""
    from evsys_record import moment_of
    from evsys_record.history import OUTCOMES, SORTS
    from evsys_record.past import RUN_STATUSES

    _choice("--status", given["statuses"], RUN_STATUSES)
    _choice("--outcome", [outcome.lower() for outcome in given["outcomes"]], OUTCOMES)
    _choice("--sort", [] if sort is None else [sort], SORTS)
    moment = None if since is None else moment_of(since)
    return {
        **given,
        "since": moment,
        "sort": sort or "started",
        "limit": most if limit is None else limit or None,
    }


def _choice(option: str, values: Sequence[str], known: Sequence[str]) -> None:
    unknown = next((value for value in values if value not in known), None)
    if unknown is not None:
        raise click.BadParameter(f"{unknown!r} is not one of {', '.join(known)}", param_hint=f"'{option}'")


def _print_none(found: History, there: int, *, runs: bool) -> None:
    """Say that nothing matches, of so many `there`."""
    what = "run" if runs else "experiment"
    echo(
        f"No {what} on record in {found.records}; use --records for another project."
        if not there
        else f"None of {there} {what}{'s' * (there != 1)} match{'es' * (there == 1)}."
    )

"""Questions to the index: which experiments, or runs, and in which order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

import attrs

from evsys.errors import ConfigError
from evsys.types.evidence import Look, Settling, SettlingPoint
from evsys.types.results import Comparison, Outcome, Verdict
from evsys.types.rollouts import Usage
from evsys_record.citations import resting_on_retracted
from evsys_record.index import Index
from evsys_record.index_tables import full_text
from evsys_record.looks import Ledger
from evsys_record.marks import marks_of
from evsys_record.past import History, LookPlace, Mark, PastExperiment, PastRun, Reindexed, Unreadable

__all__ = [
    "OUTCOMES",
    "SORTS",
    "Around",
    "Question",
    "around",
    "ask",
    "find_experiments",
    "indexed_now",
    "moment_of",
    "past_experiment",
    "runs_of",
]

OUTCOMES = tuple(dict.fromkeys(word.lower() for word in (*get_args(Verdict), *get_args(Outcome))))
"""Verdicts of experiments and outcomes of arms."""

type Sort = Literal["started", "finished", "name", "status", "score", "effect", "cost", "tokens", "seconds"]
SORTS: tuple[str, ...] = get_args(Sort.__value__)
"""The sort orders of history: the newest, the largest first; `name` and `status` from A to Z."""

_ALPHABETICAL = frozenset({"name", "status"})
_RUN_STATUS = (
    "CASE WHEN r.state NOT IN ('started', 'planned') THEN r.state "
    "WHEN e.status = 'running' THEN CASE r.state WHEN 'started' THEN 'running' ELSE 'waiting' END "
    "WHEN r.state = 'started' THEN 'crashed' ELSE 'skipped' END"
)
_COUNTS = (
    "(SELECT count(*) FROM run r WHERE r.experiment = e.id), "
    "(SELECT count(*) FROM run r WHERE r.experiment = e.id AND r.state IN ('completed', 'stopped'))"
)
_LISTS = (
    "tags",
    "algorithms",
    "models",
    "backends",
    "superseded",
    "cites",
    "failed",
    "simulated_by",
    "question_changed",
    "hacking_suspected",
)
_AGO = re.compile(r"(\d+(?:\.\d+)?)([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@attrs.frozen(kw_only=True)
class Question:
    """The filters of a query: an experiment must match all given filters, any of several values of one, but every
    tag.

    Args:
        statuses: of the experiments, or of the runs where `runs` are asked for.
        outcomes: verdicts of the experiment or outcomes of its arms.
        tags: it has them all.
        algorithms: names, in full or without the distribution; `*` represents anything.
        models: likewise, in full or the part after the last `/`.
        since: a moment that `moment_of` made.
        words: each is the beginning of a word in the record's text (`like`: a part of it).
        parent: id of the experiment whose children to list.
        runs: list runs instead of experiments.
        limit: the listed most; None lists all.
        sort: one of `SORTS`.
        reverse: reverse the order.
    """

    statuses: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    since: str | None = None
    words: str | None = None
    parent: str | None = None
    runs: bool = False
    limit: int | None = None
    sort: Sort = "started"
    reverse: bool = False


def moment_of(text: str, *, now: datetime | None = None) -> str:
    """A moment as records write it, UTC, from `30m`, `12h`, `7d`, `2w` ago, a date or an ISO time; UTC unless it says otherwise.

    Raises:
        ConfigError: it is none of these.
    """
    now = now or datetime.now(UTC)
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago is not None:
            moment = now - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
        else:
            moment = datetime.fromisoformat(text.strip())
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        raise ConfigError(
            f"{text!r} is not a valid time", hint="write 30m, 12h, 7d, 2w, or 2026-11-28"
        ) from exc
    return moment.strftime("%Y-%m-%dT%H:%M:%S")


def ask(index: Index, question: Question) -> History:
    """The matching experiments of the index; dry runs aren't part of history."""
    conditions, values = _conditions(question)
    where = " AND ".join(conditions)
    source = "run r JOIN experiment e ON e.id = r.experiment" if question.runs else "experiment e"
    (total,) = index.rows(f"SELECT count(*) FROM {source} WHERE {where}", values)[0]  # noqa: S608 - values are bound
    columns = f"r.document, {_RUN_STATUS}" if question.runs else f"e.document, e.status, {_COUNTS}"
    query = f"SELECT {columns} FROM {source} WHERE {where} ORDER BY {_order(question)} LIMIT ?"  # noqa: S608
    found = index.rows(query, (*values, -1 if question.limit is None else question.limit))
    known = Around() if question.runs else around(index)
    return History(
        records=str(index.experiments),
        index=str(index.path) if index.kept else None,
        full_text=full_text(),
        total=total,
        experiments=() if question.runs else tuple(_experiment(known, *row) for row in found),
        runs=tuple(_run(*row) for row in found) if question.runs else (),
    )


def find_experiments(index: Index, question: Question) -> list[tuple[int, str]]:
    """The experiments asked for, however many, by their numbers in the index and their ids."""
    conditions, values = _conditions(question)
    query = f"SELECT e.id, e.folder FROM experiment e WHERE {' AND '.join(conditions)} ORDER BY {_order(question)}"  # noqa: S608
    return [(int(number), str(folder)) for number, folder in index.rows(query, values)]


def indexed_now(index: Index, *, seconds: float) -> Reindexed:
    """The counts of an index that took `seconds` to make."""
    everything = ask(index, Question(statuses=("unreadable",)))
    runs = ask(index, Question(statuses=("unreadable",), runs=True))
    ((dry,),) = index.rows("SELECT count(*) FROM experiment WHERE dry")
    found = [(each.experiment_id, None, each.problem) for each in everything.experiments]
    of_runs = [(each.experiment_id, each.run_id, each.problem) for each in runs.runs]
    return Reindexed(
        records=str(index.experiments),
        index=str(index.path) if index.kept else None,
        full_text=full_text(),
        experiments=ask(index, Question(limit=0)).total,
        runs=ask(index, Question(runs=True, limit=0)).total,
        dry=dry,
        seconds=seconds,
        unreadable=tuple(
            Unreadable(experiment_id=experiment, run_id=run, problem=problem or "")
            for experiment, run, problem in (*found, *of_runs)
        ),
    )


@attrs.frozen(kw_only=True)
class Around:
    """The facts about each experiment from outside its folder: the retracted ones that it rests on, its place among
    the looks at its question, and its verdict in the ledger of looks, None for a look that tested nothing.
    """

    resting: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    looks: Mapping[str, LookPlace] = attrs.field(factory=dict)
    concluded: Mapping[str, Look | None] = attrs.field(factory=dict)


def around(index: Index) -> Around:
    """The `Around` of all experiments of an index."""
    ledger = Ledger.of(index)
    return Around(resting=resting_on_retracted(index), looks=ledger.places(), concluded=ledger.concluded)


def past_experiment(index: Index, experiment_id: str, known: Around | None = None) -> PastExperiment | None:
    """One experiment, a dry run or not; None where there is none of this id.

    Args:
        index: of the experiments on record, as of now.
        experiment_id: its id.
        known: what follows from the other experiments, if that was read before.
    """
    query = f"SELECT e.document, e.status, {_COUNTS} FROM experiment e WHERE e.folder = ?"  # noqa: S608
    found = index.rows(query, (experiment_id,))
    if not found:
        return None
    return _experiment(around(index) if known is None else known, *found[0])


def runs_of(index: Index, experiment_id: str) -> tuple[PastRun, ...]:
    """The runs of an experiment, by name."""
    query = (
        f"SELECT r.document, {_RUN_STATUS} FROM run r JOIN experiment e ON e.id = r.experiment "  # noqa: S608
        "WHERE e.folder = ? ORDER BY r.run_id"
    )
    return tuple(_run(*row) for row in index.rows(query, (experiment_id,)))


def _conditions(question: Question) -> tuple[list[str], list[Any]]:
    conditions: list[str] = ["NOT e.dry"]
    values: list[Any] = []
    for condition, value in _where_clauses(question):
        conditions.append(condition)
        values += value
    return conditions, values


def _where_clauses(question: Question) -> Iterator[tuple[str, list[Any]]]:
    if question.statuses:
        status = _RUN_STATUS if question.runs else "e.status"
        yield f"{status} IN ({_places(question.statuses)})", list(question.statuses)
    if question.outcomes:
        yield _label_condition("outcome", [outcome.lower() for outcome in question.outcomes])
    for tag in question.tags:
        yield _label_condition("tag", [tag])
    for kind, names in (("algorithm", question.algorithms), ("model", question.models)):
        if names:
            yield _of_run(kind, names) if question.runs else _label_condition(kind, names)
    if question.since is not None:
        yield "e.moment >= ?", [question.since]
    if question.parent is not None:
        yield "e.parent = ?", [question.parent]
    if question.words is not None:
        yield _text_condition(question.words)


def _label_condition(kind: str, names: list[str] | tuple[str, ...]) -> tuple[str, list[Any]]:
    any_of = " OR ".join(_matches("l.value", name) for name in names)
    return (
        f"e.id IN (SELECT l.experiment FROM label l WHERE l.kind = ? AND ({any_of}))",  # noqa: S608 - a condition of ours
        [kind, *names],
    )


def _of_run(column: str, names: tuple[str, ...]) -> tuple[str, list[Any]]:
    """A name of the run itself, in full or what follows its last `/`."""
    whole = " OR ".join(_matches(f"r.{column}", name) for name in names)
    last = " OR ".join(f"r.{column} GLOB ?" for _ in names)
    return f"({whole} OR {last})", [*names, *(f"*/{_escaped(name)}" for name in names)]


def _matches(column: str, name: str) -> str:
    return f"{column} GLOB ?" if "*" in name else f"{column} = ?"


def _escaped(name: str) -> str:
    return re.sub(r"([\[?])", r"[\1]", name)


def _text_condition(words: str) -> tuple[str, list[Any]]:
    """Every word must be there. The user's words are quoted, so that no sign in them has a meaning."""
    each = [word for word in words.split() if any(char.isalnum() for char in word)]
    if not each:
        raise ConfigError(f"{words!r} contains no word to search for", hint="write letters or digits")
    if full_text() == "fts5":
        quoted = " ".join('"{}"*'.format(word.replace('"', '""')) for word in each)
        return "e.id IN (SELECT rowid FROM said WHERE said MATCH ?)", [quoted]
    parts = " AND ".join(r"words LIKE ? ESCAPE '\'" for _ in each)
    return (
        f"e.id IN (SELECT rowid FROM said WHERE {parts})",  # noqa: S608 - a condition of ours
        [f"%{re.sub(r'([%_\\])', r'\\\1', word)}%" for word in each],
    )


def _order(question: Question) -> str:
    """Unknown values last, in either order; then the newest first."""
    whose = "r" if question.runs else "e"
    columns: Mapping[str, str] = {
        "started": "e.moment",
        "finished": "e.finished",
        "name": "r.run_id" if question.runs else "e.name",
        "status": _RUN_STATUS if question.runs else "e.status",
        "effect": "e.effect",
    }
    column = columns.get(question.sort, f"{whose}.{question.sort}")
    way = "ASC" if (question.sort in _ALPHABETICAL) != question.reverse else "DESC"
    then = "ASC" if question.sort == "started" and question.reverse else "DESC"
    last = ", r.run_id" if question.runs else ""
    return f"{column} IS NULL, {column} {way}, e.moment {then}, e.folder {then}{last}"


def _places(values: tuple[str, ...]) -> str:
    return ", ".join("?" * len(values))


def _experiment(known: Around, document: str, status: str, runs: int, completed: int) -> PastExperiment:
    tree = json.loads(document)
    lists = {name: tuple(tree[name]) for name in _LISTS}
    changed = {
        **lists,
        "comparisons": tuple(Comparison(**each) for each in tree["comparisons"]),
        "doubts": tuple(Mark(**each) for each in tree["doubts"]),
        "confirmed": None if tree["confirmed"] is None else Comparison(**tree["confirmed"]),
        "settling": None if tree["settling"] is None else Settling(**tree["settling"]),
        "settling_curve": tuple(SettlingPoint(**each) for each in tree["settling_curve"]),
        "usage": _usage(tree["usage"]),
        "rests_on": known.resting.get(tree["experiment_id"], ()),
        "look": known.looks.get(tree["experiment_id"]),
        "edited": tree["edited"] or _is_disputed(known, tree),
    }
    counted = {"status": status, "runs": runs, "runs_completed": completed, "marks": ()}
    past = PastExperiment(**{**tree, **changed, **counted})
    return attrs.evolve(past, marks=marks_of(past))


def _is_disputed(known: Around, tree: Mapping[str, Any]) -> bool:
    """Whether a verdict that claims something doesn't follow from the stored effects, or the ledger of looks has another one.

    The hash of a conclusion can be edited along with it.
    """
    experiment, verdict = tree["experiment_id"], tree["verdict"]
    if verdict not in ("SUPPORTED", "CANDIDATE"):
        return False
    compared = [tree["confirmed"]] if tree["confirmed"] else tree["comparisons"]
    won = tree["claim"] != "better" or all(each["outcome"] == "win" for each in compared)
    if verdict == "SUPPORTED" and not (won and all(map(_can_support, compared))):
        return True
    if experiment not in known.concluded:
        return False
    look = known.concluded[experiment]
    if look is None or look.verdict != verdict:
        return True
    own = next((each for each in compared if each["arm"] == look.arm), None)
    return own is None or own["effect"] != look.effect


def _can_support(comparison: Mapping[str, Any]) -> bool:
    """Whether a comparison has the numbers of a supported claim: an effect within its interval, with an outcome and a margin that go with it."""
    effect, low, high = (comparison[name] for name in ("effect", "low", "high"))
    if effect is None or comparison["p_value"] is None:
        return False
    inside = low is None or high is None or low <= effect <= high
    return bool(inside and (effect > 0 or comparison["outcome"] != "win"))


def _run(document: str, status: str) -> PastRun:
    tree = json.loads(document)
    return PastRun(**{**tree, "usage": _usage(tree["usage"]), "status": status})


def _usage(tree: dict[str, Any] | None) -> Usage | None:
    return None if tree is None else Usage(**tree)

"""Lists of experiments: found by their labels and words, in any order, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import attrs
import sqlalchemy as sa

from evsys_dashboard.store.database import clean
from evsys_dashboard.store.tables import experiment, label, project, run

__all__ = ["ExperimentsQuestion", "facets", "find_experiments"]

type Order = Literal["newest", "oldest", "effect", "cost", "name", "changed"]

_KINDS = ("tag", "goal", "plugin", "model")
_LAST = {
    "newest": (experiment.c.moment.desc(),),
    "oldest": (experiment.c.moment.asc(),),
    "effect": (experiment.c.effect.is_(None), experiment.c.effect.desc()),
    "cost": (experiment.c.cost.is_(None), experiment.c.cost.desc()),
    "name": (experiment.c.title.asc(),),
    "changed": (experiment.c.version.desc(),),
}


@attrs.frozen(kw_only=True)
class ExperimentsQuestion:
    """A question for experiments, which match if they satisfy every condition and have every tag.

    Args:
        text: each of its words occurs in what the record says.
        verdict: `none` finds those without one.
        after: only those changed after this version of the project.
    """

    text: str | None = None
    verdict: str | None = None
    status: str | None = None
    tag: tuple[str, ...] = ()
    goal: str | None = None
    plugin: str | None = None
    model: str | None = None
    parent: str | None = None
    dry: bool = False
    after: int | None = None
    sort: Order = "newest"
    limit: int = attrs.field(default=200, validator=[attrs.validators.ge(0), attrs.validators.le(10_000)])
    offset: int = attrs.field(default=0, validator=attrs.validators.ge(0))


def find_experiments(
    connection: sa.Connection, project_name: str, question: ExperimentsQuestion
) -> tuple[int, Sequence[sa.RowMapping]]:
    """How many there are, and the rows of the requested page, with `runs_completed`."""
    conditions = [project.c.name == project_name, experiment.c.document.is_not(None), *_conditions(question)]
    source = experiment.join(project, project.c.id == experiment.c.project_id)
    total = connection.execute(sa.select(sa.func.count()).select_from(source).where(*conditions)).scalar_one()
    completed = (
        sa.select(sa.func.count())
        .select_from(run)
        .where(run.c.experiment_id == experiment.c.id, run.c.status == "completed")
        .scalar_subquery()
        .label("runs_completed")
    )
    columns = (
        *(experiment.c[name] for name in ("id", "name", "version", "seen", "status", "document")),
        completed,
    )
    query = (
        sa.select(*columns)
        .select_from(source)
        .where(*conditions)
        .order_by(*_LAST[question.sort], experiment.c.moment.desc(), experiment.c.name.desc())
        .limit(question.limit)
        .offset(question.offset)
    )
    return total, connection.execute(query).mappings().all()


def facets(connection: sa.Connection, project_name: str) -> dict[str, tuple[str, ...]]:
    """The values that experiments of a project have, by what they can be filtered by."""
    of_project = project.c.name == project_name
    source = experiment.join(project, project.c.id == experiment.c.project_id)
    found: dict[str, tuple[str, ...]] = {}
    for name in ("verdict", "status"):
        query = sa.select(experiment.c[name]).select_from(source).where(of_project).distinct()
        found[name] = tuple(sorted(filter(None, connection.execute(query).scalars())))
    query = (
        sa.select(label.c.kind, label.c.value)
        .select_from(source.join(label, label.c.experiment_id == experiment.c.id))
        .where(of_project)
        .distinct()
    )
    by_kind: dict[str, list[str]] = {kind: [] for kind in _KINDS}
    for kind, value in connection.execute(query):
        by_kind.setdefault(kind, []).append(value)
    return {**found, **{kind: tuple(sorted(values)) for kind, values in by_kind.items()}}


def _conditions(question: ExperimentsQuestion) -> Iterator[sa.ColumnElement[bool]]:
    if not question.dry:
        yield sa.not_(experiment.c.dry)
    for word in clean(question.text or "").lower().split():
        yield experiment.c.words.contains(word, autoescape=True)
    if question.verdict is not None:
        wanted = None if question.verdict == "none" else clean(question.verdict)
        yield experiment.c.verdict.is_(None) if wanted is None else experiment.c.verdict == wanted
    for column, value in (("status", question.status), ("parent", question.parent)):
        if value is not None:
            yield experiment.c[column] == clean(value)
    if question.after is not None:
        yield experiment.c.version > question.after
    labels = [("tag", tag) for tag in question.tag]
    labels += [(kind, value) for kind in _KINDS if kind != "tag" and (value := getattr(question, kind))]
    for kind, value in labels:
        matching = sa.select(label.c.experiment_id).where(label.c.kind == kind, _is(kind, clean(value)))
        yield experiment.c.id.in_(matching)


def _is(kind: str, value: str) -> sa.ColumnElement[bool]:
    """A plugin or model may be named without what precedes its last `/`."""
    if kind in {"plugin", "model"}:
        return (label.c.value == value) | label.c.value.endswith(f"/{value}", autoescape=True)
    return label.c.value == value

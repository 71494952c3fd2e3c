"""The budget of a project: what its experiments together may use, reserved by each before it starts.

What ended experiments used is read from their records; one that runs has reserved its whole limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import ConfigError
from evsys.types import Usage
from evsys_record import PastExperiment, Question, ask
from evsys_record.files import read_json, shared_file
from evsys_record.history import runs_of
from evsys_record.index import Index
from evsys_record.lock import waiting_lock
from evsys_runtime.config.model import BudgetConfig
from evsys_runtime.config.plan import Plan
from evsys_runtime.config.settings import ProjectBudget, project_settings
from evsys_runtime.experiment.budget.budget import amount_words

__all__ = ["ProjectLimit", "paid_usages", "project_limits", "reserve_limits", "share_of"]

_AMOUNTS = ("usd", "tokens", "wall_seconds")
"""The limits of a project that an experiment has as well."""

_DEFAULT = Path(".evsys") / "experiments"

_STARTING_SECONDS = 60.0
"""The age up to which a record that no process holds yet is one about to start."""


@attrs.frozen(kw_only=True)
class ProjectLimit:
    """A limit of a project: `spent` by experiments that ended, and `reserved` by those that run."""

    limit: float
    spent: float = 0.0
    reserved: float = 0.0

    @property
    def left(self) -> float:
        """What a new experiment may use."""
        return max(0.0, self.limit - self.spent - self.reserved)


def project_limits(
    budget: ProjectBudget | None, indexes: Sequence[Index], own: str | None = None
) -> dict[str, ProjectLimit]:
    """Each limit of a project's budget, by its name.

    Args:
        budget: of the project; None for no limits.
        indexes: of the experiments on record, as of now.
        own: an experiment that isn't counted.
    """
    limits = {} if budget is None else {name: each for name, each in attrs.asdict(budget).items() if each}
    found = {name: ProjectLimit(limit=limit) for name, limit in limits.items()}
    for index in indexes if limits else ():
        for past in ask(index, Question(limit=None)).experiments:
            if past.experiment_id != own:
                _count(found, index, past)
    return found


@contextmanager
def reserve_limits(plan: Plan, *, dry: bool, tell: Callable[[str], None]) -> Iterator[BudgetConfig | None]:
    """The limits of a new experiment: its own, and what the budget of its project leaves. Make the record inside.

    Args:
        plan: of the experiment.
        dry: a dry run isn't one of the experiments that count.
        tell: gets a line for a limit that comes from the project alone.

    Raises:
        ConfigError: too little is left, or a setting of the project is wrong.
        StoreError: another process reserves for too long.
    """
    budget = project_settings(plan.project_root).budget
    if budget is None:
        yield plan.experiment.budget
        return
    with waiting_lock(shared_file(plan.project_root / _DEFAULT, "budget.lock")):
        yield share_of(plan, None, budget, dry=dry, tell=tell)


def share_of(
    plan: Plan,
    own: str | None,
    budget: ProjectBudget | None = None,
    *,
    dry: bool = False,
    tell: Callable[[str], None] = lambda _text: None,
) -> BudgetConfig | None:
    """The limits of an experiment of a project: its own, and what the project's budget leaves besides all others.

    Args:
        plan: of the experiment.
        own: its ID, once it is on record.
        budget: of the project; by default read from its settings.
        dry: see `reserve_limits`.
        tell: see `reserve_limits`.

    Raises:
        ConfigError: too little is left, or a setting of the project is wrong.
    """
    budget = budget or project_settings(plan.project_root).budget
    if budget is None:
        return plan.experiment.budget
    found = _limits_on_record(plan, budget, own)
    count = found.pop("experiments", None)
    if own is None and not dry and count is not None and count.left < 1:
        raise ConfigError(
            f"the project's budget of experiments is spent: {count.spent + count.reserved:,.0f} of {count.limit:,.0f} are on record",
            hint=_remedy("experiments"),
        )
    limits = plan.experiment.budget or BudgetConfig()
    for name, project in found.items():
        asked = getattr(limits, name)
        if project.left <= 0 or (asked is not None and asked > project.left):
            raise ConfigError(_refusal(name, asked, project), hint=_remedy(name, asked, project.left))
        if asked is None:
            share: Any = int(project.left) if name == "tokens" else project.left
            limits = attrs.evolve(limits, **{name: share})
            tell(
                f"the project's budget leaves {amount_words(name, share)} for this experiment (budget.{name})"
            )
    return limits


def paid_usages(index: Index, experiments: Sequence[PastExperiment]) -> Iterator[Usage]:
    """The usage of real models; tokens of simulated ones are free."""
    for past in experiments:
        if not past.simulated_by:
            yield from () if past.usage is None else (past.usage,)
        else:  # some of its arms may be trained for real
            for run in runs_of(index, past.experiment_id):
                if run.usage is not None and not _is_simulated(run.backend, past.simulated_by):
                    yield run.usage


def _is_simulated(backend: str | None, by: Sequence[str]) -> bool:
    """Whether a backend is among some, by its full name or without its distribution."""
    return bool({backend, (backend or "").rpartition("/")[2]} & set(by))


def _limits_on_record(plan: Plan, budget: ProjectBudget, own: str | None) -> dict[str, ProjectLimit]:
    folders = {(plan.project_root / each).resolve() for each in (_DEFAULT, plan.experiment.output_dir)}
    found = project_limits(budget, [])
    for folder in sorted(folders):
        if not folder.is_dir():
            continue
        with Index(folder) as index:
            index.refresh()
            for name, more in project_limits(budget, [index], own).items():
                found[name] = attrs.evolve(
                    found[name],
                    spent=found[name].spent + more.spent,
                    reserved=found[name].reserved + more.reserved,
                )
    return found


def _count(found: dict[str, ProjectLimit], index: Index, past: PastExperiment) -> None:
    """Add an experiment to the limits."""
    facts = (
        {}
        if past.finished is not None
        else read_json(index.experiments / past.experiment_id / "experiment.json")
    )
    kept: Mapping[str, Any] = facts.get("budget") or {}
    runs = past.finished is None and _is_running(past, facts)
    used = list(paid_usages(index, [past]))
    spent = {
        "usd": sum(each.cost_usd or 0.0 for each in used),
        "tokens": float(sum(each.tokens for each in used)),
        "wall_seconds": past.seconds or 0.0,
        "experiments": 1.0,
    }
    if past.finished is None:
        spent |= {name: float((kept.get("spent") or {}).get(name) or spent[name]) for name in _AMOUNTS}
    for name, limit in found.items():
        reserved = (kept.get("limits") or {}).get(name) if runs else None
        if reserved is None:
            found[name] = attrs.evolve(limit, spent=limit.spent + spent[name])
        else:
            found[name] = attrs.evolve(limit, reserved=limit.reserved + float(reserved))


def _is_running(past: PastExperiment, facts: Mapping[str, Any]) -> bool:
    """Whether a process is at it, or about to be."""
    if past.status == "running":
        return True
    age = datetime.now(UTC) - datetime.fromisoformat(facts["created"])
    return not facts.get("resumed") and age.total_seconds() < _STARTING_SECONDS


def _refusal(name: str, asked: float | None, project: ProjectLimit) -> str:
    parts = f"{amount_words(name, project.spent)} of {amount_words(name, project.limit)} spent"
    if project.reserved:
        parts += f", {amount_words(name, project.reserved)} reserved by running experiments"
    if project.left <= 0:
        return f"the project's budget of {name} is used up: {parts}"
    assert asked is not None
    return f"budget.{name} is {amount_words(name, asked)}, and the project's budget leaves {amount_words(name, project.left)}: {parts}"


def _remedy(name: str, asked: float | None = None, left: float = 0.0) -> str:
    lower = f"lower budget.{name}, or " if asked is not None and left > 0 else ""
    return f"{lower}raise budget.{name} in [tool.evsys] of pyproject.toml"

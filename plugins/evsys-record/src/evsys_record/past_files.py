"""Reads the files of a record into the shapes of history. A record is listed regardless of what a file holds; no
error is raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from inspect import get_annotations
from itertools import count
from pathlib import Path
from types import NoneType
from typing import Any

import attrs

from evsys.errors import StoreError
from evsys.types.evidence import Look, Settling, SettlingPoint
from evsys.types.results import Comparison
from evsys.types.rollouts import Usage
from evsys_record.attempts import Attempt, is_superseded
from evsys_record.audits import is_edited, saved_differences
from evsys_record.files import read_json
from evsys_record.leaves import short_leaves
from evsys_record.marks import HACKING_SUSPECTED, doubts_of
from evsys_record.past import PastExperiment, PastRun
from evsys_record.proofs import proof_name
from evsys_record.questions import (
    AskedQuestion,
    ScoredEntry,
    asked_question,
    looks_taken,
    scored_entries,
)
from evsys_record.result_files import RESULT, read_run_result
from evsys_record.retraction import retraction_of

__all__ = [
    "PLANNED",
    "STARTED",
    "ReadExperiment",
    "ReadRun",
    "planned_run",
    "read_experiment",
    "read_run",
    "set_aside",
]

STARTED, PLANNED = "started", "planned"
"""States of runs without a result: the newest attempt hasn't ended, or there was none. The experiment's status says
more.
"""

_UNREADABLE = "unreadable"
_STAMP = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)-")
_OF_RECORD = re.compile(r"(?:^|/)([^/]+)/runs/[^/]+/checkpoints(?:/|$)")
"""A path of a checkpoint in a record, and the experiment's id in it."""
_DIVERGED = "training diverged"
"""The warning of `training.health` for a loss that rose and stayed high."""

_ODD = (StoreError, AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError)
"""Exceptions of reading a record that isn't as evsys writes it: torn, edited, of another format."""

_COUNTS = ("prompt_tokens", "completion_tokens", "trained_tokens", "unpriced")

type Tree = Mapping[str, Any]


@attrs.frozen(kw_only=True)
class ReadExperiment:
    """`past` without the facts from its runs; `words` are the searchable words; `arms` maps a planned run to its
    part of resolved.json.

    `leaves` has the config of each arm by dotted path, as JSON texts. `marks` are for programs to find it by: the
    `noise` floor that it measured, the `arms` that it trained. `asked` is its question, with the `looks` that it
    took at it; None for a dry run and without a success metric. `entries` are its benchmark entries.
    """

    past: PastExperiment
    words: str
    arms: Mapping[str, Tree]
    leaves: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    marks: tuple[tuple[str, str], ...] = ()
    asked: AskedQuestion | None = None
    looks: tuple[Look, ...] = ()
    entries: tuple[ScoredEntry, ...] = ()


@attrs.frozen(kw_only=True)
class ReadRun:
    """`past.status` is the status of the result, or `STARTED`. `looks` are its scorings: the hash of the entry's rows and the step of each."""

    past: PastRun
    words: str
    looks: frozenset[tuple[str, int]] = frozenset()


def read_experiment(folder: Path) -> ReadExperiment:
    """Read the files of an experiment as a whole; `status` is the one in the file."""
    try:
        return _experiment(folder)
    except _ODD as exc:
        past = PastExperiment(
            experiment_id=folder.name,
            status=_UNREADABLE,
            moment=_moment(folder.name),
            problem=_error_text(exc),
        )
        return ReadExperiment(past=past, words=folder.name, arms={})


def _experiment(folder: Path) -> ReadExperiment:
    facts = read_json(folder / "experiment.json")
    conclusion = _optional(folder / "conclusion.json") if facts["finished"] is not None else {}
    tree = _optional(folder / "resolved.json")
    resolved = {str(arm["run_id"]): arm for arm in tree.get("arms", ())}
    planned = _planned_arms(facts, resolved)
    before = list(set_aside(folder))
    retraction = retraction_of(folder)
    past = PastExperiment(
        experiment_id=folder.name,
        **_launch_fields(facts),
        **_conclusion_fields(conclusion),
        algorithms=_kinds(planned, "algorithm", "kind"),
        models=_kinds(planned, "model", "name"),
        backends=_kinds(planned, "backend", "kind"),
        claim=_text(conclusion.get("claim") or facts.get("claim")),
        superseded=tuple(str(tree.get("verdict") or "none") for tree in before),
        retracted=None if retraction is None else retraction.reason,
        retracted_at=None if retraction is None else retraction.time,
        cites=tuple(_citations(folder.name, facts, planned, conclusion)),
        edited=bool(conclusion) and is_edited(folder, facts),
        audit_differs=saved_differences(folder, facts),
    )
    words = (
        *(past.experiment_id, past.name, past.description, past.hypothesis, *past.tags, past.metric),
        *(past.verdict, past.reason, past.settle, past.retracted, *(c.arm for c in past.comparisons)),
        *(*past.algorithms, *past.models, *past.backends, *(facts.get("warnings") or ())),
    )
    confirmation = conclusion.get("confirmed")
    entry = None if not confirmation else str(confirmation["benchmark"])
    simulated = bool(past.simulated_by)
    return ReadExperiment(
        past=past,
        words=_words(words),
        arms=planned,
        leaves=_leaves_by_label(resolved.values()),
        marks=tuple(_marks(facts, conclusion, tree)),
        asked=None if past.dry else asked_question(facts, tree, simulated=simulated, entry=entry),
        looks=looks_taken(folder.name, [*before, *([conclusion] if conclusion else [])]),
        entries=() if past.dry else tuple(scored_entries(facts)),
    )


def _planned_arms(facts: Tree, resolved: Mapping[str, Tree]) -> dict[str, Tree]:
    """Each planned run with what is resolved of it; a run added to confirm a winner is that arm again."""
    by_arm = {str(arm.get("arm")): {"run": arm.get("run")} for arm in resolved.values()}
    planned: dict[str, dict[str, Any]] = {
        str(arm["run_id"]): {**resolved.get(str(arm["run_id"]), by_arm.get(str(arm.get("arm")), {})), **arm}
        for arm in facts.get("arms") or ()
    }
    if facts["finished"] is not None:  # while it continues their turn may come
        for run_id, ending in (facts.get("not_started") or {}).items():
            planned.setdefault(run_id, {})["not_started"] = {**ending}
    return {**planned}


def _leaves_by_label(arms: Iterable[Tree]) -> dict[str, Mapping[str, str]]:
    leaves: dict[str, Mapping[str, str]] = {}
    for arm in arms:
        name = _label(arm)
        if name is not None and name not in leaves and isinstance(arm.get("run"), Mapping):
            leaves[name] = short_leaves(arm["run"])
    return leaves


def _launch_fields(facts: Tree) -> dict[str, Any]:
    """The fields of a `PastExperiment` that experiment.json has."""
    alike = ("hypothesis", "description", "project_goal_id", "direction", "baseline", "config_hash")
    return {
        "name": _text(facts["name"]),
        "status": str(facts["status"]),
        "dry": bool(facts["dry"]),
        "moment": str(facts["created"]),
        "finished": _text(facts["finished"]),
        "tags": _texts(facts, "tags"),
        "parent": _text(facts.get("parent_experiment_id")),
        "metric": _text(facts.get("success_metric")),
        **{key: _text(facts.get(key)) for key in alike},
        "usage": _usage(facts),
        "seconds": _number(facts.get("seconds")),
        "exit_code": _whole(facts.get("exit_code")),
        "failed": _texts(facts, "failed"),
    }


def _conclusion_fields(conclusion: Tree) -> dict[str, Any]:
    """The fields of a `PastExperiment` that conclusion.json has."""
    extra, looks = conclusion.get("extra") or {}, conclusion.get("looks") or {}
    comparisons = tuple(_structure_known(Comparison, each) for each in conclusion.get("comparisons", ()))
    confirmation = conclusion.get("confirmed")
    confirmed = None if not confirmation else _structure_known(Comparison, confirmation["comparison"])
    return {
        **{key: _text(conclusion.get(key)) for key in ("verdict", "reason", "best_arm", "settle")},
        **_best_effect(conclusion, comparisons, confirmed),
        "comparisons": comparisons,
        "confirmed": confirmed,
        "reuses": _reused_experiments(conclusion),
        "minimum_effect": _number(conclusion.get("minimum_effect")),
        "margin": _number(conclusion.get("margin")),
        "settling": None
        if not conclusion.get("settling")
        else _structure_known(Settling, conclusion["settling"]),
        "settling_curve": tuple(
            _structure_known(SettlingPoint, each) for each in conclusion.get("settling_curve") or ()
        ),
        "subject": _subject(conclusion, comparisons if confirmed is None else (confirmed,)),
        "simulated_by": _texts(extra, "simulated_by"),
        "leaked_share": _leaked_share(conclusion),
        "question_changed": _texts(conclusion, "question_changed"),
        "hacking_suspected": _texts(extra, HACKING_SUSPECTED),
        "doubts": doubts_of(extra),
        "ledger_rebuilt": bool(looks.get("rebuilt")),
        "similar_looks": int(looks.get("similar") or 0),
        "looks_on_other_tasks": int(looks.get("other_tasks") or 0),
        "runs_without_a_look": int(looks.get("unasked") or 0),
        "looks_elsewhere": int(looks.get("elsewhere") or 0),
        "repeated_runs": int(looks.get("repeated") or 0),
    }


def _best_effect(
    conclusion: Tree, comparisons: Sequence[Comparison], confirmed: Comparison | None
) -> dict[str, float | None]:
    best = next((c for c in comparisons if c.arm == conclusion.get("best_arm")), None)
    # The effect by which an arm was chosen is partly luck; that of the runs that confirmed it isn't.
    sure = best if confirmed is None or confirmed.effect is None else confirmed
    # Its scores are those of the success metric, which may be of another entry than what confirmed it.
    confirmation = conclusion.get("confirmed")
    same_metric = not confirmation or confirmation.get("metric") == conclusion.get("metric")
    scored = sure if same_metric else best
    return {
        **{key: _number(scored and getattr(scored, key)) for key in ("before", "after")},
        **{key: _number(sure and getattr(sure, key)) for key in ("effect", "low", "high")},
    }


def _texts(tree: Tree, key: str) -> tuple[str, ...]:
    return tuple(map(str, tree.get(key) or ()))


def _subject(conclusion: Tree, deciding: Sequence[Comparison]) -> str | None:
    """The subject of a verdict; in an older record, that of the comparisons that decided it."""
    if conclusion.get("verdict") not in ("SUPPORTED", "REFUTED"):
        return None
    claims = {each.claim for each in deciding if each.claim is not None}
    derived = None if not claims else "recipe" if claims == {"recipe"} else "checkpoint"
    return _text(conclusion.get("subject") or derived)


def _leaked_share(conclusion: Tree) -> float | None:
    """The share of the scored tasks in training rows; None if none is."""
    rest = conclusion.get("without_flagged")
    if not rest or not rest.get("tasks"):
        return None
    clean = max((int(each.get("n_tasks") or 0) for each in rest.get("comparisons") or ()), default=0)
    return len(rest["tasks"]) / (len(rest["tasks"]) + clean)


def _marks(facts: Tree, conclusion: Tree, resolved: Tree) -> Iterator[tuple[str, str]]:
    """The marks that other experiments look for: its noise floor, its recipes, its evaluated tasks."""
    floor = conclusion.get("noise_floor") or {}
    if floor.get("identity") and floor.get("experiment_id") is None:
        yield "noise", str(floor["identity"])
    arms = (facts.get("preregistered") or {}).get("arms")
    if arms:
        yield "arms", str(arms)
    for entry in resolved.get("benchmarks") or ():
        if isinstance(entry, Mapping) and entry.get("hash"):
            yield "tasks", str(entry["hash"])


def _label(arm: Tree) -> str | None:
    """The label of a resolved arm: its name, with its stage if it has one."""
    name, stage = _text(arm.get("arm")), arm.get("stage")
    return name if name is None or stage is None else f"{name}.{stage}"


def set_aside(folder: Path) -> Iterator[Tree]:
    """The conclusions set aside when the experiment was resumed, the oldest first."""
    for number in count(1):
        path = folder / f"conclusion.{number}.json"
        if not path.exists():
            return
        yield read_json(path)


def _citations(own: str, facts: Tree, planned: Mapping[str, Tree], conclusion: Tree) -> Iterator[str]:
    """Experiments whose results this one builds on: its parent, those of its weights, reused runs and noise floor."""
    found = [facts.get("parent_experiment_id")]
    for arm in planned.values():
        model = (arm.get("run") or {}).get("model") or {}
        for key in ("init_from_checkpoint", "load_checkpoint_path"):
            named = _OF_RECORD.search(str(model.get(key) or "").replace("\\", "/"))
            found.append(named and named[1])
    floor = conclusion.get("noise_floor")
    if isinstance(floor, Mapping):
        found.append(floor.get("experiment_id"))
    found += _reused_experiments(conclusion)
    yield from dict.fromkeys(str(each) for each in found if each and each != own)


def _reused_experiments(conclusion: Tree) -> tuple[str, ...]:
    """The experiments that runs were taken from."""
    return tuple(dict.fromkeys(map(str, (conclusion.get("reused") or {}).values())))


def read_run(folder: Path, experiment: ReadExperiment) -> ReadRun:
    """Read the files of a run, up to its newest attempt: the result of an attempt that another continued from is
    history.
    """
    try:
        return _run(folder, experiment)
    except _ODD as exc:
        past = PastRun(
            experiment_id=experiment.past.experiment_id,
            run_id=folder.name,
            folder=folder.name,
            status=_UNREADABLE,
            problem=_error_text(exc),
        )
        return ReadRun(past=past, words="")


def _run(folder: Path, experiment: ReadExperiment) -> ReadRun:
    facts = read_json(folder / "run.json")
    attempts = [_structure_known(Attempt, attempt) for attempt in facts["attempts"]]
    result = read_run_result(folder) if (folder / RESULT).exists() else {}
    if is_superseded(result, attempts):
        result = {}
    run_id = str(facts["run_id"])
    run, failure = result.get("run") or {}, result.get("failure") or {}
    status = str(result.get("status", STARTED))
    why = failure.get("message") or (run.get("stop_reason") if status != "completed" else None)
    data = facts.get("data") or {}
    score, selected = _score(result, experiment.past.metric), run.get("selected_checkpoint") or {}
    past = PastRun(
        experiment_id=experiment.past.experiment_id,
        run_id=run_id,
        folder=folder.name,
        arm=_text(facts.get("arm")),
        repeat=_whole(facts.get("repeat")),
        seed=_whole(facts.get("seed", result.get("seed"))),
        status=status,
        label=_label({"arm": facts.get("arm"), **experiment.arms.get(run_id, {})}),
        **_arm_fields(experiment.arms.get(run_id, {})),
        identity=_text(result.get("identity") or facts.get("identity")),
        data_hash=_text(data.get("fingerprint")),
        rows=_whole(data.get("rows")),
        attempts=len(attempts),
        steps=_whole(run.get("steps")),
        selected_step=_whole(selected.get("step")),
        selected_checkpoint=_text(selected.get("checkpoint")),
        score=_number(score.get("value")),
        low=_number(score.get("low")),
        high=_number(score.get("high")),
        failure=_text(why),
        place=_text(failure.get("place")),
        boundary=_text(failure.get("boundary")),
        error_type=_text(failure.get("error_type")),
        plugin=_text(failure.get("plugin")),
        diverged=any(_DIVERGED in str(warning) for warning in run.get("warnings") or ()),
        usage=_usage(result),
        seconds=_number(result.get("seconds")),
        reused_from=_text((result.get("reused") or {}).get("experiment_id")),
    )
    words = _words((why, failure.get("error_type"), failure.get("plugin")))
    return ReadRun(past=past, words=words, looks=frozenset(_looks(result)))


def _looks(result: Tree) -> Iterator[tuple[str, int]]:
    for scored in result.get("evaluations") or ():
        if scored["model"] is None and scored["benchmark_hash"]:
            yield str(scored["benchmark_hash"]), int(scored["step"])


def planned_run(run_id: str, experiment: ReadExperiment) -> PastRun:
    """A run that has no folder yet, or never got one: what it ended with is then known to the experiment alone."""
    try:
        return _planned_run(run_id, experiment)
    except _ODD as exc:
        return PastRun(
            experiment_id=experiment.past.experiment_id,
            run_id=run_id,
            status=_UNREADABLE,
            problem=_error_text(exc),
        )


def _planned_run(run_id: str, experiment: ReadExperiment) -> PastRun:
    arm = experiment.arms[run_id]
    ended = arm.get("not_started") or {}
    return PastRun(
        experiment_id=experiment.past.experiment_id,
        run_id=run_id,
        arm=_text(arm.get("arm")),
        repeat=_whole(arm.get("repeat")),
        label=_label(arm),
        status=str(ended.get("status", PLANNED)),
        failure=_text(ended.get("reason")),
        **_arm_fields(arm),
    )


def _score(result: Tree, metric: str | None) -> Tree:
    """The success metric of the checkpoint that counts; what an unfinished run scored on the way isn't its result."""
    if metric is None or result.get("status") not in ("completed", "stopped"):
        return {}
    evaluations = [e for e in result["evaluations"] if e["model"] is None and e["step"] > 0]
    # A dot may be part of a name: of two entries that fit, the longer is meant.
    labels = [e["benchmark"] for e in evaluations if metric.startswith(f"{e['benchmark']}.")]
    label = max(labels, key=len, default="")
    selected = ((result.get("run") or {}).get("selected_checkpoint") or {}).get("step")
    counted = [e for e in evaluations if e["benchmark"] == proof_name(label)]
    counted = counted or [e for e in evaluations if e["benchmark"] == label]
    counted = [e for e in counted if selected in (None, e["step"])]
    last = max(counted, key=lambda e: int(e["step"]), default=None)
    if last is None or last["status"] != "completed":
        return {}
    value: Tree = last["metrics"].get(metric.removeprefix(f"{label}."), {})
    return value


def _arm_fields(arm: Tree) -> dict[str, Any]:
    run = arm.get("run") or {}
    named = (("algorithm", "kind"), ("model", "name"), ("backend", "kind"))
    return {part: _text((run.get(part) or {}).get(key)) for part, key in named}


def _kinds(arms: Mapping[str, Tree], part: str, key: str) -> tuple[str, ...]:
    found = (((arm.get("run") or {}).get(part) or {}).get(key) for arm in arms.values())
    return tuple(dict.fromkeys(str(name) for name in found if name))


def _usage(tree: Tree) -> Usage | None:
    used = tree.get("usage")
    if used is None:
        return None
    tokens = {name: int(used.get(name) or 0) for name in _COUNTS}
    return Usage(**tokens, seconds=float(used.get("seconds") or 0.0), cost_usd=_number(used.get("cost_usd")))


def _structure_known[T: attrs.AttrsInstance](cls: type[T], tree: Tree) -> T:
    """The fields that this version knows: a later one may have added some.

    Raises:
        TypeError: a value is of another type than its field.
    """
    known = {name: value for name, value in tree.items() if name in _types_of(cls)}
    for name, value in known.items():
        if not isinstance(value, _types_of(cls)[name]):
            raise TypeError(f"{name} is {type(value).__name__}")
    return cls(**known)


@cache
def _types_of(cls: type[attrs.AttrsInstance]) -> Mapping[str, tuple[type, ...]]:
    """The types that a field's value may have in JSON. Which texts a field takes isn't checked: a later version may know more."""
    return {name: tuple(_json_types(text)) for name, text in get_annotations(cls).items()}


def _json_types(annotation: str) -> Iterator[type]:
    if annotation.endswith("| None"):
        yield NoneType
    if annotation.startswith("tuple"):
        yield list
    elif annotation.startswith("int"):
        yield int
    elif annotation.startswith("float"):
        yield from (int, float)
    else:
        yield str


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _optional(path: Path) -> Tree:
    """A file that may not be there yet."""
    return read_json(path) if path.exists() else {}


def _words(said: tuple[object, ...]) -> str:
    return "\n".join(str(each) for each in said if each)


def _moment(folder: str) -> str:
    """When an experiment began, by its folder's name."""
    found = _STAMP.match(folder)
    if found is None:
        return ""
    year, month, day, hour, minute, second = found.groups()
    return f"{year}-{month}-{day}T{hour}:{minute}:{second}.000Z"


def _error_text(exc: Exception) -> str:
    if isinstance(exc, StoreError):
        return str(exc)
    return f"it isn't as evsys writes records ({type(exc).__name__}: {exc})"

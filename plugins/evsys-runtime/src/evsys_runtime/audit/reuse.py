"""Compare reused runs with the records of the experiments that made them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evsys.errors import StoreError
from evsys_record.files import read_json
from evsys_runtime.audit.evidence import Evidence, Run
from evsys_runtime.audit.files import sha256_of
from evsys_runtime.audit.findings import Section

__all__ = ["check_reuse"]

type Tree = Mapping[str, Any]

_COSTS = frozenset({"usage", "judged", "seconds"})
"""Fields of an evaluation that a reused run leaves empty: the experiment that made it has the costs."""


def check_reuse(section: Section, evidence: Evidence) -> None:
    """Check the files and the result of the source of each reused run."""
    for run in evidence.runs:
        if run.reused and run.made_in is not None:
            part = section.section(
                "files", f"{run.run_id}, reused from {run.result['reused']['experiment_id']}"
            )
            _check_source(part, run, run.made_in)
    told = evidence.conclusion.get("reused")
    if told is not None:
        found = {run.run_id: run.result["reused"]["experiment_id"] for run in evidence.runs if run.reused}
        section.section("files", "conclusion.json").same("reused", told, found)


def _check_source(part: Section, run: Run, source: Path) -> None:
    told, record = run.result["reused"], source.parents[1]
    if not part.holds(
        "source", (source / "run_result.json").is_file(), f"{told['experiment_id']} isn't on record any more"
    ):
        return
    for name, known in sorted(told["hashes"].items()):
        path = (record / name).resolve()
        inside = path.is_relative_to(record.resolve()) and path.is_file()
        part.same(name, known, sha256_of(path) if inside else None)
    try:
        result = read_json(source / "run_result.json")
    except StoreError as exc:
        part.holds("run_result.json", False, f"that of its source can't be read: {exc}")
        return
    part.holds("run", result.get("run_id") == told["run_id"], "the folder is that of another run")
    odd = sorted(_differing(run.result, result))
    part.holds("run_result.json", not odd, f"it has other values of {', '.join(odd)} than its source")


def _differing(result: Tree, source: Tree) -> Iterator[str]:
    """The fields in which a result differs from its source."""
    for name in ("identity", "seed", "status"):
        if result.get(name) != source.get(name):
            yield name
    if [*map(_without_costs, result["evaluations"])] != [*map(_without_costs, source["evaluations"])]:
        yield "evaluations"
    now, then = result.get("run") or {}, source.get("run") or {}
    for name in ("steps", "metrics", "final_checkpoint", "selected_checkpoint", "stop_reason"):
        if now.get(name) != then.get(name):
            yield name


def _without_costs(evaluation: Tree) -> dict[str, Any]:
    return {name: value for name, value in evaluation.items() if name not in _COSTS}

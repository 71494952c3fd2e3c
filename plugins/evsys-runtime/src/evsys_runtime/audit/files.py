"""Hashes on record alongside the files that they are of: configuration, question, rows, tasks, verifiers, checkpoints, and the record itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evsys.errors import DataError, StoreError
from evsys_record.evidence_hashes import evidence_hashes
from evsys_record.files import open_to_read, read_json
from evsys_runtime.audit.evidence import Evidence, Run, training_rows
from evsys_runtime.audit.findings import Section
from evsys_runtime.data.benchmark import load_tasks

__all__ = ["check_files", "sha256_of"]

type Tree = Mapping[str, Any]

_REQUIRED = ("config.yaml", "resolved.json", "conclusion.json", "conclusion.md")


def check_files(section: Section, evidence: Evidence) -> None:
    """Check all that has a hash on record."""
    part = section.section("files", "record")
    for name in _REQUIRED:
        part.holds(name, (evidence.folder / name).is_file(), f"{name} is missing")
    _check_config(part, evidence)
    _check_hashes(part, evidence)
    _check_question(section.section("files", "question"), evidence)
    for name, entry in (evidence.facts.get("benchmarks") or {}).items():
        _check_entry(section.section("files", f"benchmark {name}"), evidence, name, entry)
    for run in evidence.runs:
        _check_rows(section.section("files", run.run_id), run)
        _check_checkpoints(section.section("files", run.run_id), run)


def sha256_of(path: Path) -> str:
    """`sha256:...` of a file."""
    with open_to_read(path) as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def _check_config(part: Section, evidence: Evidence) -> None:
    config = evidence.folder / "config.yaml"
    if config.is_file():
        part.same("config_hash", evidence.facts["config_hash"], sha256_of(config))


def _check_hashes(part: Section, evidence: Evidence) -> None:
    """The conclusion and the files that it rests on, as they were when it was written."""
    facts, conclusion = evidence.facts, evidence.folder / "conclusion.json"
    if facts.get("finished") is None:
        return
    if facts.get("conclusion_hash") is not None and conclusion.is_file():
        part.same("conclusion_hash", facts["conclusion_hash"], sha256_of(conclusion))
    known = facts.get("evidence_hashes")
    if known is None:
        part.unchecked("evidence_hashes", "this version recorded no hashes of rollouts and results")
        return
    found = evidence_hashes(evidence.folder)
    for name in sorted(known.keys() | found.keys()):
        if name not in found:
            part.holds(name, False, "it is missing")
        else:
            part.same(name, known.get(name), found[name])


def _check_question(part: Section, evidence: Evidence) -> None:
    """The question put on record before the first step, and every place that repeats it."""
    asked = dict(evidence.facts.get("preregistered") or {})
    if not asked:
        part.unchecked("preregistered", "this version put no question on record")
        return
    digest, _ = asked.pop("digest"), asked.pop("arms", None)
    text = json.dumps(asked, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    part.same("digest", digest, f"sha256:{hashlib.sha256(text.encode('utf-8')).hexdigest()}")
    facts, metadata = evidence.facts, evidence.resolved.get("metadata") or {}
    for key in ("success_metric", "direction", "baseline", "minimum_effect", "hypothesis"):
        part.same(f"experiment.json {key}", facts.get(key), asked.get(key))
        if key in metadata:
            part.same(f"resolved.json {key}", metadata[key], asked.get(key))
    part.same("experiment.json benchmarks", facts.get("benchmarks"), asked.get("benchmarks"))
    if "claim" in facts:
        margin = asked.get("margin")
        margin = (asked.get("minimum_effect") or 0.0) if margin is None else margin
        part.same("experiment.json claim", facts["claim"], asked.get("claim", "better"))
        part.close("experiment.json margin", float(facts.get("margin") or 0.0), float(margin))
        part.same("experiment.json contrast", facts.get("contrast"), asked.get("contrast"))
    conclusion = evidence.conclusion
    if conclusion.get("metric") is not None:
        named = (("metric", "success_metric"), ("direction", "direction"), ("baseline", "baseline"))
        for key, of_facts in named:
            part.same(f"conclusion.json {key}", conclusion[key], facts.get(of_facts))
        for key in ("claim", "margin"):
            if conclusion.get(key) is not None:
                part.same(f"conclusion.json {key}", conclusion[key], facts.get(key))


def _check_entry(part: Section, evidence: Evidence, name: str, entry: Tree) -> None:
    """The tasks and verifiers of an entry: of each scoring on record, and of the file of tasks, if it is there."""
    resolved = evidence.entry(name)
    if "hash" in resolved:
        part.same("resolved.json hash", resolved["hash"], entry["hash"])
    for kind in ("benchmark_hash", "verifier_hash"):
        known = entry["hash" if kind == "benchmark_hash" else "verifier_hash"]
        odd = sorted(
            run.run_id
            for run in evidence.runs
            for scoring in run.scorings
            if scoring.tree["benchmark"] == name and scoring.tree[kind] not in (None, known)
        )
        part.holds(kind, not odd, f"scorings of {', '.join(dict.fromkeys(odd))} have another one")
    _check_tasks(part, evidence, resolved, entry["hash"])


def _check_tasks(part: Section, evidence: Evidence, resolved: Tree, known: str | None) -> None:
    path, root = resolved.get("path"), (evidence.facts.get("launch") or {}).get("project_root")
    if path is None or root is None or resolved.get("id") or resolved.get("transforms"):
        part.unchecked("tasks", "they aren't a plain file of the project")
        return
    project = (evidence.folder / root).resolve()
    if not (project / path).exists():
        part.unchecked("tasks", f"{path} isn't in the project any more")
        return
    try:
        tasks, whole = load_tasks(project / path, name=path, project_root=project)
    except (DataError, StoreError) as exc:
        part.unchecked("tasks", f"{path} can't be read: {exc}")
        return
    limit = resolved.get("limit")
    limited = limit is not None and limit < len(tasks)
    found = hashlib.sha256(json.dumps([whole, limit], separators=(",", ":")).encode()).hexdigest()
    if (f"sha256:{found}" if limited else whole) == known:
        part.same("tasks", known, known)
    else:
        part.unchecked("tasks", f"{path} is no longer the scored file: its hash differs")


def _check_rows(part: Section, run: Run) -> None:
    known = (run.facts.get("data") or {}).get("fingerprint")
    if known is None:
        return
    path = training_rows(run)
    if path is None:
        part.unchecked("training rows", "the record doesn't have them any more")
    else:
        part.same("training rows", known, sha256_of(path))


def _check_checkpoints(part: Section, run: Run) -> None:
    """Every file of every checkpoint that is still there; the one that counts has to be."""
    if run.made_in is None:
        return
    for manifest in sorted(run.made_in.glob("checkpoints/[!.]*/manifest.json")):
        name = f"checkpoints/{manifest.parent.name}"
        odd = sorted(_changed_files(manifest))
        part.holds(name, not odd, f"{', '.join(odd)} changed since it was saved")
    counted = _compared_checkpoint(run)
    if counted is not None and not (run.made_in / counted / "manifest.json").exists():
        part.unchecked(counted, "its files were removed")


def _changed_files(manifest: Path) -> Iterator[str]:
    for name, facts in read_json(manifest)["files"].items():
        path = manifest.parent / name
        inside = path.resolve().is_relative_to(manifest.parent.resolve())
        if not inside or not path.is_file() or sha256_of(path) != facts["sha256"]:
            yield name


def _compared_checkpoint(run: Run) -> str | None:
    """The checkpoint that a run is compared by."""
    trained = run.result.get("run") or {}
    selected = trained.get("selected_checkpoint")
    name = trained.get("final_checkpoint") if selected is None else selected["checkpoint"]
    return None if name is None else str(name)

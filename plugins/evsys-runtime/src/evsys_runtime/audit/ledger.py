"""The ledger of looks alongside the experiments on disk: what it has of this experiment, and of the looks before it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evsys.errors import StoreError
from evsys_record.files import open_to_read, read_json
from evsys_runtime.audit.evidence import Evidence
from evsys_runtime.audit.findings import Section

__all__ = ["check_ledger"]

type Tree = Mapping[str, Any]


def check_ledger(section: Section, evidence: Evidence) -> None:
    """Check that the ledger has this look as it was concluded, and every earlier look still on disk."""
    experiments, own = evidence.folder.parent, evidence.folder.name
    path = _path(experiments)
    if not path.exists():
        section.unchecked("looks", f"{path.name} isn't there, as in a copied record")
        return
    lines: dict[str, list[Tree]] = {}
    for line in _lines(path):
        lines.setdefault(str(line["experiment_id"]), []).append(line)
    conclusion = evidence.conclusion
    looks = conclusion["looks"]
    last = lines.get(own, [{}])[-1]
    section.same(
        "state of its last line", last.get("state"), "concluded" if last.get("state") != "found" else "found"
    )
    if last.get("state") == "concluded":
        section.same("number", looks["number"], last["number"])
    if looks["tested"]:
        section.same("verdict", conclusion["verdict"], (last.get("look") or {}).get("verdict"))
    for experiment in dict.fromkeys(str(look["experiment_id"]) for look in looks["earlier"]):
        there = section.holds(
            "earlier looks",
            experiment in lines,
            f"{path.name} has no look of {experiment}, which came before",
        )
        if not there or experiment == own:
            continue
        if (experiments / experiment).exists():
            _same_as_on_disk(section, experiments / experiment, lines[experiment])
        else:
            section.unchecked(
                "earlier looks", f"{experiment} took a look at this question, and its record is gone"
            )


def _same_as_on_disk(section: Section, folder: Path, lines: list[Tree]) -> None:
    """Whether the last verdict of another experiment in the ledger is that of its conclusion.json."""
    try:
        verdict = read_json(folder / "conclusion.json")["verdict"]
    except (StoreError, KeyError):
        return  # it continues, was resumed, or is damaged, which an audit of its own reports
    look = lines[-1].get("look")
    if lines[-1]["state"] == "concluded" and look is not None:
        section.same(f"verdict of {folder.name}", verdict, look["verdict"])


def _path(experiments: Path) -> Path:
    if experiments.parent.name == ".evsys":
        return experiments.parent / "looks.jsonl"
    return experiments / ".looks.jsonl"


def _lines(path: Path) -> Iterator[Tree]:
    """The looks; what was half written when its process was killed is passed over."""
    with open_to_read(path) as stream:
        content = stream.read().decode("utf-8")
    for text in content.split("\n"):
        try:
            tree = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if "experiment_id" in tree:
            yield tree

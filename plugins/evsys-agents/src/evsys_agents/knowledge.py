"""Computes what the hooks read: the context of a project, its sealed files, and what is known against an experiment's arms.

    python -m evsys_agents.knowledge ROOT refresh
    python -m evsys_agents.knowledge ROOT judge CONFIG [PATH=VALUE...]

A hook has some milliseconds and this needs seconds, so it runs when an experiment ends, and in processes of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from evsys_agents.gates import Veto, judgement_key
from evsys_agents.project import Project
from evsys_agents.vetoes import make_folder

__all__ = ["judge", "refresh"]

CONTEXT_TOKENS = 620
"""Of the 800 of a briefing, the part for what is known; the rest names what is running."""


def refresh(project: Project) -> None:
    """Write what `session-start` prints of the record.

    Raises:
        StoreError: the record can't be read.
    """
    from evsys_record.index import Index
    from evsys_runtime.experiment.insight.context import context_of
    from evsys_runtime.experiment.insight.markdown import context_markdown
    from evsys_runtime.experiment.insight.text_budget import fit

    stamp = project.stamp()
    with Index(project.experiments) as index:
        index.refresh()
        text = context_markdown(fit(context_of(index, project.root), CONTEXT_TOKENS, context_markdown))
    _keep(
        project,
        "known.json",
        {
            "format": 1,
            "stamp": stamp,
            "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "text": text,
            "sealed": sorted(set(_sealed_files(project))),
        },
    )


def _sealed_files(project: Project) -> Iterator[str]:
    """The files of `test` entries on record, relative to the root."""
    for path in sorted(project.experiments.glob("*/resolved.json")):
        try:
            entries = json.loads(path.read_bytes()).get("benchmarks") or ()
        except (OSError, ValueError):
            continue  # `evsys reindex` names records that can't be read
        for entry in entries:
            if entry.get("split") == "test" and entry.get("path"):
                place = project.relative(entry["path"], str(project.root))
                if place is not None:
                    yield place


def judge(project: Project, config: Path, overrides: Sequence[str]) -> list[Veto]:
    """The reasons against the arms of an experiment file, kept for the hooks; nothing for a file with problems, which
    its run reports.
    """
    from evsys_runtime.experiment.insight.known_outcomes import known_outcomes

    stamp = project.stamp()
    key = judgement_key(config.read_bytes(), overrides)
    found = [
        Veto("run", os.path.relpath(config, project.root), each.says, each.experiment_id)
        for each in known_outcomes(config, overrides)
    ]
    _keep(project, f"judged/{key}.json", {"format": 1, "stamp": stamp, "vetoes": found})
    return found


def _keep(project: Project, name: str, document: dict[str, object]) -> None:
    from evsys_record import make_directory, write_atomic

    make_folder(project)
    path = project.folder / name
    make_directory(path.parent)
    write_atomic(path, json.dumps(document, ensure_ascii=False) + "\n")


def _main(words: Sequence[str]) -> None:
    project = Project(Path(words[0]))
    if words[1] == "refresh":
        refresh(project)
    else:
        judge(project, Path(words[2]), words[3:])


if __name__ == "__main__":
    _main(sys.argv[1:])

"""The briefing of an agent when it starts, or when its context is about to be compacted: in at most 800 tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator

from evsys_agents.project import Project, Running

__all__ = ["TOKENS", "briefing", "is_stale"]

TOKENS = 800
BYTES_OF_TOKEN = 4
_LONGEST_HYPOTHESIS = 160
_MOST_RUNNING = 6


def briefing(project: Project) -> str:
    """The running experiments, then the knowledge that was computed last, and how current it is."""
    lines = ["# evsys: what is running and what is known", ""]
    running = project.running()
    lines += [_running_line(each) for each in running[:_MOST_RUNNING]] or ["Nothing is running."]
    if len(running) > _MOST_RUNNING:
        lines.append(f"- and {len(running) - _MOST_RUNNING} more")
    lines += ["", *_knowledge_lines(project)]
    return _cut("\n".join(lines), TOKENS * BYTES_OF_TOKEN)


def is_stale(project: Project) -> bool:
    """Whether the record has changed since the knowledge was computed."""
    return _read_knowledge(project).get("stamp") != project.stamp()


def _running_line(experiment: Running) -> str:
    facts = experiment.document("experiment.json")
    hypothesis = str(facts.get("hypothesis") or "no hypothesis").partition("\n")[0][:_LONGEST_HYPOTHESIS]
    arms = len(facts.get("arms") or ())
    runs = f"{arms} run{'s' * (arms != 1)}"
    return f"- {experiment.experiment_id}, {runs}, since {facts.get('created', '?')}: {hypothesis}"


def _knowledge_lines(project: Project) -> Iterator[str]:
    kept = _read_knowledge(project)
    if not kept:
        yield (
            "Run `evsys context` for what past experiments came to."
            if project.experiments.is_dir()
            else "No experiment is on record."
        )
        return
    if kept.get("stamp") != project.stamp():
        yield f"As of {kept.get('at')}; experiments have ended since: `evsys context` has all of it."
        yield ""
    yield str(kept.get("text", ""))


def _read_knowledge(project: Project) -> dict[str, object]:
    try:
        tree = json.loads((project.folder / "known.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return tree if isinstance(tree, dict) else {}


def _cut(text: str, limit: int) -> str:
    """The text up to the last whole line within a number of bytes."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return text
    note = b"\n(more: evsys context)"
    return (encoded[: limit - len(note)].rpartition(b"\n")[0] + note).decode("utf-8", "ignore")

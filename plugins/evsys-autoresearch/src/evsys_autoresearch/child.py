"""The processes that research starts: an experiment with a researcher's code, and a research run in the background."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from evsys_record.files import write_json

__all__ = ["main"]


def main(what: str, place: str) -> int:
    """Run the `experiment` in a file of the current folder, which is the project; `resume` the research run in a folder;
    or `propose`, which answers the question in a folder.

    Returns:
        The exit code.
    """
    if what == "resume":
        from evsys_autoresearch.runner import Research, run_research

        return 1 if run_research(Research.resume(Path(place), tell=_tell)).verdict == "invalid" else 0
    if what == "propose":
        return _propose(Path(place))
    from evsys_runtime.experiment import Experiment

    config = json.loads(Path(place).read_text(encoding="utf-8"))
    return Experiment(config, project_root=Path.cwd(), quiet=True, skip_grader_check=True).run().exit_code


def _propose(place: Path) -> int:
    """Ask the researcher of a question, and leave its answer next to that."""
    from evsys import use_registry
    from evsys_autoresearch.asking import answer_tree, state_of
    from evsys_runtime.config.project import import_project_code, project_registry

    question = json.loads((place / "question.json").read_text(encoding="utf-8"))
    registry = project_registry()
    import_project_code(Path(question["project"]), registry)
    with use_registry(registry):
        researcher = registry.build("researcher", question["kind"], question["params"])
        answer = asyncio.run(researcher.propose(state_of(question["state"])))
    write_json(place / "answer.json", answer_tree(answer))
    return 0


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))

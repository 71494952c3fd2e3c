"""Brings the knowledge of the gates up to date at the end of each experiment, in projects that have used them. It listens
wherever this distribution is installed, so it imports nothing until then.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evsys.types import ExperimentResult

__all__ = ["evsys_experiment_finished"]


async def evsys_experiment_finished(result: ExperimentResult) -> None:
    """Compute what `session-start` prints, in a thread. Projects without `.evsys/agents` are left alone."""
    experiments = Path(result.directory).parent
    if result.dry or not (experiments.parent / "agents").is_dir():
        return
    from evsys_agents.knowledge import refresh
    from evsys_agents.project import Project
    from evsys_runtime import in_background

    await in_background(refresh, Project(experiments.parent.parent))

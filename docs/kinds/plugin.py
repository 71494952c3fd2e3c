"""A module of hooks that listens to every experiment on a machine without being named by one, such as for a team's dashboard.
It is active once its distribution is installed.

It implements [hooks](../hooks.md) as functions of the module. It is shared by all runs of an experiment. Its failures are
counted in the result's warnings; the run continues. `EVSYS_PLUGINS_DENY` turns it off.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

LOG = logging.getLogger("my_team.experiments")


def evsys_experiment_started(experiment_id: str, directory: Path, arms: Sequence[str]) -> None:
    """Say that an experiment begins."""
    LOG.info("%s: %d arms, record in %s", experiment_id, len(arms), directory)

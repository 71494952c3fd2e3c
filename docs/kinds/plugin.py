"""A module of hooks that listens to every experiment on a machine, without being named by any: for a team's dashboard, or a log that
an operator wants. It is installed with its distribution and heard from then on.

What it hears are the [hooks](../hooks.md), as functions of the module. It is shared by all runs of an experiment, and a failure
of it is counted in the result's warnings and stops nothing. `EVSYS_PLUGINS_DENY` turns it off.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

LOG = logging.getLogger("my_team.experiments")


def evsys_experiment_started(experiment_id: str, directory: Path, arms: Sequence[str]) -> None:
    """Say that an experiment begins."""
    LOG.info("%s: %d arms, record in %s", experiment_id, len(arms), directory)

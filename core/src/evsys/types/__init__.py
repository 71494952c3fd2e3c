"""The values that cross the contract: rows, training, rollouts, results, the run's context."""

from __future__ import annotations

from evsys.types.context import *  # noqa: F403
from evsys.types.results import *  # noqa: F403
from evsys.types.rollouts import *  # noqa: F403
from evsys.types.rows import *  # noqa: F403
from evsys.types.training import *  # noqa: F403

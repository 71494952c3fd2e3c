"""The model that `kl_coef` keeps the policy close to: the run's `reference`, or the weights that it started from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from evsys_runtime.training.asking import priced_usage
from evsys_runtime.training.comparable import comparable, logprobs_by
from evsys_runtime.training.role_usage import RoleUsage
from evsys_runtime.training.roles import role_client
from evsys_runtime.training.starting_weights import StartingWeights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.types import RunContext
    from evsys_algo_rl.groups import TaskGroup

__all__ = ["Reference"]


class Reference:
    """The frozen model that the policy is kept close to: the run's `reference`, or the weights that it started
    from.

    Attributes:
        usage: of all its calls.
    """

    def __init__(self, weights: StartingWeights, usage: RoleUsage) -> None:
        self.usage = usage
        self._weights = weights

    @classmethod
    async def of(cls, ctx: RunContext) -> Reference:
        """The run's `reference`; where it names none, the model before its first step, also where it continues from a checkpoint."""
        usage = RoleUsage.of(ctx, "reference")
        if ctx.clients.reference is None:
            return cls(await StartingWeights.of(ctx), usage)
        return cls(StartingWeights(await role_client(ctx, "reference").sampling_client()), usage)

    async def logprobs(
        self, groups: Sequence[TaskGroup]
    ) -> tuple[dict[int, NDArray[np.float64]], Mapping[str, float]]:
        """The reference's logprobs of the sampled tokens, 0 elsewhere, by the `id` of each trained sequence; and
        metrics of the tokens that it finds impossible or returns nothing for.

        Raises:
            AlgorithmError: too many logprobs are missing.
            BudgetExceeded: nothing is left.
        """
        rows = [
            row
            for group in groups
            for member in group.members
            if member.trained
            for row in member.trajectories
        ]
        found = await logprobs_by(
            self._weights.snapshot, [(row.tokens.tolist(), row.mask) for row in rows], who="reference"
        )
        self.usage.add(priced_usage(self._weights.snapshot, sum(len(row) for row in rows)))
        told = comparable(found, [row.logprobs[row.mask] for row in rows], who="reference")
        whole = {}
        for row, sampled in zip(rows, told.logprobs, strict=True):
            whole[id(row)] = np.zeros(len(row))
            whole[id(row)][row.mask] = sampled
        return whole, told.metrics("reference")

    async def close(self) -> None:
        """Release it. Safe to call twice."""
        await self._weights.close()

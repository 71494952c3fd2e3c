"""Usage of a run's second models, such as its teacher: counted, charged, kept in checkpoints, and listed apart in
the result.

The runtime meters the clients of roles that a run names (`MeteredRole`), and what an algorithm asks of its own model beside the
training (`MeteredPolicy`), regardless of who wrote the algorithm. One that asks earlier weights of its own model counts that by itself, with
`RoleUsage`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from evsys.types import Usage
from evsys_runtime.accounting.metering import Metered
from evsys_runtime.training.asking import priced_usage
from evsys_runtime.training.training_kind import training_cost

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.protocols import Budget
    from evsys.types import Datum, ForwardResult, LossFn, RunContext, RunResult, SampleResult, SamplingParams

__all__ = ["MeteredPolicy", "MeteredRole", "RoleUsage"]


@attrs.define(kw_only=True, eq=False)
class RoleUsage:
    """The account of one role.

    Attributes:
        role: the role's name, `teacher` or `reference`.
        budget: of the run; None without limits.
        metered: the role's client is a `MeteredRole`, so the runtime charges its usage and adds it to the result.
        used: its usage since the run began.
    """

    role: str
    budget: Budget | None
    metered: bool = False
    used: Usage = attrs.field(factory=Usage)

    @classmethod
    def of(cls, ctx: RunContext, role: str) -> RoleUsage:
        """The account that an algorithm keeps of a role, which charges nothing that the runtime charges already."""
        metered = isinstance(getattr(ctx.clients, role), MeteredRole)
        return cls(role=role, budget=ctx.budget, metered=metered)

    def add(self, took: Usage, *, beside: Usage | None = None) -> None:
        """Count its usage, and charge it together with other usage, `beside`, which is counted elsewhere.

        Raises:
            BudgetExceeded: nothing is left.
        """
        self.used += took
        due = beside if self.metered else took if beside is None else took + beside
        if self.budget is not None and due is not None:
            self.budget.charge(due)

    def counted_in(self, result: RunResult) -> RunResult:
        """The result of the training with it. The usage of a metered role is added by the runtime."""
        if self.metered:
            return result
        roles = {**result.roles, self.role: self.used}
        return attrs.evolve(result, usage=result.usage + self.used, roles=roles)

    def state(self) -> Mapping[str, Any]:
        """JSON values for a checkpoint."""
        return attrs.asdict(self.used)

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `state`."""
        self.used = Usage(**state)


class _MeteredModel(Metered):
    """A training client, each pass of which without a gradient is counted and charged when it returns, and each call of a snapshot.

    Args:
        client: the backend's.
        usage: the model's account, which charges the run's budget.

    Calls raise `BudgetExceeded` once nothing is left.
    """

    def forward(self, data: Sequence[Datum]) -> Awaitable[ForwardResult]:
        """Logprobs of the targets, counted as tokens read."""
        return asyncio.ensure_future(self._read(self._client.forward(data)))

    async def sampling_client(self) -> MeteredSnapshot:
        """A snapshot whose calls are counted as well."""
        return MeteredSnapshot(await self._client.sampling_client(), self._usage)

    async def _read(self, submitted: Awaitable[ForwardResult]) -> ForwardResult:
        result = await submitted
        self._count(priced_usage(self._client, result.tokens))
        return result


class MeteredRole(_MeteredModel):
    """The training client of a role, which is charged for all that it computes."""

    def forward_backward(
        self, data: Sequence[Datum], loss_fn: str | LossFn, loss_params: Mapping[str, Any] | None = None
    ) -> Awaitable[ForwardResult]:
        """Add a loss's gradient, counted as tokens that were trained on."""
        return asyncio.ensure_future(
            self._train_and_count(self._client.forward_backward(data, loss_fn, loss_params))
        )

    async def _train_and_count(self, submitted: Awaitable[ForwardResult]) -> ForwardResult:
        result = await submitted
        self._count(Usage(trained_tokens=result.tokens, cost_usd=training_cost(self._client, result.tokens)))
        return result


class MeteredPolicy(_MeteredModel):
    """The trained model as an algorithm sees it. Its training isn't counted here: the loop charges its steps, and an algorithm
    without the loop its own.
    """

    async def averaged_sampling_client(self, rate: float) -> MeteredSnapshot:
        """A snapshot of the running mean of the weights, whose calls are counted."""
        return MeteredSnapshot(await self._client.averaged_sampling_client(rate), self._usage)


class MeteredSnapshot(Metered):
    """A snapshot of weights, each call of which is counted and charged when it returns."""

    async def sample(self, prompt: Sequence[int], params: SamplingParams, n: int = 1) -> SampleResult:
        """`n` continuations of a prompt, which is counted once."""
        result: SampleResult = await self._client.sample(prompt, params, n)
        sampled = sum(len(sequence.tokens) for sequence in result.sequences)
        self._count(priced_usage(self._client, len(prompt), sampled))
        return result

    async def compute_logprobs(self, tokens: Sequence[int]) -> NDArray[Any]:
        """Logprob of each token given those before it, [N]."""
        found: NDArray[Any] = await self._client.compute_logprobs(tokens)
        self._count(priced_usage(self._client, len(tokens)))
        return found

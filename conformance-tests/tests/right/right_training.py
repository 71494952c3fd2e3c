"""Algorithms and backends that keep their contract, each written in another way."""

from broken_algorithm import Right as WithoutToolkit

from evsys.errors import BackendError
from evsys.types import LossResult
from evsys_algo_sft import SFT
from evsys_backend_mock import MockBackend

__all__ = ["WithoutToolkit"]


class Focal(SFT):
    """The shipped algorithm with a loss of its own."""

    name = "Focal"

    async def build_batch(self, step_idx):
        batch = await super().build_batch(step_idx)
        batch.loss_fn = _halved
        return batch


class OwnColumns(SFT):
    """Reads a column that rows have only if it says so."""

    name = "OwnColumns"
    conformance = {  # noqa: RUF012 - as a plugin's author may write it
        "rows": [{"prompt": f"say {n}", "completion": f"{n}", "desirable": n % 2 == 0} for n in range(12)]
    }

    async def train(self, ctx):
        if not all(isinstance(row.metadata["desirable"], bool) for row in ctx.data):
            raise ValueError("`desirable` is true or false")
        return await super().train(ctx)


def _halved(data, logprobs):
    grads = [-0.5 * datum.loss_inputs["weights"] for datum in data]
    value = sum(float((grad * lp).sum()) for grad, lp in zip(grads, logprobs, strict=True))
    return LossResult(loss=value, grads=grads)


class DeclaresNothing(MockBackend):
    """Can't resume, takes no losses of others, tells no logprobs on request, and says so by declaring nothing."""

    name = "DeclaresNothing"
    capabilities = frozenset()

    async def prepare(self, model, run_dir, seed, restore=None):
        if restore is not None:
            raise BackendError("it can't resume")
        return _OnlyWhatIsAsked(await super().prepare(model, run_dir, seed))

    async def teardown(self, client):
        await super().teardown(client and client.inner)


class _OnlyWhatIsAsked:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def forward_backward(self, data, loss_fn, loss_params=None):
        if loss_fn != "cross_entropy":
            raise BackendError(f"it has no loss {loss_fn}")
        return self.inner.forward_backward(data, loss_fn, loss_params)

    async def save_state(self, directory):
        raise BackendError("it saves nothing")

"""Backends with one fault each: `mock`, changed."""

import asyncio
import contextlib
from itertools import count

import attrs

from evsys.types import ForwardResult, LossResult
from evsys_backend_mock import MockBackend
from evsys_backend_mock.state import Saved
from evsys_runtime.losses import compute_loss, stop_gradient

DRAWS = count()
OPEN = []
KEPT = []


class _Named(MockBackend):
    """Called what its class is called."""

    def __init_subclass__(cls):
        cls.name = cls.__name__


class _Client:
    """Passes everything on to the mock's client; subclasses change one thing."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


class _Changed(_Named):
    client = _Client

    async def prepare(self, model, run_dir, seed, restore=None):
        return self.client(await super().prepare(model, run_dir, seed, restore))

    async def teardown(self, client):
        await super().teardown(client and client.inner)


class _Sampler:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def sample(self, prompt, params, n=1):
        return self.changed(await self.inner.sample(prompt, params, n))

    def changed(self, result):
        return attrs.evolve(result, sequences=[self.sequence(sequence) for sequence in result.sequences])

    def sequence(self, sequence):
        return sequence


class _Sampling(_Client):
    async def sampling_client(self):
        return self.sampler(await self.inner.sampling_client())


class Teleports(_Named):
    capabilities = MockBackend.capabilities | {"teleport"}


class PositiveLogprobs(_Changed):
    class client(_Client):
        async def forward(self, data):
            result = await self.inner.forward(data)
            return attrs.evolve(result, logprobs=[logprobs + 30 for logprobs in result.logprobs])


class LearnsOneStep(_Changed):
    class client(_Client):
        def optim_step(self, params):
            rate = 0.0 if self.inner._version else params.learning_rate
            return self.inner.optim_step(attrs.evolve(params, learning_rate=rate))


class MeanLoss(_Changed):
    class client(_Client):
        def forward_backward(self, data, loss_fn, loss_params=None):
            submitted = self.inner.forward_backward(data, loss_fn, loss_params)

            async def mean():
                result = await submitted
                return attrs.evolve(result, loss=result.loss / len(data))

            return mean()


class HalfTheGradient(_Changed):
    class client(_Client):
        def forward_backward(self, data, loss_fn, loss_params=None):
            if not isinstance(loss_fn, str):
                return self.inner.forward_backward(data, loss_fn)

            def half(some, logprobs):
                plain = [stop_gradient(values) for values in logprobs]
                whole = compute_loss(loss_fn, some, plain, loss_params)
                return LossResult(loss=whole.loss, grads=[grad / 2 for grad in whole.grads])

            return self.inner.forward_backward(data, half)


class ForgetsGradients(_Changed):
    class client(_Client):
        def forward_backward(self, data, loss_fn, loss_params=None):
            self.inner._gradient = None
            return self.inner.forward_backward(data, loss_fn, loss_params)


class ForgetsMoments(_Named):
    async def prepare(self, model, run_dir, seed, restore=None):
        client = await super().prepare(model, run_dir, seed, restore)
        client._optimizer = Saved.beginning(client._model).optimizer
        return client


class ForgetsTheAverage(_Changed):
    class client(_Client):
        async def save_state(self, directory):
            kept, self.inner._average = self.inner._average, None
            state = await self.inner.save_state(directory)
            self.inner._average = kept
            return state


class AveragesNothing(_Changed):
    class client(_Client):
        async def averaged_sampling_client(self, rate):
            return await self.inner.sampling_client()


class NeedsAClient(_Named):
    async def teardown(self, client):
        client.close()


class SharesWeights(_Changed):
    class client(_Client):
        def __init__(self, inner):
            super().__init__(inner)
            OPEN.append(inner)

        def optim_step(self, params):
            done = self.inner.optim_step(params)
            for other in OPEN:
                other._model = self.inner._model
            return done

    async def teardown(self, client):
        with contextlib.suppress(AttributeError):
            OPEN.remove(client.inner)
        await super().teardown(client)


class OtherLogprobs(_Changed):
    class client(_Sampling):
        class sampler(_Sampler):
            def sequence(self, sequence):
                top = sequence.top_logprobs
                return attrs.evolve(
                    sequence,
                    logprobs=[value - 0.5 for value in sequence.logprobs],
                    top_logprobs=top and [{t: value - 0.5 for t, value in one.items()} for one in top],
                )


class LiveSnapshots(_Changed):
    class client(_Client):
        async def sampling_client(self):
            return _Live(self.inner)


class _Live:
    def __init__(self, client):
        self.client = client
        self.version = client._version

    async def sample(self, prompt, params, n=1):
        return await (await self.client.sampling_client()).sample(prompt, params, n)

    async def compute_logprobs(self, tokens):
        return await (await self.client.sampling_client()).compute_logprobs(tokens)

    async def close(self):
        pass


class OtherPromptLogprobs(_Changed):
    class client(_Sampling):
        class sampler(_Sampler):
            def changed(self, result):
                said = result.prompt_logprobs
                return attrs.evolve(
                    result, prompt_logprobs=said and [None, *(value - 1 for value in said[1:])]
                )


class OneTooFew(_Changed):
    class client(_Sampling):
        class sampler(_Sampler):
            def sequence(self, sequence):
                top = sequence.top_logprobs
                fewer = top and [dict(sorted(one.items(), key=lambda item: -item[1])[:2]) for one in top]
                return attrs.evolve(sequence, top_logprobs=fewer)


class DrawsAsItLikes(_Changed):
    class client(_Sampling):
        class sampler(_Sampler):
            async def sample(self, prompt, params, n=1):
                return await self.inner.sample(prompt, attrs.evolve(params, seed=next(DRAWS)), n)


class TrainsEverythingItSays(_Named):
    capabilities = MockBackend.capabilities | {"full_finetune"}


class OtherTokenizer(_Changed):
    class client(_Client):
        @property
        def tokenizer(self):
            return _SmallTokenizer(self.inner.tokenizer)


class _SmallTokenizer(_Client):
    vocab_size = 10


class SkipsIdleSteps(_Changed):
    class client(_Client):
        def optim_step(self, params):
            kept = self.inner._gradient
            done = self.inner.optim_step(params)
            if params.learning_rate == 0:
                self.inner._gradient = kept
            return done


class OwnLearningRate(_Changed):
    class client(_Client):
        def optim_step(self, params):
            return self.inner.optim_step(attrs.evolve(params, learning_rate=params.learning_rate or 5e-5))


class ForwardIsBackwardToo(_Changed):
    class client(_Client):
        def forward(self, data):
            done = self.inner.forward(data)
            self.inner.forward_backward(data, "cross_entropy")
            return done


class WaitsForTheAwait(_Changed):
    class client(_Client):
        async def forward_backward(self, data, loss_fn, loss_params=None):
            return await self.inner.forward_backward(data, loss_fn, loss_params)

        async def optim_step(self, params):
            return await self.inner.optim_step(params)


class StateHoldsAPath(_Changed):
    class client(_Client):
        async def save_state(self, directory):
            return {**await self.inner.save_state(directory), "directory": directory}


class OneTokenMore(_Changed):
    class client(_Sampling):
        class sampler(_Sampler):
            async def sample(self, prompt, params, n=1):
                return await self.inner.sample(
                    prompt, attrs.evolve(params, max_tokens=params.max_tokens + 1), n
                )


class NoStopTokens(_Changed):
    class client(_Sampling):
        class sampler(_Sampler):
            async def sample(self, prompt, params, n=1):
                return await self.inner.sample(prompt, attrs.evolve(params, stop_token_ids=()), n)


class FirstTokenIsCertain(_Changed):
    class client(_Sampling):
        class sampler(_Sampler):
            async def compute_logprobs(self, tokens):
                found = (await self.inner.compute_logprobs(tokens)).copy()
                found[0] = 0.0
                return found


class OnePromptAtATime(_Changed):
    class client(_Sampling):
        class sampler(_Sampler):
            async def sample(self, prompt, params, n=1):
                self.prompt = prompt
                await asyncio.sleep(0)
                return await self.inner.sample(self.prompt, params, n)


class HasNoTopPromptLogprobs(_Changed):
    class client(_Sampling):
        class sampler(_Sampler):
            async def sample(self, prompt, params, n=1):
                return await self.inner.sample(prompt, attrs.evolve(params, top_prompt_logprobs=0), n)


class TrainsLowRankAnyway(_Named):
    capabilities = MockBackend.capabilities | {"full_finetune"}

    async def prepare(self, model, run_dir, seed, restore=None):
        lora = attrs.evolve(model.lora, rank=model.lora.rank or 8)
        return await super().prepare(attrs.evolve(model, lora=lora), run_dir, seed, restore)


class _OwnAdam(_Changed):
    own: dict

    class client(_Client):
        def optim_step(self, params):
            return self.inner.optim_step(attrs.evolve(params, **self.own))


def _own_adam(name, **own):
    client = type("client", (_OwnAdam.client,), {"own": own})
    return type(name, (_OwnAdam,), {"client": client, "__module__": __name__})


OwnEps = _own_adam("OwnEps", eps=1e-8)
NeverClips = _own_adam("NeverClips", grad_clip=0.0)
OwnBeta1 = _own_adam("OwnBeta1", beta1=0.9)
OwnBeta2 = _own_adam("OwnBeta2", beta2=0.95)
NeverDecays = _own_adam("NeverDecays", weight_decay=0.0)


class NormAfterClipping(_Changed):
    class client(_Client):
        def optim_step(self, params):
            submitted = self.inner.optim_step(params)

            async def clipped():
                result = await submitted
                most = params.grad_clip or result.grad_norm
                return attrs.evolve(result, grad_norm=min(result.grad_norm, most))

            return clipped()


class AlwaysRestoresTheOptimizer(_Named):
    async def prepare(self, model, run_dir, seed, restore=None):
        restore = restore and attrs.evolve(restore, with_optimizer=True)
        return await super().prepare(model, run_dir, seed, restore)


class OwnRank(_Named):
    async def prepare(self, model, run_dir, seed, restore=None):
        return await super().prepare(
            attrs.evolve(model, lora=attrs.evolve(model.lora, rank=4)), run_dir, seed, restore
        )


class OwnAlpha(_Named):
    async def prepare(self, model, run_dir, seed, restore=None):
        return await super().prepare(
            attrs.evolve(model, lora=attrs.evolve(model.lora, alpha=32.0)), run_dir, seed, restore
        )


class StartsUntrained(_Named):
    async def prepare(self, model, run_dir, seed, restore=None):
        restore = None if model.init_from_checkpoint else restore
        return await super().prepare(attrs.evolve(model, init_from_checkpoint=None), run_dir, seed, restore)


class OwnLossParams(_Changed):
    class client(_Client):
        def forward_backward(self, data, loss_fn, loss_params=None):
            own = {
                "ppo": {"clip_low": 0.2, "clip_high": 0.28},
                "cispo": {"clip_high": 0.28},
                "dro": {"beta": 0.05},
            }
            known = own.get(loss_fn, loss_params) if isinstance(loss_fn, str) else loss_params
            return self.inner.forward_backward(data, loss_fn, known)


class SwallowsErrors(_Changed):
    class client(_Client):
        def forward_backward(self, data, loss_fn, loss_params=None):
            try:
                submitted = self.inner.forward_backward(data, loss_fn, loss_params)
            except Exception:
                submitted = None

            async def swallowed():
                try:
                    return await submitted
                except Exception:
                    return ForwardResult(loss=0.0, logprobs=[])

            return swallowed()


class KeepsBatches(_Changed):
    class client(_Client):
        def forward_backward(self, data, loss_fn, loss_params=None):
            KEPT.append([datum.tokens.repeat(100) for datum in data])
            return self.inner.forward_backward(data, loss_fn, loss_params)


class OneSampleRepeated(_Changed):
    class client(_Sampling):
        class sampler(_Sampler):
            def changed(self, result):
                return attrs.evolve(result, sequences=[result.sequences[0]] * len(result.sequences))


class SamplesLive(_Changed):
    class client(_Client):
        async def sampling_client(self):
            return _SamplesLive(self.inner, await self.inner.sampling_client())


class _SamplesLive(_Client):
    def __init__(self, client, inner):
        super().__init__(inner)
        self.client = client

    async def sample(self, prompt, params, n=1):
        return await (await self.client.sampling_client()).sample(prompt, params, n)


class HalfPrecision(_Changed):
    class client(_Sampling):
        class sampler(_Sampler):
            async def compute_logprobs(self, tokens):
                return (await self.inner.compute_logprobs(tokens)).astype("float16").astype("float32")

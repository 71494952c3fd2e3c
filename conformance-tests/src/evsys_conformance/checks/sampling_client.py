"""The contract of a sampling client: a frozen snapshot that gives the logprob of each sampled token."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from evsys.types import SamplingParams
from evsys_conformance import toy
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import Words, breach, require, require_close, require_equal
from evsys_conformance.running import run
from evsys_conformance.trial import CLOSE, Trial

__all__ = ["SamplingClientConformance"]

_GREEDY = SamplingParams(max_tokens=6, temperature=0.0)


class SamplingClientConformance(PluginConformance):
    """The checks of a backend that concern its snapshots."""

    @check()
    def test_samples_are_as_many_and_as_long_as_asked(self, trial: Trial) -> None:
        """`n` sequences of at most `max_tokens` tokens, a logprob for each, and a reason why each ended."""

        async def ask() -> Any:
            async with trial.client() as client:
                sampler = await client.sampling_client()
                return await sampler.sample(
                    await trial.prompt(client), SamplingParams(max_tokens=4, seed=3), 3
                )

        sequences = run(ask()).sequences
        require_equal(len(sequences), 3, "asked for three samples, it gives another number")
        for sequence in sequences:
            require(
                0 < len(sequence.tokens) <= 4,
                "a sample has no token, or more than it may have",
                seen=Words(f"{len(sequence.tokens)} tokens"),
                wanted="from 1 to max_tokens = 4",
            )
            require_equal(
                len(sequence.logprobs),
                len(sequence.tokens),
                "the number of logprobs isn't that of the tokens",
            )
            reasons = {"stop"} if len(sequence.tokens) < 4 else {"stop", "length"}
            require(
                sequence.finish_reason in reasons,
                f"a sample of {len(sequence.tokens)} tokens, of 4 that it might have, ended for a reason that can't be",
                seen=sequence.finish_reason,
                wanted=" or ".join(sorted(reasons)),
            )

    @check()
    def test_samples_of_one_call_differ(self, trial: Trial) -> None:
        """At temperature 1 the samples of one call are draws of their own."""

        async def ask() -> Any:
            async with trial.client() as client:
                sampler = await client.sampling_client()
                params = SamplingParams(max_tokens=8, seed=3)
                return await sampler.sample(await trial.prompt(client), params, 6)

        drawn = [tuple(sequence.tokens) for sequence in run(ask()).sequences]
        require(
            len(set(drawn)) > 1,
            "six samples of one call at temperature 1 are all the same",
            seen=drawn[0],
            wanted="draws of their own: sample i uses a stream derived from (seed, i)",
        )

    @check()
    def test_logprobs_have_the_precision_of_float32(self, trial: Trial) -> None:
        """Logprobs are not rounded to 16 bits: differences between sampler and trainer are measured by them."""

        async def ask() -> dict[str, Any]:
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                prompt = await trial.prompt(client)
                sampler = await client.sampling_client()
                sample = await sampler.sample(prompt, SamplingParams(max_tokens=6, seed=3), 2)
                return {
                    "forward": np.concatenate(
                        [np.ravel(one) for one in (await client.forward(data)).logprobs]
                    ),
                    "compute_logprobs": np.asarray(await sampler.compute_logprobs(prompt))[1:],
                    "sample": np.concatenate([np.ravel(one.logprobs) for one in sample.sequences]),
                }

        for name, found in run(ask()).items():
            exact = np.asarray(found, dtype=np.float32)
            exact = exact[np.isfinite(exact) & (exact < -1e-4)]
            for bits, rounded in (
                ("float16", exact.astype(np.float16).astype(np.float32)),
                ("bfloat16", _bfloat16(exact)),
            ):
                require(
                    not len(exact) or np.any(rounded != exact),
                    f"every logprob of `{name}` is a {bits} number",
                    seen=exact[:4],
                    wanted="logprobs computed and given in float32",
                )

    @check()
    def test_stop_tokens_end_a_sample(self, trial: Trial) -> None:
        """A sample ends at one of `stop_token_ids`, and says that it stopped there."""

        async def ask() -> tuple[list[int], Any]:
            async with trial.client() as client:
                for _ in range(8):
                    await trial.step(client, toy.datums(client.renderer))
                sampler = await client.sampling_client()
                prompt = client.renderer.render_prompt(toy.rows("chat")[0].messages[:1])
                free = (await sampler.sample(prompt, _GREEDY)).sequences[0]
                first = int(free.tokens[0])
                params = SamplingParams(max_tokens=6, temperature=0.0, stop_token_ids=(first,))
                return list(free.tokens), (await sampler.sample(prompt, params)).sequences[0]

        free, stopped = run(ask())
        require(
            len(stopped.tokens) <= 1 and stopped.finish_reason == "stop",
            f"with stop_token_ids=({free[0]},) a greedy sample that begins with {free[0]} goes on",
            seen=Words(f"tokens {list(stopped.tokens)}, finish_reason {stopped.finish_reason!r}"),
            wanted=f"tokens [{free[0]}] or none, and finish_reason 'stop'",
        )

    @check()
    def test_sampled_logprobs_are_those_recomputed(self, trial: Trial) -> None:
        """The logprob that comes with each sampled token is the model's own for that token there."""
        sampled, again = run(_sample_logprobs(trial))
        wrong = "the logprob of a sampled token isn't what compute_logprobs gives there (at any temperature)"
        require_close(sampled, again, wrong, **CLOSE)

    @check()
    def test_logprobs_are_computed_for_each_token(self, trial: Trial) -> None:
        """`compute_logprobs` has an entry a token: NaN for the first, which nothing comes before, no more than 0 for others."""

        async def ask() -> tuple[int, Any]:
            async with trial.client() as client:
                prompt = await trial.prompt(client)
                return len(prompt), np.asarray(
                    await (await client.sampling_client()).compute_logprobs(prompt)
                )

        n, found = run(ask())
        require_equal(found.shape, (n,), f"logprobs of {n} tokens don't have an entry each: their shape")
        require(
            np.isnan(found[0]),
            "the first token has a logprob, and nothing comes before it",
            seen=found[0],
            wanted="NaN",
        )
        require(
            np.all(np.isfinite(found[1:]) & (found[1:] <= 1e-6)),
            "what `compute_logprobs` gives are not logprobs",
            seen=found[1:],
            wanted="finite numbers, none above 0",
        )

    @check()
    def test_samples_at_once_do_not_disturb_each_other(self, trial: Trial) -> None:
        """Prompts sampled at the same time each continue as they do alone."""

        async def both() -> tuple[list[Any], list[Any]]:
            async with trial.client() as client:
                for _ in range(8):
                    await trial.step(client, toy.datums(client.renderer))
                sampler = await client.sampling_client()
                prompts = [client.renderer.render_prompt(row.messages[:1]) for row in toy.rows("chat")[:4]]
                alone = [await _greedy(sampler, prompt) for prompt in prompts]
                return alone, await asyncio.gather(*(_greedy(sampler, prompt) for prompt in prompts))

        wrong = "prompts that are sampled at the same time continue otherwise than alone"
        for alone, together in zip(*run(both()), strict=True):
            require_equal(list(together.tokens), list(alone.tokens), f"{wrong}: their tokens")
            require_close(together.logprobs, alone.logprobs, f"{wrong}: their logprobs", **CLOSE)

    @check()
    def test_a_snapshot_is_frozen(self, trial: Trial) -> None:
        """A sampling client keeps the weights of its step, and its version says which; one made later has others."""

        async def around() -> tuple[Any, Any, Any, int]:
            async with trial.client() as client:
                data = toy.datums(client.renderer)
                tokens = await trial.prompt(client)
                early = await client.sampling_client()
                before = await early.compute_logprobs(tokens)
                sampled.append((await _greedy(early, tokens)).logprobs)
                for _ in range(3):
                    await trial.step(client, data)
                late = await client.sampling_client()
                sampled.append((await _greedy(early, tokens)).logprobs)
                found = (before, await early.compute_logprobs(tokens), await late.compute_logprobs(tokens))
                versions = late.version - early.version
                await early.close()
                await late.close()
                await late.close()
                return *found, versions

        sampled: list[Any] = []
        before, still, trained, versions = run(around())
        wrong = "after three steps a snapshot from before them samples with other logprobs: it isn't frozen"
        require_close(sampled[1][:1], sampled[0][:1], wrong, rtol=1e-5, atol=1e-5)
        wrong = "after three steps a snapshot from before them gives other logprobs: it isn't frozen"
        require_close(still[1:], before[1:], wrong, rtol=1e-5, atol=1e-5)
        require(
            not np.allclose(trained[1:], before[1:], rtol=1e-3, atol=1e-3),
            "a snapshot from after three steps gives the logprobs of one from before them",
            seen=trained[1:],
        )
        require_equal(versions, 3, "three steps lie between two snapshots, and not between their versions")

    @check(needs="prompt_logprobs")
    def test_prompt_logprobs_are_those_computed(self, trial: Trial) -> None:
        """On request a sample brings its prompt's logprobs, nothing for the first token."""

        async def ask() -> tuple[Any, Any]:
            async with trial.client() as client:
                prompt = await trial.prompt(client)
                sampler = await client.sampling_client()
                params = SamplingParams(max_tokens=2, seed=1, prompt_logprobs=True)
                result = await sampler.sample(prompt, params)
                return result.prompt_logprobs, await sampler.compute_logprobs(prompt)

        said, computed = run(ask())
        if said is None:
            breach("it declares prompt_logprobs, and gave none", seen=said, wanted="[None, -1.2, ...]")
        require(said[0] is None, "the first token of the prompt has a logprob", seen=said[0], wanted="None")
        wrong = "prompt_logprobs aren't what compute_logprobs gives for the prompt"
        require_close(list(said[1:]), computed[1:], wrong, **CLOSE)

    @check(needs="top_logprobs")
    def test_top_logprobs_hold_the_likeliest(self, trial: Trial) -> None:
        """On request each sampled position brings its k likeliest tokens; a greedy sample took the first of them."""

        async def ask() -> Any:
            async with trial.client() as client:
                sampler = await client.sampling_client()
                params = SamplingParams(max_tokens=3, temperature=0.0, top_logprobs=3)
                return await sampler.sample(await trial.prompt(client), params)

        (sequence,) = run(ask()).sequences
        if sequence.top_logprobs is None:
            breach(
                "it declares top_logprobs, and gave none", wanted="a mapping of token to logprob a position"
            )
        for token, logprob, top in zip(
            sequence.tokens, sequence.logprobs, sequence.top_logprobs, strict=True
        ):
            _holds_the_likeliest(top, 3)
            require_equal(
                max(top, key=lambda one: top[one]), token, "a greedy sample didn't take the likeliest token"
            )
            require_close(
                top[token], logprob, "a token's logprob isn't the one that top_logprobs has for it", **CLOSE
            )

    @check(needs="top_prompt_logprobs")
    def test_top_prompt_logprobs_hold_the_likeliest(self, trial: Trial) -> None:
        """On request each position of the prompt but the first brings its k likeliest tokens."""

        async def ask() -> tuple[list[int], Any, Any]:
            async with trial.client() as client:
                prompt = await trial.prompt(client)
                sampler = await client.sampling_client()
                params = SamplingParams(max_tokens=1, temperature=0.0, top_prompt_logprobs=3)
                result = await sampler.sample(prompt, params)
                return prompt, result.top_prompt_logprobs, await sampler.compute_logprobs(prompt)

        prompt, said, computed = run(ask())
        if said is None:
            breach(
                "it declares top_prompt_logprobs, and gave none", wanted="[None, {token: logprob, ...}, ...]"
            )
        require_equal(
            len(said), len(prompt), "the number of its top_prompt_logprobs isn't that of the prompt's tokens"
        )
        require(not said[0], "the first token of the prompt has alternatives", seen=said[0], wanted="None")
        for token, top, own in zip(prompt[1:], said[1:], computed[1:], strict=True):
            _holds_the_likeliest(top, 3)
            wrong = "a token of the prompt is likelier than the likeliest that top_prompt_logprobs has there"
            require(
                own <= max(top.values()) + 2e-3, wrong, seen=float(own), wanted=f"at most {max(top.values())}"
            )
            if token in top:
                wrong = "top_prompt_logprobs has another logprob for a token than compute_logprobs"
                require_close(top[token], float(own), wrong, **CLOSE)

    @check(needs="deterministic")
    def test_same_seed_gives_the_same_bits(self, trial: Trial) -> None:
        """Two runs with one seed draw the same tokens and end with the same logprobs, bit by bit."""

        async def once() -> tuple[list[list[int]], list[bytes]]:
            async with trial.client(seed=5) as client:
                data = toy.datums(client.renderer)
                await trial.step(client, data)
                sampler = await client.sampling_client()
                params = SamplingParams(max_tokens=6, seed=2)
                drawn = await sampler.sample(await trial.prompt(client), params, 2)
                after = await client.forward(data)
                tokens = [list(sequence.tokens) for sequence in drawn.sequences]
                return tokens, [np.asarray(one).tobytes() for one in after.logprobs]

        (tokens, logprobs), (again, logprobs_again) = run(once()), run(once())
        require_equal(
            again, tokens, "it declares deterministic, and with the same seeds it draws other tokens"
        )
        require(
            logprobs_again == logprobs,
            "it declares deterministic, and a second run with the same seed ends with other bits",
            wanted="the same logprobs, bit by bit",
        )


def _bfloat16(values: Any) -> Any:
    """Float32 values cut off to the upper 16 of their bits."""
    return (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def _holds_the_likeliest(top: Any, k: int) -> None:
    require_equal(len(top), k, f"asked for {k} likeliest tokens of a position, it gives another number")
    for token, logprob in top.items():
        require(np.isfinite(logprob) and logprob <= 1e-6, f"token {token} has no logprob there", seen=logprob)


async def _greedy(sampler: Any, prompt: list[int]) -> Any:
    return (await sampler.sample(prompt, _GREEDY)).sequences[0]


async def _sample_logprobs(trial: Trial) -> tuple[list[float], list[float]]:
    """Logprobs of sampled tokens, and the same by a pass over prompt and sample."""
    sampled: list[float] = []
    again: list[float] = []
    async with trial.client() as client:
        prompt = await trial.prompt(client)
        sampler = await client.sampling_client()
        for temperature in (1.0, 0.5):
            params = SamplingParams(max_tokens=6, seed=3, temperature=temperature)
            for sequence in (await sampler.sample(prompt, params, 2)).sequences:
                computed = await sampler.compute_logprobs([*prompt, *sequence.tokens])
                sampled += sequence.logprobs
                again += [float(value) for value in computed[len(prompt) :]]
    return sampled, again

"""The proof that the deployed model is the one that was scored: the same prompts and the same logprobs, from the deployed files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from evsys import Registry, structure
from evsys.errors import DeployError
from evsys.types import Message, ModelSpec
from evsys_record.jsonl import read_jsonl
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.experiment.arm.contracts import prepare, prepare_options
from evsys_runtime.training.checkpoints import find_checkpoint

__all__ = ["Parity", "prove_parity"]

MOST = 50
"""Answers that are compared."""


@attrs.frozen(kw_only=True)
class Parity:
    """A comparison of `answers`, with `tokens` of them and their prompts in all, and the largest difference of a logprob."""

    answers: int
    tokens: int
    largest_difference: float
    tolerance: float


@attrs.frozen
class _Scored:
    """A call of the model as it was scored."""

    messages: Sequence[Mapping[str, Any]]
    prompt: list[int]
    answer: list[int]
    logprobs: list[float]


async def prove_parity(
    deployed: Path,
    checkpoint: Path,
    scored: Path,
    *,
    model: Mapping[str, Any],
    backend: Mapping[str, Any],
    registry: Registry,
    tolerance: float,
) -> Parity:
    """Compare a deployed model with the rollouts of its gate, and with the checkpoint itself.

    The checkpoint serves for the tokens of the prompts: a model that is sure of its answers has logprobs of 0 there, as others have.

    Args:
        deployed: the deployed model as a checkpoint, an absolute path.
        checkpoint: what was deployed, an absolute path.
        scored: the folder of the gate's evaluation of the candidate.
        model: how its run loads the model.
        backend: `kind` and `params`.
        registry: where the backend is looked up.
        tolerance: the largest difference of a logprob that counts as none.

    Raises:
        DeployError: the template gives other prompts, a logprob differs, or nothing can be compared.
    """
    calls = list(islice(_scored_calls(scored), MOST))
    if not calls:
        raise DeployError(f"{scored} has no rollouts to compare with", hint="run the gate again")
    load = partial(_logprobs, calls=calls, model=model, backend=backend, registry=registry)
    found, expected = await load(deployed), await load(checkpoint)
    largest = 0.0
    for call, mine, own in zip(calls, found, expected, strict=True):
        recorded = np.asarray(call.logprobs, dtype=np.float64)
        largest = max(
            largest, _difference(mine[1:], own[1:]), _difference(mine[len(call.prompt) :], recorded)
        )
    if not largest <= tolerance:
        raise DeployError(
            f"the deployed model is not the one that was scored: a logprob differs by {largest:.3g}, and {tolerance:g} is allowed",
            hint="compare adapter, scale, dtype and quantisation",
        )
    tokens = sum(len(each) - 1 for each in found)
    return Parity(answers=len(calls), tokens=tokens, largest_difference=largest, tolerance=tolerance)


async def _logprobs(
    folder: Path,
    *,
    calls: Sequence[_Scored],
    model: Mapping[str, Any],
    backend: Mapping[str, Any],
    registry: Registry,
) -> list[NDArray[np.float64]]:
    """The logprobs of each prompt with its answer, by the model in a folder; the first of each is NaN."""
    spec = structure(ModelSpec, {**model, "init_from_checkpoint": str(folder), "load_checkpoint_path": None})
    plugin = registry.build("backend", backend["kind"], resolve(backend["params"]))
    if "prompt_logprobs" not in plugin.capabilities:
        raise DeployError(
            f"backend {backend['kind']!r} computes no logprobs of prompts, so nothing can be proven"
        )
    client = None
    with tempfile.TemporaryDirectory() as work:
        try:
            restore = find_checkpoint(spec, folder)
            options = prepare_options(plugin, deterministic=True)
            client = await prepare(plugin.prepare(spec, Path(work), 0, restore, **options), backend["kind"])
            sampling = await client.sampling_client()
            found = []
            for call in calls:
                _require_same_prompt(client.renderer, call)
                logprobs = await sampling.compute_logprobs([*call.prompt, *call.answer])
                found.append(np.asarray(logprobs, dtype=np.float64))
            await sampling.close()
        finally:
            await plugin.teardown(client)
    return found


def _difference(found: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """The largest difference of a logprob; infinite if one isn't a number."""
    return float(np.nan_to_num(np.abs(found - expected), nan=np.inf).max(initial=0.0))


def _require_same_prompt(renderer: Any, call: _Scored) -> None:
    messages = [structure(Message, each) for each in call.messages]
    if renderer.render_prompt(messages) != call.prompt:
        raise DeployError(
            "the chat template of the deployed model gives other prompts than those that were scored",
            hint="deploy the template of the run along with the weights",
        )


def _scored_calls(scored: Path) -> Iterator[_Scored]:
    """The first calls of rollouts without tools, those of the target first."""
    for phase in ("validation", "test"):
        for line in read_jsonl(scored / phase / "rollouts.jsonl", missing_ok=True):
            rollout = line["rollout"]
            turn: Mapping[str, Any] = next(iter(rollout.get("turns") or ()), {})
            before = [each for each in rollout.get("messages") or () if each["role"] in ("system", "user")]
            usable = turn.get("tokens") and turn.get("logprobs") and turn.get("prompt_tokens")
            if usable and len(rollout["messages"]) == len(before) + 1:
                yield _Scored(before, turn["prompt_tokens"], turn["tokens"], turn["logprobs"])

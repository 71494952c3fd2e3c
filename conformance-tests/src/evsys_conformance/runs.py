"""A run without a runtime: everything in a `RunContext`, made with core alone, that watches what an algorithm does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evsys import HookManager
from evsys.types import (
    AdamParams,
    Checkpoint,
    Clients,
    Datum,
    ForwardResult,
    HarborTask,
    LoraSpec,
    Message,
    ModelSpec,
    OptimResult,
    Rollout,
    RolloutLimits,
    RunContext,
    SamplingParams,
    Score,
    StopFlag,
    Turn,
)
from evsys_conformance.toy import Rows

__all__ = ["MODEL", "Checkpoints", "Record", "WatchedClient", "context", "seeds_of"]

MODEL = ModelSpec(name="evsys/tiny", lora=LoraSpec(rank=4, alpha=32.0))


def seeds_of(base: int) -> Callable[..., int]:
    """`seeds(purpose, index)`: numbers that depend on nothing else."""

    def seed(purpose: str, index: int = 0) -> int:
        digest = hashlib.sha256(f"{base}/{purpose}/{index}".encode()).digest()
        return int.from_bytes(digest[:4], "big") >> 1

    return seed


class Log:
    """Keeps no line."""

    def debug(self, event: str, **facts: Any) -> None:
        """Pass over it."""

    info = warning = error = debug


@dataclass
class Record:
    """The record of a run, in memory."""

    steps: list[int] = field(default_factory=list)
    values: list[tuple[int, dict[str, float]]] = field(default_factory=list)

    def metrics(self, step: int, values: Mapping[str, float], *, phase: str = "training") -> None:
        """Keep metrics."""
        self.values.append((step, dict(values)))

    def rollout(self, step: int, rollout: Rollout, *, phase: str = "training", **facts: Any) -> None:
        """Pass over a rollout."""

    def intent(self, step: int, batch_id: str, row_ids: Sequence[str]) -> None:
        """Pass over an intent."""

    def done(self, step: int, batch_id: str) -> None:
        """Keep the number of a finished step."""
        self.steps.append(step)


class Checkpoints:
    """Checkpoints in folders below a run's; what the loop keeps goes through JSON, as it does in a record."""

    def __init__(self, run_dir: Path, restored: Checkpoint | None = None) -> None:
        self._folder = run_dir / "checkpoints"
        self._latest = restored
        self.restored = restored

    async def save(self, step: int, client: Any, loop: Mapping[str, Any]) -> Checkpoint:
        """Save one."""
        folder = self._folder / f"{step}-{len(list(self._folder.glob('*')))}"
        folder.mkdir(parents=True)
        state = json.loads(json.dumps(dict(await client.save_state(folder))))
        kept = json.loads(json.dumps(dict(loop)))
        self._latest = Checkpoint(step=step, directory=folder, state=state, loop=kept)
        return self._latest

    def latest(self) -> Checkpoint | None:
        """The last one."""
        return self._latest


class WatchedClient:
    """A training client that passes everything on and shows what it was asked for.

    Attributes:
        batches: a text for each `forward_backward` equal for equal data.
        steps: optimiser steps submitted.
        closed: set by a test; from then on every call fails, so that a run which ignores its end doesn't continue.
    """

    def __init__(self, client: Any, on_step: Callable[[int], None] | None = None) -> None:
        self._client = client
        self._on_step = on_step
        self.batches: list[str] = []
        self.steps = 0
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        self._check()
        return getattr(self._client, name)

    def forward_backward(
        self, data: Sequence[Datum], loss_fn: Any, loss_params: Mapping[str, Any] | None = None
    ) -> Awaitable[ForwardResult]:
        """Note the batch and pass it on."""
        self._check()
        self.batches.append(_content(data))
        done: Awaitable[ForwardResult] = self._client.forward_backward(data, loss_fn, loss_params)
        return done

    def optim_step(self, params: AdamParams) -> Awaitable[OptimResult]:
        """Count the step and pass it on."""
        self._check()
        self.steps += 1
        done: Awaitable[OptimResult] = self._client.optim_step(params)
        if self._on_step is not None:
            self._on_step(self.steps)
        return done

    def _check(self) -> None:
        if self.closed:
            raise RuntimeError("the run was cancelled, but continues")


def _content(data: Sequence[Datum]) -> str:
    digest = hashlib.sha256()
    for datum in data:
        for name, array in sorted({"tokens": datum.tokens, **datum.loss_inputs}.items()):
            digest.update(f"{name}{np.shape(array)}".encode())
            digest.update(np.asarray(array, dtype=np.float64).tobytes())
    return digest.hexdigest()


class Rollouts:
    """Training rollouts drawn from the snapshot itself; half of the samples are good, regardless of their text."""

    def __init__(self, renderer: Any, seed: int) -> None:
        self._renderer = renderer
        self._seed = seed

    async def collect(
        self,
        tasks: Sequence[HarborTask],
        snapshot: Any,
        num_samples: int,
        *,
        sampling: SamplingParams,
        limits: RolloutLimits,
        step: int,
    ) -> AsyncIterator[Rollout]:
        """Yield a rollout a sample, in the order of the tasks."""
        for task in tasks:
            said = task.instruction
            messages = (Message(role="user", content=said),) if isinstance(said, str) else said
            prompt = list(self._renderer.render_prompt(messages))
            params = SamplingParams(max_tokens=8, temperature=sampling.temperature, seed=self._seed + step)
            result = await snapshot.sample(prompt, params, num_samples)
            for index, sequence in enumerate(result.sequences):
                answer = self._renderer.parse(sequence.tokens)
                turn = Turn(
                    message=answer, prompt_tokens=prompt, tokens=sequence.tokens, logprobs=sequence.logprobs
                )
                yield Rollout(
                    task_id=task.task_id,
                    sample_index=index,
                    messages=(*messages, answer),
                    turns=(turn,),
                    output=answer.content,
                    score=Score(value=float(index % 2)),
                    policy_version=snapshot.version,
                )


def context(
    run_dir: Path,
    policy: Any,
    data: Rows,
    *,
    kind: str = "conformance",
    seed: int = 0,
    model: ModelSpec = MODEL,
    max_steps: int | None = None,
    restored: Checkpoint | None = None,
    stop: StopFlag | None = None,
    roles: Mapping[str, Any] | None = None,
) -> RunContext:
    """The context of one attempt; `roles` are the clients of second models, by role."""
    return RunContext(
        run_id="conformance-s0",
        arm="conformance",
        repeat=0,
        attempt=1 if restored is None else 2,
        run_dir=run_dir,
        config={"algorithm": {"kind": kind}, "backend": {"kind": "mock"}, "model": {"name": model.name}},
        model=model,
        seeds=seeds_of(seed),
        data=data,
        clients=Clients(policy=policy, **(roles or {})),
        record=Record(),
        checkpoints=Checkpoints(run_dir, restored),
        hooks=HookManager(),
        log=Log(),
        rollouts=Rollouts(policy.renderer, seed) if policy is not None else None,
        deterministic=True,
        max_steps=max_steps,
        stop=stop or StopFlag(),
    )

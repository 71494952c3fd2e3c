# ruff: noqa: INP001, T201 - a script that reports on a terminal
"""Pre-trains `evsys/tiny`, the base model that ships inside the wheel, with this distribution's own engine.

The model learns string operations in a chat format: `reverse: abc` is answered `cba`. It never sees rotation
(`turn: abc` -> `bca`), which is left for fine-tuning, and it learns to answer the ambiguous `do abc` with any of
seven operations, so that reinforcement has something to choose from.

    python scripts/train_tiny.py --steps 6000 --out src/evsys_backend_local/tiny/model.safetensors

Everything is drawn from the seed; the same machine and worker count give the same file.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from evsys_backend_local.engine.adam import AdamParams
from evsys_backend_local.engine.batch import Example
from evsys_backend_local.engine.engine import Engine
from evsys_backend_local.engine.sampler import SampleRequest
from evsys_backend_local.engine.shape import ModelShape
from evsys_backend_local.engine.weights import BaseWeights
from evsys_backend_local.models.safetensors import write_safetensors

START, END, PAD = 256, 257, 258
SHAPE = ModelShape(
    dim=128,
    layers=4,
    heads=4,
    kv_heads=2,
    head_dim=32,
    hidden=352,
    vocab=259,
    max_context=1024,
    rope_theta=10000.0,
)
CONSONANTS, VOWELS = "bcdfghjklmnpqrstvwxyz", "aeiou"

OPERATIONS: dict[str, Callable[[str], str]] = {
    "copy": lambda w: w,
    "reverse": lambda w: w[::-1],
    "upper": str.upper,
    "double": lambda w: w + w,
    "length": lambda w: f"{len(w)}",
    "first": lambda w: w[0],
    "last": lambda w: w[-1],
    "second": lambda w: w[1],
    "tail": lambda w: w[1:],
    "chop": lambda w: w[:-1],
    "spell": lambda w: " ".join(list(w)),
    "stutter": lambda w: w[0] + w,
    "echo": lambda w: w + w[-1],
    "wrap": lambda w: f"<{w}>",
    "plural": lambda w: w + "s",
    "dash": lambda w: "-".join(list(w)),
    "title": str.title,
    "middle": lambda w: w[1:-1],
    "ends": lambda w: w[0] + w[-1],
    "twice": lambda w: f"{w} {w}",
    "backdouble": lambda w: w[::-1] + w[::-1],
    "close": lambda w: w + w[0],
    "open": lambda w: w[-1] + w,
}
#: What `do w` may mean.
AMBIGUOUS = ("copy", "reverse", "upper", "double", "length", "first", "last")
SYSTEMS = ("Answer with one word.", "You work on words.", "Be brief.", "You are a helpful assistant.")


def word(rng: np.random.Generator) -> str:
    """A made-up word: syllables, or letters at random."""
    size = int(rng.integers(3, 9))
    if rng.random() < 0.5:
        letters = [(CONSONANTS if i % 2 else VOWELS) for i in range(int(rng.integers(2)), size + 1)]
        return "".join(str(rng.choice(list(choice))) for choice in letters)[:size]
    return "".join(rng.choice(list(CONSONANTS + VOWELS), size))


def turn(role: str, content: str) -> list[int]:
    """One message of the chat format."""
    return [START, *f"{role}\n{content}".encode(), END, 10]


def example(rng: np.random.Generator) -> Example:
    """One conversation of one or two exchanges; losses on the answers alone, their end mark included."""
    tokens: list[int] = []
    mask: list[bool] = []

    def add(ids: list[int], *, trained: bool) -> None:
        tokens.extend(ids)
        mask.extend([trained] * len(ids))

    if rng.random() < 0.15:
        add(turn("system", str(rng.choice(SYSTEMS))), trained=False)
    for _ in range(2 if rng.random() < 0.1 else 1):
        subject = word(rng)
        if rng.random() < 0.15:
            question, answer = f"do {subject}", OPERATIONS[str(rng.choice(AMBIGUOUS))](subject)
        else:
            name = str(rng.choice(list(OPERATIONS)))
            joint = ": " if rng.random() < 0.8 else " "
            question, answer = f"{name}{joint}{subject}", OPERATIONS[name](subject)
        add(turn("user", question), trained=False)
        add([START, *b"assistant\n"], trained=False)
        add([*answer.encode(), END], trained=True)
        add([10], trained=False)
    return Example(tokens=tokens[:-1], targets=tokens[1:], mask=np.asarray(mask[1:]))


def accuracy(engine: Engine, model: object, rng: np.random.Generator, per_operation: int) -> dict[str, float]:
    """Greedy exact match of each operation on fresh words."""
    scores: dict[str, float] = {}
    for name, operation in OPERATIONS.items():
        words = [word(rng) for _ in range(per_operation)]
        requests = [
            SampleRequest(
                prompt=[*turn("user", f"{name}: {subject}"), START, *b"assistant\n"],
                temperature=0.0,
                max_tokens=24,
                stop_tokens=frozenset([END]),
            )
            for subject in words
        ]
        outputs = engine.sample(model, requests)
        hits = [
            bytes(t for t in output.samples[0].tokens if t < 256).decode(errors="replace")
            == operation(subject)
            for output, subject in zip(outputs, words, strict=True)
        ]
        scores[name] = sum(hits) / len(hits)
    return scores


def main() -> None:
    """Train, report on standard error, write the weights as float16."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    engine = Engine(BaseWeights.random(SHAPE, options.seed), workers=options.workers, max_rows=1024)
    model = engine.create_full()
    rng = np.random.default_rng(options.seed)
    started = time.perf_counter()
    warmup = min(200, options.steps // 10)
    for step in range(options.steps):
        data = [example(rng) for _ in range(options.batch)]
        count = sum(int(item.mask.sum()) for item in data if item.mask is not None)

        def loss(indices, logprobs, data=data, count=count):  # noqa: ANN001, ANN202
            masks = [data[index].mask for index in indices]
            value = -sum(float(own[mask].sum()) for own, mask in zip(logprobs, masks, strict=True)) / count
            return value, [-(mask / count) for mask in masks], {}

        result = engine.forward_backward(model, data, loss, separable=True)
        if step < warmup:
            rate = options.lr * (step + 1) / warmup
        else:
            progress = (step - warmup) / (options.steps - warmup)
            rate = options.lr * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        engine.optim_step(model, AdamParams(learning_rate=rate, weight_decay=0.01))
        if step % 200 == 0 or step == options.steps - 1:
            seconds = time.perf_counter() - started
            print(
                f"step {step} loss {result.value:.4f} lr {rate:.2e} {seconds:.0f} s",
                file=sys.stderr,
                flush=True,
            )
        if step % 2000 == 1999 or step == options.steps - 1:
            scores = accuracy(engine, model, np.random.default_rng(99), 40)
            print(json.dumps(scores), file=sys.stderr, flush=True)
            arrays = {name: array.astype(np.float16) for name, array in model.params.items()}
            options.out.parent.mkdir(parents=True, exist_ok=True)
            write_safetensors(options.out, arrays, {"format": "pt"})


if __name__ == "__main__":
    main()

"""Whole trainings by tinker_cookbook's own loops: runs in an environment of peers, imports nothing of evsys.

    python peers/cookbook.py URL sft|rl WORK.json FOLDER

prints one JSON line. WORK.json is what `bench/whole_runs.py` wrote: batches that are rendered already, or prompts. Its own `train.main`
runs, with its logs and metrics on disk, without evaluations, and with one checkpoint, at the end.
"""

import asyncio
import json
import logging
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import chz
import numpy as np
import tinker
from tinker_cookbook.rl import train as rl
from tinker_cookbook.rl import types as rl_types
from tinker_cookbook.supervised import train as supervised
from tinker_cookbook.supervised.types import SupervisedDataset, SupervisedDatasetBuilder

__all__ = ["Prompts", "Rows"]


def read(path: str) -> dict:
    """The work."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


class Bytes:
    """What its loops ask of a tokenizer: texts of tokens, for what they print."""

    def decode(self, tokens: Sequence[int], **_options: object) -> str:
        return bytes(token % 256 for token in tokens).decode("utf-8", "replace")

    def encode(self, text: str, **_options: object) -> list[int]:
        return list(text.encode())


class Rows(SupervisedDataset):
    """Batches of rendered rows."""

    def __init__(self, work: dict) -> None:
        self.work = work

    def __len__(self) -> int:
        return self.work["steps"]

    def get_batch(self, index: int) -> list[tinker.Datum]:
        rows, size = self.work["rows"], self.work["batch_size"]
        chosen = [rows[(index * size + place) % len(rows)] for place in range(size)]
        return [
            tinker.Datum(
                model_input=tinker.ModelInput.from_ints(row["tokens"][:-1]),
                loss_fn_inputs={
                    "target_tokens": np.array(row["tokens"][1:], np.int64),
                    "weights": np.array(row["weights"][1:], np.float32) / size,
                },
            )
            for row in chosen
        ]

    def set_epoch(self, seed: int = 0) -> None:
        """The order stays."""


@chz.chz
class RowsBuilder(SupervisedDatasetBuilder):
    path: str

    def __call__(self) -> tuple[SupervisedDataset, None]:
        return Rows(read(self.path)), None


class OneTurn(rl_types.Env):
    """One answer, judged by its letters."""

    def __init__(self, prompt: list[int], stops: list[int]) -> None:
        self.prompt = prompt
        self.stops = stops

    async def initial_observation(self):
        return tinker.ModelInput.from_ints(self.prompt), self.stops

    async def step(self, action, *, extra=None):
        reward = sum(97 <= token < 123 for token in action) / max(len(action), 1)
        return rl_types.StepResult(
            reward=reward,
            episode_done=True,
            next_observation=tinker.ModelInput.from_ints([]),
            next_stop_condition=self.stops,
        )


class Group(rl_types.EnvGroupBuilder):
    def __init__(self, prompt: list[int], stops: list[int], size: int) -> None:
        self.prompt, self.stops, self.size = prompt, stops, size

    async def make_envs(self):
        return [OneTurn(self.prompt, self.stops) for _ in range(self.size)]


class Prompts(rl_types.RLDataset):
    """Groups of rollouts of each prompt."""

    def __init__(self, work: dict) -> None:
        self.work = work

    def __len__(self) -> int:
        return self.work["steps"]

    def get_batch(self, index: int):
        prompts, size = self.work["prompts"], self.work["groups"]
        chosen = [prompts[(index * size + place) % len(prompts)] for place in range(size)]
        return [Group(prompt, self.work["stops"], self.work["group_size"]) for prompt in chosen]


@chz.chz
class PromptsBuilder(rl_types.RLDatasetBuilder):
    path: str

    async def __call__(self):
        return Prompts(read(self.path)), None


def training(url: str, mode: str, path: str, folder: str):
    """What is to be awaited."""
    work = read(path)
    common = {
        "log_path": folder,
        "model_name": work["model"],
        "recipe_name": "bench",
        "learning_rate": work["learning_rate"],
        "lora_rank": work["lora_rank"],
        "base_url": url,
        "save_every": 0,
        "eval_every": 0,
    }
    if mode == "sft":
        supervised.get_tokenizer = lambda _name: Bytes()
        return supervised.main(
            supervised.Config(dataset_builder=RowsBuilder(path=path), lr_schedule="constant", **common)
        )
    rl.get_tokenizer = lambda _name: Bytes()
    config = rl.Config(
        dataset_builder=PromptsBuilder(path=path),
        max_tokens=work["max_tokens"],
        num_groups_to_log=0,
        **common,
    )
    return rl.main(config)


def main() -> None:
    url, mode, path, folder = sys.argv[1:]
    logging.disable(logging.WARNING)
    started, cpu = time.perf_counter(), time.process_time()
    asyncio.run(training(url, mode, path, folder))
    found = {
        "version": metadata.version("tinker-cookbook"),
        "seconds": round(time.perf_counter() - started, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
    }
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()

"""Data of the first experiment: an operation on made-up words that the tiny base model has never seen.

`turn: abc` asks for `bca`. Training and held-out tasks share no word.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evsys_cli.scaffold.write import write_new

__all__ = ["turn_rows", "turn_tasks", "words", "write_example_data"]

TRAINING_ROWS = 600
HELD_OUT_TASKS = 100
SEED = 0


def words(count: int, seed: int = SEED) -> list[str]:
    """Distinct made-up words of 3 to 7 letters."""
    draw = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(draw.choices(string.ascii_lowercase, k=draw.randint(3, 7)))] = None
    return list(found)


def _reverse_word(word: str) -> str:
    return word[1:] + word[0]


def turn_rows(subjects: Iterable[str]) -> list[dict[str, Any]]:
    """Training rows: a prompt and its answer."""
    return [{"prompt": f"turn: {word}", "answer": _reverse_word(word)} for word in subjects]


def turn_tasks(subjects: Iterable[str]) -> list[dict[str, Any]]:
    """Tasks: an instruction and the verifier that judges the reply."""
    return [
        {
            "task_id": f"turn-{index:03d}",
            "instruction": f"turn: {word}",
            "verifier": {"name": "exact_match", "expected": _reverse_word(word)},
            "metadata": {"letters": len(word)},
        }
        for index, word in enumerate(subjects)
    ]


def _jsonl(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write_example_data(target: Path) -> tuple[list[Path], list[Path]]:
    """Write dataset and validation tasks to a project; return the written and the existing paths."""
    everything = words(TRAINING_ROWS + HELD_OUT_TASKS)
    training, held_out = everything[:TRAINING_ROWS], everything[TRAINING_ROWS:]
    dataset, validation = target / "data/datasets/turn/v1", target / "data/validation/turn"
    files = {
        dataset / "train.jsonl": _jsonl(turn_rows(training[:-50])),
        dataset / "test.jsonl": _jsonl(turn_rows(training[-50:])),
        dataset
        / "metadata.yaml": "description: Turn a word around its first letter; made-up words.\nlicence: CC0-1.0\n",
        validation / "tasks.jsonl": _jsonl(turn_tasks(held_out)),
        validation
        / "metadata.yaml": "description: The same on words that no training row has.\nlicence: CC0-1.0\n",
    }
    written: list[Path] = []
    kept: list[Path] = []
    for path, text in files.items():
        (written if write_new(path, text) else kept).append(path)
    return written, kept

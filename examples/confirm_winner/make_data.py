"""Write data/: made-up words, all answered with the same two letters. No word is in two files.

python make_data.py
"""

import json
import random
import string
from pathlib import Path

DATA = Path(__file__).parent / "data"
SEED = 2
TRAIN_ROWS, HELD_OUT_TASKS, FINAL_TASKS = 120, 60, 80
ANSWER = "ok"


def words(count: int) -> list[str]:
    """Words of 3 to 6 letters, each once."""
    rng = random.Random(SEED)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 6)))] = None
    return list(found)


def row(word: str) -> dict[str, str]:
    return {"prompt": f"heard: {word}", "answer": ANSWER}


def task(word: str) -> dict[str, object]:
    return {
        "task_id": f"heard-{word}",
        "instruction": f"heard: {word}",
        "verifier": {"name": "exact_match", "expected": ANSWER},
    }


def jsonl(rows: list) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def files() -> dict[str, str]:
    """Each file's path below data/ and its text."""
    drawn = iter(words(TRAIN_ROWS + HELD_OUT_TASKS + FINAL_TASKS))
    return {
        "datasets/ok/v1/train.jsonl": jsonl([row(next(drawn)) for _ in range(TRAIN_ROWS)]),
        "validation/held_out/tasks.jsonl": jsonl([task(next(drawn)) for _ in range(HELD_OUT_TASKS)]),
        "benchmark/final/tasks.jsonl": jsonl([task(next(drawn)) for _ in range(FINAL_TASKS)]),
    }


if __name__ == "__main__":
    for path, text in files().items():
        (DATA / path).write_text(text, encoding="utf-8", newline="\n")

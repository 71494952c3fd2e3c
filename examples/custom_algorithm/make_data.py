"""Write data/: made-up words, followed by their mirror image.

python make_data.py
"""

import json
import random
import string
from pathlib import Path

DATA = Path(__file__).parent / "data"
SEED = 2
TRAIN_ROWS, HELD_OUT_TASKS = 500, 100


def words(count: int) -> list[str]:
    """Words of 3 to 5 letters, each once."""
    rng = random.Random(SEED)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 5)))] = None
    return list(found)


def row(word: str) -> dict[str, str]:
    return {"prompt": f"mirror: {word}", "answer": word + word[::-1]}


def task(word: str) -> dict[str, object]:
    return {
        "task_id": f"mirror-{word}",
        "instruction": f"mirror: {word}",
        "verifier": {"name": "exact_match", "expected": word + word[::-1]},
    }


def jsonl(rows: list) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def files() -> dict[str, str]:
    """Each file's path below data/ and its text."""
    drawn = words(TRAIN_ROWS + HELD_OUT_TASKS)
    train, held_out = drawn[:TRAIN_ROWS], drawn[TRAIN_ROWS:]
    return {
        "datasets/mirror/v1/train.jsonl": jsonl([row(word) for word in train]),
        "validation/held_out/tasks.jsonl": jsonl([task(word) for word in held_out]),
    }


if __name__ == "__main__":
    for path, text in files().items():
        (DATA / path).write_text(text, encoding="utf-8", newline="\n")

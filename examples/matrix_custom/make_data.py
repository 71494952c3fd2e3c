"""Write data/: made-up words whose first and last letters change places.

python make_data.py
"""

import json
import random
import string
from pathlib import Path

DATA = Path(__file__).parent / "data"
SEED = 1
TRAIN_ROWS, HELD_OUT_TASKS = 400, 60


def words(count: int) -> list[str]:
    """Words of 3 to 7 letters, each once."""
    rng = random.Random(SEED)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 7)))] = None
    return list(found)


def swapped(word: str) -> str:
    return word[-1] + word[1:-1] + word[0]


def row(word: str) -> dict[str, str]:
    return {"prompt": f"swap: {word}", "answer": swapped(word)}


def task(word: str) -> dict[str, object]:
    return {
        "task_id": f"swap-{word}",
        "instruction": f"swap: {word}",
        "verifier": {"name": "letters_in_place", "expected": swapped(word)},
        "metadata": {"letters": len(word)},
    }


def jsonl(rows: list) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def files() -> dict[str, str]:
    """Each file's path below data/ and its text."""
    drawn = words(TRAIN_ROWS + HELD_OUT_TASKS)
    train, held_out = drawn[:TRAIN_ROWS], drawn[TRAIN_ROWS:]
    return {
        "datasets/swap/v1/train.jsonl": jsonl([row(word) for word in train]),
        "validation/held_out/tasks.jsonl": jsonl([task(word) for word in held_out]),
    }


if __name__ == "__main__":
    for path, text in files().items():
        (DATA / path).write_text(text, encoding="utf-8", newline="\n")

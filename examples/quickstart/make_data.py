"""Write data/: made-up words, turned around their first letter.

python make_data.py
"""

import json
import random
import string
from pathlib import Path

DATA = Path(__file__).parent / "data"
SEED = 0
TRAIN_ROWS, HELD_OUT_TASKS = 600, 100


def words(count: int) -> list[str]:
    """Words of 3 to 7 letters, each once."""
    rng = random.Random(SEED)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 7)))] = None
    return list(found)


def turned(word: str) -> str:
    return word[1:] + word[0]


def row(word: str) -> dict[str, str]:
    return {"prompt": f"turn: {word}", "answer": turned(word)}


def task(number: int, word: str) -> dict[str, object]:
    return {
        "task_id": f"turn-{number:03d}",
        "instruction": f"turn: {word}",
        "verifier": {"name": "exact_match", "expected": turned(word)},
        "metadata": {"letters": len(word)},
    }


def jsonl(rows: list) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def files() -> dict[str, str]:
    """Each file's path below data/ and its text."""
    drawn = words(TRAIN_ROWS + HELD_OUT_TASKS)
    train, held_out = drawn[:TRAIN_ROWS], drawn[TRAIN_ROWS:]
    return {
        "datasets/turn/v1/train.jsonl": jsonl([row(word) for word in train]),
        "validation/held_out/tasks.jsonl": jsonl(
            [task(number, word) for number, word in enumerate(held_out)]
        ),
    }


if __name__ == "__main__":
    for path, text in files().items():
        (DATA / path).write_text(text, encoding="utf-8", newline="\n")

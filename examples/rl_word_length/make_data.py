"""Write data/: made-up words and how many letters they have.

python make_data.py
"""

import json
import random
import string
from pathlib import Path

DATA = Path(__file__).parent / "data"
SEED = 0
TRAIN_TASKS, HELD_OUT_TASKS = 400, 100


def words(count: int) -> list[str]:
    """Words of 3 to 8 letters, each once."""
    rng = random.Random(SEED)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 8)))] = None
    return list(found)


def row(word: str) -> dict[str, str]:
    return {"word": word, "length": str(len(word))}


def files() -> dict[str, str]:
    """Each file's path below data/ and its text."""
    drawn = words(TRAIN_TASKS + HELD_OUT_TASKS)
    parts = {
        "datasets/words/v1/train.jsonl": drawn[:TRAIN_TASKS],
        "validation/held_out/tasks.jsonl": drawn[TRAIN_TASKS:],
    }
    return {
        name: "".join(json.dumps(row(word), ensure_ascii=False) + "\n" for word in part)
        for name, part in parts.items()
    }


if __name__ == "__main__":
    for path, text in files().items():
        (DATA / path).write_text(text, encoding="utf-8", newline="\n")

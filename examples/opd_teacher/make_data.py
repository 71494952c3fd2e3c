"""Write data/: made-up words, turned around their first letter.

python make_data.py
"""

import json
import random
import string
from pathlib import Path

DATA = Path(__file__).parent / "data"
SEED = 1
TRAIN_WORDS, HELD_OUT_WORDS = 400, 100


def words(count: int) -> list[str]:
    """Words of 3 to 7 letters, each once."""
    rng = random.Random(SEED)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 7)))] = None
    return list(found)


def row(word: str) -> dict[str, str]:
    return {"prompt": f"turn: {word}", "completion": word[1:] + word[0]}


def files() -> dict[str, str]:
    """Each file's path below data/ and its text."""
    drawn = words(TRAIN_WORDS + HELD_OUT_WORDS)
    parts = {
        "datasets/turn/v1/train.jsonl": drawn[:TRAIN_WORDS],
        "validation/held_out/tasks.jsonl": drawn[TRAIN_WORDS:],
    }
    return {name: "".join(json.dumps(row(word)) + "\n" for word in part) for name, part in parts.items()}


if __name__ == "__main__":
    for path, text in files().items():
        (DATA / path).write_text(text, encoding="utf-8")

"""Write data/: `do` of a word, which evsys/tiny reads in several ways, and which reading is preferred.

python make_data.py
"""

import json
import random
import string
from pathlib import Path

DATA = Path(__file__).parent / "data"
SEED = 2
TRAIN_WORDS, HELD_OUT_WORDS = 300, 100
OTHERS = {
    "reverse": lambda word: word[::-1],
    "copy": lambda word: word,
    "double": lambda word: word + word,
    "length": lambda word: str(len(word)),
    "first": lambda word: word[0],
    "last": lambda word: word[-1],
}
"""Readings that are rejected in favour of the word in capitals."""


def words(rng: random.Random, count: int) -> list[str]:
    """Words of 3 to 7 letters, each once."""
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 7)))] = None
    return list(found)


def files() -> dict[str, str]:
    """Each file's path below data/ and its text."""
    rng = random.Random(SEED)
    drawn = words(rng, TRAIN_WORDS + HELD_OUT_WORDS)
    pairs = [
        {"prompt": f"do {word}", "chosen": word.upper(), "rejected": OTHERS[rng.choice(list(OTHERS))](word)}
        for word in drawn[:TRAIN_WORDS]
    ]
    tasks = [{"prompt": f"do {word}", "answer": word.upper()} for word in drawn[TRAIN_WORDS:]]
    return {
        name: "".join(json.dumps(row) + "\n" for row in rows)
        for name, rows in (
            ("datasets/capitals/v1/train.jsonl", pairs),
            ("validation/held_out/tasks.jsonl", tasks),
        )
    }


if __name__ == "__main__":
    for path, text in files().items():
        (DATA / path).write_text(text, encoding="utf-8")

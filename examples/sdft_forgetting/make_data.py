"""Write data/: words to turn around their first letter, and tasks for what evsys/tiny could do before.

python make_data.py
"""

import json
import random
import string
from pathlib import Path

DATA = Path(__file__).parent / "data"
SEED = 1
TRAIN_WORDS, HELD_OUT_WORDS = 400, 100
KNOWN = {
    "reverse": lambda word: word[::-1],
    "upper": str.upper,
    "copy": lambda word: word,
    "tail": lambda word: word[1:],
    "close": lambda word: word + word[0],
}


def words(count: int) -> list[str]:
    """Words of 3 to 7 letters, each once."""
    rng = random.Random(SEED)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 7)))] = None
    return list(found)


def turned(word: str) -> str:
    return word[1:] + word[0]


def task(number: int, operation: str, word: str, answer: str) -> dict:
    return {
        "task_id": f"{operation}-{number:03d}",
        "instruction": f"{operation}: {word}",
        "verifier": {"name": "exact_match", "expected": answer},
        "metadata": {"operation": operation},
    }


def files() -> dict[str, str]:
    """Each file's path below data/ and its text."""
    drawn = words(TRAIN_WORDS + 2 * HELD_OUT_WORDS)
    train, held_out, known = (
        drawn[:TRAIN_WORDS],
        drawn[TRAIN_WORDS:-HELD_OUT_WORDS],
        drawn[-HELD_OUT_WORDS:],
    )
    rows = {
        "datasets/turn/v1/train.jsonl": [
            {"prompt": f"turn: {word}", "completion": turned(word)} for word in train
        ],
        "validation/turn/tasks.jsonl": [
            task(i, "turn", word, turned(word)) for i, word in enumerate(held_out)
        ],
        "validation/known/tasks.jsonl": [
            task(i, name, word, KNOWN[name](word))
            for i, (word, name) in enumerate(zip(known, 20 * tuple(KNOWN), strict=True))
        ],
    }
    return {name: "".join(json.dumps(row) + "\n" for row in part) for name, part in rows.items()}


if __name__ == "__main__":
    for path, text in files().items():
        (DATA / path).write_text(text, encoding="utf-8")

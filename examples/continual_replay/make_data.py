"""Write data/: what two made-up verbs do to a word.

python make_data.py
"""

import json
import random
import string
from collections.abc import Callable
from pathlib import Path

DATA = Path(__file__).parent / "data"
SEED = 5
TRAIN_ROWS, HELD_OUT_ROWS = 200, 50

VERBS: dict[str, Callable[[str], str]] = {
    "zig": lambda word: word[::-1],
    "zag": lambda word: word.upper(),
}


def words(count: int) -> list[str]:
    """Words of 3 to 6 letters, each once."""
    rng = random.Random(SEED)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 6)))] = None
    return list(found)


def files() -> dict[str, str]:
    """Each file's path below data/ and its text. No word occurs twice."""
    each = TRAIN_ROWS + HELD_OUT_ROWS
    drawn = words(each * len(VERBS))
    made = {}
    for place, (verb, does) in enumerate(VERBS.items()):
        own = drawn[place * each : (place + 1) * each]
        parts = {
            f"datasets/{verb}/v1/train.jsonl": own[:TRAIN_ROWS],
            f"validation/{verb}/tasks.jsonl": own[TRAIN_ROWS:],
        }
        for path, of in parts.items():
            rows = ({"verb": verb, "word": word, "answer": does(word)} for word in of)
            made[path] = "".join(json.dumps(row) + "\n" for row in rows)
    return made


if __name__ == "__main__":
    for path, text in files().items():
        (DATA / path).write_text(text, encoding="utf-8", newline="\n")

"""Write data/: words, and what the made-up verb zig does to them.

python make_data.py
"""

import json
import random
import string
from pathlib import Path

DATA = Path(__file__).parent / "data"
SEED = 11
PARTS = {
    "datasets/shown/v1/train.jsonl": 24,
    "datasets/practised/v1/train.jsonl": 300,
    "validation/held_out/tasks.jsonl": 100,
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
    left = iter(words(sum(PARTS.values())))
    made = {}
    for path, count in PARTS.items():
        rows = ({"word": word, "answer": word[::-1]} for word in (next(left) for _ in range(count)))
        made[path] = "".join(json.dumps(row) + "\n" for row in rows)
    return made


if __name__ == "__main__":
    for path, text in files().items():
        (DATA / path).write_text(text, encoding="utf-8", newline="\n")

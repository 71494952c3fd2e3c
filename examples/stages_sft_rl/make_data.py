"""Write data/shown.jsonl, data/practised.jsonl and data/held_out.jsonl: words, and what the made-up verb zig does to them.

python make_data.py
"""

import json
import random
import string
from pathlib import Path

DATA = Path(__file__).parent / "data"
SEED = 11
PARTS = {"shown": 24, "practised": 300, "held_out": 100}


def words(count: int) -> list[str]:
    """Words of 3 to 6 letters, each once."""
    rng = random.Random(SEED)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 6)))] = None
    return list(found)


def files() -> dict[str, str]:
    """Name of each file and its text. No word occurs twice."""
    left = iter(words(sum(PARTS.values())))
    made = {}
    for part, count in PARTS.items():
        rows = ({"word": word, "answer": word[::-1]} for word in (next(left) for _ in range(count)))
        made[f"{part}.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows)
    return made


if __name__ == "__main__":
    for name, text in files().items():
        (DATA / name).write_text(text, encoding="utf-8", newline="\n")

"""Write data/: words, and what lies on the shelves, one of which is the word's.

python make_data.py
"""

import json
import random
import string
from pathlib import Path

DATA = Path(__file__).parent / "data"
SEED = 0
TRAIN_TASKS, HELD_OUT_TASKS = 400, 100
SHORTEST, LONGEST = 3, 8


def files() -> dict[str, str]:
    """Each file's path below data/ and its text."""
    rng = random.Random(SEED)

    def made_up(letters: int) -> str:
        return "".join(rng.choices(string.ascii_lowercase, k=letters))

    words: dict[str, None] = {}
    while len(words) < TRAIN_TASKS + HELD_OUT_TASKS:
        words[made_up(rng.randint(SHORTEST, LONGEST))] = None
    rows = []
    for word in words:
        shelves = {str(number): made_up(4) for number in range(SHORTEST, LONGEST + 1)}
        rows.append({"word": word, "shelves": shelves, "answer": shelves[str(len(word))]})
    parts = {
        "datasets/shelves/v1/train.jsonl": rows[:TRAIN_TASKS],
        "validation/held_out/tasks.jsonl": rows[TRAIN_TASKS:],
    }
    return {
        name: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in part)
        for name, part in parts.items()
    }


if __name__ == "__main__":
    for path, text in files().items():
        (DATA / path).write_text(text, encoding="utf-8", newline="\n")

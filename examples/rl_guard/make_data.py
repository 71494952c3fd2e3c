"""Write data/: made-up words and each of them backwards.

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
    """Words of 3 to 8 letters, each once, none of which reads the same backwards."""
    rng = random.Random(SEED)
    found: dict[str, None] = {}
    while len(found) < count:
        word = "".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 8)))
        if word != word[::-1]:
            found[word] = None
    return list(found)


def files() -> dict[str, str]:
    """Each file's path below data/ and its text."""
    drawn = words(TRAIN_TASKS + HELD_OUT_TASKS)
    parts = {
        "datasets/words/v1/train.jsonl": drawn[:TRAIN_TASKS],
        "validation/held_out/tasks.jsonl": drawn[TRAIN_TASKS:],
    }
    return {
        path: "".join(json.dumps({"word": word, "backwards": word[::-1]}) + "\n" for word in part)
        for path, part in parts.items()
    }


if __name__ == "__main__":
    for path, text in files().items():
        (DATA / path).write_text(text, encoding="utf-8", newline="\n")

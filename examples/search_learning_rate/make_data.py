"""Writes data/: which letter comes after another one."""

import json
from pathlib import Path
from string import ascii_lowercase

DATA = Path(__file__).parent / "data"
LETTERS = ascii_lowercase[:20]


def files() -> dict[str, str]:
    """The text of each file."""
    pairs = list(zip(LETTERS, LETTERS[1:] + LETTERS[:1], strict=True))
    rows = [{"prompt": f"after {a}", "answer": b} for a, b in pairs]
    tasks = [
        {
            "task_id": f"after-{a}",
            "instruction": f"after {a}",
            "verifier": {"name": "exact_match", "expected": b},
        }
        for a, b in pairs
    ]
    return {
        f"{name}.jsonl": "".join(f"{json.dumps(line)}\n" for line in lines)
        for name, lines in (("train", rows), ("held_out", tasks))
    }


if __name__ == "__main__":
    for name, text in files().items():
        (DATA / name).write_text(text, encoding="utf-8")

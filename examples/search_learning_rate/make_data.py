"""Write data/: which letter comes after another one. Tasks use other words than training rows.

python make_data.py
"""

import json
from pathlib import Path
from string import ascii_lowercase

DATA = Path(__file__).parent / "data"
LETTERS = ascii_lowercase[:20]


def files() -> dict[str, str]:
    """Each file's path below data/ and its text."""
    pairs = list(zip(LETTERS, LETTERS[1:] + LETTERS[:1], strict=True))
    rows = [{"prompt": f"after {a}", "answer": b} for a, b in pairs]
    tasks = [
        {
            "task_id": f"after-{a}",
            "instruction": f"which one follows {a}",
            "verifier": {"name": "exact_match", "expected": b},
        }
        for a, b in pairs
    ]
    return {
        path: "".join(f"{json.dumps(line)}\n" for line in lines)
        for path, lines in (
            ("datasets/letters/v1/train.jsonl", rows),
            ("validation/letters/tasks.jsonl", tasks),
        )
    }


if __name__ == "__main__":
    for path, text in files().items():
        (DATA / path).write_text(text, encoding="utf-8")

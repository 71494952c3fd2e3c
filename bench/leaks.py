"""CPU and memory of searching training rows for benchmark tasks, exact and nearly equal ones; prints one JSON document.

The work: texts of words drawn from a vocabulary by Zipf's law, 10 to 60 words a task and 10 to 120 a row. One row in a hundred is a
task with a word added, all of which must be found. With `--template` all tasks and rows begin with the same 25 words. `nearly_equal_tasks_s` is the clustering of the tasks.
"""

import argparse
import itertools
import json
import random
import resource
import sys
import time

SECONDS = 60  # CPU for 100,000 rows against 1,000 tasks
GROWTH = 200  # MB of memory for the index of 1,000 tasks and all rows


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000, help="training rows")
    parser.add_argument("--tasks", type=int, default=1_000, help="tasks of the benchmark")
    parser.add_argument("--template", action="store_true", help="begin all texts alike")
    parser.add_argument("--no-peers", action="store_true", help="accepted for all scripts; there is no peer")
    parser.add_argument("--check", action="store_true", help="end with 1 if a target is missed")
    arguments = parser.parse_args()
    found = measured(arguments.rows, arguments.tasks, template=arguments.template)
    print(json.dumps(found, indent=2))
    slow = found["search_s"] > SECONDS or found["growth_mb"] > GROWTH or found["found"] < found["planted"]
    sys.exit(arguments.check and slow)


def measured(rows: int, tasks: int, *, template: bool) -> dict[str, float]:
    """Search that many rows for that many tasks."""
    from evsys.types import ChatMessagesRow, HarborTask, Message
    from evsys_runtime.data.contamination import Scan
    from evsys_runtime.data.equal_tasks import first_alike
    from evsys_runtime.data.task_index import Entry, TaskIndex

    texts = Texts(random.Random(0))
    before = f"{texts.one(25, 25)} " if template else ""
    questions = [before + texts.one(10, 60) for _ in range(tasks)]
    asked = [HarborTask(task_id=f"t{n}", instruction=text) for n, text in enumerate(questions)]
    memory, begun = peak_mb(), time.process_time()
    first_alike(asked)
    clustered = time.process_time()
    index = TaskIndex([Entry(name="b", split="val", tasks=asked)])
    indexed = time.process_time()
    scan, planted, seconds = Scan(index), set(), 0.0
    for number in range(rows):
        if number % 100 == 0:
            task = number // 100 % tasks
            planted.add(task)
            text = f"please {questions[task]}"
        else:
            text = before + texts.one(10, 120)
        row = ChatMessagesRow(
            messages=(Message(role="user", content=text), Message(role="assistant", content="ok"))
        )
        start = time.process_time()
        scan.add(row)
        seconds += time.process_time() - start
    (check,) = scan.checks([Entry(name="b", split="val", tasks=asked)])
    return {
        "rows": rows,
        "tasks": tasks,
        "nearly_equal_tasks_s": round(clustered - begun, 3),
        "index_s": round(indexed - clustered, 3),
        "search_s": round(seconds, 2),
        "us_per_row": round(seconds / rows * 1e6, 1),
        "planted": len(planted),
        "found": len(check.flagged),
        "growth_mb": round(peak_mb() - memory, 1),
    }


class Texts:
    """Texts of made-up words."""

    def __init__(self, drawn: random.Random) -> None:
        self._random = drawn
        starts, vowels = "b c d f g h l m n p r s t v w st tr ch".split(), "a e i o u ea".split()
        self._words = [
            "".join(drawn.choice(starts) + drawn.choice(vowels) for _ in range(drawn.randint(1, 4)))
            for _ in range(20_000)
        ]
        self._weights = list(itertools.accumulate(1 / (rank + 10) for rank in range(len(self._words))))

    def one(self, least: int, most: int) -> str:
        """A text of so many words."""
        return " ".join(
            self._random.choices(self._words, cum_weights=self._weights, k=self._random.randint(least, most))
        )


def peak_mb() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()

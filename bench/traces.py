"""Memory and speed of importing traces, and CPU and delay of the trigger; prints one JSON document.

The log: conversations of OpenAI's form in JSON Lines, 40 to 400 words an answer, drawn by Zipf's law. The trigger: 1,000 traces as
reference, then streams in which the share of failures rises at once, or doesn't.
"""

import argparse
import json
import os
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

GROWTH_MB = 150  # memory of importing 1 GB beyond that of importing 10 MB
TRIGGER_US = 50  # CPU of a trace
LEVEL = 0.05  # of the trigger in the null streams
WORDS = [f"word{place}" for place in range(5000)]
SHARES = [1 / (place + 1) for place in range(5000)]


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the log")
    parser.add_argument("--streams", type=int, default=1000, help="unchanged streams of the trigger")
    parser.add_argument("--no-peers", action="store_true", help="accepted for all scripts; there is no peer")
    parser.add_argument("--check", action="store_true", help="end with 1 if a target is missed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        small = in_child(import_log, Path(folder, "small.jsonl"), 10)
        large = in_child(import_log, Path(folder, "large.jsonl"), arguments.megabytes)
        found = {
            "megabytes": arguments.megabytes,
            "import_mb_per_s": round(arguments.megabytes / large[0], 1),
            "import_growth_mb": round(large[1] - small[1], 1),
            "trigger_us_per_trace": round(weigh(), 1),
        }
    alarms = [delay(seed, 0.1, 0.1, 500) for seed in range(arguments.streams)]
    found["false_alarms"] = sum(each is not None for each in alarms) / max(1, arguments.streams)
    for before, after in ((0.05, 0.15), (0.1, 0.2), (0.1, 0.4)):
        delays = sorted(delay(seed, before, after, 5000, threshold=100) or 10**9 for seed in range(200))
        found[f"traces_to_find_{before:g}_to_{after:g}"] = {
            "median": delays[100],
            "of_90_percent": delays[180],
        }
    print(json.dumps(found, indent=2))
    missed = (
        found["import_growth_mb"] > GROWTH_MB
        or found["trigger_us_per_trace"] > TRIGGER_US
        or found["false_alarms"] > LEVEL
    )
    sys.exit(arguments.check and missed)


def in_child(work, *arguments):
    """The result of a function in a process of its own, whose memory is its own, too."""
    readable, writable = os.pipe()
    if os.fork() == 0:
        with os.fdopen(writable, "w") as stream:
            json.dump(work(*arguments), stream)
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as stream:
        found = json.load(stream)
    os.wait()
    return found


def import_log(path: Path, megabytes: int) -> tuple[float, float]:
    """Seconds, and MB of memory at most, of importing a log of that size."""
    from evsys_traces.importing import ImportReport, import_traces
    from evsys_traces.project import write_rows

    draw, written, number = random.Random(0), 0, 0
    with path.open("w", encoding="utf-8") as stream:
        while written < megabytes * 1e6:
            words = draw.choices(WORDS, SHARES, k=draw.randint(60, 420))
            messages = [
                {"role": "user", "content": " ".join(words[:20])},
                {"role": "assistant", "content": " ".join(words[20:])},
            ]
            line = {"messages": messages, "conversation_id": f"c-{number}", "created": 1.7e9 + number}
            written += stream.write(json.dumps(line) + "\n")
            number += 1
    begun = time.perf_counter()
    write_rows(path.with_suffix(".out"), import_traces([path], ImportReport()))
    seconds = time.perf_counter() - begun
    path.unlink()
    path.with_suffix(".out").unlink()
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def weigh() -> float:
    """Microseconds of CPU that the trigger takes for a trace, beyond reading its row."""
    from evsys_traces.trigger.features import Observed
    from evsys_traces.trigger.monitor import Monitor

    draw = random.Random(1)

    def observed(number: int) -> Observed:
        return Observed(
            time=float(number),
            key=number,
            failed=draw.random() < 0.1,
            slices={},
            words=[draw.randrange(4096) for _ in range(20)],
            characters=draw.randint(40, 200),
        )

    monitor = Monitor.from_traces(
        [observed(number) for number in range(1000)], digests={"config": "", "reference": ""}
    )
    stream = [observed(1000 + number) for number in range(20_000)]
    begun = time.process_time()
    monitor.observe(iter(stream))
    return (time.process_time() - begun) / len(stream) * 1e6


def delay(seed: int, before: float, after: float, length: int, *, threshold: float = 1 / LEVEL) -> int | None:
    """Values until the capital of a series reaches a threshold."""
    from evsys_stats.exchangeability import Martingale

    draw = random.Random(seed)
    martingale = Martingale("high", [0, 0])
    martingale.calibrate([int(draw.random() < before) for _ in range(1000)])
    for place in range(length):
        martingale.observe(int(draw.random() < after), 1 - draw.random())
        if martingale.capital >= threshold:
            return place + 1
    return None


if __name__ == "__main__":
    main()

"""What a call costs."""

import time
from collections.abc import Callable

__all__ = ["measure"]


def measure(
    call: Callable[[int], object], count: int, rounds: int, *, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """Microseconds a call, the least mean over the rounds: of CPU by `clock`, and of wall time."""
    cpu, wall = [], []
    for _ in range(rounds):
        start = clock(), time.perf_counter()
        for step in range(count):
            call(step)
        end = clock(), time.perf_counter()
        cpu.append((end[0] - start[0]) / count * 1e6)
        wall.append((end[1] - start[1]) / count * 1e6)
    return {"cpu_min": round(min(cpu), 2), "wall_min": round(min(wall), 2), "n": count * rounds}

"""Rollouts of the `harbor` engine with a model that answers at once: what a trial costs above the call of the model.

    python bench/harbor.py [--tasks 500] [--samples 4] [--concurrent 64] [--rounds 3] [--many 10000] [--check]

Prints one JSON document. `cpu_ms_per_rollout` and `rollouts_per_second` are of the best round; `harbor_alone_cpu_ms` is what a trial
costs in which agent, environment and verifier do nothing, through Harbor's own queue in the same process. `lag_p99_ms` is how late
a training loop on the caller's event loop is woken up every millisecond while 256 rollouts are in flight. `growth_mb` is what the
process grows by while `--many` rollouts run, after as many as a round has.
"""

# ruff: noqa: E402
import argparse
import asyncio
import gc
import json
import logging
import sys
import tempfile
import threading
import time
from importlib import metadata
from pathlib import Path

# This folder, whose scripts are called what they measure, would hide the package harbor.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

from evsys.errors import PluginLoadError
from evsys.types import Completion, HarborTask, Message, Policy, RolloutLimits, SamplingParams, Score, Usage
from evsys_rollouts_harbor.engine import HarborEngine
from evsys_std.agents import ChatAgent

BARS = {"cpu_ms_per_rollout": 6.0, "lag_p99_ms": 20.0, "growth_mb_per_1000": 1.0, "files_left": 0}
RATE = 150.0


class InstantModel:
    """Gives every conversation the same answer after one turn of the event loop, or after some seconds."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    async def generate(self, messages, sampling, *, n=1, tools=()):
        await asyncio.sleep(self.seconds)
        message = Message(role="assistant", content="42")
        usage = Usage(prompt_tokens=12, completion_tokens=2)
        return [Completion(message=message, finish_reason="stop", usage=usage)] * n


async def right(_task, rollout):
    return Score(value=float(rollout.output == "42"))


def tasks(count):
    return [HarborTask(task_id=f"task-{i}", instruction=f"What is {i} plus {i + 1}?") for i in range(count)]


async def rollouts(count, samples, concurrent, model=None):
    policy = Policy(
        model=model or InstantModel(),
        agent=ChatAgent(),
        verify=right,
        num_samples=samples,
        sampling=SamplingParams(seed=1),
    )
    done = 0
    async for rollout in HarborEngine().run(tasks(count), policy, RolloutLimits(n_concurrent=concurrent)):
        assert rollout.score == Score(value=1.0), rollout
        done += 1
    return done


def one_round(args):
    wall, cpu = time.perf_counter(), time.process_time()
    done = asyncio.run(rollouts(args.tasks, args.samples, args.concurrent))
    return (time.process_time() - cpu) / done * 1e3, done / (time.perf_counter() - wall)


def harbor_alone(count, concurrent):
    """CPU of a trial in which nothing of ours is, in a thread as the engine has it."""
    from evsys_rollouts_harbor import api
    from evsys_rollouts_harbor.folders import Folders

    folders = Folders(limits=RolloutLimits(), most=0)
    folders.open()

    async def main():
        queue = api.TrialQueue(n_concurrent=concurrent)
        configs = [
            api.TrialConfig(
                task=api.TrialTaskConfig(path=folders.stub),
                trial_name=f"alone-{i}",
                trials_dir=folders.trials,
                agent=api.TrialAgentConfig(import_path="harbor.agents.nop:NopAgent"),
                environment=api.TrialEnvironmentConfig(import_path="evsys_rollouts_harbor.places:Nowhere"),
                verifier=api.TrialVerifierConfig(import_path=f"{__name__}:Nothing"),
            )
            for i in range(count)
        ]
        cpu = time.process_time()
        await asyncio.gather(*queue.submit_batch(configs))
        return (time.process_time() - cpu) / count * 1e3

    class Nothing(api.BaseVerifier):
        async def verify(self):
            return api.VerifierResult(rewards={"reward": 1.0})

    globals()["Nothing"] = Nothing
    found = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(main())))
    thread.start()
    thread.join()
    folders.close()
    return found[0]


def lag(count, concurrent):
    """How many milliseconds a loop is late that wants to be woken up every millisecond, at the 50th and 99th percentile."""
    late = []

    async def heartbeat():
        while True:
            due = time.perf_counter() + 0.001
            await asyncio.sleep(0.001)
            late.append((time.perf_counter() - due) * 1e3)

    async def main():
        beating = asyncio.create_task(heartbeat())
        await rollouts(count, 1, concurrent, InstantModel(0.5))
        beating.cancel()

    asyncio.run(main())
    late.sort()
    return late[len(late) // 2], late[len(late) * 99 // 100]


def resident_mb():
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--concurrent", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--check", action="store_true", help="end with 1 where a bar is missed")
    args = parser.parse_args()
    try:
        HarborEngine()
    except PluginLoadError as exc:
        print(json.dumps({"bench": "harbor", "skipped": str(exc)}))
        return 0
    logging.getLogger("harbor").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="evsys-bench-harbor-") as folder:
        tempfile.tempdir = folder
        from evsys_rollouts_harbor import folders

        in_memory = folders._IN_MEMORY  # noqa: SLF001 - its files are counted
        before = {entry.name for entry in in_memory.iterdir()} if in_memory.is_dir() else set()
        asyncio.run(rollouts(20, 1, 8))
        rounds = [one_round(args) for _ in range(args.rounds)]
        alone = min(harbor_alone(500, args.concurrent) for _ in range(args.rounds))
        p50, p99 = lag(1024, 256)
        gc.collect()
        grown = resident_mb()
        if args.many:
            asyncio.run(rollouts(args.many // args.samples, args.samples, args.concurrent))
            gc.collect()
        grown = resident_mb() - grown
        left = sum(1 for _ in Path(folder).rglob("*"))
        if in_memory.is_dir():
            left += len({entry.name for entry in in_memory.iterdir()} - before)
    result = {
        "bench": "harbor",
        "harbor_version": metadata.version("harbor"),
        "cpu_ms_per_rollout": round(min(cpu for cpu, _ in rounds), 2),
        "rollouts_per_second": round(max(rate for _, rate in rounds), 1),
        "harbor_alone_cpu_ms": round(alone, 2),
        "lag_p50_ms": round(p50, 2),
        "lag_p99_ms": round(p99, 2),
        "growth_mb": round(grown, 1),
        "growth_mb_per_1000": round(grown / args.many * 1000, 3) if args.many else 0.0,
        "files_left": left,
        "rounds": [{"cpu_ms": round(cpu, 2), "rate": round(rate, 1)} for cpu, rate in rounds],
        "bars": {**BARS, "rollouts_per_second": RATE},
    }
    print(json.dumps(result, indent=2))
    missed = [name for name, bar in BARS.items() if result[name] > bar]
    missed += ["rollouts_per_second"] if result["rollouts_per_second"] < RATE else []
    return int(args.check and bool(missed))


if __name__ == "__main__":
    sys.exit(main())

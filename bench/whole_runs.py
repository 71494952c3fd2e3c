"""Whole trainings over one server, by evsys and by tinker_cookbook's own loops beside it; prints one JSON document.

    python bench/whole_runs.py [--backend mock] [--steps 40] [--runs 3] [--only sft] [--peer PYTHON] [--check]

The server is `evsys serve` in a process of its own: `mock`, which is next to nothing but the protocol, or `local`. `sft` has 32 rows a step, which
evsys renders as they are needed and the peer gets rendered; `rl` has 8 groups of 8 rollouts a step, one turn of 16 tokens, judged by its letters. Both
write their metrics, evsys its record with every rollout besides, and save a checkpoint at the end; connecting counts, importing doesn't. Time and
CPU of the client's process, the least of several runs, which take turns. The evsys side needs the package `tinker`; PYTHON has `tinker-cookbook`.
With `--check` it ends with 1 where evsys takes longer.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import attrs
from support.bare_run import Rows, bare_run
from support.served import served

from evsys import Registry, use_registry
from evsys.types import HarborTask, LoraSpec, Message, ModelSpec, VerifierSpec
from evsys_record.run_record import RunRecord
from evsys_runtime.evaluation.agents import FunctionAgent
from evsys_runtime.evaluation.rollouts import TrainingRollouts
from evsys_runtime.rendering.resolve import load_renderer

MODEL = "evsys/tiny"
RANK, RATE = 8, 1e-3
ROWS, GROUPS, GROUP_SIZE, TOKENS = 32, 8, 8, 16
TEXTS = [f"turn of word{index}" for index in range(600)]
MODES = ("sft", "rl")
PEER = Path(__file__).with_name("peers") / "cookbook.py"


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", default="mock", choices=("mock", "local"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--runs", type=int, default=3, help="runs (the least counts)")
    parser.add_argument("--only", choices=MODES, help="one of both")
    parser.add_argument("--peer", help="a Python that has tinker-cookbook")
    parser.add_argument(
        "--check", action="store_true", help="end with 1 where evsys takes longer than the peer"
    )
    options = parser.parse_args()
    if find_spec("tinker") is None:
        sys.stdout.write(
            '{"format": 1, "bench": "whole_runs", "skipped": "the package tinker isn\'t installed"}\n'
        )
        return
    with (
        tempfile.TemporaryDirectory(prefix="evsys-bench-whole-") as name,
        served(Path(name) / "server", options.backend) as (url, _),
    ):
        found = {
            mode: measured(mode, url, options, Path(name)) for mode in MODES if options.only in (None, mode)
        }
    document = {
        "format": 1,
        "bench": "whole_runs",
        "python": platform.python_version(),
        "tinker": version("tinker"),
        "server": options.backend,
        "steps": options.steps,
        "load": round(os.getloadavg()[0], 2),
        **found,
    }
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    slower = [
        mode
        for mode, both in found.items()
        if "cookbook" in both and both["evsys"]["seconds"] > both["cookbook"]["seconds"]
    ]
    if options.check and slower:
        sys.exit(f"evsys takes longer than tinker_cookbook: {', '.join(slower)}")


def measured(mode: str, url: str, options: argparse.Namespace, folder: Path) -> dict[str, dict[str, float]]:
    """Both, in turns."""
    work = folder / f"{mode}.json"
    work.write_text(json.dumps(work_of(mode, options.steps)))
    ours, theirs = [], []
    for index in range(options.runs):
        ours.append(asyncio.run(evsys_run(mode, url, options.steps, folder / f"{mode}-{index}")))
        if options.peer is not None:
            theirs.append(peer_run(options.peer, mode, url, work, folder / f"{mode}-peer-{index}"))
    found = {"evsys": least(ours)}
    return {**found, "cookbook": {"version": theirs[0]["version"], **least(theirs)}} if theirs else found


def least(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: min(run[name] for run in runs) for name in ("seconds", "cpu_seconds")}


def conversation(text: str) -> list[Message]:
    return [Message(role="user", content=text), Message(role="assistant", content=text[::-1])]


def work_of(mode: str, steps: int) -> dict[str, object]:
    """The same work as the peer takes it."""
    renderer = load_renderer(MODEL)
    common = {"model": MODEL, "steps": steps, "learning_rate": RATE, "lora_rank": RANK}
    if mode == "sft":
        rows = [renderer.render_training(conversation(text))[0] for text in TEXTS]
        listed = [
            {"tokens": list(map(int, tokens)), "weights": list(map(float, weights))}
            for tokens, weights in rows
        ]
        return {**common, "rows": listed, "batch_size": ROWS}
    prompts = [renderer.render_prompt([Message(role="user", content=text)]) for text in TEXTS[:64]]
    return {
        **common,
        "prompts": [list(map(int, prompt)) for prompt in prompts],
        "stops": sorted(renderer.tokenizer.eos_token_ids),
        "groups": GROUPS,
        "group_size": GROUP_SIZE,
        "max_tokens": TOKENS,
    }


def peer_run(python: str, mode: str, url: str, work: Path, folder: Path) -> dict[str, float]:
    command = [python, str(PEER), url, mode, str(work), str(folder)]
    environment = {**os.environ, "TINKER_API_KEY": "tml-bench", "TINKER_TELEMETRY": "0"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"the peer failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


# --- evsys ------------------------------------------------------------------------------------------------------------


def lower(output: str, _expected: object, _params: object) -> float:
    """The share of small letters."""
    return sum("a" <= letter <= "z" for letter in output) / max(len(output), 1)


async def chat(task, model, ctx):
    found = await model.generate([Message(role="user", content=task.instruction)], ctx.sampling)
    return found[0].message.content


async def evsys_run(mode: str, url: str, steps: int, folder: Path) -> dict[str, float]:
    """One whole training."""
    import tinker  # noqa: F401 - importing doesn't count, that of the client neither

    from evsys_backend_tinker import TinkerBackend

    registry = Registry()
    registry.register("verifier", "lower", lower)
    with use_registry(registry):
        algorithm, data = work_for_evsys(mode, steps)
        started, cpu = time.perf_counter(), time.process_time()
        backend = TinkerBackend(provider="evsys", base_url=url)
        record = RunRecord(folder)
        record.create(mode)
        client = await backend.prepare(ModelSpec(name=MODEL, lora=LoraSpec(rank=RANK)), folder, 0)
        ctx = attrs.evolve(bare_run(record, client, 0), data=data)
        rollouts = TrainingRollouts(
            renderer=client.renderer,
            agent=FunctionAgent(chat),
            registry=registry,
            seeds=ctx.seeds,
            record=record,
        )
        await algorithm.train(attrs.evolve(ctx, rollouts=rollouts if mode == "rl" else None))
        await rollouts.close()
        await backend.teardown(client)
        record.close()
    return {
        "seconds": round(time.perf_counter() - started, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
    }


def work_for_evsys(mode: str, steps: int):
    """The algorithm and its rows."""
    from evsys.types import ChatMessagesRow
    from evsys_algo_rl import RL
    from evsys_algo_sft import SFT

    common = {
        "learning_rate": RATE,
        "lr_schedule": "constant",
        "lora_rank": RANK,
        "steps": steps,
        "save_every": 0,
    }
    if mode == "sft":
        rows = Rows(
            ChatMessagesRow(messages=tuple(conversation(text)), row_id=str(i)) for i, text in enumerate(TEXTS)
        )
        return SFT(batch_size=ROWS, **common), rows
    verifier = VerifierSpec(name="lower")
    tasks = Rows(
        HarborTask(task_id=f"task-{i}", instruction=text, verifier=verifier)
        for i, text in enumerate(TEXTS[:64])
    )
    params = {"batch_size": GROUPS, "group_size": GROUP_SIZE, "max_tokens": TOKENS, "max_staleness": 0}
    return RL(**params, **common), tasks


if __name__ == "__main__":
    main()

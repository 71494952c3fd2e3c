"""verifiers on the tasks of `bench/evaluation.py`: runs in an environment of peers, imports nothing of evsys.

    python peers/verifiers_served.py TASKS.jsonl CONCURRENT URL MODEL HARNESS

prints one JSON line. HARNESS is `null`, the chat loop that verifiers brings, a process for each rollout, or `verifiers_served`:
the cheapest harness that its documentation allows, one request from within its own process, by way of its interception
server, which both need. Its own `run_eval` runs and writes the episodes. The file is the plugin that holds taskset and harness, too.
"""

import asyncio
import json
import resource
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

import aiohttp
import verifiers.v1 as vf
from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig

__all__ = ["ExactTaskset", "InProcess"]

PLUGIN = Path(__file__).stem


class ExactData(vf.TaskData):
    """A question and the only right answer."""

    answer: str


class ExactTask(vf.Task[ExactData]):
    """Rewards the answer that is right to the letter."""

    @vf.reward
    async def exact(self, task: ExactData, trace: vf.Trace) -> float:
        return float(trace.last_reply.strip() == task.answer)


class ExactConfig(vf.TasksetConfig):
    """The file of the tasks."""

    path: str = ""


class ExactTaskset(vf.Taskset[ExactTask, ExactConfig]):
    """The tasks of a file."""

    def load(self):
        for line in Path(self.config.path).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            data = ExactData(id=row["id"], prompt=row["question"], answer=row["answer"])
            yield ExactTask(data, self.config.task)


class InProcessConfig(vf.HarnessConfig):
    """Has no keys of its own."""


class InProcess(vf.Harness[InProcessConfig]):
    """Asks once, over connections that all rollouts share."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False
    connections: aiohttp.ClientSession | None = None

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):  # noqa: PLR0917 - its interface
        body = {"model": ctx.model, "messages": [{"role": "user", "content": data.prompt}]}
        headers = {"Authorization": f"Bearer {secret}"}
        address = f"{endpoint}/chat/completions"
        async with type(self).connections.post(address, json=body, headers=headers) as answer:
            said = await answer.text()
        return vf.ProgramResult(exit_code=int(answer.status != 200), stdout="", stderr=said)


async def run(options, limit, folder):
    """The finished episodes of the first `limit` tasks, with wall and CPU seconds, those of child processes included."""
    path, concurrent, url, model, harness = options
    config = EvalConfig.model_validate(
        {
            "env": {
                "taskset": {"id": PLUGIN, "path": path},
                "agent": {"harness": {"id": harness}, "runtime": {"type": "subprocess"}},
            },
            "select": {"limit": limit},
            "model": model,
            "client": {"type": "eval", "base_url": url},
            "max_concurrent": int(concurrent),
            "push": False,
            "rich": None,
            "output_dir": folder,
        }
    )
    wall, cpu = time.perf_counter(), cpu_seconds()
    episodes = await run_eval(config)
    return episodes, time.perf_counter() - wall, cpu_seconds() - cpu


def cpu_seconds():
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


async def measured(options, folder):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as InProcess.connections:
        await run(options, 1, f"{folder}/first")  # what is imported, compiled and installed once
        return await run(options, None, f"{folder}/all")


def main():
    options = sys.argv[1:]
    sys.modules[PLUGIN] = sys.modules[__name__]  # plugins are imported by name; this one is here already
    with tempfile.TemporaryDirectory(prefix="evsys-bench-verifiers-") as folder:
        episodes, wall, cpu = asyncio.run(measured(options, folder))
        written = sum(path.stat().st_size for path in Path(folder).glob("all/*/traces.jsonl"))
    failed = [episode for episode in episodes if not episode.ok]
    if failed:
        told = failed[0].errors or [error for trace in failed[0].traces for error in trace.errors]
        sys.exit(f"{len(failed)} of {len(episodes)} episodes failed, the first: {told}")
    rewards = [trace.reward for episode in episodes for trace in episode.traces]
    figures = {
        "version": metadata.version("verifiers"),
        "rollouts": len(episodes),
        "mean_reward": sum(rewards) / len(rewards),
        "rollouts_per_second": round(len(episodes) / wall, 1),
        "cpu_ms_per_rollout": round(1000 * cpu / len(episodes), 2),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "bytes_written": written,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

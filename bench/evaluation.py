"""Evaluation beside its peers, in one run: the same tasks, the same answer, exact match, results on disk.

    python bench/evaluation.py [--tasks 1000] [--concurrent 64] [--peers PYTHON] [--harbor PYTHON] [--json] [--check]

Prints a table, or one JSON document. What is compared:

- `answered in process`: the `direct` engine, and inspect-ai with its mock model;
- `answered by a server`: the `direct` engine through the `openai_compatible` client, and verifiers, both asking the
  chat-completions server of evsys, which is a process of its own, on this machine. verifiers runs once with one request from
  within its process, and once, on `--few` tasks, with the chat loop that it brings, which starts a process for each rollout;
- `harbor engine`: `bench/harbor.py`, in a Python that has Harbor.

Each line is a process of its own. CPU is user and system time a rollout, without the server's, which stands beside it. What
can't run here is told with the reason. `--peers` and `--harbor` name environments or their Pythons; `nox -s bench --
evaluation` makes both.
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
LONGEST_SECONDS = 1800
DIRECT = "evsys, engine direct"
HARBOR = "evsys, engine harbor"
IN_PROCESS, SERVED, SANDBOXED = "answered in process", "answered by a server", "harbor engine"
COLUMNS = (
    ("rollouts", "rollouts"),
    ("rollouts_per_second", "rollouts/s"),
    ("cpu_ms_per_rollout", "CPU ms"),
    ("server_cpu_ms_per_rollout", "server CPU ms"),
    ("peak_rss_mb", "peak MB"),
)


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--few", type=int, default=32, help="tasks where each rollout is a process")
    parser.add_argument("--concurrent", type=int, default=64, help="rollouts at once")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of evsys, the best of which counts")
    parser.add_argument("--peers", type=Path, help="a Python that has inspect-ai and verifiers")
    parser.add_argument(
        "--harbor", type=Path, default=Path(sys.executable), help="one with evsys and Harbor (default: this)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--check", action="store_true", help="end with 1 where evsys misses a bar")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    with tempfile.TemporaryDirectory(prefix="evsys-bench-evaluation-") as folder:
        lines = measured(options, Path(folder))
    document = {
        "format": 1,
        "bench": "evaluation",
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "tasks": options.tasks,
        "concurrent": options.concurrent,
        "lines": lines,
        "bars": bars(lines),
    }
    print(json.dumps(document, indent=2) if options.json else table(document))
    missed = [
        f"{bar['figure']} {bar['value']} ({bar['bar']})" for bar in document["bars"] if bar["met"] is False
    ]
    missed += [line["name"] for line in lines if line["name"] in {DIRECT, HARBOR} and "failed" in line]
    if options.check and missed:
        sys.exit("missed: " + ", ".join(missed))


def measured(options: argparse.Namespace, folder: Path) -> list[dict]:
    """The lines of the table, one process after another."""
    tasks = [folder / "tasks.jsonl", folder / "few.jsonl"]
    write_tasks(options, tasks)
    peers, harbor = python_of(options.peers), python_of(options.harbor)
    width = str(options.concurrent)
    direct = [
        *(sys.executable, str(HERE / "rollouts.py"), "--samples=1"),
        *(f"--tasks={options.tasks}", f"--rounds={options.rounds}", f"--concurrent={width}"),
    ]
    lines = [
        {"work": IN_PROCESS, "name": DIRECT} | ours(direct, options.tasks),
        {"work": IN_PROCESS, "name": "inspect-ai, mockllm"}
        | theirs(peers, ["inspect_mock.py", str(tasks[0]), width], folder),
    ]
    with server() as (process, url):
        loops = {"verifiers_served": "asked in its process", "null": "its own loop, a process each"}
        before = cpu_ms(process)
        found = ours([*direct, f"--served={url}"], options.tasks)
        # every round asks the server
        lines.append({"work": SERVED, "name": DIRECT} | with_server(found, process, before, options.rounds))
        for (harness, told), path in zip(loops.items(), tasks, strict=True):
            command = ["verifiers_served.py", str(path), width, url, "instant", harness]
            if harness == "null":
                command[2] = str(min(options.concurrent, 8))  # each is a Python of its own
            before = cpu_ms(process)
            found = theirs(peers, command, folder, needs="uv" if harness == "null" else None)
            lines.append(
                {"work": SERVED, "name": f"verifiers, {told}"} | with_server(found, process, before, 1)
            )
    return [*lines, *sandboxed(harbor, options)]


def write_tasks(options: argparse.Namespace, paths: list[Path]) -> None:
    """The tasks that `rollouts.py` scores, for the others: all, and few."""
    from rollouts import make_tasks

    rows = [
        json.dumps({"id": task.task_id, "question": task.instruction, "answer": task.verifier.expected})
        for task in make_tasks(options.tasks)
    ]
    for path, count in zip(paths, (options.tasks, options.few), strict=True):
        path.write_text("\n".join(rows[:count]), encoding="utf-8")


def python_of(given: Path | None) -> Path | None:
    """The Python of an environment, or the one that was given."""
    if given is None:
        return None
    # not resolved: the Python of an environment is a link
    return (given / "bin" / "python" if given.is_dir() else given).absolute()


def ours(argv: list[str], rollouts: int) -> dict:
    """The figures of `rollouts.py`."""
    found = outcome(argv)
    if "failed" in found:
        return found
    version = metadata.version("evsys-runtime")
    return {"version": version, "rollouts": rollouts} | {
        key: found[key] for key, _ in COLUMNS if key in found
    }


def theirs(peers: Path | None, command: list[str], folder: Path, *, needs: str | None = None) -> dict:
    """The figures of a peer, or why there are none."""
    if peers is None:
        return {"skipped": "--peers names no Python that has it"}
    if needs is not None and shutil.which(needs) is None:
        return {"skipped": f"{needs}, which it calls, is not on the path"}
    home = folder / "home"  # what a peer leaves in its user's home goes with the folder
    home.mkdir(exist_ok=True)
    script, *arguments = command
    argv = [str(peers), str(HERE / "peers" / script), *arguments]
    return outcome(argv, env={**os.environ, "HOME": str(home), "HF_HUB_OFFLINE": "1"}, cwd=folder)


def sandboxed(harbor: Path, options: argparse.Namespace) -> list[dict]:
    """The lines of `bench/harbor.py`: ours, and Harbor with nothing in it."""
    found = outcome([str(harbor), str(HERE / "harbor.py"), f"--concurrent={options.concurrent}"])
    line = {"work": SANDBOXED, "name": HARBOR}
    if "skipped" in found or "failed" in found:
        return [line | found]
    alone = {"work": SANDBOXED, "name": "Harbor, with nothing in it", "version": found["harbor_version"]}
    return [
        line | {"details": found} | {key: found[key] for key, _ in COLUMNS if key in found},
        alone | {"cpu_ms_per_rollout": found["harbor_alone_cpu_ms"]},
    ]


def outcome(argv: list[str], **place: object) -> dict:
    """The JSON that a script prints, or how it failed."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=LONGEST_SECONDS, **place
        )
    except OSError as exc:
        return {"failed": f"{argv[0]} can't be run: {exc.strerror}"}
    except subprocess.TimeoutExpired:
        return {"failed": f"took longer than {LONGEST_SECONDS} seconds"}
    start = f"\n{done.stdout}".find("\n{")
    if done.returncode == 0 and start >= 0:
        return json.JSONDecoder().raw_decode(done.stdout, start)[0]
    return {"failed": (done.stderr.strip().splitlines() or ["no output"])[-1]}


# --- the server -------------------------------------------------------------------------------------------------------


@contextmanager
def server():
    """A process that serves the model, and its address."""
    argv = [sys.executable, str(Path(__file__).resolve()), "--serve"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip()
        if not url:
            sys.exit("the server didn't start")
        try:
            yield process, url
        finally:
            process.stdin.close()  # which is what it waits for


async def serve() -> None:
    """Serve the model of `rollouts.py` until the standard input ends."""
    from rollouts import MODEL, instant_model

    from evsys_runtime.rendering.resolve import load_renderer
    from evsys_runtime.serving.models import FixedCatalogue, ServedModel
    from evsys_runtime.serving.server import chat_server

    renderer = load_renderer("evsys/tiny")
    model = ServedModel(
        name=MODEL,
        sampling_client=instant_model(renderer),
        renderer=renderer,
        tokenizer=renderer.tokenizer,
    )
    async with chat_server(FixedCatalogue(model)) as url:
        print(url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


def cpu_ms(process: subprocess.Popen) -> float:
    """CPU milliseconds that a process has used so far, as Linux counts them."""
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def with_server(found: dict, process: subprocess.Popen, before: float, rounds: int) -> dict:
    """The figures with the server's CPU of a rollout."""
    if "rollouts" not in found:
        return found
    spent = (cpu_ms(process) - before) / (rounds * found["rollouts"])
    return found | {"server_cpu_ms_per_rollout": round(spent, 2)}


# --- what is told -----------------------------------------------------------------------------------------------------


def bars(lines: list[dict]) -> list[dict]:
    """Each bar of evsys: the figure, its value, the bar, and whether it is met; None where it wasn't measured."""
    from rollouts import TARGET

    def bar(figure: str, value: float | None, limit: float, *, least: bool) -> dict:
        met = None if value is None else (value >= limit if least else value <= limit)
        return {"figure": figure, "value": value, "bar": f"{'>=' if least else '<='} {limit:g}", "met": met}

    direct = next(line for line in lines if (line["work"], line["name"]) == (IN_PROCESS, DIRECT))
    details = next((line["details"] for line in lines if "details" in line), None)
    found = [bar("direct: rollouts_per_second", direct.get("rollouts_per_second"), TARGET, least=True)]
    if details is None:
        return [*found, {"figure": "harbor", "value": None, "bar": "those of bench/harbor.py", "met": None}]
    return found + [
        bar(f"harbor: {name}", details[name], limit, least=name == "rollouts_per_second")
        for name, limit in details["bars"].items()
    ]


def table(document: dict) -> str:
    """The lines side by side, as Markdown, then the bars."""
    head = ["work", "with", "version", *(title for _, title in COLUMNS)]
    rows = [head, ["---"] * len(head)]
    for line in document["lines"]:
        why = next((f"{key}: {line[key]}" for key in ("skipped", "failed") if key in line), None)
        figures = [written(line[key]) if key in line else "" for key, _ in COLUMNS]
        cells = [why, *[""] * (len(COLUMNS) - 1)] if why else figures
        rows.append([line["work"], line["name"], line.get("version", ""), *cells])
    reasons = 20  # what is longer than that isn't a figure, and sets no width
    widths = [
        max(len(row[place]) for row in rows if place < 3 or len(row[place]) < reasons)
        for place in range(len(head))
    ]
    text = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    said = {True: "met", False: "MISSED", None: "not measured"}
    text += ["", f"{document['cpus']} CPUs, load average {document['load_average']}"]
    text += [f"{bar['figure']}: {bar['value']} ({bar['bar']}) {said[bar['met']]}" for bar in document["bars"]]
    return "\n".join(text)


def written(number: float) -> str:
    return (
        f"{number:,}" if isinstance(number, int) else f"{number:,.1f}" if number >= 100 else f"{number:.3g}"
    )


if __name__ == "__main__":
    main()

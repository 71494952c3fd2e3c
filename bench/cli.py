"""CPU time of short commands, evsys beside its peers; prints one JSON document.

A command's figure is the least user + system time of its process over a number of runs: the least, because other
work on the machine only ever adds. Wall time is reported too, and is not what the budgets are about.

Every process finds its modules compiled, as it does from the second run after an installation on: the first run of each
command writes them into a folder of this script, whatever PYTHONDONTWRITEBYTECODE says. Where nothing is ever kept
compiled, commands take twice as long.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUICKSTART = ROOT / "examples/quickstart/config.yaml"

# CPU milliseconds that each command may take.
BUDGETS = {"--help": 100, "list": 130, "list, 200 plugins more": 150, "validate": 450}
PLUGINS = 200

HYDRA_APP = """
import hydra

@hydra.main(version_base=None)
def app(config):
    pass

app()
"""


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=12, help="runs of each command (the least counts)")
    parser.add_argument("--peers", type=Path, help="a virtual environment that has peers installed")
    parser.add_argument("--check", action="store_true", help="end with 1 if evsys exceeds a budget")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="evsys-bench-") as compiled:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        results = [measure_evsys(options.runs)]
        if options.peers:
            results += measure_peers(options.peers / "bin", options.runs)
        floor = measure([sys.executable, "-c", "pass"], options.runs)
    document = {
        "python": platform.python_version(),
        "unit": "milliseconds",
        "bare_interpreter": floor,
        "budgets_cpu": BUDGETS,
        "results": results,
    }
    print(json.dumps(document, indent=2))
    over = [name for name, budget in BUDGETS.items() if results[0]["commands"][name]["cpu_min"] > budget]
    if options.check and over:
        sys.exit(f"over budget: {', '.join(over)}")


def measure_evsys(runs: int) -> dict:
    evsys = str(Path(sys.executable).with_name("evsys"))
    with tempfile.TemporaryDirectory(prefix="evsys-plugins-") as folder:
        install_plugins(Path(folder))
        crowded = {**os.environ, "PYTHONPATH": folder}
        listed = subprocess.run(
            [evsys, "list"], env=crowded, capture_output=True, text=True, check=True
        ).stdout
        if listed.count("evsys-dummy") != PLUGINS:
            sys.exit(f"evsys list shows {listed.count('evsys-dummy')} of {PLUGINS} plugins")
        with_plugins = measure([evsys, "list"], runs, crowded)
    return {
        "name": "evsys",
        "version": metadata.version("evsys-cli"),
        "distributions_installed": len(list(metadata.distributions())),
        "commands": {
            "--help": measure([evsys, "--help"], runs),
            "list": measure([evsys, "list"], runs),
            f"list, {PLUGINS} plugins more": with_plugins,
            "validate": measure([evsys, "validate", str(QUICKSTART)], runs),
        },
    }


def install_plugins(site: Path) -> None:
    """200 distributions with a plugin each, as installers leave them; the first one can't be imported."""
    for number in range(PLUGINS):
        info = site / f"evsys_dummy_{number}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: evsys-dummy-{number}\nVersion: 1.0\n", encoding="utf-8"
        )
        (info / "entry_points.txt").write_text(
            f"[evsys.transforms]\nplugin_{number} = evsys_dummy_{number}:Thing\n", encoding="utf-8"
        )
        module = "class Thing:\n    def __call__(self, rows):\n        return rows\n"
        (site / f"evsys_dummy_{number}.py").write_text(
            module if number else "raise OSError", encoding="utf-8"
        )


def measure_peers(bin_folder: Path, runs: int) -> list[dict]:
    """Each peer's nearest command to ours; a peer that isn't installed is left out."""
    python = str(bin_folder / "python")
    commands = {
        "inspect-ai": {"--help": ["inspect", "--help"], "list": ["inspect", "list", "tasks"]},
        "llm": {"--help": ["llm", "--help"], "list": ["llm", "models"]},
        "hydra-core": {
            "--help": [python, "-c", HYDRA_APP, "--help"],
            "validate": [python, "-c", HYDRA_APP, "--cfg", "job"],
        },
    }
    results = []
    for name, each in commands.items():
        version = installed_version(python, name)
        if version is not None:
            paths = {key: [str(bin_folder / argv[0]), *argv[1:]] for key, argv in each.items()}
            measured = {key: measure(argv, runs) for key, argv in paths.items()}
            results.append({"name": name, "version": version, "commands": measured})
    return results


def installed_version(python: str, name: str) -> str | None:
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def measure(argv: list[str], runs: int, env: dict[str, str] | None = None) -> dict[str, float | int]:
    """Least CPU and wall time of a command, in milliseconds, after one run that fills caches."""
    timings = [run_once(argv, env) for _ in range(runs + 1)][1:]
    return {
        "cpu_min": round(min(cpu for cpu, _ in timings), 1),
        "wall_min": round(min(wall for _, wall in timings), 1),
        "runs": runs,
    }


def run_once(argv: list[str], env: dict[str, str] | None = None) -> tuple[float, float]:
    """CPU (user + system, descendants included) and wall milliseconds of one run, which must succeed."""
    start = time.perf_counter()
    process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode != 0:
        sys.exit(f"{' '.join(argv)} ended with {process.returncode}:\n{errors.decode(errors='replace')}")
    return 1000 * (usage.ru_utime + usage.ru_stime), 1000 * wall


if __name__ == "__main__":
    main()

"""Hydra's basic launcher on jobs that do nothing: what launching costs elsewhere. Hydra has an environment of its own."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

__all__ = ["launched"]

APP = """
import hydra

@hydra.main(version_base=None)
def app(config):
    pass

app()
"""


def launched(python: Path, jobs: int, *, count_as: str) -> list[dict]:
    """What so many jobs take, with their number as `count_as`; nothing where that environment has no Hydra."""
    version = subprocess.run(
        [python, "-c", "import importlib.metadata as m; print(m.version('hydra-core'))"],
        capture_output=True,
        text=True,
        check=False,
    )
    if version.returncode != 0:
        return []
    with tempfile.TemporaryDirectory() as folder:
        app = Path(folder) / "app.py"
        app.write_text(APP, encoding="utf-8")
        values = ",".join(map(str, range(jobs)))
        start = time.perf_counter()
        subprocess.run([python, app, "-m", f"+seed={values}"], cwd=folder, capture_output=True, check=True)
        wall = time.perf_counter() - start
    return [
        {
            "name": "hydra-core",
            "version": version.stdout.strip(),
            count_as: jobs,
            "wall_seconds": round(wall, 2),
            "seconds_per_job": round(wall / jobs, 4),
        }
    ]

"""Takes the pictures of the dashboard's pages: `python docs/screenshots.py`, with Playwright and Chromium, as `nox -s browser` has them.

The experiment is `examples/confirm_winner`, run in a temporary folder.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import aiohttp
from playwright.async_api import async_playwright

from evsys_dashboard.data.client import DataClient, checked_file
from evsys_dashboard.local import local_dashboard
from evsys_dashboard.remote import Remote
from evsys_dashboard.store.database import Database, sqlite_url
from evsys_dashboard.store.keys import Keys
from evsys_dashboard.team import team_dashboard
from evsys_runtime.data.readers import read_rows

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs/how-to/pictures"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")


def pages(experiment: str) -> dict[str, str]:
    """The address of each picture's page."""
    one = f"experiments/{experiment}"
    return {
        "experiments": "experiments",
        "experiment": one,
        "run": f"{one}/runs/lr-0.01-s0",
        "rollouts": f"{one}/runs/lr-0.01-s0/rollouts?phase=validation",
        "compare": f"compare?left={experiment}%2Flr-0.001&right={experiment}%2Flr-0.01&task=heard-aiva",
        "memory": "memory",
    }


async def take(project: Path) -> None:
    """Take every picture of a project's dashboard."""
    experiments = project / ".evsys/experiments"
    [experiment] = (path.name for path in experiments.iterdir())
    async with local_dashboard(experiments) as address, async_playwright() as driver:
        await follow(address)
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, path in pages(experiment).items():
            page = await browser.new_page(viewport={"width": 1000, "height": 700})
            await page.goto(f"{address}/#/{project.name}/{path}")
            await page.wait_for_selector("main h1")
            await page.wait_for_timeout(500)  # charts are drawn in the next frame
            await page.screenshot(path=PICTURES / f"{name}.png")
            await page.close()
        page = await browser.new_page(viewport={"width": 390, "height": 700}, color_scheme="dark")
        await page.goto(f"{address}/#/{project.name}/experiments/{experiment}")
        await page.wait_for_selector(".verdict")
        await page.screenshot(path=PICTURES / "telephone.png")
        await browser.close()


async def take_data(project: Path) -> None:
    """Take the picture of a version of data on a team's server."""
    url = sqlite_url(project / "team.sqlite")
    database = Database(url)
    _, key = Keys(database).create(["read", "write"], project=project.name)
    database.close()
    async with team_dashboard(url, project / "team") as address, async_playwright() as driver:
        version = await asyncio.to_thread(upload, project, address, key)
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 1000, "height": 900})
        await page.goto(f"{address}/#/{project.name}/data/datasets/{version}")
        await page.get_by_label("Key").fill(key)
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("button", name="Check for leaked tasks").click()
        await page.get_by_role("table", name="Benchmark tasks found").wait_for()
        await page.screenshot(path=PICTURES / "data.png")
        await browser.close()


def upload(project: Path, address: str, key: str) -> str:
    """Two versions of the example's rows, and its final test; the ID of the second."""
    client = DataClient(Remote(address, key))
    data = project / "data"
    rows = list(read_rows(next(data.glob("datasets/*/*/train.jsonl"))))
    tasks = list(read_rows(data / "benchmark/final/tasks.jsonl"))
    made: list[str] = []
    for part in (rows, rows[: len(rows) // 2]):
        with checked_file(part, "ok") as file:
            made.append(
                client.upload(file, "datasets", "ok", made_from=made, source="train.jsonl").version.id
            )
    with checked_file(tasks, "final") as file:
        client.upload(file, "benchmarks", "final", split="test")
    client.close()
    return made[-1]


async def follow(address: str) -> None:
    """Wait until the dashboard has read the experiment."""
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{address}/api/v1/projects") as response:
                [project] = (await response.json())["projects"]
            async with session.get(f"{address}/api/v1/projects/{project['name']}/experiments") as response:
                if (await response.json())["total"]:
                    return
            await asyncio.sleep(0.1)


def main() -> None:
    """Run the example, and take the pictures."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "confirm-winner"
        shutil.copytree(ROOT / "examples/confirm_winner", project)
        command = [sys.executable, "-m", "evsys_cli.main", "run", "config.yaml", "--quiet"]
        subprocess.run(command, cwd=project, check=True, stdout=subprocess.DEVNULL)
        asyncio.run(take(project))
        asyncio.run(take_data(project))


if __name__ == "__main__":
    main()

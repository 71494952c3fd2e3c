"""The tutorial, followed: its commands, its files, and between them its steps in the browser."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[4] / "docs/tutorial/watch-and-share.md"
BLOCK = re.compile(
    r"^```(?P<language>\w+)(?: title=\"(?P<path>[^\"]+)\")?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
SHORT = {"steps: 100": "steps: 30", "run_every: 50": "run_every: 15"}


class Reader:
    """Follows the page in a folder, one chapter after the other."""

    def __init__(self, folder):
        self.project = folder / "lab"
        text = PAGE.read_text(encoding="utf-8")
        self.chapters = dict(re.findall(r"^## (\d)\. .*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
        self.named = set(re.findall(r"\*\*([^*]+)\*\*", text))
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = {**os.environ, "PATH": path, "EVSYS_LOOKS": "off"}
        self.run("evsys init-project lab", folder)

    def commands(self, chapter):
        return [
            line
            for block in BLOCK.finditer(self.chapters[chapter])
            if block["language"] == "bash"
            for line in block["text"].splitlines()
        ]

    def write_files(self):
        for block in BLOCK.finditer(self.chapters["1"]):
            if block["path"]:
                text = block["text"]
                for long, short in SHORT.items():
                    assert long in text
                    text = text.replace(long, short)
                path = self.project / block["path"]
                path.parent.mkdir(parents=True)
                path.write_text(text, encoding="utf-8")

    def run(self, command, folder=None):
        done = subprocess.run(
            command,
            shell=True,
            cwd=folder or self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def serve(self, command):
        """Start the dashboard on a free port; its process and address."""
        assert command == "evsys dashboard > dashboard.txt &"
        process = subprocess.Popen(
            ["evsys", "dashboard", "--port", "0", "--json"],
            cwd=self.project,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        return process, json.loads(process.stdout.readline())["url"]

    def name(self, text):
        """The name of something on the page, which the tutorial is to have in bold."""
        self.named.remove(text)
        return text


@pytest.mark.timeout(900)
def test_a_researcher_follows_the_tutorial(browser, tmp_path):
    reader = Reader(tmp_path)
    reader.write_files()
    *_, start, serve = reader.commands("1")
    reader.run(start)
    process, address = reader.serve(serve)
    try:
        page = browser.new_page()
        page.set_default_timeout(120_000)
        page.goto(address)
        page.get_by_role("link", name=reader.name("rates")).first.click()
        progress = page.get_by_role("table", name=reader.name("Runs, as they are now"))
        progress.get_by_text("rate-0.0001-s0").wait_for()
        page.get_by_label(reader.name("Reason")).fill("lunch")
        page.get_by_role("button", name=reader.name("Pause")).click()
        progress.get_by_text("paused").first.wait_for()
        page.get_by_role("button", name=reader.name("Continue")).click()
        progress.get_by_text("running").first.wait_for()
        [wait] = reader.commands("3")
        reader.run(wait)
        page.locator(".verdict .badge").first.wait_for()
        page.get_by_role("heading", name=reader.name("Events")).wait_for()
        assert page.get_by_text("lunch").count()
        runs = page.get_by_role("table", name=reader.name("Every run of every arm"))
        runs.get_by_role("link", name=reader.name("against rate-0.0001")).first.click()
        tasks = page.get_by_role("table", name="Tasks, with the score of each side")
        tasks.get_by_role("link").first.click()
        page.locator(".beside .message").first.wait_for()
        assert page.locator(".beside .message").count() >= 4
    finally:
        process.terminate()
        process.communicate()
    report, kill = reader.commands("5")
    assert kill == "kill $!"
    reader.run(report)
    page.goto((reader.project / "rates.html").as_uri())
    page.get_by_role("link", name="rates").first.click()
    page.locator(".verdict").wait_for()
    page.close()
    assert reader.named == set()  # every name in the tutorial was met

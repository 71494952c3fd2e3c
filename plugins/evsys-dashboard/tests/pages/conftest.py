"""A dashboard in a real browser: `nox -s browser` runs these tests."""

import json
import os
import shutil
import threading

import pytest
from browser_pages import HOSTILE
from clients import running
from small_project import Project

from evsys_dashboard.local import local_dashboard
from evsys_runtime.experiment import Experiment

ARM = """
- name: {name}
  data: {{source_kind: jsonl, path: train.jsonl, transforms: [{{kind: jsonl_to_chat}}]}}
  model: {{name: evsys/tiny}}
  algorithm: {{kind: sft, params: {{learning_rate: {rate}, steps: 6, batch_size: 4}}}}
  backend: {{kind: mock}}
"""


def chromium():
    """The browser's path; the tests are skipped without it or its driver."""
    pytest.importorskip("playwright", reason="`nox -s browser` installs Playwright and runs these tests")
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no Chromium: `apt install chromium`, or name one in CHROMIUM")
    return found


@pytest.fixture(scope="session")
def browser():
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def project(tmp_path_factory):
    """A project in which an experiment of two arms and two repeats ended; its rows and answers are hostile."""
    project = Project(tmp_path_factory.mktemp("lab"))
    project.tasks([(f"t{i:02d} {HOSTILE}", f"say a {HOSTILE}", "a") for i in range(12)])
    arms = "".join(
        ARM.format(name=name, rate=rate).replace("\n", "\n  ")
        for name, rate in (("low", 1e-9), ("high", 0.05))
    )
    metadata = (
        f"\nmetadata:\n  hypothesis: {json.dumps(HOSTILE)}\n  tags: ['<b>tag</b>']\n  success_metric: val.mean_reward\n  baseline: low\n"
        "  benchmark:\n    name: val\n    path: tasks.jsonl\n    max_tokens: 4\n    run_every: 3\n"
    )
    project.config(f"runs:{arms}\nn_repeats: 2\n", metadata=metadata)
    thread = threading.Thread(target=Experiment.from_yaml(project.root / "config.yaml", quiet=True).run)
    thread.start()  # the browser's driver has an event loop in this one
    thread.join()
    return project


@pytest.fixture(scope="session")
def experiments(project):
    return project.root / ".evsys" / "experiments"


@pytest.fixture(scope="session")
def experiment(experiments):
    """The ID of the experiment that ended."""
    return min(path.name for path in experiments.iterdir())


@pytest.fixture(scope="session")
def address(experiments):
    with running(lambda: local_dashboard(experiments)) as asking:
        [project] = asking("/projects")["projects"]
        for _ in range(2000):
            if asking(f"/projects/{project['name']}/experiments")["total"]:
                break
        yield f"{asking.address}/#/{project['name']}"


@pytest.fixture
def open_page(browser, address):
    """Opens a page of the dashboard. Fails the test if it logs an error, asks another host, or lets a script run."""
    problems, contexts = [], []

    def open_page(path="", *, width=1200, dark=False):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        page = context.new_page()
        own = address.partition("#")[0]
        page.on("console", lambda message: message.type == "error" and problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: (problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on(
            "request",
            lambda request: request.url.startswith((own, "data:", "blob:")) or problems.append(request.url),
        )
        page.goto(f"{address}/{path}")
        page.wait_for_selector("main h1, main .empty, main .problem")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []

"""A running experiment is controlled from its page."""

import threading

from clients import running
from small_project import RUN, Project

from evsys_dashboard.local import local_dashboard
from evsys_runtime.experiment import Experiment


def test_a_researcher_pauses_continues_and_stops_a_run(browser, tmp_path):
    project = Project(tmp_path)
    project.config(f"run:{RUN.replace('steps: 6', 'steps: 1000000')}\n")
    experiment = Experiment.from_yaml(tmp_path / "config.yaml", quiet=True)
    thread = threading.Thread(target=experiment.run)
    with running(lambda: local_dashboard(tmp_path / ".evsys" / "experiments")) as asking:
        thread.start()
        page = browser.new_page()
        page.on("dialog", lambda dialog: dialog.accept())
        page.goto(asking.address)
        page.get_by_role("link", name="trial").click(timeout=60_000)
        progress = page.get_by_role("table", name="Runs, as they are now")
        progress.get_by_text("run-s0").wait_for(timeout=60_000)
        page.get_by_label("Reason").fill("lunch")
        page.get_by_role("button", name="Pause").click()
        progress.get_by_text("paused").wait_for()
        page.get_by_role("button", name="Continue").click()
        progress.get_by_text("running").wait_for()
        page.get_by_role("button", name="Stop").click()
        page.locator("h1 + p", has_text="stopped").wait_for(timeout=60_000)
        thread.join()
        page.close()

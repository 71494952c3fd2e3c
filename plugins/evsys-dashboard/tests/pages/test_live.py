"""A page follows its experiment while that grows."""

import threading

from clients import running
from small_project import Project

from evsys_dashboard.local import local_dashboard
from evsys_runtime.experiment import Experiment


def test_an_experiment_appears_and_ends_while_its_page_is_open(browser, tmp_path):
    project = Project(tmp_path)
    project.config()
    with running(lambda: local_dashboard(tmp_path / ".evsys" / "experiments")) as asking:
        page, streams = browser.new_page(), []
        page.on("request", lambda request: "/stream" in request.url and streams.append(request.url))
        page.goto(asking.address)
        page.get_by_text("There are no experiments yet").wait_for()
        experiment = Experiment.from_yaml(tmp_path / "config.yaml", quiet=True)
        thread = threading.Thread(target=experiment.run)
        thread.start()
        page.get_by_role("link", name="trial").wait_for(timeout=60_000)
        thread.join()
        page.get_by_role("link", name="trial").click()
        page.get_by_text("completed").first.wait_for(timeout=60_000)
        page.close()
    assert streams  # each from the version shown, so that no change is missed
    assert all("after=" in url for url in streams)

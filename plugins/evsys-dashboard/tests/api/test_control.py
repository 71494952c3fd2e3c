"""Requests to a running experiment through the dashboard."""

import json
import threading
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from clients import running
from small_project import RUN, Project

from evsys_dashboard.local import local_dashboard
from evsys_record.files import read_json
from evsys_runtime.experiment import Experiment


@pytest.fixture
def ask(tmp_path):
    """A dashboard beside an experiment that runs until it is stopped; asks about that experiment."""
    project = Project(tmp_path)
    project.config(f"run:{RUN.replace('steps: 6', 'steps: 1000000')}\n")
    experiment = Experiment.from_yaml(tmp_path / "config.yaml", quiet=True)
    thread = threading.Thread(target=experiment.run)
    with running(lambda: local_dashboard(tmp_path / ".evsys" / "experiments")) as asking:
        [row] = asking("/projects")["projects"]
        path = f"/projects/{row['name']}/experiments"
        thread.start()
        while not asking(path)["total"]:
            pass
        [row] = asking(path)["experiments"]
        path = f"{path}/{row['id']}"

        def ask(end, body=None, *, status=200, **headers):
            if body is None:
                return asking(path + end, status=status)
            connection = HTTPConnection(urlsplit(asking.address).netloc, timeout=30)
            headers = {"Content-Type": "application/json", **headers}
            connection.request("POST", f"/api/v1{path}{end}", json.dumps(body), headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
            connection.close()
            assert status in {None, response.status}, answer
            return answer

        ask.directory = tmp_path / ".evsys" / "experiments" / row["id"]
        while ask("/status")["status"] is None or not ask("/status")["status"]["runs"]:
            pass
        yield ask
        if thread.is_alive():
            ask("/control", {"request": "stop", "reason": "the test ends"}, status=None)  # it may be ending
        thread.join()


def test_an_experiment_is_paused_continued_and_stopped_and_says_who_asked(ask):
    ask("/control", {"request": "pause", "reason": "lunch"})
    ask("/control", {"request": "unpause"})
    ask("/control", {"request": "stop", "reason": "enough"})
    while ask("/status")["status"] is not None:
        pass
    asked = [
        event["facts"]
        for event in ask("/events?limit=10000")["events"]
        if event["event"] == "control.requested"
    ]
    assert [(each["request"], each["by"], each.get("reason")) for each in asked] == [
        ("pause", "dashboard", "lunch"),
        ("unpause", "dashboard", None),
        ("stop", "dashboard", "enough"),
    ]
    assert read_json(ask.directory / "experiment.json")["status"] == "stopped"
    assert "is not running" in ask("/control", {"request": "pause"}, status=409)["error"]["message"]


def test_a_refused_request_says_why(ask):
    found = ask("/control", {"request": "extend", "steps": 10}, status=409)
    assert "no budget" in found["error"]["message"]
    found = ask("/control", {"request": "pause", "arm": "rnu"}, status=409)
    assert found["error"]["hint"] == "arms: run"


def test_a_page_of_another_site_controls_nothing(ask):
    ask("/control", {"request": "stop"}, status=403, Origin="https://example.com")
    assert ask("/status")["status"] is not None

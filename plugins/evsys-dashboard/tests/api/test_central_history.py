"""The commands on past experiments print the same bytes from the records here and from a team's server that has them."""

import json
from pathlib import Path

import pytest
from clients import running
from command_line import evsys
from lab_records import Lab
from small_project import Project

from evsys_dashboard.push.pusher import Pusher
from evsys_dashboard.push.server import ServerTarget
from evsys_dashboard.store.database import Database
from evsys_dashboard.store.keys import Keys
from evsys_dashboard.team import team_dashboard
from evsys_record.retraction import retract

ARM = """
- name: {name}
  data: {{source_kind: jsonl, path: train.jsonl, transforms: [{{kind: jsonl_to_chat}}]}}
  model: {{name: evsys/tiny}}
  algorithm: {{kind: sft, params: {{learning_rate: {rate}, steps: 6, batch_size: 4}}}}
  backend: {{kind: mock}}
"""


def send(address, key, *directories, project=None):
    target = ServerTarget(address, key, project)
    for directory in directories:
        pusher = Pusher(directory, target)
        while pusher.push():
            pass
    target.close()


def arms(**rates):
    listed = "".join(ARM.format(name=name, rate=rate).replace("\n", "\n  ") for name, rate in rates.items())
    return f"runs:{listed}\n"


def make_records(folder: Path) -> Path:
    """A project with records of many kinds: what ran, and what runs may leave behind."""
    project = Project(folder)
    project.experiment(arms(low=1e-9, high=0.05)).run()
    first = project.experiment(arms(high=0.1)).run()
    project.experiment(
        "runs:"
        + ARM.format(name="broken", rate=0.05).replace("\n", "\n  ").replace("jsonl_to_chat", "gone")
        + "\n"
        if False
        else arms(high=0.05, higher=0.2),
        extra="confirm: {seeds: 2}\n",
    ).run()
    retract(Path(first.directory), "the grader had a fault")
    lab = Lab(folder)
    lab.whole("refuted", verdict="REFUTED", effect=-0.3, tags=["small", "päärynä"], project_goal_id="g1")
    lab.whole(
        "open <b>",
        verdict="INCONCLUSIVE",
        hypothesis="More rows help.\n\x1b[31mred",
        parent_experiment_id=first.experiment_id,
    )
    lab.run(lab.begin("crashed")).close()
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_records(tmp_path_factory.mktemp("many"))


@pytest.fixture(scope="module")
def server(tmp_path_factory, new_store, place):
    """The address of a server that has the records in a project of the same name, and two keys: to it, and to another."""
    url = new_store()
    database = Database(url)
    keys = Keys(database)
    _, mine = keys.create(["read", "write"], project=place.name)
    _, other = keys.create(["read", "write"], project="other")
    _, every = keys.create(["read", "write"], project=None)
    with running(lambda: team_dashboard(url, tmp_path_factory.mktemp("team"))) as asking:
        send(asking.address, mine, *sorted((place / ".evsys" / "experiments").iterdir()))
        yield asking.address, mine, other, every
    database.close()


@pytest.fixture
def invoke(server, place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setenv("EVSYS_API_URL", server[0])
    monkeypatch.setenv("EVSYS_API_KEY", server[1])
    monkeypatch.setenv("COLUMNS", "100")

    return evsys


EXPERIMENTS = ["-1", "-2", "-3", "-4", "-5", "-6"]
COMMANDS = [
    ("context",),
    ("context", "--tokens", "300"),
    ("history",),
    ("history", "--runs"),
    ("history", "--sort", "effect", "--reverse", "--limit", "2"),
    ("history", "--limit", "0", "--tag", "small"),
    ("history", "--text", "nothing has this"),
    ("history", "--near", "config.yaml"),
    ("next",),
    ("next", "--limit", "0"),
    *(("show", name) for name in EXPERIMENTS),
    *(("why", name) for name in EXPERIMENTS),
    ("show", "-v", "last-5"),
    ("show", "last-5/high-s0"),
    ("show", "last-5", "low-s0"),
    ("why", "last-5/high"),
    ("compare", "last-5", "last-4"),
    ("compare", "last-5/low-s0", "last-5/high-s0"),
    ("compare", "-1", "-2"),
    ("why", "last-99"),
]


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_server_answers_the_bytes_that_the_records_here_give(invoke, command, form):
    here, there = invoke(*command, *form), invoke(*command, *form, "--central")
    assert here == there


def test_plots_drawn_from_the_server_have_the_same_bytes(invoke, tmp_path):
    names = {}
    for place, more in (("here", ()), ("there", ("--central",))):
        code, *_ = invoke("plot", "last-5", "--out", str(tmp_path / place), *more)
        assert code == 0
        names[place] = sorted(path.name for path in (tmp_path / place).iterdir())
    assert names["here"] == names["there"] != []
    for name in names["here"]:
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()


def test_a_key_of_another_project_is_answered_nothing_of_this_one(invoke, server, place, monkeypatch):
    name = min(path.name for path in (place / ".evsys" / "experiments").iterdir())
    monkeypatch.setenv("EVSYS_API_KEY", server[2])
    monkeypatch.chdir(place.parent)
    assert '"total": 0' in invoke("history", "--central", "--json").out
    assert '"experiments":0' in invoke("context", "--central", "--json").out
    for command in (("show", name), ("why", name), ("compare", name, name), ("plot", name)):
        code, out, err = invoke(*command, "--central")
        assert (code, out, "there is no experiment" in err) == (2, "", True)
    monkeypatch.setenv("EVSYS_API_PROJECT", place.name)
    code, out, err = invoke("history", "--central")
    assert (code, out) == (2, "")
    assert "doesn't grant 'read' here" in err


def test_a_key_of_all_projects_is_answered_from_all_of_them(invoke, server, place, tmp_path, monkeypatch):
    address, _, other, every = server
    lab = Lab(tmp_path / "lab")
    theirs = lab.whole("theirs")
    send(address, other, theirs.directory)
    monkeypatch.setenv("EVSYS_API_KEY", every)
    monkeypatch.chdir(tmp_path)
    listed = json.loads(invoke("history", "--central", "--json", "--limit", "0").out)
    own = {path.name for path in (place / ".evsys" / "experiments").iterdir()}
    assert {each["experiment_id"] for each in listed["experiments"]} == own | {theirs.experiment_id}
    assert invoke("why", theirs.experiment_id, "--central").code == 0

    # A record that two projects have is one; of two records with one name the second is named with its project.
    first = min(own)
    send(address, every, place / ".evsys" / "experiments" / first, project="other")
    (theirs.directory / "conclusion.md").write_text("Another text.", encoding="utf-8")
    send(address, every, theirs.directory, project=place.name)
    again = json.loads(invoke("history", "--central", "--json", "--limit", "0").out)
    names = sorted(each["experiment_id"] for each in again["experiments"])
    assert names == sorted([*own, theirs.experiment_id, f"{theirs.experiment_id}@other"]) or names == sorted(
        [*own, theirs.experiment_id, f"{theirs.experiment_id}@{place.name}"]
    )

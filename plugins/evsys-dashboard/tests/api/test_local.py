"""What a project's dashboard answers."""

import asyncio
import json

import pytest
from clients import running, served
from jsonschema import Draft202012Validator
from lab_records import Lab

from evsys_dashboard.local import local_dashboard

ONE = "/projects/lab/experiments"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A lab with two experiments that ended, one that only began, and one without lines."""
    lab = Lab(tmp_path_factory.mktemp("place") / "lab")
    lab.whole("one", effect=0.3, tags=["small"], arms=("a", "b"))
    lab.whole("two", effect=0.1, verdict="REFUTED", hypothesis="More rows help.", project_goal_id="g1")
    record = lab.begin("three")
    for name in ("experiment.started", "run.started", "run.finished"):
        record.events.append(name)
    run = lab.run(record, rollouts=3)
    run.close()
    lines = [json.dumps({"event": f"line {number}"}) + "\n" for number in range(10)]
    (run.directory / "run.log.jsonl").write_text("".join(lines) + '{"event": "half', encoding="utf-8")
    return lab


@pytest.fixture(scope="module")
def ask(place):
    """Asks the dashboard of the lab, which lists all of its experiments."""
    with running(lambda: local_dashboard(place.experiments)) as asking:
        for _ in range(1000):
            if asking(ONE)["total"] == 3:
                break
        yield asking


@pytest.fixture(scope="module")
def paths(ask):
    """Where each experiment is, by its name."""
    return {row["name"]: f"{ONE}/{row['id']}" for row in ask(ONE)["experiments"]}


def test_the_project_is_listed(ask):
    (project,) = ask("/projects")["projects"]
    assert (project["name"], project["experiments"]) == ("lab", 3)


def test_experiments_are_listed_with_their_verdict_and_effect(ask):
    row = ask(ONE)["experiments"][2]
    named = ("name", "status", "verdict", "effect", "best_arm", "runs", "runs_completed", "cost_usd", "tags")
    assert [row[name] for name in named] == ["one", "completed", "SUPPORTED", 0.3, "a", 2, 1, 0.5, ["small"]]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("text=rows", ["two"]),
        ("text=more+ROWS", ["two"]),
        ("text=100%25", []),
        ("tag=small", ["one"]),
        ("tag=small&tag=large", []),
        ("goal=g1", ["two"]),
        ("verdict=REFUTED", ["two"]),
        ("verdict=none", ["three"]),
        ("plugin=sft", ["three", "two", "one"]),
        ("plugin=evsys-algo-rl/rl", []),
        ("model=tiny", ["three", "two", "one"]),
        ("sort=oldest", ["one", "two", "three"]),
        ("sort=effect", ["one", "two", "three"]),
        ("limit=1", ["three"]),
        ("limit=1&offset=1", ["two"]),
    ],
)
def test_experiments_are_found_by(ask, query, names):
    assert [row["name"] for row in ask(f"{ONE}?{query}")["experiments"]] == names


def test_the_values_to_filter_by_are_listed(ask):
    found = ask(ONE)["facets"]
    assert (found["tag"], found["goal"], found["verdict"]) == (["small"], ["g1"], ["REFUTED", "SUPPORTED"])


def test_one_experiment_has_its_files_runs_and_curves(ask, paths):
    found = ask(paths["one"])
    assert found["config"] == "version: 1\n"
    assert found["conclusion"]["verdict"] == found["experiment"]["verdict"] == "SUPPORTED"
    assert [(each["run_id"], each["status"]) for each in found["runs"]] == [
        ("a-s0", "completed"),
        ("b-s0", "skipped"),
    ]
    assert found["series"] == {"training": ["grad_norm", "loss"]}
    (curve,) = ask(f"{paths['one']}/curves?name=loss&points=2")["curves"]
    assert (curve["run"], curve["total"], curve["counts"]) == ("a-s0", 3, [1, 2])
    assert (curve["low"][1], curve["high"][1]) == (pytest.approx(1 / 3), 0.5)


def test_one_run_has_its_result_and_its_series(ask, paths):
    run = ask(f"{paths['one']}/runs/a-s0")
    assert (run["run"]["status"], run["result"]["status"]) == ("completed", "completed")
    assert run["rollouts"] == {"validation": 2}
    series = {row["name"]: (row["count"], row["last"]) for row in run["series"]}
    assert series == {"loss": (3, pytest.approx(1 / 3)), "grad_norm": (3, None)}


def test_rollouts_come_in_pages_and_whole(ask, paths):
    path = f"{paths['three']}/runs/a-s0/rollouts"
    first, scored = ask(f"{path}?phase=validation&limit=2"), ask(f"{path}?phase=validation&low=0.5")
    assert (first["total"], [row["task"] for row in first["rollouts"]]) == (3, ["task-0", "task-1"])
    assert [row["task"] for row in scored["rollouts"]] == ["task-1"]
    last, whole = (
        ask(f"{path}?phase=validation&after={first['next']}"),
        ask(f"{path}/validation/{first['next']}"),
    )
    assert ([row["task"] for row in last["rollouts"]], last["next"]) == (["task-2"], None)
    assert whole["line"]["rollout"]["messages"][0] == {"role": "user", "content": "Is it?"}
    neighbours = (0, last["rollouts"][0]["place"])
    assert (whole["row"], whole["previous"], whole["next"]) == (first["rollouts"][1], *neighbours)


def test_events_are_read_from_a_cursor_on(ask, paths):
    first, rest = ask(f"{paths['three']}/events?limit=1"), ask(f"{paths['three']}/events?after=1")
    assert ([each["event"] for each in first["events"]], first["cursor"]) == (["experiment.started"], 1)
    assert [each["event"] for each in rest["events"]] == ["run.started", "run.finished"]


def test_a_log_is_read_from_its_end_backwards_and_onwards(ask, paths):
    path = f"{paths['three']}/runs/a-s0/log"
    last = ask(f"{path}?limit=3")
    pages = [
        last,
        ask(f"{path}?limit=3&before={last['before']}"),
        ask(f"{path}?limit=3&after={last['before']}"),
    ]
    numbers = [[int(line["values"]["event"][5:]) for line in each["lines"]] for each in pages]
    assert numbers == [[7, 8, 9], [4, 5, 6], [7, 8, 9]]
    assert last["cursor"] == pages[2]["cursor"] == 10 * len(json.dumps({"event": "line 0"}) + "\n")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/projects/other/experiments", 404),
        (f"{ONE}/none", 404),
        (f"{ONE}/none/events", 404),
        (f"{ONE}/..%2f..%2fetc/log", 404),
        (f"{ONE}?tga=x", 400),
        (f"{ONE}?limit=-1", 400),
        (f"{ONE}?limit=99999999999999999999", 400),
        (f"{ONE}?sort=best", 400),
        ("/projects?x=1", 400),
        ("/nowhere", 404),
    ],
)
def test_what_is_not_there_is_refused_with_a_message(ask, path, status):
    assert ask(path, status=status)["error"]["message"]


def test_text_that_a_database_refuses_finds_nothing(ask):
    assert ask(f"{ONE}?text=%00")["total"] == 0


@pytest.mark.parametrize("header", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}])
def test_pages_of_other_sites_are_refused(ask, header):
    assert "of this machine" in ask("/projects", status=403, **header)["error"]["message"]


def test_answers_are_as_the_openapi_document_describes_them(ask, paths):
    one, document = paths["one"], ask("/openapi.json")
    asked = ["/health", "/projects", ONE, one, f"{one}/curves", f"{one}/events"]
    asked += [f"{one}/runs/a-s0{rest}" for rest in ("", "/log", "/rollouts", "/rollouts/validation/0")]
    for path in asked:
        parts = path.replace(one, f"{ONE}/{{experiment}}").replace("/lab", "/{project}")
        parts = parts.replace("a-s0", "{run}").replace("/validation/0", "/{phase}/{place}")
        described = document["paths"][f"/api/v1{parts}"]["get"]["responses"]["200"]
        schema = {**described["content"]["application/json"]["schema"], "components": document["components"]}
        Draft202012Validator(schema).validate(ask(path))


def test_changes_are_streamed_as_they_happen(lab):
    async def work(client):
        stream = client.session.get(f"{client.address}/api/v1/projects/lab/stream?after=0")
        async with stream as response:
            record = await asyncio.to_thread(lab.whole, "one")
            while not (line := await response.content.readline()).startswith(b"data: "):
                assert line
            return json.loads(line[6:]), record.experiment_id

    change, name = served(local_dashboard(lab.experiments), work)
    assert [(each["id"], each["runs"]) for each in change["experiments"]] == [(name, ["a-s0"])]


def test_a_page_may_load_nothing_from_elsewhere(lab):
    async def work(client):
        async with client.session.get(client.address + "/") as response:
            return response.headers, await response.text()

    headers, text = served(local_dashboard(lab.experiments), work)
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
    assert '<main id="main"' in text

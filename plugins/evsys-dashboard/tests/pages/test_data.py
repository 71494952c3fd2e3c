"""The page of datasets and benchmarks, as a person with a key meets it."""

import csv
import io

import pytest
from browser_pages import HOSTILE
from team_data import TASKS

ROWS = [{"question": f"{number} {HOSTILE}", "answer": f"=1+{number}"} for number in range(120)]
LEAKED = [{"prompt": task["instruction"], "completion": "a"} for task in TASKS[:3]]


@pytest.fixture
def filled(team):
    """A server with data of each sort; the IDs by name."""
    write = team.key("write")
    first = team.upload(write, "datasets", "faq", ROWS, note=HOSTILE, source=HOSTILE).version.id
    ids = {
        "faq": team.upload(write, "datasets", "faq", ROWS[:60] + LEAKED, made_from=[first]).version.id,
        "first": first,
        "final": team.upload(write, "benchmarks", "final", TASKS, split="test").version.id,
        "wide": team.upload(write, "datasets", "wide", [{f"c{n}": n for n in range(20)}]).version.id,
    }
    return team, ids


@pytest.fixture
def sign_in(browser, filled):
    """Opens a page after signing in. Fails the test if a page logs an error, asks another host, or lets a script run."""
    team, _ = filled
    problems, contexts = [], []

    def sign_in(path, *scopes, width=1200, dark=False):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        page = context.new_page()
        page.goto(f"{team.address}/#/lab/{path}")
        page.get_by_label("Key").fill(team.key(*(scopes or ("read",))))
        page.on("console", lambda message: message.type == "error" and problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request",
            lambda request: (
                request.url.startswith((team.address, "data:", "blob:")) or problems.append(request.url)
            ),
        )
        page.get_by_role("button", name="Sign in").click()
        page.locator("nav a").first.wait_for()
        page.locator("main article h1").wait_for()
        return page

    yield sign_in
    for context in contexts:
        context.close()
    assert problems == []


def paths(ids):
    return [
        "data",
        f"data/datasets/{ids['faq']}",
        f"data/datasets/{ids['first']}?rows=50",
        f"data/benchmarks/{ids['final']}",
        "data/datasets/wide",
    ]


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_pages_of_data_have_no_serious_fault_of_accessibility_and_fit_a_telephone(
    filled, sign_in, width, dark
):
    from axe_playwright_python.sync_playwright import Axe

    page = sign_in("data", "read", width=width, dark=dark)
    for path in paths(filled[1]):
        page.evaluate("path => { location.hash = `#/lab/${path}`; }", path)
        title = (
            "Data" if path == "data" else path.split("/")[-1].partition("?")[0].rpartition("-")[0] or "wide"
        )
        page.locator("main h1", has_text=title).wait_for()
        found = Axe().run(page).response["violations"]
        serious = [each for each in found if each["impact"] in {"serious", "critical"}]
        assert [(each["id"], each["nodes"][0]["html"]) for each in serious] == [], path
        assert page.evaluate("document.documentElement.scrollWidth") == width, path
        assert page.locator("main script, main img, main b").count() == 0


def test_a_version_shows_its_rows_page_by_page_with_the_place_in_the_address(filled, sign_in):
    page = sign_in(f"data/datasets/{filled[1]['first']}")
    table = page.get_by_role("table", name="Rows 1 to 50 of 120")
    table.wait_for()
    assert "\\u202e" in table.locator("tbody td").first.inner_text()
    page.get_by_role("link", name="Next rows").click()
    page.get_by_role("table", name="Rows 51 to 100 of 120").wait_for()
    assert "rows=50" in page.url
    page.reload()
    page.get_by_role("table", name="Rows 51 to 100 of 120").wait_for()
    page.get_by_role("link", name="Previous rows").click()
    page.get_by_role("table", name="Rows 1 to 50 of 120").wait_for()


def test_rows_download_without_formulas(filled, sign_in):
    page = sign_in(f"data/datasets/{filled[1]['first']}")
    page.get_by_role("table", name="Rows 1 to 50 of 120").wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").last.click()
    with download.value.path().open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(io.StringIO(stream.read())))
    assert (rows[0], len(rows)) == (["Row", "question", "answer"], 51)
    assert rows[1][2] == "'=1+0"


def test_lineage_and_leaks_are_shown(filled, sign_in):
    ids = filled[1]
    page = sign_in(f"data/datasets/{ids['faq']}")
    versions = page.get_by_role("region", name="Versions of this name")
    versions.wait_for()
    assert versions.locator("tbody tr").count() == 2
    assert page.get_by_text("No experiment on this server used this version yet.").is_visible()
    page.get_by_role("button", name="Check for leaked tasks").click()
    found = page.get_by_role("table", name="Benchmark tasks found among training rows")
    found.wait_for()
    row = found.locator("tbody tr").first.inner_text()
    assert ids["final"] in row
    assert "✗ 3" in row
    assert "needs the scope test" in row
    page.get_by_role("link", name=ids["first"]).first.click()
    page.get_by_text("; the latest is").wait_for()


def test_rows_of_a_test_set_are_shown_and_counted_only_when_asked_for(filled, sign_in):
    team, ids = filled
    path = f"data/benchmarks/{ids['final']}"
    page = sign_in(path, "read")
    assert page.get_by_text("Its rows need a key with the scope test").is_visible()
    assert page.get_by_role("button", name="Show rows").count() == 0
    page = sign_in(path, "read", "test")
    asked = []
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
    page.get_by_role("button", name="Show rows").click()
    page.get_by_role("table", name="Rows 1 to 12 of 12").wait_for()
    assert asked == ["This is a test set. Its rows were read 0 times; showing them counts as one more."]
    key = team.key("read")
    assert (
        team.ask(f"/projects/lab/data/benchmarks/{ids['final']}", Authorization=f"Bearer {key}")["reads"] == 1
    )


def test_everything_is_reached_by_keyboard(filled, sign_in):
    page = sign_in(f"data/datasets/{filled[1]['faq']}")
    page.get_by_role("table", name="Rows 1 to 50").wait_for()
    reachable = "a[href], button:not([disabled]), input, select, summary, [tabindex='0']"
    visible = page.eval_on_selector_all(
        reachable, "nodes => nodes.filter(node => node.checkVisibility()).length"
    )
    seen = set()
    for _ in range(visible + 5):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
    assert len(seen) >= visible


def test_a_dashboard_without_data_tells_how_to_send_some(open_page):
    page = open_page("data")
    assert page.get_by_text("evsys dataset upload NAME FILE").is_visible()
    assert page.get_by_text("evsys benchmark upload NAME PATH").is_visible()

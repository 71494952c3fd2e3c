"""The pages as people meet them: in a browser, with a keyboard, on a telephone, in the dark."""

import csv
import io

import pytest
from browser_pages import PAGES, path_of

SIZES = [1200, 390]
VERDICTS = {"SUPPORTED", "REFUTED", "INCONCLUSIVE", "CANDIDATE"}


@pytest.fixture
def path(request, experiment):
    return path_of(request.param, experiment)


@pytest.mark.parametrize("path", PAGES, indirect=True)
@pytest.mark.parametrize("width", SIZES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_has_no_serious_fault_of_accessibility(open_page, path, width, dark):
    from axe_playwright_python.sync_playwright import Axe

    page = open_page(path, width=width, dark=dark)
    page.wait_for_timeout(50)  # charts are drawn in the next frame
    found = Axe().run(page).response["violations"]
    serious = [each for each in found if each["impact"] in {"serious", "critical"}]
    assert [(each["id"], each["nodes"][0]["html"]) for each in serious] == []


@pytest.mark.parametrize("path", PAGES, indirect=True)
def test_no_page_is_wider_than_a_telephone(open_page, path):
    page = open_page(path, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("path", PAGES, indirect=True)
def test_text_of_a_record_stays_text(open_page, path):
    page = open_page(path)
    assert page.locator("main script, main img, main b").count() == 0


def test_hidden_characters_are_shown_by_their_code(open_page, experiment):
    page = open_page(path_of("rollouts", experiment))
    assert page.get_by_text("\\u202e").first.is_visible()
    assert page.get_by_text("\\u001b").first.is_visible()


def test_everything_on_a_page_is_reached_by_keyboard(open_page, experiment):
    page = open_page(f"experiments/{experiment}")
    reachable = "a[href], button:not([disabled]), input, select, summary, [tabindex='0']"
    visible = page.eval_on_selector_all(
        reachable, "nodes => nodes.filter(node => node.checkVisibility()).length"
    )
    seen = set()
    for _ in range(visible + 5):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
    assert len(seen) >= visible


def test_the_verdict_comes_before_effects_and_curves(open_page, experiment):
    page = open_page(f"experiments/{experiment}")
    tops = [
        page.locator(selector).first.bounding_box()["y"]
        for selector in (".verdict", "#section-effects", "#section-curves")
    ]
    assert tops == sorted(tops)
    assert page.locator(".verdict .badge").first.inner_text().split()[-1] in VERDICTS


def test_a_table_sorts_by_its_header_and_keeps_the_order_in_the_address(open_page, experiment):
    page = open_page(f"experiments/{experiment}")
    table = page.get_by_role("table", name="Every run of every arm")
    table.get_by_role("button", name="Run", exact=True).click()
    first = table.locator("tbody th").first.inner_text()
    table.get_by_role("button", name="Run", exact=True).click()
    assert table.locator("tbody th").first.inner_text() != first
    page.reload()
    again = page.get_by_role("table", name="Every run of every arm")
    again.wait_for()
    assert again.locator("tbody th").first.inner_text() != first


def test_a_table_downloads_without_formulas(open_page, experiment):
    page = open_page(path_of("rollouts", experiment))
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    with download.value.path().open(encoding="utf-8", newline="") as stream:
        text = stream.read()
    rows = list(csv.reader(io.StringIO(text)))
    assert len(rows) == 25  # 12 tasks at steps 3 and 6, and the header
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "@"))]


def test_curves_have_a_canvas_and_their_numbers(open_page, experiment):
    page = open_page(f"experiments/{experiment}")
    page.wait_for_selector(".chart canvas")
    chart = page.get_by_role("group", name="loss over steps")
    chart.get_by_text("Numbers").click()
    assert chart.get_by_role("row").count() == 3  # two arms and the header


def test_a_filter_is_kept_in_the_address_and_an_empty_list_tells_what_to_do(open_page):
    page = open_page("experiments")
    page.get_by_label("Search").first.fill("nothing like that")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("No experiment matches").wait_for()
    assert "text=nothing" in page.url
    page.get_by_role("link", name="Clear").click()
    page.get_by_role("table").wait_for()


def test_a_researcher_compares_two_arms_down_to_both_transcripts(open_page, experiment):
    page = open_page(f"experiments/{experiment}")
    page.get_by_role("link", name="against low").first.click()
    table = page.get_by_role("table", name="Tasks, with the score of each side")
    table.wait_for()
    table.get_by_role("link").first.click()
    page.get_by_role("heading", name="Task t00").wait_for()
    assert page.locator(".beside .message").count() == 8  # of four runs, a question and an answer each


def test_an_unknown_page_and_an_unknown_experiment_say_so(browser, address):
    page = browser.new_page()
    for path, text in (("nonsense", "There is no such page"), ("experiments/none", "no experiment 'none'")):
        page.goto(f"{address}/{path}")
        page.get_by_text(text).wait_for()
    page.close()

"""A report in a browser that has no server to ask."""

import subprocess
import sys

from evsys_dashboard.report.answers import address_part, query_text


def test_a_colleague_reads_the_report_from_the_verdict_to_both_transcripts(browser, project, tmp_path):
    path = tmp_path / "report.html"
    command = [sys.executable, "-m", "evsys_cli.main", "report", "last", "-o", str(path)]
    subprocess.run(command, cwd=project.root, check=True, capture_output=True)
    asked, problems = [], []
    page = browser.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: message.type == "error" and problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(path.as_uri())
    page.get_by_role("link", name="trial").click()
    page.locator(".verdict").wait_for()
    page.wait_for_selector(".chart canvas")
    page.get_by_role("link", name="against low").first.click()
    page.get_by_role("table", name="Tasks, with the score of each side").get_by_role("link").first.click()
    page.locator(".beside .message").first.wait_for()
    assert page.locator("main script, main img").count() == 0
    page.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert problems == []


def test_addresses_are_written_as_the_browser_writes_them(browser):
    names = ["a b", "*~!'()", "ü/ß?&=#%+", "-._"]
    page = browser.new_page()
    path = page.evaluate("names => names.map(encodeURIComponent)", names)
    query = page.evaluate("names => names.map(name => new URLSearchParams({task: name}).toString())", names)
    page.close()
    assert [address_part(name) for name in names] == path
    assert [query_text({"task": name}) for name in names] == query

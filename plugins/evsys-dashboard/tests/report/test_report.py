"""A report is one file that needs nothing else."""

import json
import os
import re

import pytest
from click.testing import CliRunner
from lab_records import Lab

from evsys.errors import StoreError
from evsys_dashboard.report.command import report
from evsys_dashboard.report.page import page

ENDS = "</script><script>alert(1)</script><!--"


def saved(html):
    [text] = re.findall(r'<script type="application/json" id="saved-answers">(.*?)</script>', html, re.DOTALL)
    return json.loads(text)


@pytest.fixture
def written(tmp_path):
    """Writes a report of the newest experiment; its text."""

    def write(lab, *options):
        path = tmp_path / "report.html"
        records = ["--records", str(lab.project)]
        done = CliRunner().invoke(
            report, ["last", "-o", str(path), *records, *options], catch_exceptions=False
        )
        assert done.exit_code == 0, done.output
        return path.read_text(encoding="utf-8"), done

    return write


def test_it_has_every_answer_that_its_pages_ask_for(written, lab):
    lab.whole("trial", arms=("a", "b"))
    answers = saved(written(lab)[0])
    one = next(iter(lab.experiments.iterdir())).name
    below = f"projects/lab/experiments/{one}"
    assert {
        "projects",
        "projects/lab/experiments",
        below,
        f"{below}/events",
        f"{below}/runs/a-s0",
    } <= answers.keys()
    assert answers[f"{below}/curves?phase=training"]["curves"]
    assert answers[f"{below}/runs/a-s0/rollouts?phase=validation"]["total"] > 0


def test_rollouts_beyond_the_most_are_left_out_and_named(written, lab):
    lab.whole("trial")
    html, done = written(lab, "--rollouts", "1", "--json")
    [kept] = [value for key, value in saved(html).items() if key.endswith("rollouts?phase=validation")]
    assert len(kept["rollouts"]) == 1
    assert f"1 of {kept['total']} rollouts in validation" in json.loads(done.stdout)["left_out"][0]


def test_a_report_without_rollouts_has_no_text_of_any(written, lab):
    lab.whole("trial")
    html, _ = written(lab, "--rollouts", "0")
    assert "Is it?" not in html
    assert "rollouts" not in saved(html)["features"]


def test_no_text_ends_the_element_that_holds_it(written, lab):
    lab.whole("trial", hypothesis=ENDS)
    html, _ = written(lab)
    experiment = next(
        value for key, value in saved(html).items() if key.startswith("projects/lab/experiments/2")
    )
    assert experiment["facts"]["hypothesis"] == ENDS
    assert html.count("<script") == html.count("</script>") == 3


def test_it_allows_its_own_scripts_alone_and_loads_nothing():
    html = page({"features": []}, "<b>title</b>")
    assert "default-src 'none'" in html
    assert not re.findall(r"<(?:link|script|img)[^>]+(?:src|href)=\"(?!data:)", html)
    assert not re.findall(r"^(?:import|export) ", html, re.MULTILINE)
    assert "<title>&lt;b>title&lt;/b></title>" in html


def test_a_record_with_a_link_out_of_it_has_no_report(tmp_path, lab):
    record = lab.whole("trial")
    secret = tmp_path / "secret.txt"
    secret.write_text("secret", encoding="utf-8")
    (record.directory / "hypothesis.md").unlink(missing_ok=True)
    (record.directory / "hypothesis.md").symlink_to(secret)
    path = tmp_path / "report.html"
    with pytest.raises(StoreError, match="symbolic link"):
        CliRunner().invoke(
            report, ["last", "-o", str(path), "--records", str(lab.project)], catch_exceptions=False
        )
    assert not path.exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("name", ["hypothesis.md", "config.yaml"])
def test_a_pipe_in_a_record_is_waited_for_by_no_one(tmp_path, lab, name):
    record = lab.whole("trial")
    (record.directory / name).unlink(missing_ok=True)
    os.mkfifo(record.directory / name)
    with pytest.raises(StoreError, match="not a regular file"):
        CliRunner().invoke(
            report,
            ["last", "-o", str(tmp_path / "report.html"), "--records", str(lab.project)],
            catch_exceptions=False,
        )


def test_an_experiment_without_runs_has_a_report(written, lab):
    lab.begin("empty")
    assert saved(written(lab)[0])["projects/lab/experiments"]["total"] == 1


def test_an_unknown_experiment_is_an_error(tmp_path):
    done = CliRunner().invoke(report, ["none", "--records", str(Lab(tmp_path).project)])
    assert done.exit_code != 0

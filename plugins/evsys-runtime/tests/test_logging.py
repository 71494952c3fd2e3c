import asyncio
import io
import json
import subprocess
import sys

import pytest

from evsys_record.jsonl import read_jsonl
from evsys_record.secrets import Redactor
from evsys_runtime.logging import configure, context, run_logger


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def stream():
    return io.StringIO()


def logger(tmp_path, stream, **settings):
    redactor = Redactor({"API_KEY": "sk-canary-123456"})
    return run_logger(
        tmp_path / "run.log.jsonl", configure(stream=stream, redactor=redactor, **settings), run_id="a-s0"
    )


def lines(tmp_path):
    return list(read_jsonl(tmp_path / "run.log.jsonl"))


def test_events_are_json_lines_in_the_file_and_text_on_the_stream(tmp_path, stream):
    log = logger(tmp_path, stream)
    log.info("run.started", steps=10, loss=0.123456789, note="two words\n")
    (line,) = lines(tmp_path)
    assert line.pop("time")
    assert line == {
        "level": "info",
        "event": "run.started",
        "run_id": "a-s0",
        "steps": 10,
        "loss": 0.123456789,
        "note": "two words\n",
    }
    assert (
        stream.getvalue()[8:]
        == ' info    run.started run_id=a-s0 steps=10 loss=0.123457 note="two words\\n"\n'
    )


def test_colours_only_on_a_terminal(tmp_path, stream):
    logger(tmp_path, stream).warning("a.happened")
    terminal = Terminal()
    logger(tmp_path, terminal).warning("a.happened")
    assert "\x1b" not in stream.getvalue()
    assert "\x1b[33mwarning" in terminal.getvalue()


def test_logs_go_to_standard_error_and_never_to_standard_output(tmp_path, capsys):
    run_logger(None, configure()).info("a.happened")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "a.happened" in captured.err


def test_levels_of_stream_and_file_are_apart(tmp_path, stream):
    log = logger(tmp_path, stream, console_level="warning", file_level="info")
    log.debug("a.happened")
    log.info("b.happened")
    log.warning("c.happened")
    assert [line["event"] for line in lines(tmp_path)] == ["b.happened", "c.happened"]
    assert "b.happened" not in stream.getvalue()
    assert "c.happened" in stream.getvalue()


class Unread(io.StringIO):
    """A pipe whose reader left after some lines."""

    def __init__(self, lines=0, error=None):
        super().__init__()
        self.left, self.error = lines, error or BrokenPipeError(32, "Broken pipe")
        self.tried = 0

    def write(self, text):
        self.tried += 1
        if self.tried > self.left:
            raise self.error
        return super().write(text)


@pytest.mark.parametrize(
    "error",
    [BrokenPipeError(32, "Broken pipe"), OSError(5, "Input/output error"), OSError(28, "No space left")],
)
def test_a_console_that_takes_nothing_any_more_is_left_alone_and_the_file_goes_on(tmp_path, error):
    unread = Unread(lines=1, error=error)
    numbers = iter(range(10))
    settings = configure(stream=unread)
    log = run_logger(tmp_path / "run.log.jsonl", settings, sequence=lambda: next(numbers), attempt=2)
    for name in ("a.happened", "b.happened", "c.happened"):
        log.warning(name)
    run_logger(tmp_path / "other.log.jsonl", settings).warning("d.happened")
    assert unread.tried == 2
    assert [(line["event"], line["seq"], line["attempt"]) for line in lines(tmp_path)] == [
        ("a.happened", 0, 2),
        ("b.happened", 1, 2),
        ("console.lost", 2, 2),
        ("c.happened", 3, 2),
    ]
    assert lines(tmp_path)[2]["reason"] == str(error)
    assert [line["event"] for line in read_jsonl(tmp_path / "other.log.jsonl")] == ["d.happened"]


def test_a_console_that_was_closed_is_left_alone(tmp_path, stream):
    log = logger(tmp_path, stream)
    stream.close()
    log.warning("a.happened")
    log.warning("b.happened")
    assert [line["event"] for line in lines(tmp_path)] == ["a.happened", "console.lost", "b.happened"]


def test_a_process_without_standard_error_logs_to_its_file_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    logger(tmp_path, None).warning("a.happened")
    assert [line["event"] for line in lines(tmp_path)] == ["a.happened"]


def test_what_people_are_told_of_in_another_way_stands_in_the_file_alone(tmp_path, stream):
    log = logger(tmp_path, stream, told={"run.failed"})
    log.error("run.failed")
    log.error("teardown.failed")
    assert [line["event"] for line in lines(tmp_path)] == ["run.failed", "teardown.failed"]
    assert "run.failed" not in stream.getvalue()
    assert "teardown.failed" in stream.getvalue()


def test_an_unknown_level_is_refused():
    with pytest.raises(ValueError, match="'loud'; use one of debug, info"):
        configure(console_level="loud")


def test_a_traceback_is_text_in_the_file_and_the_stream_has_one_line(tmp_path, stream):
    log = logger(tmp_path, stream)
    try:
        raise ValueError("broken by sk-canary-123456")
    except ValueError:
        log.error("run.failed", exc_info=True)  # noqa: G201 - the protocol has no `exception`
    (line,) = lines(tmp_path)
    assert line["traceback"].startswith("Traceback")
    assert "ValueError: broken by [redacted]" in line["traceback"]
    assert "Traceback" not in stream.getvalue()
    assert "canary" not in stream.getvalue()


def test_nothing_secret_reaches_file_or_stream(tmp_path, stream):
    log = logger(tmp_path, stream)
    log.info(
        "request.failed",
        url="https://me:pa55word@host.test/v1",
        headers={"Authorization": "Basic Zm9v", "X-Api-Key": "k3y"},
        body="sk-canary-123456",
        api_key="literal",
    )
    written = stream.getvalue() + (tmp_path / "run.log.jsonl").read_text(encoding="utf-8")
    for secret in ("pa55word", "Zm9v", "k3y", "canary", "literal"):
        assert secret not in written


def test_facts_that_are_named_like_the_logs_own_keys_get_an_underscore(tmp_path, stream):
    logger(tmp_path, stream).info("a.happened", level="deep", time=3)
    (line,) = lines(tmp_path)
    assert (line["level"], line["level_"], line["time_"]) == ("info", "deep", 3)


def test_facts_bound_to_a_task_stay_in_it(tmp_path, stream):
    log = logger(tmp_path, stream)

    async def arm(name):
        with context(arm=name):
            await asyncio.sleep(0)
            log.info("arm.worked")

    async def both():
        await asyncio.gather(arm("a"), arm("b"))
        log.info("all.done")

    asyncio.run(both())
    assert [line.get("arm") for line in lines(tmp_path)] == ["a", "b", None]


def test_two_runs_do_not_meet(tmp_path, stream):
    first = run_logger(tmp_path / "1.jsonl", configure(stream=stream), run_id="a-s0")
    second = run_logger(tmp_path / "2.jsonl", configure(stream=stream), run_id="b-s0")
    first.info("a.happened")
    second.info("b.happened")
    assert [line["run_id"] for line in read_jsonl(tmp_path / "1.jsonl")] == ["a-s0"]
    assert [line["event"] for line in read_jsonl(tmp_path / "2.jsonl")] == ["b.happened"]


def test_numbered_events_carry_attempt_step_and_seq(tmp_path, stream):
    numbers = iter([7, 8])
    log = run_logger(
        tmp_path / "run.log.jsonl", configure(stream=stream), sequence=lambda: next(numbers), attempt=2
    )
    log.info("a.happened")
    with context(step=5):
        log.info("b.happened")
    found = [(line["attempt"], line["step"], line["seq"]) for line in lines(tmp_path)]
    assert found == [(2, None, 7), (2, 5, 8)]


def test_structlog_is_not_configured_for_the_process(tmp_path, stream):
    import structlog

    logger(tmp_path, stream).info("a.happened")
    assert not structlog.is_configured()


def test_importing_the_module_does_not_import_structlog():
    script = "import sys, evsys_record.run_record; sys.exit('structlog' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_long_text_is_logged_by_its_beginning_and_its_end(tmp_path):
    path = tmp_path / "log.jsonl"
    log = run_logger(path, configure(console_level=None))
    log.info("service.answered", body="a" + "x" * 1_000_000 + "z", count=3)
    (line,) = path.read_text().splitlines()
    assert len(line) < 40_000
    assert "characters left out" in line
    assert json.loads(line)["body"].endswith("z")

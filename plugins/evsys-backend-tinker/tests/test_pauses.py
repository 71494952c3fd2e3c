"""What the client says reaches the run that it is about, and each thing once."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from evsys_backend_tinker.pauses import Relay, forward_messages


class Said:
    """A log that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[dict] = []

    def warning(self, event: str, **facts) -> None:
        assert event == "server.said"
        self.events.append(facts)

    info = debug = error = warning


@contextmanager
def open_run(log: Said) -> Iterator[None]:
    Relay.start(log)
    try:
        yield
    finally:
        Relay.stop(log)


def says(log: Said | None, text: str) -> None:
    with forward_messages(log):
        logging.getLogger("tinker.lib").warning(text)


def test_what_differs_in_numbers_only_is_told_once_and_counted_at_the_end_of_the_run():
    log = Said()
    with open_run(log):
        for index in range(60):
            says(log, f"request a{index}f3: there is no sampler 'x:{index}' here")
        says(log, "paused due to billing")
        assert [one["what"] for one in log.events] == [
            "request a0f3: there is no sampler 'x:0' here",
            "paused due to billing",
        ]
    assert log.events[2:] == [{"what": "request a0f3: there is no sampler 'x:0' here", "times": 60}]


def test_each_run_is_told_for_itself():
    one, other = Said(), Said()
    with open_run(one), open_run(other):
        says(one, "paused due to billing")
        says(other, "paused due to billing")
        says(other, "paused due to billing")
    assert one.events == [{"what": "paused due to billing"}]
    assert other.events == [
        {"what": "paused due to billing"},
        {"what": "paused due to billing", "times": 2},
    ]


def test_a_run_that_is_over_is_told_nothing_more():
    over, other = Said(), Said()
    with open_run(other):
        with open_run(over):
            pass
        says(over, "the holder is closed")
    assert over.events == other.events == []

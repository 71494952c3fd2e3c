"""The thread between training and a service: it is never waited for, keeps what fails, and says so once."""

import gc
import threading
import weakref

import pytest

from evsys_loggers import shipping
from evsys_loggers.shipping import Shipper
from evsys_loggers.sink import Record

LONG = 3600.0


class Service:
    """A sink in memory that fails as often as it is told."""

    def __init__(self, broken=()):
        self.broken = list(broken)
        self.written = []
        self.end = None
        self.threads = set()

    def write(self, records):
        self.threads.add(threading.current_thread())
        if self.broken:
            raise self.broken.pop(0)
        self.written += records

    def close(self, status, facts):
        self.end = (status, dict(facts))


def record(step, **values):
    return Record(step, 0.0, "training", values or {"loss": 1.0})


def finished(shipper, status="completed"):
    shipper.close(status, {"steps": 3})
    shipper.done.result(30)
    return shipper


def failures(shipper):
    return [str(failure) for failure in iter(shipper.failure, None)]


def test_what_is_put_is_written_in_order_by_one_other_thread_and_then_the_end():
    service = Service()
    shipper = Shipper("fake", lambda: service, flush_seconds=0.001)
    for step in range(100):
        shipper.put(record(step))
    finished(shipper)
    assert [found.step for found in service.written] == list(range(100))
    assert service.end == ("completed", {"steps": 3})
    assert len(service.threads) == 1
    assert threading.current_thread() not in service.threads
    assert failures(shipper) == []


def test_a_service_that_hangs_holds_nobody_up():
    going_on = threading.Event()

    class Hanging(Service):
        def write(self, records):
            going_on.wait(30)
            super().write(records)

    service = Hanging()
    shipper = Shipper("fake", lambda: service, flush_seconds=0.001)
    for step in range(1000):
        shipper.put(record(step))
    assert not shipper.done.done()
    going_on.set()
    finished(shipper)
    assert len(service.written) == 1000


def test_a_batch_that_failed_is_written_later_and_the_failure_is_told_once():
    service = Service([ConnectionError("no route"), ConnectionError("no route")])
    shipper = Shipper("fake", lambda: service, flush_seconds=LONG)
    shipper._attempt("x", lambda sink: None)  # opened
    shipper.put(record(1))
    assert not shipper._ship()
    shipper.put(record(2))
    assert not shipper._ship()
    assert failures(shipper) == ["fake can't be written to: ConnectionError: no route"]
    finished(shipper)
    assert [found.step for found in service.written] == [1, 2]
    assert failures(shipper) == []


def test_what_could_not_be_written_until_the_end_is_counted():
    shipper = Shipper("fake", lambda: Service([OSError("full")] * 99), flush_seconds=LONG)
    for step in range(3):
        shipper.put(record(step))
    finished(shipper)
    assert failures(shipper) == [
        "fake can't be written to: OSError: full",
        "fake 3 records were not written; the record of the run has them",
    ]


def test_a_service_that_can_not_be_opened_at_first_gets_everything_later():
    service = Service()
    calls = []

    def opening():
        calls.append(1)
        if len(calls) == 1:
            raise TimeoutError("asleep")
        return service

    shipper = Shipper("fake", opening, flush_seconds=LONG)
    shipper.put(record(1))
    finished(shipper)
    assert [found.step for found in service.written] == [1]
    assert failures(shipper) in ([], ["fake can't be opened: TimeoutError: asleep"])
    assert len(calls) == 2


def test_records_beyond_what_is_held_are_given_up_oldest_first(monkeypatch):
    monkeypatch.setattr(shipping, "_MOST_HELD", 5)
    service = Service()
    shipper = Shipper("fake", lambda: service, flush_seconds=LONG)
    for step in range(8):
        shipper.put(record(step))
    finished(shipper)
    assert len(service.written) + shipper._lost == 8
    assert [found.step for found in service.written][-1] == 7


def test_a_plugin_that_ends_the_process_does_not():
    shipper = Shipper("fake", lambda: Service([SystemExit(3)] * 9), flush_seconds=0.001)
    shipper.put(record(1))
    finished(shipper)
    assert failures(shipper)[0] == "fake can't be written to: SystemExit: 3"


def test_only_the_first_end_counts():
    service = Service()
    shipper = finished(Shipper("fake", lambda: service, flush_seconds=LONG), "failed")
    shipper.abandon()
    assert service.end == ("failed", {"steps": 3})


def test_whoever_is_gone_leaves_nothing_unwritten():
    class Owner:
        pass

    service, owner = Service(), Owner()
    shipper = Shipper("fake", lambda: service, flush_seconds=LONG)
    weakref.finalize(owner, shipper.abandon)
    shipper.put(record(1))
    del owner
    gc.collect()
    shipper.done.result(30)
    assert [found.step for found in service.written] == [1]
    assert service.end == ("cancelled", {"status": "cancelled"})


@pytest.mark.parametrize("values", [{"loss": 1.0}, {"a/b": float("nan")}])
def test_values_are_named_by_their_group(values):
    assert record(1, **values).named().keys() == {f"training/{name}" for name in values}

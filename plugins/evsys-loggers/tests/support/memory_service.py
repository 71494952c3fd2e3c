"""A logger that writes into memory."""

from typing import ClassVar

from evsys_loggers.logger import RunLogger


class Service(RunLogger):
    """A logger that writes into memory."""

    name = "service"
    opened: ClassVar[list] = []
    broken = None

    def open(self, run):
        sink = Sink(run, type(self).broken)
        self.opened.append(sink)
        return sink


class Sink:
    def __init__(self, run, broken):
        self.run, self.broken, self.records, self.end = run, broken, [], None
        self.again = run.remembered()
        self.id = run.lasting_id()

    def write(self, records):
        if self.broken is not None:
            raise self.broken
        self.records += records

    def close(self, status, facts):
        self.end = (status, dict(facts))

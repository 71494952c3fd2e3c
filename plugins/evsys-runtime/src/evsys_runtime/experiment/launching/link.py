"""The link of an arm's process to its experiment: what it reports, what it asks, and what it is asked to do."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import Any

from evsys.errors import StoreError
from evsys.types import EvaluationResult
from evsys_record.encoding import as_tree
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.result_trees import read_as
from evsys_runtime.evaluation.shared_scores import SharedScores
from evsys_runtime.experiment.launching.messages import Mailbox
from evsys_runtime.experiment.state.facts import STORED

__all__ = ["PARENT", "ArmRecord", "Link", "LinkedScores"]

PARENT = "EVSYS_PARENT"
"""The variable with the process that the arm doesn't outlive; without it, it outlives all."""

LOOK_SECONDS = 0.05

ANSWER_SECONDS = 120.0
"""How long the process waits for an answer: its experiment may be taken over by another process meanwhile."""

LAST_SECONDS = 30.0
"""How long a process whose parent has gone may take to write down where it was."""


class Link:
    """Reads what the experiment sends, in a thread of its own, so that a request reaches a busy event loop.

    Args:
        mailbox: the arm's end.
        parent: the process that this one doesn't outlive.
        on_steer: called with the requests in force.
        on_end: called with the reason where the arm is to end.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        *,
        parent: int | None,
        on_steer: Callable[[Mapping[str, Any]], None],
        on_end: Callable[[str], None],
    ) -> None:
        self.send = mailbox.send
        self._mailbox = mailbox
        self._parent = parent
        self._handlers: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "steer": on_steer,
            "end": lambda message: on_end(message["reason"]),
            "answer": self._answered,
        }
        self._numbers = count(1)
        self._answers: dict[str, Mapping[str, Any]] = {}
        self._waiting: dict[str, Callable[[Mapping[str, Any]], object]] = {}
        self._arrived = threading.Condition()
        self._gone = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="link to the experiment", daemon=True)

    def start(self) -> None:
        """Listen until `close`."""
        self._thread.start()

    def close(self) -> None:
        """Listen no longer."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._mailbox.close()

    def ask(self, message: str, **facts: Any) -> Mapping[str, Any] | None:
        """Send a question and wait for its answer, which blocks; None if no one answers."""
        number = str(next(self._numbers))
        self.send(message, id=number, **facts)
        with self._arrived:
            self._arrived.wait_for(lambda: number in self._answers or self._gone, ANSWER_SECONDS)
            return self._answers.pop(number, None)

    async def ask_later(self, message: str, **facts: Any) -> Mapping[str, Any]:
        """Send a question and wait for its answer, as long as that takes."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Mapping[str, Any]] = loop.create_future()

        def settle(found: Mapping[str, Any]) -> None:
            if not answer.done():
                answer.set_result(found)

        number = str(next(self._numbers))
        self._waiting[number] = lambda found: loop.call_soon_threadsafe(settle, found)
        self.send(message, id=number, **facts)
        return await answer

    def _answered(self, message: Mapping[str, Any]) -> None:
        if (settle := self._waiting.pop(message["to"], None)) is not None:
            settle(message)
            return
        with self._arrived:
            self._answers[message["to"]] = message
            self._arrived.notify_all()

    def _listen(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            if self._parent is not None and os.getppid() != self._parent:
                self._end_without_parent()
                return
            try:
                for message in self._mailbox.receive():
                    self._handlers[message["message"]](message)
            except StoreError:
                continue  # a file system that is away for a moment; a lost parent is noticed above

    def _end_without_parent(self) -> None:
        with self._arrived:
            self._gone = True
            self._arrived.notify_all()
        os.kill(os.getpid(), signal.SIGTERM)
        if not self._ended.wait(LAST_SECONDS):
            os.kill(os.getpid(), signal.SIGKILL)


class LinkedScores(SharedScores):
    """Scores that several arms want, of which the experiment says who makes them.

    Args:
        link: to the experiment.
        table: `untrained` or `compared`.
        known: those that are there already.
    """

    def __init__(self, link: Link, table: str, known: Mapping[str, EvaluationResult]) -> None:
        super().__init__()
        self._link, self._table = link, table
        for key, result in known.items():
            self.remember(key, result)

    def enter(self, run_id: str, keys: Iterable[str]) -> None:
        """The experiment knows what this arm wants."""

    async def score(
        self,
        key: str,
        run_id: str,
        make: Callable[[], Awaitable[EvaluationResult]],
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> EvaluationResult | None:
        """See `SharedScores.score`."""
        del run_id
        if (known := self.known(key)) is not None:
            return known
        with waiting():
            answer = await self._link.ask_later("score", table=self._table, key=key)
        if answer["score"] is not None:
            result = read_as(EvaluationResult, answer["score"])
            self.remember(key, result)
            return result
        made: EvaluationResult | None = None
        try:
            made = await make()
            if made.fully_scored:
                self.remember(key, made)
        finally:
            self._link.send("made", id=answer["to"], score=None if made is None else as_tree(made))
        return None


class _LinkedEvents:
    """The events of an arm's process, which its experiment writes: their numbers have one writer."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def append(self, event: str, *, run: str | None = None, attempt: int | None = None, **facts: Any) -> int:
        """Send an event; it has no number yet."""
        self._link.send("event", event=event, run=run, attempt=attempt, facts=as_tree(facts))
        return 0

    def close(self) -> None:
        """Nothing to release."""


class ArmRecord(ExperimentRecord):
    """An experiment's record in the process of one of its arms: writes that arm's run, and has the experiment write all else."""

    link: Link | None = None

    def attach(self, link: Link) -> None:
        """Send through this link."""
        self.link = link
        self.__dict__["events"] = _LinkedEvents(link)

    def note(self, **facts: Any) -> None:
        """Send the versions of stored data that a name meant; an arm has nothing else to note."""
        unknown = facts.keys() - {STORED}
        if unknown or self.link is None:
            raise StoreError(f"the process of an arm can't note {', '.join(sorted(unknown or facts))}")
        self.link.send("stored", known=as_tree(facts[STORED]))

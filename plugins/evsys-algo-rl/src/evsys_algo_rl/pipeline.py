"""Rollouts and training side by side: groups wait in a bounded queue, and none is older than is allowed.

A sampling is a *round*. The queue may hold, running or ready, what the round at hand still needs and what the next
`max_staleness` rounds will need; beyond that no rollout is started, and a batch waits until its groups are there. With
`max_staleness` 0 nothing is started ahead, so each round is sampled at once by the policy as it is when the round begins.
Above 0 groups are started one by one, in the order of the data and each with the newest policy, so many at once as is allowed.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import attrs

from evsys_algo_rl.groups import TaskGroup

if TYPE_CHECKING:
    from evsys.protocols import SamplingClient

__all__ = ["Pipeline", "Taken", "Ticket"]


@attrs.frozen(kw_only=True)
class Ticket:
    """A wanted task: its position in the order of the data, and whether it was sampled before and came too late."""

    position: int
    again: bool = False


@attrs.frozen(kw_only=True, eq=False)
class Taken:
    """The groups of a round, and what it took to get them.

    `flat` were left out, since they teach nothing; `stale` came too late. `wait_seconds` is how long the training waited for
    groups, `idle_seconds` how long nothing was sampled, since there was no room.
    """

    groups: list[TaskGroup]
    flat: list[TaskGroup] = attrs.field(factory=list)
    stale: int = 0
    wait_seconds: float = 0.0
    idle_seconds: float = 0.0


@attrs.define(eq=False)
class _Snapshot:
    """A policy and how many samplings use it. It is closed when no one does and a newer one is there."""

    client: SamplingClient
    round: int
    users: int = 0


@attrs.frozen(eq=False)
class _Ready:
    group: TaskGroup
    ticket: Ticket
    round: int


type Sample = Callable[[Sequence[int], SamplingClient, int], AsyncIterator[TaskGroup]]
"""`(positions, snapshot, call)` yields the group of each position. `call` numbers the calls of a run."""


class Pipeline:
    """Starts samplings and hands out their groups.

    Args:
        sample: runs the tasks at some positions.
        max_staleness: by how many rounds the policy may be ahead of the one that sampled a group.
        key: the task at a position; no task is twice in one call of `sample`.
        at_once: groups sampled at once where they are started one by one.
    """

    def __init__(
        self, sample: Sample, *, max_staleness: int, key: Callable[[int], object], at_once: int = 8
    ) -> None:
        self._sample = sample
        self._room = asyncio.Semaphore(at_once)
        self._max_staleness = max_staleness
        self._key = key
        self._position = 0
        self._calls = 0
        self._again: deque[Ticket] = deque()
        self._running: dict[asyncio.Task[None], dict[int, Ticket]] = {}
        self._ready: list[_Ready] = []
        self._changed = asyncio.Event()
        self._snapshot: _Snapshot | None = None
        self._active = 0
        self._idle_since: float | None = None
        self._idle_seconds = 0.0

    # --- what a checkpoint keeps ----------------------------------------------------------------------------------

    def state(self) -> dict[str, object]:
        """Its position, as JSON values. Groups sampled and not yet taken are sampled again after a resume."""
        waiting = [*self._again, *(ready.ticket for ready in self._ready)]
        waiting += [ticket for tickets in self._running.values() for ticket in tickets.values()]
        return {
            "position": self._position,
            "calls": self._calls,
            "waiting": sorted([ticket.position, ticket.again] for ticket in waiting),
        }

    def load_state(self, position: int, calls: int, waiting: Iterable[Sequence[int]]) -> None:
        """Continue from what `state` gave."""
        self._position, self._calls = position, calls
        self._again = deque(Ticket(position=int(at), again=bool(again)) for at, again in waiting)

    # --- a round ----------------------------------------------------------------------------------------------------

    async def begin(self, snapshot: SamplingClient, round_: int) -> None:
        """Sample with this policy from now on; the pipeline closes it when it is done with it."""
        old, self._snapshot = self._snapshot, _Snapshot(snapshot, round_)
        if old is not None:
            await self._release(old)

    async def take(
        self,
        size: int,
        *,
        ahead: int = 0,
        refill: int = 0,
        skip: Callable[[TaskGroup], bool] = lambda _group: False,
    ) -> Taken:
        """The next `size` groups, in the order of the data.

        Args:
            size: how many.
            ahead: how many more may be sampled meanwhile, for the rounds that follow.
            refill: how many further groups may be sampled in place of those skipped.
            skip: says which groups aren't wanted.

        Returns:
            `size` groups, fewer where the refill was used up: then those that are left, and if none is, the skipped ones.

        Raises:
            Exception: a sampling failed.
        """
        started = time.perf_counter()
        groups: list[TaskGroup] = []
        flat: list[TaskGroup] = []
        stale = 0
        wanted = size
        while True:
            stale += self._drop_stale()
            self._fill(wanted - len(groups) - len(flat) + ahead)
            if len(self._ready) >= (missing := wanted - len(groups) - len(flat)):
                self._ready.sort(key=lambda ready: ready.group.position)
                chosen, self._ready = self._ready[:missing], self._ready[missing:]
                for ready in chosen:
                    (flat if skip(ready.group) else groups).append(ready.group)
                lacking = min(size - len(groups), size + refill - wanted)
                if lacking <= 0:
                    break
                wanted += lacking
                continue
            await self._next()
        self._fill(ahead)
        for found in (groups, flat):
            found.sort(key=lambda group: group.position)
        idle, self._idle_seconds = self._idle_seconds, 0.0
        return Taken(
            groups=groups or flat,
            flat=flat if groups else [],
            stale=stale,
            wait_seconds=time.perf_counter() - started,
            idle_seconds=idle,
        )

    async def close(self) -> None:
        """End what is being sampled and close the policies. Safe to call twice."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._running.clear()
        if self._snapshot is not None:
            snapshot, self._snapshot = self._snapshot, None
            await snapshot.client.close()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _fill(self, room: int) -> None:
        """Start samplings until `room` groups are running or ready."""
        missing = room - len(self._ready) - sum(len(tickets) for tickets in self._running.values())
        tickets = [self._next_ticket() for _ in range(missing)]
        if self._max_staleness:
            for ticket in tickets:
                self._start([ticket])
            return
        while tickets:
            call: dict[object, Ticket] = {}
            for ticket in tickets:
                call.setdefault(self._key(ticket.position), ticket)
            chosen = list(call.values())
            tickets = [ticket for ticket in tickets if ticket not in chosen]
            self._start(chosen)

    def _next_ticket(self) -> Ticket:
        if self._again:
            return self._again.popleft()
        self._position += 1
        return Ticket(position=self._position - 1)

    def _start(self, tickets: Sequence[Ticket]) -> None:
        call, self._calls = self._calls, self._calls + 1
        left = {ticket.position: ticket for ticket in tickets}
        run = self._run_in_turn if self._max_staleness else self._run
        task = asyncio.create_task(run(left, call))
        # Who waits looks at tasks that are done: told any earlier, it would find none and wait for ever.
        task.add_done_callback(lambda _: self._changed.set())
        self._running[task] = left

    async def _run_in_turn(self, left: dict[int, Ticket], call: int) -> None:
        async with self._room:
            await self._run(left, call)

    async def _run(self, left: dict[int, Ticket], call: int) -> None:
        snapshot = self._snapshot
        if snapshot is None:
            raise RuntimeError("`begin` must be called before groups are taken")
        snapshot.users += 1
        self._active += 1
        if self._idle_since is not None:
            self._idle_seconds += time.perf_counter() - self._idle_since
            self._idle_since = None
        try:
            async for group in self._sample(list(left), snapshot.client, call):
                self._ready.append(_Ready(group, left.pop(group.position), snapshot.round))
                self._changed.set()
        finally:
            snapshot.users -= 1
            self._active -= 1
            if self._active == 0:
                self._idle_since = time.perf_counter()
            await self._release(snapshot)

    async def _next(self) -> None:
        """Wait until a group is ready or a sampling has ended; raise what one failed with."""
        await self._changed.wait()
        self._changed.clear()
        for task in [task for task in self._running if task.done()]:
            del self._running[task]
            task.result()

    def _drop_stale(self) -> int:
        """Leave out what is too old; each such task is sampled again once, and given up after that."""
        newest = self._snapshot.round if self._snapshot is not None else 0
        old = [ready for ready in self._ready if newest - ready.round > self._max_staleness]
        self._ready = [ready for ready in self._ready if newest - ready.round <= self._max_staleness]
        self._again.extend(
            Ticket(position=ready.ticket.position, again=True) for ready in old if not ready.ticket.again
        )
        return len(old)

    async def _release(self, snapshot: _Snapshot) -> None:
        if snapshot is not self._snapshot and snapshot.users == 0:
            await snapshot.client.close()

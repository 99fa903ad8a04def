"""The queue of requests in the order of their arrival, whatever their tokenizing takes."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from kvcap.errors import RequestRefusedError
from kvcap.online.estimator import ObservedBatch
from kvcap.online.server.incoming import Incoming, stamped
from kvcap.online.server.options import ClientLimits

RETRY_AFTER_S: Final = 1
PATIENCE_S: Final = 1.0
"""How long the queue waits for what is still being tokenized; then those behind it go first."""


@dataclass(eq=False)
class Ticket:
    """A place in the queue, taken when requests arrive and filled when they are tokenized."""

    arrived_us: int
    n_bytes: int
    answer: asyncio.Future[ObservedBatch]
    incoming: Incoming | None = None
    given_up: bool = False

    @property
    def ready(self) -> bool:
        """Whether nothing is waited for any more."""
        return self.incoming is not None or self.given_up


class Arrivals:
    """Places in arrival order; belongs to one event loop.

    Parameters
    ----------
    limits
        How many may wait, and how many bytes of bodies.
    """

    def __init__(self, limits: ClientLimits) -> None:
        self._limits = limits
        self._queue: deque[Ticket] = deque()
        self._late: list[Ticket] = []
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while nobody waits, answers included."""
        self.idle.set()

    def __len__(self) -> int:
        return len(self._queue) + len(self._late)

    def oldest_us(self) -> int | None:
        """Return when the longest waiting request arrived, or None when none waits."""
        return min((queue[0].arrived_us for queue in (self._late, self._queue) if queue), default=None)

    def take(self, n_bytes: int) -> Ticket:
        """Return the next place.

        Raises
        ------
        RequestRefusedError
            With status 429 when the queue is full.
        """
        limits = self._limits
        too_large = len(self) and self._queued_bytes + n_bytes > limits.max_pending_bytes
        if len(self) >= limits.max_pending or too_large:
            raise RequestRefusedError(429, f"{len(self)} requests wait, no more are taken now", RETRY_AFTER_S)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[ObservedBatch] = loop.create_future()
        ticket = Ticket(time.time_ns() // 1000, n_bytes, answer)
        self._queue.append(ticket)
        self._queued_bytes += n_bytes
        self.idle.clear()
        return ticket

    def fill(self, ticket: Ticket, incoming: Incoming) -> int:
        """Say what a place was taken for, and return how many of its timestamps were not believed."""
        ticket.incoming, n_changed = stamped(incoming, ticket.arrived_us)
        self._wake.set()
        return n_changed

    def be_patient(self) -> None:
        """Have the queue looked at again when the place that was taken last may be passed over."""
        asyncio.get_running_loop().call_later(PATIENCE_S, self._wake.set)

    def give_up(self, ticket: Ticket) -> None:
        """Say that nothing will come."""
        ticket.given_up = True
        self._wake.set()

    async def wait(self) -> None:
        """Wait until the head of the queue may be ready."""
        if not len(self):
            self.idle.set()
        await self._wake.wait()
        self._wake.clear()

    def ready(self, max_ids: int) -> list[Ticket]:
        """Remove and return what is ready at the head, up to about ``max_ids`` ids.

        What is late and ready by now comes first; what has waited too long is passed over.
        """
        taken: list[Ticket] = []
        n_ids = 0
        passed_us = time.time_ns() // 1000 - round(PATIENCE_S * 1_000_000)
        late = [ticket for ticket in self._late if ticket.ready]
        if late:
            self._late = [ticket for ticket in self._late if not ticket.ready]
        while n_ids < max_ids:
            if late:
                ticket = late.pop(0)
            elif self._queue and self._queue[0].ready:
                ticket = self._queue.popleft()
            elif self._queue and self._queue[0].arrived_us <= passed_us:
                self._late.append(self._queue.popleft())
                continue
            else:
                break
            self._queued_bytes -= ticket.n_bytes
            if ticket.incoming is not None:
                taken.append(ticket)
                n_ids += ticket.incoming.requests.ids.size
        self._late[:0] = late
        return taken

    def abandon(self, error: Exception) -> None:
        """Answer all that wait with an error; nothing waits any more."""
        for ticket in (*self._late, *self._queue):
            if not ticket.answer.done():
                ticket.answer.set_exception(error)
                # Whoever asked may be gone.
                ticket.answer.exception()
        self._late, self._queued_bytes = [], 0
        self._queue.clear()
        self.idle.set()

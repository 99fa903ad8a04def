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
from kvcap.online.server.options import Limits

RETRY_AFTER_S: Final = 1


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

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._queue: deque[Ticket] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while nobody waits, answers included."""
        self.idle.set()

    def __len__(self) -> int:
        return len(self._queue)

    def take(self, n_bytes: int) -> Ticket:
        """Return the next place.

        Raises
        ------
        RequestRefusedError
            With status 429 when the queue is full.
        """
        limits = self._limits
        too_large = self._queue and self._queued_bytes + n_bytes > limits.max_pending_bytes
        if len(self._queue) >= limits.max_pending or too_large:
            raise RequestRefusedError(
                429, f"{len(self._queue)} requests wait, no more are taken now", RETRY_AFTER_S
            )
        answer: asyncio.Future[ObservedBatch] = asyncio.get_running_loop().create_future()
        ticket = Ticket(time.time_ns() // 1000, n_bytes, answer)
        self._queue.append(ticket)
        self._queued_bytes += n_bytes
        self.idle.clear()
        return ticket

    def fill(self, ticket: Ticket, incoming: Incoming) -> None:
        """Say what a place was taken for; requests without a timestamp get that of their arrival."""
        ticket.incoming = stamped(incoming, ticket.arrived_us)
        self._wake.set()

    def give_up(self, ticket: Ticket) -> None:
        """Say that nothing will come."""
        ticket.given_up = True
        self._wake.set()

    async def wait(self) -> None:
        """Wait until the head of the queue may be ready."""
        if not self._queue:
            self.idle.set()
        await self._wake.wait()
        self._wake.clear()

    def ready(self, max_ids: int) -> list[Ticket]:
        """Remove and return what is ready at the head, up to about ``max_ids`` ids."""
        taken: list[Ticket] = []
        n_ids = 0
        while self._queue and self._queue[0].ready and n_ids < max_ids:
            ticket = self._queue.popleft()
            self._queued_bytes -= ticket.n_bytes
            if ticket.incoming is not None:
                taken.append(ticket)
                n_ids += ticket.incoming.requests.ids.size
        return taken

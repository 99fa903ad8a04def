"""The queue in arrival order, and the estimator at its end. No HTTP here.

A lock keeps the estimator to one user at a time. What takes long (large batches, saving a state) runs in a
thread; the few requests that are usually ready are observed on the event loop, which costs less than to
hand them over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kvcap.errors import KvcapError, RequestRefusedError, UsageError
from kvcap.online.estimator import Estimator, ObservedBatch, Snapshot
from kvcap.online.server.arrivals import RETRY_AFTER_S, Arrivals, Ticket
from kvcap.online.server.incoming import Incoming, joined
from kvcap.online.server.keeper import Keeper
from kvcap.online.server.metrics import Metrics
from kvcap.online.server.options import ServeOptions
from kvcap.online.server.results import write_results

_T = TypeVar("_T")

_MAX_BATCH_IDS: Final = 1 << 20
"""Ids after which waiting requests are handed on; keeps answers quick under load."""
_MAX_INLINE_IDS: Final = 1 << 16
"""Ids that are observed on the event loop: well under a millisecond."""
_TICK_S: Final = 0.5
_STUCK_S: Final = 15.0
_CLOSE_S: Final = 3.0
"""What waits longer than that at the end is given up: whoever sent SIGTERM sends SIGKILL next."""


@dataclass(frozen=True)
class Finalized:
    """What finalizing left."""

    requests: int
    output_path: str | None
    record: str | None
    state: str | None


class Service:
    """An estimator that is fed in arrival order; all methods belong to one event loop.

    Parameters
    ----------
    options
        What the service is told.

    Raises
    ------
    SchemaError
        If there is a state or a log of other options.
    """

    def __init__(self, options: ServeOptions) -> None:
        self.options = options
        self.metrics = Metrics(options)
        self._keeper = Keeper(options)
        self._estimator, self.from_log = self._keeper.restore()
        self.restored = self._estimator.n_requests
        self.started_at = time.time()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kvcap-estimator")
        self._arrivals = Arrivals(options.limits)
        self._own_clock = True
        self._lock = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._finalizing: asyncio.Task[Finalized] | None = None
        self._broken: Exception | None = None

    @property
    def pending(self) -> int:
        """Bodies that wait for their answer."""
        return len(self._arrivals)

    @property
    def broken(self) -> str | None:
        """Why nothing is observed now, such as a full disk; None while all is well."""
        failure = self._broken or self._keeper.failure
        return None if failure is None else str(failure) or repr(failure)

    @property
    def finalized(self) -> bool:
        """Whether requests are taken no more."""
        return self._finalizing is not None

    def warm_up(self) -> None:
        """Compile the kernels, so that no client waits for it."""
        ids = [1] * self.options.block_size
        Estimator(self.options.estimator).observe(ids, timestamp_us=0)
        Estimator(self.options.estimator).observe(hash_ids=ids, timestamp_us=0)

    def start(self) -> None:
        """Begin to observe; call it on the running loop."""
        self._tasks = [asyncio.create_task(self._consume()), asyncio.create_task(self._tick())]

    async def submit(self, incoming: Incoming, n_bytes: int) -> ObservedBatch:
        """Queue requests that need no tokenizing, and return what they found.

        Raises
        ------
        RequestRefusedError
            With status 409 when finalized, 429 when the queue is full, 422 when they do not fit those
            before, 503 when something is broken.
        """
        ticket = self._take_place(n_bytes)
        self._fill(ticket, incoming)
        return await ticket.answer

    async def submit_work(
        self, executor: Executor, work: Callable[[], Incoming], n_bytes: int
    ) -> tuple[ObservedBatch, float]:
        """Queue requests that ``work`` makes in another thread; their place in the queue is that of now.

        Work that takes long loses its place: what came after it does not wait for it.

        Returns
        -------
        tuple
            What they found, and the seconds that ``work`` took.

        Raises
        ------
        KvcapError
            What ``work`` raises, or what :meth:`submit` does.
        """
        ticket = self._take_place(n_bytes)
        self._arrivals.be_patient()
        try:
            incoming, seconds = await asyncio.get_running_loop().run_in_executor(executor, _timed, work)
        except BaseException:
            self._arrivals.give_up(ticket)
            raise
        self._fill(ticket, incoming)
        return await ticket.answer, seconds

    def stuck(self) -> str | None:
        """Return what keeps requests waiting for longer than any should; None while nothing does."""
        oldest_us = self._arrivals.oldest_us()
        waited_s = 0.0 if oldest_us is None else time.time() - oldest_us / 1e6
        if waited_s < _STUCK_S:
            return None
        return f"a request has waited for {waited_s:.0f} s"

    async def snapshot(self) -> Snapshot:
        """Return what the estimator knows, between two batches."""
        now = time.time_ns() // 1000 if self._own_clock else None
        return await self._in_thread(self._estimator.snapshot, now)

    async def finalize(self) -> Finalized:
        """Refuse further requests, observe those that wait, keep everything and write the results.

        Called again it returns the same.
        """
        if self._finalizing is None:
            self._finalizing = asyncio.create_task(self._finalize())
        return await asyncio.shield(self._finalizing)

    async def close(self) -> None:
        """Observe what waits, and keep everything; what cannot be kept shows in :attr:`broken`."""
        try:
            await asyncio.wait_for(self._arrivals.idle.wait(), _CLOSE_S)
        except (TimeoutError, asyncio.TimeoutError):
            self._arrivals.abandon(RequestRefusedError(503, "the service has ended before it got to this"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._finalizing is not None:
            await asyncio.gather(self._finalizing, return_exceptions=True)
        if self._broken is None:
            try:
                await self._in_thread(self._keep_all)
            except Exception as error:
                self._broken = error
        self._thread.shutdown(wait=True)
        self._keeper.close()

    def _fill(self, ticket: Ticket, incoming: Incoming) -> None:
        if incoming.requests.timestamps_us is not None:
            self._own_clock = False
        self.metrics.future_timestamps.inc(self._arrivals.fill(ticket, incoming))

    def _take_place(self, n_bytes: int) -> Ticket:
        if self.broken is not None:
            raise RequestRefusedError(503, f"the service does not observe now: {self.broken}", RETRY_AFTER_S)
        if self.finalized:
            raise RequestRefusedError(409, "the service is finalized, no further requests are taken")
        return self._arrivals.take(n_bytes)

    async def _consume(self) -> None:
        while True:
            await self._arrivals.wait()
            while tickets := self._arrivals.ready(_MAX_BATCH_IDS):
                await self._answer(tickets)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            await self._keep_up()

    async def _keep_up(self) -> None:
        if self._broken is None and self._keeper.due():
            try:
                await self._in_thread(self._keeper.keep_up, self._estimator)
            except Exception as error:
                self._broken = error

    async def _answer(self, tickets: list[Ticket]) -> None:
        incoming = [ticket.incoming for ticket in tickets if ticket.incoming is not None]
        n_ids = sum(part.requests.ids.size for part in incoming)
        try:
            if n_ids > _MAX_INLINE_IDS or self.options.durable:
                results = await self._in_thread(self._observe, incoming)
            else:
                async with self._lock:
                    results = self._observe(incoming)
        except Exception as error:
            self._broken = error
            results = [RequestRefusedError(503, f"the service has stopped observing: {error}")] * len(tickets)
        now_us = time.time_ns() // 1000
        for ticket, result in zip(tickets, results, strict=True):
            if isinstance(result, KvcapError):
                if not ticket.answer.done():
                    ticket.answer.set_exception(result)
                continue
            self.metrics.total_seconds.observe((now_us - ticket.arrived_us) / 1e6)
            if not ticket.answer.done():
                ticket.answer.set_result(result)
        await self._keep_up()

    def _observe(self, parts: Sequence[Incoming]) -> list[ObservedBatch | KvcapError]:
        """Observe and log requests."""
        begin = time.perf_counter()
        results: list[ObservedBatch | KvcapError] = []
        try:
            whole = joined(parts, self.options.block_size)
            observed = self._estimator.observe_many(whole.requests)
            self._account(observed, whole)
            end = 0
            for part in parts:
                first, end = end, end + len(part)
                results.append(ObservedBatch(observed.first_request + first, observed.rows[first:end]))
        except UsageError:
            results = [self._observe_alone(part) for part in parts]
        self.metrics.simulate_seconds.observe(time.perf_counter() - begin)
        self._keeper.commit()
        if self.options.durable and self._keeper.failure is not None:
            refusal = RequestRefusedError(503, f"the request is not on disk yet: {self._keeper.failure}")
            return [refusal] * len(parts)
        return results

    def _observe_alone(self, part: Incoming) -> ObservedBatch | KvcapError:
        try:
            observed = self._estimator.observe_many(part.requests)
        except UsageError as error:
            return RequestRefusedError(422, str(error))
        self._account(observed, part)
        return observed

    def _account(self, observed: ObservedBatch, incoming: Incoming) -> None:
        self.metrics.observed(observed)
        self._keeper.record(observed.first_request, incoming)

    def _keep_all(self) -> None:
        self._keeper.save(self._estimator)
        self._keeper.flush()

    async def _finalize(self) -> Finalized:
        await self._arrivals.idle.wait()
        await self._in_thread(self._keep_all)
        options = self.options
        files = self._keeper.log_files()
        if options.output_path is not None and files:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, write_results, options, files, options.output_path)
        return Finalized(
            requests=self._estimator.n_requests,
            output_path=options.output_path if files else None,
            record=options.record,
            state=options.state_path,
        )

    async def _in_thread(self, function: Callable[..., _T], *arguments: Any) -> _T:
        async with self._lock:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)


def _timed(work: Callable[[], Incoming]) -> tuple[Incoming, float]:
    begin = time.perf_counter()
    return work(), time.perf_counter() - begin

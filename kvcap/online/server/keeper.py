"""What outlives the process: the request log and the estimator's state, written by a thread of their own."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from kvcap.online.estimator import Estimator
from kvcap.online.server.checkpoint import load_estimator, save_state
from kvcap.online.server.incoming import Incoming
from kvcap.online.server.options import ServeOptions
from kvcap.online.server.recorder import RequestLog

_MAX_WRITES: Final = 4
"""Writes that may wait; then whoever adds one waits, and the queue of requests fills up."""


class Keeper:
    """Record requests and save states, in that order on disk; by one caller at a time.

    A state is written after all the requests that it counts, so that state and log together always
    tell how far they go.

    Parameters
    ----------
    options
        What to keep, where, and how often.
    """

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        self._log = None if options.record is None else RequestLog(options.record, options.block_size)
        self._state_path = options.state_path
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="kvcap-writer")
        self._writes: deque[Future[None]] = deque()
        self._rolled_at = self._saved_at = time.monotonic()

    def restore(self) -> tuple[Estimator, int]:
        """Return the estimator as it was, and how many requests came from the log after its last state.

        Raises
        ------
        SchemaError
            If state or log are of other options, or do not fit together.
        """
        estimator = load_estimator(self._state_path, self._options.estimator)
        saved = estimator.n_requests
        if self._log is not None:
            for batch in self._log.read_from(saved):
                estimator.observe_many(batch)
        return estimator, estimator.n_requests - saved

    def record(self, first_request: int, incoming: Incoming) -> None:
        """Log observed requests."""
        if self._log is not None:
            self._log.append(first_request, incoming)

    def due(self) -> bool:
        """Return whether :meth:`keep_up` would do anything."""
        return self._state_due() or self._roll_due() or bool(self._writes and self._writes[0].done())

    def keep_up(self, estimator: Estimator) -> None:
        """Close the log's file, and save the state, where it is time to.

        Raises
        ------
        OSError
            If something could not be written since the last call.
        """
        if self._state_due():
            self.save(estimator)
        elif self._roll_due():
            self._roll()
        while self._writes and self._writes[0].done():
            self._writes.popleft().result()

    def save(self, estimator: Estimator) -> None:
        """Close the log's file and save the state now."""
        self._roll()
        self._saved_at = time.monotonic()
        if self._state_path is not None:
            state = estimator.state()
            self._submit(self._writer.submit(save_state, state, self._state_path))

    def flush(self) -> None:
        """Wait until everything is on disk.

        Raises
        ------
        OSError
            If something could not be written.
        """
        while self._writes:
            self._writes.popleft().result()

    def close(self) -> None:
        """Wait for the writer."""
        self._writer.shutdown(wait=True)

    def log_files(self) -> list[Path]:
        """Return the files of the log in order."""
        return [] if self._log is None else self._log.files()

    def _state_due(self) -> bool:
        age = time.monotonic() - self._saved_at
        return self._state_path is not None and age >= self._options.state_seconds

    def _roll_due(self) -> bool:
        if self._log is None:
            return False
        full = self._log.pending_bytes >= self._options.record_bytes
        return full or time.monotonic() - self._rolled_at >= self._options.record_seconds

    def _roll(self) -> None:
        self._rolled_at = time.monotonic()
        part = None if self._log is None else self._log.take()
        if part is not None:
            self._submit(self._writer.submit(partial(part.write, self._options.block_size)))

    def _submit(self, write: Future[None]) -> None:
        self._writes.append(write)
        while len(self._writes) > _MAX_WRITES:
            self._writes.popleft().result()

"""What outlives the process: the request log and the estimator's state, written by a thread of their own."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from kvcap.errors import KvcapError
from kvcap.online.estimator import Estimator
from kvcap.online.server.checkpoint import load_estimator, save_state
from kvcap.online.server.incoming import Incoming
from kvcap.online.server.options import ServeOptions
from kvcap.online.server.recorder import RequestLog

_MAX_WRITES: Final = 4
"""Writes that may wait; then whoever adds one waits, and the queue of requests fills up."""
_RETRY_S: Final = 1.0


class Keeper:
    """Record requests and save states, in that order on disk; by one caller at a time.

    A state is written after all the requests that it counts, so that state and log together always
    tell how far they go. What cannot be written waits, and is tried again: see :attr:`failure`.

    Parameters
    ----------
    options
        What to keep, where, and how often.

    Raises
    ------
    UsageError
        If another process records to the same directory.
    """

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        self._log = (
            None
            if options.record is None
            else RequestLog(options.record, options.block_size, durable=options.durable)
        )
        self._state_path = options.state_path
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="kvcap-writer")
        self._writes: deque[Callable[[], None]] = deque()
        self._writing: Future[None] | None = None
        self._rolled_at = self._saved_at = self._tried_at = time.monotonic()
        self.failure: OSError | KvcapError | None = None
        """Why the last write failed, such as a full disk; None once one has succeeded."""

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

    def commit(self) -> None:
        """Put recorded requests on disk, if the log is durable; what cannot be put there is tried again."""
        if self._log is None:
            return
        try:
            self._log.commit()
        except (OSError, KvcapError) as error:
            self._failed(error)

    def due(self) -> bool:
        """Return whether :meth:`keep_up` would do anything."""
        waits = bool(self._writes) and (self._writing is None or self._writing.done())
        return self.failure is not None or waits or self._state_due() or self._roll_due()

    def keep_up(self, estimator: Estimator) -> None:
        """Close the log's file, and save the state, where it is time to; try again what has failed."""
        if self.failure is not None:
            if time.monotonic() - self._tried_at < _RETRY_S:
                return
            self._try_again()
        elif self._state_due():
            self.save(estimator)
        elif self._roll_due():
            self._roll()
        else:
            self._start()

    def save(self, estimator: Estimator) -> None:
        """Close the log's file and save the state now."""
        self._roll()
        self._saved_at = time.monotonic()
        if self._state_path is not None:
            self._submit(partial(save_state, estimator.state(), self._state_path))

    def flush(self) -> None:
        """Wait until everything is on disk.

        Raises
        ------
        OSError, KvcapError
            If something could not be written.
        """
        self._try_again()
        while self._writes and self.failure is None:
            self._start()
            self._wait()
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Wait for the writer, and leave the directory to others."""
        self._writer.shutdown(wait=True)
        if self._log is not None:
            self._log.close()

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
            self._submit(partial(part.write, self._options.block_size))

    def _submit(self, write: Callable[[], None]) -> None:
        self._writes.append(write)
        self._start()
        while len(self._writes) > _MAX_WRITES and self.failure is None:
            self._wait()
            self._start()

    def _start(self) -> None:
        if self._writes and (self._writing is None or self._writing.done()):
            self._wait()
            self._writing = self._writer.submit(self._write_all)

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()

    def _try_again(self) -> None:
        self._tried_at = time.monotonic()
        self.failure = None
        self.commit()
        self._start()
        self._wait()

    def _write_all(self) -> None:
        """Write what waits, in order, until something fails; runs in the writer's thread."""
        while self._writes:
            try:
                self._writes[0]()
            except (OSError, KvcapError) as error:
                self._failed(error)
                return
            self._writes.popleft()

    def _failed(self, error: OSError | KvcapError) -> None:
        self._tried_at = time.monotonic()
        self.failure = error

"""Files that overlap in time as one stream in the order of time, none of them held.

Each file is nearly sorted: its records keep their order, and one that goes back in time counts as
simultaneous with the latest before it. A file is opened when the stream reaches its first time, so files that
follow each other are read one after the other.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from kvcap.formats.records import Outcome
from kvcap.kernels.arrays import Int64Array

Parsed = tuple[str, list[Outcome]]
"""Path of a file, and what some records of it come to."""


@dataclass(frozen=True)
class TimedFile:
    """A file of a log.

    Parameters
    ----------
    first_us
        Time of its first record, in microseconds.
    read
        Reads its records anew, alone (True) or beside other files.
    """

    first_us: int
    read: Callable[[bool], Iterator[Parsed]]


@dataclass(order=True)
class _Active:
    """A file that is being read: what waits of it from ``position`` on, and the latest times so far."""

    key: int
    number: int
    stream: Iterator[Parsed] = field(compare=False)
    path: str = field(compare=False, default="")
    outcomes: list[Outcome] = field(compare=False, default_factory=list)
    keys: list[int] = field(compare=False, default_factory=list)
    position: int = field(compare=False, default=0)

    def fill(self, time_of: Callable[[Outcome], int | None]) -> bool:
        """Have something waiting; return whether there is anything left."""
        while self.position >= len(self.outcomes):
            found = next(self.stream, None)
            if found is None:
                return False
            self.path, self.outcomes = found
            self.position = 0
            latest = self.keys[-1] if self.keys else self.key
            self.keys = []
            for outcome in self.outcomes:
                time = time_of(outcome)
                latest = latest if time is None else max(latest, time)
                self.keys.append(latest)
        self.key = self.keys[self.position]
        return True

    def take(self, end_key: int | None, end_number: int) -> Parsed:
        """Return what comes before a key of another file; of equal keys the file given first goes first."""
        end = len(self.keys)
        if end_key is not None:
            bisect = bisect_right if self.number < end_number else bisect_left
            end = bisect(self.keys, end_key, self.position)
        taken = self.outcomes[self.position : end]
        self.position = end
        return self.path, taken


class MergedFiles:
    """Records of several files in the order of time.

    Parameters
    ----------
    files
        In the order given.
    time_of
        Returns the time of a record in microseconds, None where it has none.

    Attributes
    ----------
    is_overlapping
        Whether two files were open at once.
    is_reordered
        Whether a file came before one that was given before it.
    """

    def __init__(self, files: Sequence[TimedFile], time_of: Callable[[Outcome], int | None]) -> None:
        self._time_of = time_of
        self._waiting = sorted((file.first_us, number, file) for number, file in enumerate(files))
        order = [number for _, number, _ in self._waiting]
        self.is_reordered = order != sorted(order)
        self.is_overlapping = False

    def __iter__(self) -> Generator[Parsed, None, None]:
        active: list[_Active] = []
        foremost: _Active | None = None
        try:
            while active or self._waiting:
                while self._waiting and (
                    not active or self._waiting[0][:2] < (active[0].key, active[0].number)
                ):
                    first_us, number, file = self._waiting.pop(0)
                    opened = _Active(first_us, number, file.read(not active))
                    if opened.fill(self._time_of):
                        heapq.heappush(active, opened)
                if not active:
                    continue
                self.is_overlapping |= len(active) > 1
                foremost = heapq.heappop(active)
                others = [*map(_place, active[:1]), *(waiting[:2] for waiting in self._waiting[:1])]
                end_key, end_number = min(others, default=(None, 0))
                yield foremost.take(end_key, end_number)
                if foremost.fill(self._time_of):
                    heapq.heappush(active, foremost)
        finally:
            for opened in [*active, *([] if foremost is None else [foremost])]:
                opened.stream.close()  # type: ignore[attr-defined]


def _place(active: _Active) -> tuple[int, int]:
    return active.key, active.number


def latest_times(timestamps: Sequence[pa.Array]) -> Int64Array | None:
    """Return the latest time up to each request of a file, in microseconds; None where it has no times."""
    times = [column.cast(pa.int64()) for column in timestamps]
    valid = [column.is_valid().to_numpy(zero_copy_only=False) for column in times]
    known = np.concatenate(valid) if valid else np.empty(0, np.bool_)
    if not known.any():
        return None
    filled = np.concatenate([column.fill_null(0).to_numpy(zero_copy_only=False) for column in times])
    first = filled[int(np.argmax(known))]
    latest: Int64Array = np.maximum.accumulate(np.where(known, filled, first))
    return latest


def merged_order(files: Sequence[Int64Array | None]) -> Int64Array | None:
    """Return which request stands at each place when files with these latest times are merged.

    None where they stay in the order given, because one has no times.
    """
    known = [times for times in files if times is not None]
    if len(files) < 2 or len(known) < len(files):
        return None
    order: Int64Array = np.argsort(np.concatenate(known), kind="stable")
    return order


def order_notice(files: Sequence[Int64Array | None]) -> str | None:
    """Return what is to be said of merging files with these latest times."""
    known = [times for times in files if times is not None]
    if len(files) < 2 or len(known) < len(files):
        return None
    spans = [(int(times[0]), number, int(times[-1])) for number, times in enumerate(known)]
    ordered = sorted(spans)
    overlapping, end = False, ordered[0][:2]
    for first, number, last in ordered:
        overlapping |= end > (first, number)
        end = max(end, (last, number))
    return notice_of(is_overlapping=overlapping, is_reordered=ordered != spans)


def notice_of(*, is_overlapping: bool, is_reordered: bool) -> str | None:
    """Return the sentence on files that overlap, or come in another order than given."""
    if is_overlapping:
        return (
            "files overlap in time: their requests are merged in the order of time (--order file keeps that "
            "of the files)"
        )
    if is_reordered:
        return "files are replayed in the order of time, not in the order given (--order file keeps that)"
    return None

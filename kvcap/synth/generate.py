"""Sessions on one clock, written as JSON Lines."""

from __future__ import annotations

import gzip
import heapq
import json
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Final, Protocol

from kvcap.synth.draws import Draws
from kvcap.synth.encoders import Encoder, HashIds, TokenIds
from kvcap.synth.openai import OpenAIRequests
from kvcap.synth.sessions import SESSIONS, Request, World
from kvcap.writing import written_beside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kvcap.synth.options import Kind, SynthOptions

_ENCODERS: Final[dict[Kind, Callable[[SynthOptions], Encoder]]] = {
    "hash-ids": HashIds,
    "token-ids": TokenIds,
    "openai": OpenAIRequests,
}
_MS_PER_HOUR: Final = 3_600_000


def generate_lines(options: SynthOptions) -> Iterator[bytes]:
    """Yield the requests of a synthetic trace in order of time, one line of JSON each.

    Every line has ``timestamp`` (ms from the start), ``session_id``, ``model`` and ``output_length``; then
    ``block_size``, ``input_length`` and ``hash_ids``, or ``token_ids``, or ``messages`` and ``tools``. The
    same options of another kind give the same traffic: sessions, times and lengths are equal, and so is which
    full blocks are.

    Parameters
    ----------
    options
        The knobs.

    Notes
    -----
    Memory holds the prompts of the sessions in progress, as text, and for hash ids about 200 bytes for
    each distinct list of shared texts.
    """
    world = World(options, _ENCODERS[options.kind](options))
    model = json.dumps(options.model).encode()
    for timestamp_ms, session, request in _requests(world):
        opening, body, ending = request.context.fields()
        head = b'{"timestamp":%d,"session_id":"s%05d","model":%b,"output_length":%d,' % (
            timestamp_ms,
            session,
            model,
            request.output_tokens,
        )
        yield b"".join((head, opening, body, ending, b"}\n"))


def write_trace(
    options: SynthOptions,
    path: Path,
    *,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write a synthetic trace and return how many requests it has.

    Parameters
    ----------
    options
        The knobs.
    path
        The file; ``.gz`` and ``.zst`` are compressed. It appears only once it is complete.
    force
        Overwrite an existing file.
    progress
        Called after each request with the number of requests and of bytes (before compression) so far.

    Raises
    ------
    UsageError
        If the file exists and ``force`` is not given.
    """
    requests = size_bytes = 0
    with _open_output(path, force=force) as output:
        for line in generate_lines(options):
            output.write(line)
            requests += 1
            size_bytes += len(line)
            if progress is not None:
                progress(requests, size_bytes)
    return requests


def _requests(world: World) -> Iterator[tuple[int, int, Request]]:
    """Yield time, session and request; sessions start as a Poisson process and go on in parallel."""
    options = world.options
    end_ms = float("inf") if options.duration_hours is None else options.duration_hours * _MS_PER_HOUR
    left = float("inf") if options.requests is None else options.requests
    arrivals = Draws(options.seed, "arrivals")
    next_arrival_ms, sessions = 0.0, 0
    waiting: list[tuple[int, int, Iterator[Request]]] = []
    while left > 0:
        while not waiting or next_arrival_ms <= waiting[0][0]:
            steps = SESSIONS[options.profile](world, Draws(options.seed, "session", sessions))
            heapq.heappush(waiting, (round(next_arrival_ms), sessions, steps))
            next_arrival_ms += arrivals.exponential(_MS_PER_HOUR / options.sessions_per_hour)
            sessions += 1
        timestamp_ms, session, steps = heapq.heappop(waiting)
        if timestamp_ms >= end_ms:
            return
        request = next(steps, None)
        if request is None:
            continue
        yield timestamp_ms, session, request
        left -= 1
        heapq.heappush(waiting, (timestamp_ms + request.pause_ms, session, steps))


class _ByteSink(Protocol):
    """What bytes are written to."""

    def write(self, data: bytes, /) -> object:
        """Write bytes."""
        ...


@contextmanager
def _open_output(path: Path, *, force: bool) -> Iterator[_ByteSink]:
    """Open a file for writing, compressed if its name ends in ``.gz`` or ``.zst``.

    Gzip files carry no time and no name, so that equal content gives equal bytes.

    Raises
    ------
    UsageError
        As :func:`kvcap.writing.check_new`.
    """
    with written_beside(path, force=force) as beside, ExitStack() as stack:
        raw = stack.enter_context(beside.open("wb"))
        yield _compressed(raw, path.suffix, stack)


def _compressed(raw: IO[bytes], suffix: str, stack: ExitStack) -> _ByteSink:
    if suffix == ".gz":
        return stack.enter_context(gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0))
    if suffix == ".zst":
        import pyarrow as pa

        sink: _ByteSink = stack.enter_context(pa.CompressedOutputStream(raw, "zstd"))
        return sink
    return raw

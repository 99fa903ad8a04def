"""Requests on their way from HTTP to the estimator and the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from kvcap.errors import UsageError
from kvcap.kernels.arrays import offsets_of
from kvcap.online.estimator import RequestBatch


@dataclass(frozen=True)
class Incoming:
    """Requests that came together, with what is only logged.

    Parameters
    ----------
    requests
        What the estimator is given. Those without a timestamp get the time of their arrival.
    labels
        ``session_id``, ``model`` and ``output_length``, where they were given: one value per request.
    """

    requests: RequestBatch
    labels: dict[str, list[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.requests)


MAX_SKEW_US: Final = 300 * 1_000_000
"""How far behind this machine's clock that of a client may be ahead; later times are not believed."""


def stamped(incoming: Incoming, now_us: int) -> tuple[Incoming, int]:
    """Return requests that all have a timestamp, and how many had one that was not believed.

    The time of arrival stands for one that is missing or lies in the future: a window in seconds ends at the
    latest one, and would hold nothing else.
    """
    given = incoming.requests.timestamps_us
    if given is None:
        times = np.full(len(incoming), now_us, np.int64)
        return replace(incoming, requests=replace(incoming.requests, timestamps_us=times)), 0
    future = given > now_us + MAX_SKEW_US
    n_future = int(np.count_nonzero(future))
    if n_future == 0:
        return incoming, 0
    times = np.where(future, now_us, given)
    return replace(incoming, requests=replace(incoming.requests, timestamps_us=times)), n_future


def joined(parts: Sequence[Incoming], block_size: int) -> Incoming:
    """Return stamped requests of one kind as one batch.

    Raises
    ------
    UsageError
        If they are of two kinds.
    """
    if len(parts) == 1:
        return parts[0]
    batches = [part.requests for part in parts]
    kind = batches[0].kind
    if any(batch.kind != kind for batch in batches):
        raise UsageError("requests hold both token_ids and hash_ids, expected one of them")
    lengths = np.concatenate([np.diff(batch.offsets) for batch in batches])
    input_tokens = None
    if any(batch.input_tokens is not None for batch in batches):
        input_tokens = np.concatenate(
            [
                np.diff(batch.offsets) * block_size if batch.input_tokens is None else batch.input_tokens
                for batch in batches
            ]
        )
    names = {name for part in parts for name in part.labels}
    return Incoming(
        RequestBatch(
            kind,
            np.concatenate([batch.ids for batch in batches]),
            offsets_of(lengths),
            input_tokens,
            np.concatenate([batch.timestamps_us for batch in batches if batch.timestamps_us is not None]),
            _names(batches, "pools"),
            _names(batches, "namespaces"),
        ),
        {name: [v for part in parts for v in part.labels.get(name, [None] * len(part))] for name in names},
    )


def _names(batches: Sequence[RequestBatch], column: str) -> list[str | None] | None:
    """Return the pools or namespaces of some batches one after the other; None where none has any."""
    if all(getattr(batch, column) is None for batch in batches):
        return None
    return [name for batch in batches for name in (getattr(batch, column) or [None] * len(batch))]

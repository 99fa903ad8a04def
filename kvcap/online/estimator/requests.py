"""Requests on their way in, and what they found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from kvcap.errors import UsageError
from kvcap.kernels.arrays import Int64Array
from kvcap.kernels.observations import (
    BLOCKS,
    CEILING_BLOCKS,
    FIRST_CAPACITY,
    INPUT_TOKENS,
    REQUIRED_BLOCKS,
    WITHIN_BOUND_BLOCKS,
)

RequestKind = Literal["token_ids", "hash_ids"]


Ids = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]


def as_ids(values: npt.ArrayLike | None, kind: RequestKind) -> Ids:
    """Return ids as the array that a batch wants; signed 64-bit hash ids keep their bits.

    Raises
    ------
    UsageError
        If one is no whole number in its range, or they are no flat list.
    """
    dtype = np.dtype(np.uint32 if kind == "token_ids" else np.uint64)
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{kind} is no flat list of whole numbers") from error
    if array.ndim != 1:
        raise UsageError(f"{kind} is no flat list of whole numbers")
    if array.size > 0 and array.dtype.kind not in "iu":
        raise UsageError(f"{kind} holds {array.dtype} values, expected whole numbers of up to 64 bits")
    if (
        kind == "token_ids"
        and array.size > 0
        and array.dtype != dtype
        and (array.min() < 0 or array.max() > np.iinfo(np.uint32).max)
    ):
        raise UsageError("token_ids holds an id outside 0 to 2**32 - 1")
    ids: Ids = array.astype(dtype, copy=False)
    return ids


@dataclass(frozen=True)
class RequestBatch:
    """Requests in arrival order.

    Parameters
    ----------
    kind
        What ``ids`` are.
    ids : uint32 (n_ids,) for token ids, uint64 (n_ids,) for hash ids
        All requests' one after the other.
    offsets : int64 (n_requests + 1,)
        Ascending from 0; request r owns ``ids[offsets[r]:offsets[r + 1]]``.
    input_tokens : int64 (n_requests,), optional
        Prompt lengths of hash ids; None where all blocks are full.
    timestamps_us : int64 (n_requests,), optional
        When requests arrived, in microseconds since any epoch.
    pools
        The pool of each request; None puts all into the one without a name.
    namespaces
        What besides its ids must agree for requests to share blocks; None for nothing.

    Raises
    ------
    UsageError
        If lengths do not agree.
    """

    kind: RequestKind
    ids: Ids
    offsets: Int64Array
    input_tokens: Int64Array | None = None
    timestamps_us: Int64Array | None = None
    pools: Sequence[str | None] | None = None
    namespaces: Sequence[str | None] | None = None

    def __post_init__(self) -> None:
        if self.offsets.size == 0 or self.offsets[0] != 0 or self.offsets[-1] != self.ids.size:
            raise UsageError(f"offsets do not span the {self.ids.size} ids")
        if np.any(self.offsets[1:] < self.offsets[:-1]):
            raise UsageError("offsets descend, expected them to ascend")
        n_requests = len(self)
        for name in ("input_tokens", "timestamps_us", "pools", "namespaces"):
            values = getattr(self, name)
            if values is not None and len(values) != n_requests:
                raise UsageError(f"{name} has {len(values)} values, expected {n_requests}")

    def __len__(self) -> int:
        return self.offsets.size - 1


@dataclass(frozen=True)
class Observation:
    """What one request found.

    Attributes
    ----------
    request_number
        From 0, in arrival order.
    input_tokens, blocks
        Length of the prompt, and blocks looked up.
    ceiling_blocks
        Blocks that are remembered; those ``beyond_bound_blocks`` of them deeper than the bound included.
    hit_blocks
        Leading blocks that each configured capacity would have held.
    required_blocks
        The smallest capacity at which the request reaches its target share of ``ceiling_blocks``.
    """

    request_number: int
    input_tokens: int
    blocks: int
    ceiling_blocks: int
    beyond_bound_blocks: int
    required_blocks: int
    hit_blocks: tuple[int, ...]


@dataclass(frozen=True)
class ObservedBatch:
    """What the requests of a batch found, in order; ``rows`` is of :mod:`kvcap.kernels.observations`."""

    first_request: int
    rows: Int64Array

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def __iter__(self) -> Iterator[Observation]:
        n_capacities = (self.rows.shape[1] - FIRST_CAPACITY) // 2
        for number, row in enumerate(self.rows.tolist(), self.first_request):
            yield Observation(
                request_number=number,
                input_tokens=row[INPUT_TOKENS],
                blocks=row[BLOCKS],
                ceiling_blocks=row[CEILING_BLOCKS],
                beyond_bound_blocks=row[CEILING_BLOCKS] - row[WITHIN_BOUND_BLOCKS],
                required_blocks=row[REQUIRED_BLOCKS],
                hit_blocks=tuple(row[FIRST_CAPACITY : FIRST_CAPACITY + n_capacities]),
            )

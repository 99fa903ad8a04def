"""Small replays for tests of what is asked of results."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pyarrow as pa

import kvcap

BLOCK = 4
BYTES_PER_TOKEN = Fraction(1 << 28)
"""A block of four tokens is a GiB."""


def replayed(
    requests: Sequence[Sequence[int]],
    *,
    seconds: Sequence[float] | None = None,
    bytes_per_token: Fraction | None = BYTES_PER_TOKEN,
    columns: dict[str, Sequence[str]] | None = None,
    pool: str | None = None,
    **options: object,
) -> kvcap.Results:
    """Replay requests of block ids, all full blocks, with arrival times where they are given."""
    table = {
        "hash_ids": pa.array(requests, pa.list_(pa.uint64())),
        "input_length": pa.array([BLOCK * len(request) for request in requests], pa.int64()),
    }
    if seconds is not None:
        micros = [round(second * 1e6) for second in seconds]
        table["timestamp"] = pa.array(micros, pa.timestamp("us"))
    for name, values in (columns or {}).items():
        table[name] = pa.array(values, pa.string())
    reading = kvcap.ReadOptions(
        block_size=BLOCK, pool=pool, keep=tuple(name for name in columns or {} if name != pool)
    )
    replay_options = kvcap.ReplayOptions.of(block_size=BLOCK, kv_bytes_per_token=bytes_per_token, **options)
    return kvcap.replay(pa.table(table), replay_options, reading=reading)

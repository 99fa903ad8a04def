"""Small logs of hash ids with pools, sessions and times, replayed in memory."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import oracles
import pyarrow as pa
from hypothesis import strategies as st
from oracles_queries import Logged

import kvcap
from kvcap.schema import trace_schema

BLOCK_SIZE = 4
BYTES_PER_TOKEN = 3
BLOCK_BYTES = BLOCK_SIZE * BYTES_PER_TOKEN
ORDERS = ("tail-first", "head-first")


@dataclass(frozen=True)
class SmallLog:
    """Requests of hash ids, one entry of each list per request."""

    requests: Sequence[Sequence[int]]
    input_lengths: Sequence[int]
    timestamps_us: Sequence[int | None]
    pools: Sequence[str | None]
    session_ids: Sequence[str | None]
    models: Sequence[str | None]
    block_size: int = BLOCK_SIZE

    def table(self) -> pa.Table:
        """The log as a trace."""
        n = len(self.requests)
        columns = {
            "request_id": range(n),
            "timestamp": self.timestamps_us,
            "pool": self.pools,
            "session_id": self.session_ids,
            "model": self.models,
            "input_length": self.input_lengths,
            "block_size": [self.block_size] * n,
            "hash_ids": self.requests,
        }
        schema = trace_schema("hash_ids")
        arrays = [
            pa.array(list(columns[field.name]), field.type)
            if field.name in columns
            else pa.nulls(n, field.type)
            for field in schema
        ]
        return pa.Table.from_arrays(arrays, schema=schema)

    def logged(self, warm_up: Fraction = Fraction(0)) -> list[Logged]:
        """The same for the oracles."""
        n = len(self.requests)
        return [
            Logged(
                path=path,
                weights=oracles.block_weights(len(path), self.input_lengths[i], self.block_size),
                input_tokens=self.input_lengths[i],
                timestamp_us=self.timestamps_us[i],
                pool=self.pools[i],
                session_id=self.session_ids[i],
                model=self.models[i],
                measured=i >= int(n * warm_up),
            )
            for i, path in enumerate(oracles.chained(self.requests))
        ]

    def replayed(
        self,
        order: str = "tail-first",
        warm_up: Fraction = Fraction(0),
        kv_bytes_per_token: int | None = BYTES_PER_TOKEN,
        **options: Any,
    ) -> kvcap.Results:
        """Its results."""
        replay_options = kvcap.ReplayOptions.of(
            touch_order=order,
            warm_up=warm_up,
            kv_bytes_per_token=None if kv_bytes_per_token is None else Fraction(kv_bytes_per_token),
            **options,
        )
        return kvcap.replay(self.table(), replay_options)


@st.composite
def small_logs(draw: st.DrawFn) -> SmallLog:
    """Random logs: ascending times, one pool or several, sessions or none, odd lengths included.

    Drawn from a seed: what hypothesis builds up by itself has too little reuse to tell definitions apart.
    """
    rng = random.Random(draw(st.integers(0, 1 << 30)))
    requests: list[list[int]] = []
    for _ in range(rng.randint(1, 18)):
        start: list[int] = []
        if requests and rng.random() < 0.85:
            earlier = rng.choice(requests[-6:])
            start = earlier[: len(earlier) if rng.random() < 0.5 else rng.randint(0, len(earlier))]
        requests.append(start + [rng.randrange(3) for _ in range(rng.choice((0, 0, 1, 2, 4)))])
    n = len(requests)
    pools = ("x", "x", "y", "z") if rng.random() < 0.5 else (None,)
    time_us = 0
    timestamps_us: list[int | None] = []
    for _ in requests:
        time_us += rng.choice((0, 0, 1_000_000, 2_500_000, 3_000_000))
        timestamps_us.append(time_us)
    return SmallLog(
        requests=requests,
        input_lengths=[
            max(0, BLOCK_SIZE * len(request) + rng.choice((-6, -2, 0, 0, 1, 3))) for request in requests
        ],
        timestamps_us=timestamps_us,
        pools=rng.choices(pools, k=n),
        session_ids=rng.choices(("a", "b", "c", None), k=n),
        models=rng.choices(("m", "n"), k=n),
    )


EXAMPLE = SmallLog(
    requests=[
        [1, 2, 3, 4, 5, 6],
        [1, 2, 3, 7, 8],
        [1, 2, 3, 4, 5, 6, 9, 10],
        [20, 21, 22],
        [1, 2, 3, 7, 8, 11, 12, 13],
        [20, 21, 22, 23, 24],
        [1, 2, 3, 4, 5, 6, 9, 10, 14, 15],
        [1, 2, 3, 16, 17],
        [20, 21, 22, 23, 24, 25, 26],
        [1, 2, 3, 7, 8, 11, 12, 13, 18],
        [1, 2, 3, 16, 17, 19],
        [20, 21, 22, 27],
    ],
    input_lengths=[96, 80, 125, 48, 128, 78, 160, 80, 112, 144, 94, 64],
    timestamps_us=[
        1_700_000_000_000_000 + 1_000_000 * second
        for second in (0, 40, 95, 600, 1500, 1530, 3700, 4000, 4100, 7300, 7330, 7900)
    ],
    pools=[None] * 12,
    session_ids=["ann", "bob", "ann", "eve", "bob", "eve", "ann", "dan", "eve", "bob", "dan", "eve"],
    models=[
        "small",
        "large",
        "small",
        "small",
        "large",
        "small",
        "small",
        "large",
        "small",
        "large",
        "large",
        "small",
    ],
    block_size=16,
)
"""The log behind the examples in the headers of the queries: three sessions with one system prompt, a
fourth without it. Replayed at 1024 bytes per token."""

EXAMPLE_BYTES_PER_TOKEN = 1024

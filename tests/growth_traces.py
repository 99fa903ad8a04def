"""Requests of growth's oracle as arrays, and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kvcap.growth import PathTrace
from kvcap.kernels.arrays import offsets_of
from tests.oracles_growth import Numbered, Request, canonical

BLOCK_SIZE = 128


def read_log(path: Path) -> list[Request]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row["timestamp"] * 1000, row["session_id"], row["hash_ids"]) for row in rows]


def read_golden(path: Path) -> Numbered:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row["timestamp_us"], row["session"], row["nodes"]) for row in rows]


def path_trace(requests: Sequence[Request], last_weight: int = BLOCK_SIZE, rest: int = 0) -> PathTrace:
    """Requests as arrays; their last blocks weigh ``last_weight``, ``rest`` tokens of each have no block."""
    numbered = canonical(requests)
    lengths = np.array([len(path) for _, _, path in numbered], np.int64)
    covered = np.where(lengths, (lengths - 1) * BLOCK_SIZE + last_weight, 0)
    return PathTrace(
        nodes=np.array([node for _, _, path in numbered for node in path], np.int64),
        offsets=offsets_of(lengths),
        time_us=np.array([time for time, _, _ in numbered], np.int64),
        session=np.array([session for _, session, _ in numbered], np.int64),
        input_tokens=covered + rest,
        covered_tokens=covered,
        block_size=BLOCK_SIZE,
    )


def requests_of(trace: PathTrace) -> Numbered:
    paths = np.split(trace.nodes, trace.offsets[1:])[:-1]
    return [
        (time, session, path.tolist())
        for time, session, path in zip(trace.time_us.tolist(), trace.session.tolist(), paths, strict=True)
    ]

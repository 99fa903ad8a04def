"""Public hash-id traces as arrays, read with nothing but the standard library and NumPy."""

from __future__ import annotations

import gzip
import json
import lzma
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np
from shared_data import shared_path

from kvcap.kernels.keys import chain_keys


class GoldenTrace(NamedTuple):
    """block_keys uint64, request_offsets, input_tokens, output_tokens int64, block_size."""

    block_keys: np.ndarray
    request_offsets: np.ndarray
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    block_size: int


@lru_cache(maxsize=4)
def golden_trace(name, *, full_blocks_only=False, n_requests=None):
    """Read a trace of the shared folder, or its first requests, or skip.

    ``full_blocks_only`` drops an incomplete last block.
    """
    path = shared_path(f"traces/{name}")
    opener = lzma.open if path.suffix == ".xz" else gzip.open
    ids, lengths, inputs, outputs, block_size = [], [], [], [], 512
    with opener(path, "rt") as lines:
        for line in islice(lines, n_requests):
            record = json.loads(line)
            block_size = record.get("block_size", block_size)
            path_ids = record["hash_ids"]
            if full_blocks_only:
                path_ids = path_ids[: record["input_length"] // block_size]
            ids.append(np.array(path_ids, np.uint64))
            lengths.append(len(path_ids))
            inputs.append(record["input_length"])
            outputs.append(record["output_length"])
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))
    keys = chain_keys(np.concatenate(ids), offsets)
    return GoldenTrace(keys, offsets, np.array(inputs), np.array(outputs), block_size)

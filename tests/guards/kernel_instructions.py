"""Print how many bytecode instructions the kernels of the main job take, run as plain Python.

    NUMBA_DISABLE_JIT=1 PYTHONPATH=.:tests python tests/guards/kernel_instructions.py 100x20 800x20

Each argument is a number of requests and the blocks of each; requests take turns in 10 sessions, and each has
half of its blocks in common with the one before it in its session.
"""

from __future__ import annotations

import json
import sys

import numpy as np
from counting import instructions

from kvcap.kernels.keys import chain_keys
from kvcap.kernels.reuse_runs import ReuseRunScanner
from kvcap.kernels.run_tables import split_by_weight

N_SESSIONS = 10
BLOCK_SIZE = 64


def pass_over(n_requests: int, n_blocks: int) -> dict[str, int]:
    """Return the instructions of each step."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 1 << 63, (n_requests, n_blocks), np.uint64)
    for request in range(N_SESSIONS, n_requests):
        ids[request, : n_blocks // 2] = ids[request - N_SESSIONS, : n_blocks // 2]
    offsets = np.arange(n_requests + 1, dtype=np.int64) * n_blocks
    keys, key_steps = instructions(lambda: chain_keys(ids.ravel(), offsets))
    scanner = ReuseRunScanner()
    # The first growth of every array is the same for all sizes, and stands apart.
    scanner.feed(keys[:n_blocks], offsets[:2])
    runs, scan_steps = instructions(lambda: scanner.feed(keys[n_blocks:], offsets[1:] - n_blocks))
    covered = np.full(n_requests, n_blocks * BLOCK_SIZE, np.int64)
    _, split_steps = instructions(lambda: split_by_weight(runs, offsets, covered, BLOCK_SIZE, None))
    return {"key": key_steps, "scan": scan_steps, "split": split_steps}


def main() -> None:
    """Print one JSON object by argument."""
    sizes = {size: tuple(map(int, size.split("x"))) for size in sys.argv[1:]}
    with np.errstate(over="ignore"):
        print(json.dumps({size: pass_over(*numbers) for size, numbers in sizes.items()}))


if __name__ == "__main__":
    main()

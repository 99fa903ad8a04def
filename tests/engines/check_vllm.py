"""Compare predictions with vLLM's own KVCacheManager, request by request; see README.md beside this file."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import kvcap
from kvcap.formats import open_trace

DRIVER = Path(__file__).with_name("vllm_driver.py")
FIRST_UNIQUE_TOKEN = 1 << 40
ID_BITS, ID_TOKENS = 16, 4


class Comparison(NamedTuple):
    """Hits of vLLM and of kvcap at one capacity: int64 (n_requests,)."""

    capacity: int
    vllm: np.ndarray
    predicted: np.ndarray

    @property
    def n_differing(self) -> int:
        """Requests whose prediction is wrong."""
        return int(np.count_nonzero(self.vllm != self.predicted))


def requests_of(
    trace: str, block_size: int, max_requests: int | None
) -> tuple[int, list[dict[str, list[int]]]]:
    """Return the block size, and token ids of every request; block ids become tokens that spell them out."""
    unique = count(FIRST_UNIQUE_TOKEN)
    requests = []
    options = kvcap.ReadOptions(block_size=block_size, max_requests=max_requests)
    opened = open_trace([trace], options)
    try:
        for batch in opened.batches():
            for row in batch.to_pylist():
                prompt = row["token_ids"] if opened.kind == "token_ids" else realized(row, unique)
                output = row.get("output_ids") or [next(unique) for _ in range(row["output_length"] or 0)]
                block_size = row["block_size"] or block_size
                requests.append({"prompt": prompt, "output": output})
    finally:
        opened.close()
    return block_size, requests


def realized(row: dict[str, Any], unique: Iterator[int]) -> list[int]:
    """Return a prompt of ``input_length`` tokens whose blocks are equal where the ids are."""
    padding = [0] * (row["block_size"] - ID_TOKENS)
    tokens = [
        token
        for block in row["hash_ids"]
        for token in [
            *((block >> shift) & 0xFFFF for shift in range(0, ID_BITS * ID_TOKENS, ID_BITS)),
            *padding,
        ]
    ]
    missing = row["input_length"] - len(tokens)
    return (
        [*tokens, *(next(unique) for _ in range(missing))] if missing > 0 else tokens[: row["input_length"]]
    )


def driven(python: str, block_size: int, capacities: list[int], requests: list[Any]) -> dict[str, Any]:
    """Return what vLLM's own code says: its version, and hit blocks by capacity."""
    asked = [{"block_size": block_size, "capacities": capacities}, *requests]
    lines = "\n".join(map(json.dumps, asked)) + "\n"
    done = subprocess.run([python, str(DRIVER)], input=lines, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{DRIVER.name} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def predicted_hits(
    trace: str, block_size: int, capacities: list[int], max_requests: int | None, *, output_blocks: bool
) -> pa.Table:
    """Return kvcap's hits by capacity and request."""
    options = kvcap.engine_options(
        "vllm",
        block_size=block_size,
        output_blocks=output_blocks,
        capacities=",".join(f"{capacity}blocks" for capacity in capacities),
        request_hits=True,
    )
    reading = kvcap.ReadOptions(block_size=block_size, max_requests=max_requests)
    with kvcap.replay(trace, options, reading=reading) as results:
        return results.sql("FROM policy_requests ORDER BY capacity_blocks, request_id")


def compare(
    trace: str,
    capacities: list[int],
    *,
    block_size: int = 16,
    max_requests: int | None = None,
    output_blocks: bool = True,
    vllm_python: str = sys.executable,
) -> tuple[str, list[Comparison]]:
    """Return vLLM's version, and the hits of both at every capacity."""
    block_size, requests = requests_of(trace, block_size, max_requests)
    if not output_blocks:
        requests = [{**request, "output": []} for request in requests]
    capacities = sorted(set(capacities))
    found = driven(vllm_python, block_size, capacities, requests)
    table = predicted_hits(trace, block_size, capacities, max_requests, output_blocks=output_blocks)
    hits = table["hit_blocks"].to_numpy().reshape(len(capacities), -1)
    comparisons = [
        Comparison(capacity, np.array(found["hit_blocks"][str(capacity)]), predicted)
        for capacity, predicted in zip(capacities, hits, strict=True)
    ]
    return found["version"], comparisons


def main() -> int:
    """Print a comparison; the exit code is 1 if any request differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", help="any log of token ids or hash ids that kvcap reads")
    parser.add_argument("--capacities", type=int, nargs="+", required=True, help="in blocks")
    parser.add_argument("--block-size", type=int, default=16, help="where the log declares none")
    parser.add_argument("--max-requests", type=int, help="stop after so many")
    parser.add_argument("--no-outputs", action="store_true", help="leave generated tokens out")
    parser.add_argument("--vllm-python", default=sys.executable, help="a Python that has vLLM")
    args = parser.parse_args()
    version, comparisons = compare(
        args.trace,
        args.capacities,
        block_size=args.block_size,
        max_requests=args.max_requests,
        output_blocks=not args.no_outputs,
        vllm_python=args.vllm_python,
    )
    print(f"vLLM {version}")
    for one in comparisons:
        print(
            f"{one.capacity:>9,} blocks: vLLM {one.vllm.sum():,} hits, predicted {one.predicted.sum():,}; "
            f"{one.n_differing:,} of {one.vllm.size:,} requests differ"
        )
    return int(any(one.n_differing for one in comparisons))


if __name__ == "__main__":
    sys.exit(main())

"""Write the small golden values again: a log, and what the plain oracles say of it.

    PYTHONPATH=tests python tests/golden/make_small.py

Imports nothing of kvcap. ``small.jsonl`` is a log of hash ids; ``small.json`` holds hits by capacity for both
touch orders, what each request required, and hits request by request of every policy.
"""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path

import oracles
import oracles_policies

HERE = Path(__file__).parent
BLOCK = 16
N_REQUESTS = 160
N_FOR_OPTIMAL = 60
"""Optimal is looked up by brute force."""

CAPACITIES = (0, 1, 7, 20, 33, 64, 100, 150, 300, 1000)
POLICY_CAPACITIES = (20, 64, 150)


def log() -> list[dict[str, object]]:
    """Conversations that grow, fork and end, two system prompts, one-off prompts, incomplete blocks."""
    rng = random.Random(16)
    new_id = iter(range(1, 1 << 20))
    systems = [[next(new_id) for _ in range(length)] for length in (3, 6)]
    sessions: list[list[int]] = []
    lines: list[dict[str, object]] = []
    for request in range(N_REQUESTS):
        if not sessions or rng.random() < 0.2:
            sessions.append([*rng.choice(systems)] if rng.random() < 0.8 else [])
        session = rng.randrange(max(0, len(sessions) - 6), len(sessions))
        if rng.random() < 0.1:
            sessions[session] = sessions[session][: rng.randrange(len(sessions[session]) + 1)]
        sessions[session] = sessions[session] + [next(new_id) for _ in range(rng.randint(1, 4))]
        ids = sessions[session]
        length = BLOCK * len(ids) - rng.choice((0, 0, 1, 5, 15))
        lines.append(
            {
                "timestamp": 500 * request,
                "session_id": f"s{session}",
                "input_length": length,
                "output_length": 1,
                "hash_ids": ids,
            }
        )
    return lines


def expected(lines: list[dict[str, object]]) -> dict[str, object]:
    """Return what the definitions give."""
    requests = [line["hash_ids"] for line in lines]
    tokens = [line["input_length"] for line in lines]
    paths = oracles.chained(requests)
    weights = [
        oracles.block_weights(len(path), length, BLOCK) for path, length in zip(paths, tokens, strict=True)
    ]
    values: dict[str, object] = {}
    for order in ("tail-first", "head-first"):
        depths = oracles.depths(paths, order)
        hits = {str(capacity): [0, 0] for capacity in CAPACITIES}
        for found, weight in zip(depths, weights, strict=True):
            for depth, one in zip(found, weight, strict=True):
                for capacity in CAPACITIES:
                    if 0 <= depth < capacity:
                        hits[str(capacity)][0] += 1
                        hits[str(capacity)][1] += one
        values[order] = {
            "hits": hits,
            "required_blocks": [oracles.required_blocks(found, Fraction(9, 10)) for found in depths],
        }
    prompts = [tuple(request) for request in requests]
    full = [tuple(request[: length // BLOCK]) for request, length in zip(requests, tokens, strict=True)]
    lookups = [(length - 1) // BLOCK for length in tokens]
    held = [-(-length // BLOCK) for length in tokens]
    values["policies"] = {
        str(capacity): {
            "lru": oracles.lru_hits(paths, capacity, "tail-first"),
            "fifo": oracles_policies.fifo_hits(prompts, capacity),
            "optimal": oracles_policies.optimal_hits(prompts[:N_FOR_OPTIMAL], capacity),
            "vllm-lru": oracles_policies.block_queue_hits(full, lookups, held, capacity),
            "sglang-lru": oracles_policies.radix_tree_hits(full, lookups, held, capacity),
        }
        for capacity in POLICY_CAPACITIES
    }
    return values


def main() -> None:
    """Write both files."""
    lines = log()
    (HERE / "small.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (HERE / "small.json").write_text(json.dumps(expected(lines), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()

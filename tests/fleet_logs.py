"""Logs of a small fleet, and what a fleet's results must equal."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import kvcap
from kvcap.fleet import FleetJob

TABLES = ("requests", "reuse_runs", "curve")


def write_fleet(directory: Path, kind: str = "hash_ids", requests: int = 300) -> Path:
    """Write uneven pools spread over files of uneven length, every file in the order of time."""
    rng = random.Random(7)
    files: list[list[dict[str, object]]] = [[] for _ in range(5)]
    prompts: dict[str, list[list[int]]] = {"big": [[]], "small": [[]], "rare": [[]]}
    for r in range(requests):
        pool = rng.choices(list(prompts), weights=[80, 15, 3])[0]
        earlier = rng.choice(prompts[pool][-20:])
        path = earlier[: rng.randrange(len(earlier) + 1)] + [
            rng.randrange(50) for _ in range(rng.randrange(1, 30))
        ]
        prompts[pool].append(path)
        record = {"timestamp": 1000 * (r // 3), "instance": pool, "output_length": 5, "tier": r % 4}
        if kind == "token_ids":
            record["token_ids"] = path
        else:
            ids = [f"block-{block}" for block in path] if kind == "names" else path
            record |= {"hash_ids": ids, "input_length": 4 * len(path) - r % 3, "block_size": 4}
        files[min(4, int(rng.expovariate(0.8)))].append(record)
    directory.mkdir(parents=True)
    for number, records in enumerate(files):
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (directory / f"part-{number}.jsonl").write_text(lines)
    return directory


def assert_same_results(found: kvcap.Results, job: FleetJob, logs: Path) -> None:
    """Compare a fleet's results with those of one replay of all files, row by row and bit by bit."""
    with kvcap.replay(str(logs), job.options, reading=job.reading) as expected:
        for name in TABLES:
            table = expected.table(name)
            assert found.table(name).schema == table.schema
            assert found.table(name).equals(table), name
        assert comparable(found.run) == comparable(expected.run)
        capacities = "5blocks,50blocks" if job.options.max_capacity is None else "5blocks"
        assert kvcap.answer(found, capacities).pools == kvcap.answer(expected, capacities).pools


def comparable(run: kvcap.queries.RunInfo) -> object:
    reading = dataclasses.replace(run.reading, backward_timestamps=0)
    return dataclasses.replace(run, created_at="", reading=reading)

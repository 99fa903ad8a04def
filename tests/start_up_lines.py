"""What engines printed at their start, from public logs, and what kvcap makes of the same inputs.

``models/start_up_lines.json`` has a line for each report: model, deployment, how the engine was started,
memory of the cache in GiB as printed, tokens as printed; ``inferred`` says which inputs the report does not
state and were concluded from its other figures, ``explanation`` why a line is off by more than 1 %, and
``outside`` that the line is a fork's, or does not state what decides.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvcap.models import ModelBytesOptions, resolve_model
from kvcap.models.pools import SglangOptions, SglangPool, VllmOptions, VllmPool, sglang_pool, vllm_pool

GIB = 1 << 30
TOLERANCE = 0.01
LINES: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("models").joinpath("start_up_lines.json").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class StartUp:
    """A report beside what kvcap predicts from its inputs."""

    line: dict[str, Any]
    family: str
    predicted: int

    @property
    def off(self) -> float:
        """How far the prediction is off, as a share of the tokens printed."""
        return self.predicted / self.line["tokens"] - 1


def predicted(line: dict[str, Any]) -> StartUp:
    """Return the tokens that an engine would print for a line's inputs, or keep in the pool that it names."""
    model = resolve_model(line["model"])
    pool = pool_of(line)
    if isinstance(pool, VllmPool):
        blocks = (
            pool.blocks_from_printed(line["tokens"])[0]
            if line["memory_gib"] is None
            else pool.pool_blocks(int(line["memory_gib"] * GIB))
        )
        return StartUp(line, model.family, pool.printed_tokens(blocks))
    token_bytes = pool.window_token_bytes if line.get("pool") == "window" else pool.token_bytes
    return StartUp(line, model.family, int(line["memory_gib"] * GIB / token_bytes))


def pool_of(line: dict[str, Any]) -> VllmPool | SglangPool:
    """Return the pools of a line's deployment."""
    model, deployment = resolve_model(line["model"]), ModelBytesOptions(**line["deployment"])
    if line["engine"] == "vllm":
        return vllm_pool(model, deployment, VllmOptions(**line["options"]))
    return sglang_pool(model, deployment, SglangOptions(**line["options"]))


def markdown(part: str) -> str:
    """Return the ``table`` of how near the lines are, or the ``misses``."""
    return {"table": _table, "misses": _misses}[part]()


def _table() -> str:
    """Return how many lines are within 1 and 5 %, by engine and model family, as Markdown."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for found in map(predicted, LINES):
        for key in ((found.line["engine"], found.family), ("all", "")):
            counts[key][0] += 1
            counts[key][1 if abs(found.off) <= TOLERANCE else 2 if abs(found.off) <= 0.05 else 3] += 1
    rows = ["| engine | family | lines | within 1 % | within 5 % | not |", "|---|---|---|---|---|---|"]
    for (engine, family), numbers in sorted(counts.items(), key=lambda item: (item[0][0] == "all", item[0])):
        rows.append(f"| {engine} | {family} | " + " | ".join(map(str, numbers)) + " |")
    return "\n".join(rows) + "\n"


def _misses() -> str:
    """Return the lines that are off by more than 1 %, with their explanations, as Markdown."""
    rows = ["| line | model | printed | predicted | off | explanation |", "|---|---|---|---|---|---|"]
    for found in map(predicted, LINES):
        if abs(found.off) > TOLERANCE:
            line = found.line
            cells = (
                line["source"],
                line["model"],
                f"{line['tokens']:,}",
                f"{found.predicted:,}",
                f"{found.off:+.1%}",
                line["explanation"],
            )
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"

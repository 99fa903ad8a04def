"""Recorded decisions of real routers, and the streams that they were made on."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from kvcap.kernels.segments import SegmentPaths
from kvcap.routers.clock import Times
from kvcap.routers.rule import Prompts

CHARACTERS = 4
"""Characters of a token in the texts that the routers were sent."""
LETTERS = "etaoinshrdlucmfw"


@dataclass(frozen=True)
class Request:
    ids: list[int]
    tokens: int
    output: int
    arrival_us: int


@cache
def requests(path: Path, n: int) -> list[Request]:
    """Return the first requests of a Mooncake trace."""
    with gzip.open(path, "rt") as file:
        rows = [json.loads(line) for _, line in zip(range(n), file, strict=False)]
    return [
        Request(row["hash_ids"], row["input_length"], row["output_length"], 1000 * row["timestamp"])
        for row in rows
    ]


def text_of(request: Request, block_text: Callable[[int, int], str], characters: int) -> str:
    """Return the prompt that was sent, so many characters a token: every id is a text of its own."""
    full, n = 512 * characters, characters * request.tokens
    return "".join(block_text(h, min(full, n - full * i)) for i, h in enumerate(request.ids))


def block_texts() -> Callable[[int, int], str]:
    @cache
    def whole(block_id: int) -> str:
        drawn, words, length = random.Random(block_id), [], 0
        while length < 512 * CHARACTERS:
            words.append("".join(drawn.choices(LETTERS, k=drawn.randint(2, 9))) + " ")
            length += len(words[-1])
        return "".join(words)

    return lambda block_id, characters: whole(block_id)[:characters]


def block_tokens() -> Callable[[int, int], str]:
    """Return texts of which each character is a token."""

    @cache
    def whole(block_id: int) -> str:
        drawn = random.Random(block_id)
        # Code points above the surrogates, which no text may hold.
        return "".join(chr(0x10000 + drawn.randrange(50_000)) for _ in range(512))

    return lambda block_id, characters: whole(block_id)[:characters]


def common(a: str, b: str) -> int:
    """Return how many characters two texts share at their start."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle - 1)
    return low


def paths_of(texts: Sequence[str]) -> SegmentPaths:
    """Return texts as paths of segments, a character a block: the compressed trie of all of them."""
    order = sorted(range(len(texts)), key=texts.__getitem__)
    shared = [common(texts[a], texts[b]) for a, b in pairwise(order)]
    # Segments end where texts end, and where neighbours in this order part.
    cuts = [{len(text)} for text in texts]
    for (before, after), length in zip(pairwise(order), shared, strict=True):
        cuts[after] |= {length} | {cut for cut in cuts[before] if cut <= length}
    for (before, after), length in zip(reversed([*pairwise(order)]), reversed(shared), strict=True):
        cuts[before] |= {cut for cut in cuts[after] if cut <= length}
    parents: list[int] = []
    lengths: list[int] = []
    last = [-1] * len(texts)
    path: list[tuple[int, int]] = []
    for text, length in zip(order, [0, *shared], strict=True):
        path = [(segment, end) for segment, end in path if end <= length]
        for cut in sorted(cuts[text]):
            parent, begin = path[-1] if path else (-1, 0)
            if cut > begin:
                parents.append(parent)
                lengths.append(cut - begin)
                path.append((len(lengths) - 1, cut))
        last[text] = path[-1][0] if path else -1
    return paths_from(parents, lengths, last)


def paths_from(parents: Sequence[int], lengths: Sequence[int], last: Sequence[int]) -> SegmentPaths:
    """Return paths from a trie and the segment in which each request ends."""
    steps: list[int] = []
    offsets = [0]
    for segment in last:
        path = []
        while segment >= 0:
            path.append(segment)
            segment = parents[segment]
        steps += reversed(path)
        offsets.append(len(steps))
    return SegmentPaths(
        np.array(offsets, np.int64),
        np.array(steps, np.int32),
        np.array(lengths, np.int64),
        np.array(parents, np.int32),
    )


def overlapping(sent: Sequence[Request]) -> Times:
    """Return the clock of the recordings: 0.1 ms a prompt token, then 10 ms a generated one."""
    arrivals = np.array([r.arrival_us for r in sent], np.int64)
    first_tokens = arrivals + np.array([100 * r.tokens for r in sent], np.int64)
    return Times(arrivals, first_tokens, first_tokens + np.array([10_000 * r.output for r in sent], np.int64))


def one_at_a_time(n: int) -> Times:
    """Return a clock on which each request has ended before the next one arrives."""
    arrivals = np.arange(n, dtype=np.int64)
    return Times(arrivals, arrivals, arrivals)


def recorded(path: Path) -> dict[str, Any]:
    """Return one recording."""
    with gzip.open(path, "rt") as file:
        answer: dict[str, Any] = json.load(file)
    return answer


ROUTER_OF = {
    "sglang-cache_aware": "sglang-cache-aware",
    "smg-cache_aware": "smg-cache-aware",
    "vllmrouter-tokens": "vllm-router-cache-aware",
    "ray-prefix": "ray-prefix",
    "stack-prefixaware": "production-stack-prefix",
    "dynamo-kv": "dynamo-kv",
}
"""Routers by what names of recordings begin with."""


def parameters(recording: dict[str, Any]) -> dict[str, str]:
    """Return the parameters that a recording was made with, as they were written."""
    command = recording.get("command", [])
    thresholds = ("cache-threshold", "balance-abs-threshold", "balance-rel-threshold")
    given = {name: command[command.index(f"--{name}") + 1] for name in thresholds if f"--{name}" in command}
    if "min_match" in recording:
        given["prefix-min-match-length"] = str(recording["min_match"])
    return given


def texts_of(sent: Sequence[Request], kind: str) -> list[str]:
    """Return what a router compares, as texts: characters, tokens, or blocks of 64 or 512 tokens."""
    if kind in ("characters", "tokens"):
        block_text = block_texts() if kind == "characters" else block_tokens()
        return [text_of(request, block_text, CHARACTERS if kind == "characters" else 1) for request in sent]
    size = int(kind.removeprefix("blocks"))
    numbers: dict[tuple[int, int], int] = {}
    return [
        "".join(
            chr(0x10000 + numbers.setdefault(block, len(numbers)))
            for block in [(h, part) for h in request.ids for part in range(512 // size)][
                : request.tokens // size
            ]
        )
        for request in sent
    ]


def kind_of(name: str) -> str:
    """Return what the router of a recording compares."""
    if name.startswith("dynamo"):
        return "blocks64" if "block64" in name or "evicting" in name else "blocks512"
    return "tokens" if "tokens" in name else "characters"


def prompts(paths: SegmentPaths, kind: str, tokens: Sequence[int]) -> Prompts:
    """Return prompts whose blocks are characters, or tokens, or blocks of tokens."""
    lengths = np.add.reduceat(
        np.append(paths.segment_blocks[paths.path_segments], 0), paths.path_offsets[:-1], dtype=np.int64
    )
    lengths[np.diff(paths.path_offsets) == 0] = 0
    block_tokens = int(kind.removeprefix("blocks")) if kind.startswith("blocks") else 1
    return Prompts(paths, 1, lengths, np.array(tokens, np.int64), block_tokens)

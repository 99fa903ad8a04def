"""The definitions, as plainly as Python can put them. Imports nothing of kvcap."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from fractions import Fraction
from math import ceil

COLD = -1
Request = Sequence[int]


def chained(requests: Sequence[Request]) -> list[list[int]]:
    """Replace each id by a dense number of its whole prefix: equal number, equal prefix."""
    numbers: dict[tuple[int, int], int] = {}
    result = []
    for request in requests:
        parent, path = -1, []
        for block in request:
            parent = numbers.setdefault((parent, block), len(numbers))
            path.append(parent)
        result.append(path)
    return result


def identified(
    requests: Sequence[Request],
    namespaces: Sequence[str | None],
    media: Sequence[Sequence[tuple[int, int | None]]],
    block_size: int,
) -> list[list[int]]:
    """Replace ids by numbers of what engines key a block on: equal number and place, equal block content.

    ``media`` are digests and token offsets: each belongs to the block in which it begins, at that place in
    it, and to the first one where the offset is unknown. The namespace belongs to the first block.
    """
    numbers: dict[object, int] = {}
    result = []
    for request, namespace, own in zip(requests, namespaces, media, strict=True):
        path = []
        for i, block in enumerate(request):
            begun = tuple(
                (digest, offset % block_size)
                for digest, offset in own
                if offset is not None and offset // block_size == i
            )
            root = (namespace, tuple(digest for digest, offset in own if offset is None)) if i == 0 else None
            path.append(numbers.setdefault((block, begun, root), len(numbers)))
        result.append(path)
    return result


def depths(requests: Sequence[Request], order: str) -> list[list[int]]:
    """LRU stack distances of chained requests, straight from a list that is the stack (top first).

    ``tail-first``: all blocks of a request are looked up, then touched last to first. ``head-first``:
    each is looked up and touched at once, front to back.
    """
    stack: list[int] = []
    result = []
    for request in requests:
        if order == "tail-first":
            result.append([stack.index(block) if block in stack else COLD for block in request])
            for block in reversed(request):
                if block in stack:
                    stack.remove(block)
                stack.insert(0, block)
        else:
            found = []
            for block in request:
                found.append(stack.index(block) if block in stack else COLD)
                if block in stack:
                    stack.remove(block)
                stack.insert(0, block)
            result.append(found)
    return result


def bounded_depths(requests: Sequence[Request], max_depth: int) -> tuple[list[list[int]], int, int]:
    """Tail-first depths where the oldest requests are forgotten; blocks forgotten, and remembered at the end.

    Before each request, what the oldest one touched last is dropped, as long as all of it lies at
    ``max_depth`` or deeper.
    """
    stack: list[int] = []
    last_toucher: dict[int, int] = {}
    result, forgotten = [], 0
    for r, request in enumerate(requests):
        while stack:
            kept = [block for block in stack if last_toucher[block] != last_toucher[stack[-1]]]
            if len(kept) < max_depth:
                break
            forgotten += len(stack) - len(kept)
            stack = kept
        result.append([stack.index(block) if block in stack else COLD for block in request])
        stack = [*request, *(block for block in stack if block not in request)]
        last_toucher.update(dict.fromkeys(request, r))
    return result, forgotten, len(stack)


def lru_hits(requests: Sequence[Request], capacity: int, order: str) -> list[int]:
    """Hit blocks of each chained request in one LRU cache of ``capacity`` blocks, simulated directly."""
    cache: OrderedDict[int, None] = OrderedDict()

    def touch(block: int) -> None:
        cache[block] = None
        cache.move_to_end(block)
        if len(cache) > capacity:
            cache.popitem(last=False)

    hits = []
    for request in requests:
        if order == "tail-first":
            hits.append(sum(block in cache for block in request))
            for block in reversed(request):
                touch(block)
        else:
            found = 0
            for block in request:
                found += block in cache
                touch(block)
            hits.append(found)
    return hits


def required_blocks(request_depths: Sequence[int], target: Fraction) -> int:
    """Smallest capacity at which the leading known blocks of a request reach their target share."""
    known = next((i for i, depth in enumerate(request_depths) if depth == COLD), len(request_depths))
    needed = ceil(known * target)
    return max((depth + 1 for depth in request_depths[:needed]), default=0)


def reuse_runs(requests: Sequence[Request]) -> list[tuple[int, int, int, int]]:
    """(request, source request, first block, blocks) of every reuse run of chained requests."""
    last_toucher: dict[int, int] = {}
    runs = []
    for r, request in enumerate(requests):
        for i, block in enumerate(request):
            source = last_toucher.get(block)
            if source is None:
                continue
            if runs and runs[-1][:2] == (r, source) and runs[-1][2] + runs[-1][3] == i:
                runs[-1] = (r, source, runs[-1][2], runs[-1][3] + 1)
            else:
                runs.append((r, source, i, 1))
        for block in request:
            last_toucher[block] = r
    return runs


def block_weights(n_blocks: int, input_tokens: int, block_size: int) -> list[int]:
    """Tokens of each block: what is left of the prompt there, at least 1 and at most a whole block."""
    return [max(1, min(block_size, input_tokens - i * block_size)) for i in range(n_blocks)]


def nearest_rank(values: Sequence[int], percent: Fraction) -> int:
    """The nearest-rank percentile: ``sorted[ceil(p * n) - 1]``."""
    return sorted(values)[max(1, ceil(percent / 100 * len(values))) - 1]

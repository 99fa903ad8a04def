"""How vLLM shares one pool of equal blocks between layers of several kinds.

Two ways: where the cache is laid out layer by layer, pages are first made equal (by longer blocks of small
pages, or by padding) and layers dealt out to groups of one size; where it is laid out block by block, layers
of several page sizes stand side by side in a block. Source: ``v1/core/kv_cache_utils.py`` of vLLM 0.32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvcap.errors import UsageError
from kvcap.models.pools.groups import CacheGroup, CacheLayers

_PADDING_LIMIT = 1.5
"""Kinds whose layer counts differ by less than this factor make groups of the larger count."""

_Members = list[tuple[CacheLayers, int]]
"""The kinds of layers in a group, and how many of each."""


def group_layers(
    layers: Sequence[CacheLayers], *, block_outermost: bool = False, stages: int = 1, dcp: int = 1
) -> tuple[CacheGroup, ...]:
    """Return the groups into which vLLM puts some layers, in its order.

    Parameters
    ----------
    layers
        Every kind of layer in the order of its first layer in the model.
    block_outermost
        Whether the cache is laid out block by block, as it is where index keys of several widths stand
        beside latents.
    stages
        Pipeline stages; ``group_bytes`` are those of the fullest, over which layers are spread evenly.
    dcp
        Ranks over which the tokens of a block of attention are spread; it then spans as many times more.

    Raises
    ------
    UsageError
        If pages of latents cannot be made equal.
    """
    if len({(kind.block_tokens, _family(kind)) for kind in layers}) == 1:
        dealt = [[(kind, kind.layers) for kind in layers]]
    elif block_outermost and len({kind.page_bytes for kind in layers}) > 1:
        dealt = _packed(_merge(layers))
    else:
        dealt = _of_equal_pages(_merge(_equal_pages(layers)))
    return tuple(_group(members, stages, dcp) for members in dealt)


def pool_block_bytes(groups: Sequence[CacheGroup]) -> int:
    """Return the bytes of one block of the pool: those of the widest group."""
    return max(group.group_bytes for group in groups)


def _family(kind: CacheLayers) -> tuple[object, ...]:
    """Return what layers of one group must have in common besides their block."""
    return (kind.kind, kind.window_tokens, kind.prefix_cached, kind.checkpoint_blocks)


def _group(members: _Members, stages: int, dcp: int) -> CacheGroup:
    first = members[0][0]
    spread = dcp if first.kind == "full" else 1
    return CacheGroup(
        name=", ".join(dict.fromkeys(kind.name for kind, _ in members)),
        kind=first.kind,
        layers=sum(count for _, count in members),
        block_tokens=first.block_tokens * spread,
        group_bytes=sum(-(-count // stages) * kind.page_bytes for kind, count in members),
        window_tokens=first.window_tokens,
        prefix_cached=first.prefix_cached,
        checkpoint_blocks=first.checkpoint_blocks,
    )


def _equal_pages(layers: Sequence[CacheLayers]) -> list[CacheLayers]:
    """Return the layers with pages of equal bytes: longer blocks where that divides, padding elsewhere."""
    largest = max(kind.page_bytes for kind in layers)
    equal = []
    for kind in layers:
        ratio, rest = divmod(largest, kind.page_bytes)
        if kind.kind == "state" or (rest and kind.paddable):
            equal.append(replace(kind, page_bytes=largest))
        elif rest:
            raise UsageError(
                f"vLLM cannot pad {kind.name} from {kind.page_bytes:,} to {largest:,} bytes a block; "
                "expected another --engine-block-size"
            )
        else:
            equal.append(replace(kind, page_bytes=largest, block_tokens=kind.block_tokens * ratio))
    return equal


def _merge(layers: Sequence[CacheLayers]) -> list[CacheLayers]:
    """Return the layers with those of one kind, block and page together, such as draft layers with others."""
    merged: dict[tuple[object, ...], CacheLayers] = {}
    for kind in layers:
        key = (_family(kind), kind.block_tokens, kind.page_bytes)
        other = merged.get(key)
        merged[key] = kind if other is None else replace(other, layers=other.layers + kind.layers)
    return list(merged.values())


def _of_equal_pages(layers: Sequence[CacheLayers]) -> list[_Members]:
    """Deal layers out to groups of the smallest kind's count, or of the largest where those are near."""
    smallest, largest = min(kind.layers for kind in layers), max(kind.layers for kind in layers)
    size = largest if largest < smallest * _PADDING_LIMIT else smallest
    return [[(kind, count)] for kind in layers for count in _deal(kind.layers, -(-kind.layers // size))]


def _deal(layers: int, groups: int) -> list[int]:
    """Return how many layers each group gets when they are dealt out in turn."""
    return [-(-(layers - turn) // groups) for turn in range(groups)]


@dataclass(frozen=True)
class _Bucket:
    """Layers that may share a block table, whatever their pages."""

    kinds: tuple[CacheLayers, ...]

    @property
    def layers(self) -> int:
        return sum(kind.layers for kind in self.kinds)

    @property
    def by_page(self) -> dict[int, int]:
        pages: Counter[int] = Counter()
        for kind in self.kinds:
            pages[kind.page_bytes] += kind.layers
        return dict(pages)

    @property
    def repeats(self) -> int:
        """How often the pattern repeats: the largest number of layers with one page size."""
        return max(self.by_page.values())

    @property
    def balanced(self) -> bool:
        return len(set(self.by_page.values())) == 1

    def widest_group_bytes(self, groups: int) -> int:
        return sum(-(-count // groups) * page for page, count in self.by_page.items())


def _packed(layers: Sequence[CacheLayers]) -> list[_Members]:
    by_table: dict[tuple[object, ...], list[CacheLayers]] = {}
    for kind in layers:
        by_table.setdefault((_family(kind), kind.block_tokens), []).append(kind)
    buckets = [_Bucket(tuple(kinds)) for kinds in by_table.values()]
    least = max((b.repeats for b in buckets if b.balanced and len(b.by_page) > 1), default=0)
    repeats = _best_divisor([b.repeats for b in buckets if b.balanced], least) if least else None

    def splits(bucket: _Bucket) -> int:
        return -(-bucket.repeats // repeats) if repeats and bucket.balanced else 1

    def shrinks(bucket: _Bucket) -> bool:
        kind = bucket.kinds[0].kind
        return kind in {"state", "ring"} or (repeats is None and kind == "window")

    anchor = max(b.widest_group_bytes(b.layers if shrinks(b) else splits(b)) for b in buckets)
    groups: list[_Members] = []
    for bucket in buckets:
        count = splits(bucket)
        if shrinks(bucket):
            fitting = max(anchor // bucket.kinds[0].page_bytes, 1)
            count = max(count, -(-bucket.layers // fitting))
        dealt = [_deal(kind.layers, count) for kind in bucket.kinds]
        groups += [list(zip(bucket.kinds, turn, strict=True)) for turn in zip(*dealt, strict=True)]
    return groups


def _best_divisor(counts: Sequence[int], least: int) -> int:
    """Return the largest number from ``least`` up to whose multiples the counts need the least padding."""
    padding = {size: sum(-count % size for count in counts) for size in range(least, max(counts) + 1)}
    return min(padding, key=lambda size: (padding[size], -size), default=least)

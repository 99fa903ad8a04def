"""vLLM's grouping of layers, layer by layer and by name, as its rules read; nothing of kvcap."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Layer:
    name: str
    kind: str
    block: int
    page: int
    window: int | None
    paddable: bool

    @property
    def family(self) -> tuple[str, int | None]:
        return (self.kind, self.window)

    @property
    def spec(self) -> tuple[object, ...]:
        return (self.kind, self.window, self.block, self.page)


def groups(layers: list[Layer], block_outermost: bool) -> list[list[Layer]] | None:
    """Return the layers of each group in order; None where pages cannot be made equal."""
    if len({(layer.block, layer.family) for layer in layers}) == 1:
        return [layers]
    if block_outermost and len({layer.page for layer in layers}) > 1:
        return _packed(layers)
    equal = _equal_pages(layers)
    return None if equal is None else _uniform(equal)


def _equal_pages(layers: list[Layer]) -> list[Layer] | None:
    largest = max(layer.page for layer in layers)
    equal = []
    for layer in layers:
        if layer.page == largest:
            equal.append(layer)
        elif layer.kind == "state":
            equal.append(replace(layer, page=largest))
        elif largest % layer.page == 0:
            equal.append(replace(layer, page=largest, block=layer.block * (largest // layer.page)))
        elif layer.paddable:
            equal.append(replace(layer, page=largest))
        else:
            return None
    return equal


def _uniform(layers: list[Layer]) -> list[list[Layer]]:
    buckets: dict[tuple[object, ...], list[Layer]] = {}
    for layer in layers:
        buckets.setdefault(layer.spec, []).append(layer)
    counts = [len(bucket) for bucket in buckets.values()]
    size = max(counts) if max(counts) < min(counts) * 1.5 else min(counts)
    found = []
    for bucket in buckets.values():
        number = math.ceil(len(bucket) / size)
        found += [bucket[i::number] for i in range(number)]
    return found


def _packed(layers: list[Layer]) -> list[list[Layer]]:
    buckets: dict[tuple[object, ...], list[Layer]] = {}
    for layer in layers:
        buckets.setdefault((layer.block, layer.family), []).append(layer)
    pages = []
    for bucket in buckets.values():
        by_page: dict[int, list[Layer]] = {}
        for layer in bucket:
            by_page.setdefault(layer.page, []).append(layer)
        pages.append(by_page)
    balanced = [len({len(names) for names in by_page.values()}) == 1 for by_page in pages]
    repeats = [max(len(names) for names in by_page.values()) for by_page in pages]
    floor = max(
        (r for r, even, by_page in zip(repeats, balanced, pages, strict=True) if even and len(by_page) > 1),
        default=0,
    )
    each = _divisor([r for r, even in zip(repeats, balanced, strict=True) if even], floor) if floor else None

    def wanted(place: int) -> int:
        return math.ceil(repeats[place] / each) if balanced[place] and each is not None else 1

    def state(place: int) -> bool:
        kind = next(iter(pages[place].values()))[0].kind
        return kind in {"state", "ring"} or (each is None and kind == "window")

    def widest(place: int, number: int) -> int:
        return sum(math.ceil(len(names) / number) * page for page, names in pages[place].items())

    total = [sum(map(len, by_page.values())) for by_page in pages]
    anchor = max(widest(p, total[p] if state(p) else wanted(p)) for p in range(len(pages)))
    found = []
    for place, by_page in enumerate(pages):
        number = wanted(place)
        if state(place):
            fits = max(anchor // next(iter(by_page)), 1)
            number = max(number, math.ceil(total[place] / fits))
        if number == 1:
            found.append([layer for names in by_page.values() for layer in names])
            continue
        pattern = list(zip(*by_page.values(), strict=True))
        found += [[layer for turn in pattern[i::number] for layer in turn] for i in range(number)]
    return found


def _divisor(counts: list[int], floor: int) -> int:
    best, least = floor, None
    for size in range(floor, max(counts) + 1):
        padding = sum((size - count % size) % size for count in counts)
        if least is None or padding <= least:
            best, least = size, padding
    return best

"""Rules of real routers as plainly as Python can put them, over texts. Imports nothing of kvcap."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field


def f32(value: float) -> float:
    number: float = struct.unpack("f", struct.pack("f", value))[0]
    return number


def least(values: list[int], among: list[int]) -> list[int]:
    return [w for w in among if values[w] == min(values[i] for i in among)]


@dataclass
class Node:
    text: str
    maker: int
    holders: set[int]
    children: dict[str, Node] = field(default_factory=dict)


class Tree:
    """One radix tree for all instances, children by first character."""

    def __init__(self, n: int) -> None:
        self.root = Node("", -1, set(range(n)))
        self.size = [0] * n

    def find(self, text: str) -> tuple[int, Node]:
        """Return how much matched and the deepest node touched, even if the match ends within its text."""
        node, i = self.root, 0
        while i < len(text) and text[i] in node.children:
            node = node.children[text[i]]
            k = shared(text[i:], node.text)
            i += k
            if k < len(node.text):
                break
        return i, node

    def insert(self, text: str, w: int) -> None:
        node, i = self.root, 0
        while i < len(text):
            child = node.children.get(text[i])
            if child is None:
                node.children[text[i]] = Node(text[i:], w, {w})
                self.size[w] += len(text) - i
                return
            k = shared(text[i:], child.text)
            if k < len(child.text):
                top = Node(child.text[:k], child.maker, set(child.holders), {child.text[k]: child})
                node.children[text[i]] = top
                child.text = child.text[k:]
                child = top
            if w not in child.holders:
                self.size[w] += len(child.text)
                child.holders.add(w)
            node = child
            i += k


def shared(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class CacheAware:
    """The policies of sglang-router, vllm-router and smg."""

    def __init__(self, name: str, n: int, threshold: float, absolute: float, relative: float) -> None:
        self.name, self.n, self.tree = name, n, Tree(n)
        self.threshold, self.absolute, self.relative = f32(threshold), absolute, f32(relative)

    def options(self, text: str, loads: list[int]) -> list[int]:
        matched, node = self.tree.find(text)
        is_match = bool(text) and f32(f32(matched) / f32(len(text))) > self.threshold
        everyone = least(loads, list(range(self.n)))
        if self.name == "smg":
            return self._smg(node, loads) if is_match else everyone
        apart = max(loads) - min(loads) > self.absolute
        if (apart and max(loads) > f32(min(loads) * self.relative)) or not is_match:
            return everyone[:1]
        return [node.maker] if self.name == "sglang" else least(loads, sorted(node.holders))[:1]

    def _smg(self, node: Node, loads: list[int]) -> list[int]:
        mean = sum(loads) / self.n
        margin = min(self.absolute, max(4, math.ceil(2 * mean**0.5)))
        cool = [
            w
            for w in range(self.n)
            if not (loads[w] > f32(self.relative * f32(mean)) and loads[w] > mean + margin)
        ]
        return least(loads, [w for w in cool if w in node.holders] or cool or list(range(self.n)))

    def take(self, text: str, w: int) -> None:
        self.tree.insert(text, w)


class Ray:
    def __init__(self, n: int, imbalanced: float, share: float) -> None:
        self.n, self.imbalanced, self.share, self.tree = n, imbalanced, share, Tree(n)

    def options(self, text: str, loads: list[int]) -> list[int]:
        if max(loads) - min(loads) > self.imbalanced:
            pairs = [(a, b) for a in range(self.n) for b in range(self.n) if a != b]
            return sorted({w for pair in pairs for w in least(loads, [*pair])})
        matched, node = self.tree.find(text)
        if matched / max(1, len(text)) < self.share:
            return least(loads, least(self.tree.size, list(range(self.n))))
        return least(loads, sorted(node.holders))

    def take(self, text: str, w: int) -> None:
        self.tree.insert(text, w)


class Stack:
    """A trie of chunks; the last one may be short, and counts as a whole one."""

    def __init__(self, n: int, least_match: float, chunk: int) -> None:
        self.n, self.least_match, self.chunk = n, least_match, chunk
        self.holders: dict[tuple[str, ...], set[int]] = {}
        self.count = [0] * n

    def parts(self, text: str) -> list[str]:
        return [text[i : i + self.chunk] for i in range(0, len(text), self.chunk)]

    def options(self, text: str, loads: list[int]) -> list[int]:
        parts, k, among = self.parts(text), 0, set(range(self.n))
        while k < len(parts) and tuple(parts[: k + 1]) in self.holders:
            k += 1
            among = self.holders[tuple(parts[:k])]
        if k * self.chunk < self.least_match:
            return [min(range(self.n), key=lambda w: (self.count[w], w))]
        return sorted(among)

    def take(self, text: str, w: int) -> None:
        self.count[w] += 1
        parts = self.parts(text)
        for k in range(1, len(parts) + 1):
            self.holders.setdefault(tuple(parts[:k]), set()).add(w)


class Dynamo:
    """Caches that keep everything, a character a block."""

    def __init__(self, n: int, block: int, credit: float, decay: float, scale: float, weight: float) -> None:
        self.n, self.block, self.weights = n, block, (credit, decay, scale, weight)
        self.held: list[set[str]] = [set() for _ in range(n)]
        self.running: dict[int, tuple[int, str]] = {}
        self.waiting: dict[int, tuple[int, int]] = {}

    def prefixes(self, text: str) -> list[str]:
        return [text[: i + 1] for i in range(len(text))]

    def overlap(self, text: str, w: int) -> int:
        return sum(prefix in self.held[w] for prefix in self.prefixes(text))

    def options(self, text: str, tokens: int) -> list[int]:
        credit, decay, scale, weight = self.weights
        prefill = [sum(t for w, t in self.waiting.values() if w == i) for i in range(self.n)]
        costs = []
        for w in range(self.n):
            excess = (prefill[w] - min(prefill)) / self.block / max(1, math.ceil(tokens / self.block))
            given = credit / (1 + decay * excess)
            texts = [own for i, own in self.running.values() if i == w]
            blocks = {prefix for own in [*texts, text] for prefix in self.prefixes(own)}
            compute = (prefill[w] + tokens) / self.block - given * self.overlap(text, w)
            costs.append(scale * max(0.0, compute) + len(blocks) + weight * len(texts))
        return [w for w in range(self.n) if costs[w] == min(costs)]

    def take(self, request: int, text: str, tokens: int, w: int) -> None:
        self.waiting[request] = (w, tokens - min(tokens, self.overlap(text, w) * self.block))
        self.running[request] = (w, text)

    def first_token(self, request: int) -> None:
        w, _ = self.waiting.pop(request)
        self.held[w].update(self.prefixes(self.running[request][1]))

    def end(self, request: int) -> None:
        del self.running[request]

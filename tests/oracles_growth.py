"""Growing a trace as plainly as Python can put it. Imports nothing of kvcap.

A request is (time in microseconds, session, path), a path a sequence of block ids. Results are canonical:
prefixes ("nodes") and sessions are numbered as they first appear.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from itertools import pairwise

Request = tuple[int, Hashable, Sequence[Hashable]]
Numbered = list[tuple[int, int, list[int]]]

MILLION = 1_000_000
_WORD = (1 << 64) - 1


def mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _WORD
    return value ^ (value >> 31)


def draw(seed: int, round_number: int, purpose: int, number: int) -> int:
    return mix(mix(mix(mix(seed) ^ round_number) ^ purpose) ^ number)


def canonical(requests: Sequence[Request]) -> Numbered:
    nodes: dict[Hashable, int] = {}
    sessions: dict[Hashable, int] = {}
    numbered = []
    for time, session, path in requests:
        above, walked = -1, []
        for block in path:
            above = nodes.setdefault((above, block), len(nodes))
            walked.append(above)
        numbered.append((time, sessions.setdefault(session, len(sessions)), walked))
    return numbered


def by_time(requests: Sequence[Request]) -> Numbered:
    return canonical(sorted(requests, key=lambda request: request[0]))


class Tree:
    """Who touched which node of a canonical trace."""

    def __init__(self, requests: Numbered) -> None:
        self.parent: dict[int, int] = {}
        self.touched: dict[int, set[int]] = defaultdict(set)
        for _, session, path in requests:
            for above, node in pairwise([-1, *path]):
                self.parent[node] = above
                self.touched[node].add(session)
        self.count = {node: len(sessions) for node, sessions in self.touched.items()}
        self.kids = Counter(self.parent.values())
        self.ones = Counter(above for node, above in self.parent.items() if self.count[node] == 1)

    def stretches(self) -> list[int]:
        top: dict[int, int] = {}
        for node in sorted(self.parent):
            if self.count[node] == 2:
                top[node] = top.get(self.parent[node], node)
        lengths = Counter(top.values())
        return [lengths[node] for node in sorted(lengths)]

    def shared(self, path: Sequence[int]) -> int:
        return sum(self.count[node] > 1 for node in path)


def starts_and_ends(requests: Numbered) -> dict[int, tuple[int, int]]:
    times = defaultdict(list)
    for time, session, _ in requests:
        times[session].append(time)
    return {session: (min(own), max(own)) for session, own in times.items()}


def exchange_window(requests: Numbered, tree: Tree) -> int:
    if len(tree.stretches()) < 8:
        return 100_000
    lasting = starts_and_ends(requests)
    apart = sorted(max(own) - min(own) for own in tree.touched.values() if len(own) == 2)
    window = min(MILLION, apart[(len(apart) - 1) // 2] * 10**9 // (293 * len(lasting)))
    total = sum(lasting[session][1] - lasting[session][0] for _, session, _ in requests)
    times = [time for time, _, _ in requests]
    too_long = 100 * total > 15 * len(requests) * (max(times) - min(times))
    return min(window, 100_000) if too_long else window


def common_nodes(tree: Tree, seed: int, round_number: int) -> set[int]:
    stretches = tree.stretches()
    common: set[int] = set()
    allowance: dict[int, int] = {}
    for node in sorted(tree.parent):
        above, count = tree.parent[node], tree.count[node]
        if above >= 0 and above not in common:
            continue
        if count == 1 and above >= 0 and tree.count[above] == 1:
            if allowance[above] > 1:
                common.add(node)
                allowance[node] = allowance[above] - 1
            continue
        leaves = (draw(seed, round_number, 1, node) >> 11) * tree.kids[above] * count
        if leaves < tree.ones[above] << 53:
            continue
        if count == 1:
            if not stretches:
                continue
            allowance[node] = stretches[draw(seed, round_number, 2, node) % len(stretches)]
        common.add(node)
    return common


def with_copy(requests: Numbered, step: int, seed: int, round_number: int) -> Numbered:
    tree, lasting = Tree(requests), starts_and_ends(requests)
    n_sessions, n_nodes = len(lasting), len(tree.parent)
    reach = exchange_window(requests, tree) * n_sessions
    common = common_nodes(tree, seed, round_number)

    def place(session: int) -> tuple[int, int]:
        jitter = draw(seed, round_number, 0, session) % (2 * reach + 1) - reach
        return session * MILLION + jitter, session

    order = sorted(range(n_sessions), key=place)
    moved = {session: lasting[rank][0] - lasting[session][0] for rank, session in enumerate(order)}
    copy = [
        (time + moved[session], session + n_sessions, [v if v in common else v + n_nodes for v in path])
        for time, session, path in requests
        if draw(seed, round_number, 3, session) % MILLION < step - MILLION
    ]
    return by_time([*requests, *copy])


def grow(requests: Sequence[Request], factor_millionths: int, seed: int = 0) -> Numbered:
    grown, left, round_number = canonical(requests), factor_millionths, 1
    while left > MILLION:
        step = min(left, 2 * MILLION)
        grown = with_copy(grown, step, seed, round_number)
        left = -(-left * MILLION // step)
        round_number += 1
    return grown


def longer(requests: Sequence[Request], numerator: int, denominator: int) -> Numbered:
    numbered = canonical(requests)
    tree, depth, copies = Tree(numbered), {-1: 0}, {}
    for node in sorted(tree.parent):
        own = tree.count[node] == 1
        depth[node] = depth[tree.parent[node]] + 1 if own else 0
        until = depth[node] * numerator // denominator
        copies[node] = until - (depth[node] - 1) * numerator // denominator if own else 1
    return canonical(
        [
            (time, session, [(v, k) for v in path for k in range(copies[v])])
            for time, session, path in numbered
        ]
    )


def more_turns(requests: Sequence[Request], numerator: int, denominator: int, seed: int = 0) -> Numbered:
    numbered = canonical(requests)
    tree, turns = Tree(numbered), defaultdict(list)
    for request in numbered:
        turns[request[1]].append(request)
    steps = []
    for session in sorted(turns):
        for (time, _, path), (later, _, further) in pairwise(turns[session]):
            # Canonical paths that have parted never meet again.
            agree = len(set(path) & set(further))
            if agree > 0 and agree >= tree.shared(path):
                steps.append((len(path) - agree, len(further) - agree, later - time))
    end, fresh, grown = max(time for time, _, _ in numbered), len(tree.parent), list(numbered)
    for session in sorted(turns) if steps else ():
        time, _, path = turns[session][-1]
        shared, has = tree.shared(path), len(turns[session])
        wanted = (has * numerator + draw(seed, 1, 4, session) % denominator) // denominator
        for turn in range(has, wanted):
            dropped, added, pause = steps[draw(seed, 1, 5, session * 4096 + turn) % len(steps)]
            path = [*path[: max(shared, len(path) - dropped)], *range(fresh, fresh + added)]
            fresh, time = fresh + added, time + pause
            grown.append((time, session, path))
    return by_time([request for request in grown if request[0] <= end])


def faster(requests: Sequence[Request], numerator: int, denominator: int) -> Numbered:
    numbered = canonical(requests)
    begins = {session: times[0] for session, times in starts_and_ends(numbered).items()}
    return by_time(
        [(begins[s] + (time - begins[s]) * denominator // numerator, s, path) for time, s, path in numbered]
    )


def joined(first: Sequence[Request], second: Sequence[Request]) -> Numbered:
    return by_time(
        [
            (time, (side, session), [(side, block) for block in path])
            for side, requests in enumerate((first, second))
            for time, session, path in requests
        ]
    )


def derived_sessions(requests: Sequence[Request]) -> list[int]:
    """The session of each request by its prefixes alone."""
    owners: dict[int, set[int]] = defaultdict(set)
    last: dict[int, list[int]] = {}
    found: list[int] = []
    for _, _, path in canonical(requests):
        known = [node for node in path if node in last]
        session = max(found, default=-1) + 1
        if known and len(owners[known[-1]]) == 1 and len(known) >= len(last[known[-1]]) - 1:
            (session,) = owners[known[-1]]
        found.append(session)
        for node in path:
            owners[node].add(session)
            last[node] = path
    return found

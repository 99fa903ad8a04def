"""Cache policies as anybody would write them down: dictionaries, lists and no thought for speed.

A prompt is a tuple of block contents; a block is known by the whole prefix that ends with it. Every function
returns the leading hit blocks of each prompt, in order.
"""

from __future__ import annotations

from collections import deque


def blocks_of(prompt):
    return [prompt[: i + 1] for i in range(len(prompt))]


def leading(path, resident):
    for i, block in enumerate(path):
        if block not in resident:
            return i
    return len(path)


def fifo_hits(prompts, capacity):
    """Block by block, front to back: a missing one goes in at once and pushes the oldest one out."""
    queue, hits = deque(), []
    for prompt in prompts:
        path = blocks_of(prompt)
        hits.append(leading(path, queue))
        for block in path:
            if block not in queue:
                queue.append(block)
                if len(queue) > capacity:
                    queue.popleft()
    return hits


def optimal_hits(prompts, capacity):
    """After each prompt keep the blocks that are needed soonest, nearest the root first."""
    kept, hits = set(), []
    for now, prompt in enumerate(prompts):
        path = blocks_of(prompt)
        hits.append(leading(path, kept))
        needed = []
        for block in kept | set(path):
            uses = [later for later in range(now + 1, len(prompts)) if block in blocks_of(prompts[later])]
            if uses:
                needed.append((uses[0], len(block), block))
        kept = {block for _, _, block in sorted(needed)[:capacity]}
    return hits


def most_hits_possible(prompts, capacity):
    """The most leading hits in all that any choice of what to keep can reach, by trying every choice."""
    best = {frozenset(): 0}
    for prompt in prompts:
        path = blocks_of(prompt)
        after = {}
        for kept, hits in best.items():
            hits += leading(path, kept)
            for choice in subsets(sorted(kept | set(path)), capacity):
                after[choice] = max(hits, after.get(choice, 0))
        best = after
    return max(best.values())


def subsets(blocks, largest):
    found = {frozenset()}
    for block in blocks:
        found |= {chosen | {block} for chosen in found if len(chosen) < largest}
    return found


class RadixNode:
    def __init__(self, contents, parent, last_use):
        self.contents, self.parent, self.last_use = contents, parent, last_use
        self.came, self.requests = last_use, 0
        self.children, self.locked = {}, False


RANKS = {
    "lru": lambda node: node.last_use,
    "lfu": lambda node: (node.requests, node.last_use),
    "slru": lambda node: (node.requests >= 2, node.last_use),
    "fifo": lambda node: node.came,
    "filo": lambda node: -node.came,
    "mru": lambda node: -node.last_use,
}
"""The leaf with the lowest rank goes first."""


class RadixTree:
    """A radix tree of prompts whose nodes carry the time of their last use."""

    def __init__(self):
        self.root = RadixNode((), None, 0)
        self.clock = 0

    def nodes(self):
        found = [self.root]
        for node in found:
            found.extend(node.children.values())
        return found[1:]

    def blocks(self):
        return sum(len(node.contents) for node in self.nodes())

    def walk(self, prompt):
        """Touch the longest prefix there is, splitting the node it ends in; return its nodes."""
        self.clock += 2
        walked, node, place = [], self.root, 0
        while place < len(prompt) and prompt[place] in node.children:
            node = node.children[prompt[place]]
            shared = 0
            while (
                shared < len(node.contents)
                and place + shared < len(prompt)
                and node.contents[shared] == prompt[place + shared]
            ):
                shared += 1
            if shared < len(node.contents):
                node = self.split(node, shared)
            node.last_use = self.clock
            walked.append(node)
            place += shared
        return walked

    def split(self, node, blocks):
        upper = RadixNode(node.contents[:blocks], node.parent, self.clock)
        node.parent.children[node.contents[0]] = upper
        node.contents, node.parent, node.last_use = node.contents[blocks:], upper, self.clock - 1
        upper.children[node.contents[0]] = node
        upper.came, upper.requests = node.came, node.requests
        return upper

    def evict_one_leaf(self, rank):
        leaves = [node for node in self.nodes() if not node.children and not node.locked]
        if not leaves:
            return False
        lowest = min(leaves, key=rank)
        del lowest.parent.children[lowest.contents[0]]
        return True

    def insert(self, prompt):
        walked = self.walk(prompt)
        rest = prompt[sum(len(node.contents) for node in walked) :]
        if rest:
            parent = walked[-1] if walked else self.root
            walked.append(RadixNode(rest, parent, self.clock))
            parent.children[rest[0]] = walked[-1]
        for node in walked:
            node.requests += 1


def radix_tree_hits(prompts, lookups, held, capacity, policy="lru"):
    """Whole nodes go, the leaf of lowest rank first, until a request's new blocks and one more fit."""
    tree, hits = RadixTree(), []
    for prompt, lookup, blocks_held in zip(prompts, lookups, held, strict=True):
        found = tree.walk(prompt[:lookup])
        hits.append(sum(len(node.contents) for node in found))
        for node in found:
            node.locked = True
        new = blocks_held - hits[-1]
        while capacity - tree.blocks() < new + 1 and tree.evict_one_leaf(RANKS[policy]):
            pass
        for node in found:
            node.locked = False
        if capacity - tree.blocks() >= new:
            tree.insert(prompt)
    return hits


def block_queue_hits(prompts, lookups, held, capacity):
    """Blocks wait in a queue, empty ones in front; a lookup takes the copy of a block that came first."""
    queue, contents, copies, hits = list(range(capacity)), {}, {}, []
    for prompt, lookup, blocks_held in zip(prompts, lookups, held, strict=True):
        if blocks_held > capacity:
            hits.append(0)
            continue
        path, taken = blocks_of(prompt), []
        for block in path[:lookup]:
            if not copies.get(block):
                break
            taken.append(copies[block][0])
            queue.remove(taken[-1])
        hits.append(len(taken))
        while len(taken) < blocks_held:
            taken.append(queue.pop(0))
            if taken[-1] in contents:
                copies[contents.pop(taken[-1])].remove(taken[-1])
        for place in range(hits[-1], len(path)):
            contents[taken[place]] = path[place]
            copies.setdefault(path[place], []).append(taken[place])
        queue = taken[len(path) :] + queue + taken[: len(path)][::-1]
    return hits

"""vLLM's prefix cache of hybrid models as anybody would write it down: block by block, with dictionaries."""

from __future__ import annotations

from collections import OrderedDict

from oracles_hybrid import Group, ceil_div, prefixes

GAP, RAW = 0, -1
"""Places of a block table that hold nothing, or what cannot be found; all others are copies."""


def skipped(group: Group, computed):
    """How many blocks in front the next token does not see."""
    if group.kind == "window":
        return max(0, computed - group.span + 1) // group.block
    if group.kind == "local":
        return computed // group.span * group.span // group.block
    if group.kind == "state":
        return max(0, computed - 1) // group.block
    return 0


class VllmHybrid:
    """A pool of ``capacity`` usable blocks, one request at a time."""

    def __init__(self, groups, alignment, capacity, id_tokens, retention=0, step_tokens=0, in_flight=False):
        self.groups, self.alignment, self.id_tokens = groups, alignment, id_tokens
        self.retention, self.in_flight = retention, in_flight
        self.step_tokens = step_tokens or 1 << 40
        self.empty, self.queue, self.contents, self.n_copies = capacity, OrderedDict(), {}, 0
        self.copies = [{} for _ in groups]
        alike = {}
        for place, group in enumerate(groups):
            alike.setdefault(group[:3], []).append(place)
        self.specs = sorted(alike.values(), key=lambda places: groups[places[0]].kind != "full")
        under_way = step_tokens * (2 if in_flight else 1)
        self.caps = [None] * len(groups)
        for place, group in enumerate(groups if step_tokens else ()):
            if group.kind == "window":
                self.caps[place] = ceil_div(group.span - 1 + under_way, group.block) + 1
            elif group.kind == "local":
                self.caps[place] = ceil_div(group.span + under_way, group.block)

    def free_blocks(self):
        return self.empty + len(self.queue)

    def take(self, blocks):
        for _ in range(blocks):
            if self.empty:
                self.empty -= 1
                continue
            copy, _ = self.queue.popitem(last=False)
            place, name = self.contents.pop(copy)
            if name is not None:
                del self.copies[place][name][copy]
                if not self.copies[place][name]:
                    del self.copies[place][name]

    def hand_back(self, entries):
        for entry in entries:
            if entry == RAW:
                self.empty += 1
            elif entry != GAP:
                self.queue[entry] = None

    def add_copy(self, place, name):
        self.n_copies += 1
        self.contents[self.n_copies] = place, name
        if name is not None:
            self.copies[place].setdefault(name, {})[self.n_copies] = None
        return self.n_copies

    def longest(self, places, names, limit):
        """The longest prefix of at most ``limit`` tokens that groups of one spec can go on from."""
        group = self.groups[places[0]]
        size = group.block
        n_blocks = limit // size

        def has(block):
            return all(names[size][block] in self.copies[place] for place in places)

        if group.kind in ("full", "local"):
            end = limit // group.span * group.span // size if group.kind == "local" else 0
            while end < n_blocks and has(end):
                end += 1
            tokens = end * size
            return tokens if group.kind == "local" else tokens // self.alignment * self.alignment
        needed = max(1, ceil_div(group.span - 1, size)) if group.kind == "window" else 1
        for end in range(n_blocks, 0, -1):
            if end * size % self.alignment == 0 and all(has(b) for b in range(max(0, end - needed), end)):
                return end * size
        return 0

    def lookup(self, names, tokens):
        """The tokens that hit, and the junction, or 0."""
        hit, junction, dense = tokens - 1, 0, {}
        while True:
            reached = hit
            for places in self.specs:
                if places[0] in dense:
                    reached = min(reached, dense[places[0]])
                    continue
                reached = self.longest(places, names, reached)
                if self.groups[places[0]].kind == "full":
                    dense[places[0]] = reached
                junction = max(junction, reached)
            if reached >= hit:
                break
            hit = reached
            if len(self.specs) == 2 and dense:
                break
        return hit, junction if junction > hit else 0

    def found_later(self, group, first, end, ends):
        """Which of the blocks from ``first`` to ``end`` can be found once they are computed."""
        blocks = range(first, end)
        if group.kind in ("full", "local"):
            return set(blocks)
        needed = ceil_div(group.span - 1, group.block) if group.kind == "window" else 1
        period = self.retention
        if period is None:
            period = self.alignment if group.kind == "window" else group.block
        found = set()
        if period:
            per = max(1, period // group.block)
            found = {block for block in blocks if needed >= per or block % per >= per - needed}
        if self.retention is not None:
            for tokens in ends:
                last = tokens // self.alignment * self.alignment // group.block
                found.update(block for block in blocks if last - needed <= block < last)
        return found

    def extra_states(self, group, prompt, start, end):
        """One where the last step of a prompt writes the state before its end as well."""
        if not group.checkpoint or (self.retention == 0 and end < prompt):
            return 0
        boundary = (end - 1) // self.alignment * self.alignment
        block = ceil_div(end, group.block) - 2
        return int(
            start % self.alignment == 0
            and block > (start - 1) // group.block
            and block >= 0
            and start + self.alignment <= boundary
        )

    def step_end(self, start, prompt, junction):
        end = min(prompt, start + self.step_tokens)
        for group in [group for group in self.groups if group.kind == "state"][:1]:
            size = group.block
            if end < prompt and (end // size * size > start or size <= self.step_tokens):
                end = end // size * size
            stops = []
            if end < prompt or not self.extra_states(group, prompt, start, end):
                stops.append((prompt - 1) // size * size)
                if start % size:
                    stops.append((start // size + 1) * size)
            if start < junction < end:
                stops.append(start + (junction - start) // size * size)
            end = min([stop for stop in stops if start < stop < end], default=end)
        return end

    def fits(self, tables, prompt, hit, first_end):
        for end, whole in ((prompt, True), (first_end, False)):
            blocks = 0
            for group, cap, table in zip(self.groups, self.caps, tables, strict=True):
                total = ceil_div(end, group.block)
                if whole and cap is not None:
                    total = min(total, cap)
                new = max(0, total - len(table))
                if group.kind == "state":
                    new = min(new, 1 + self.extra_states(group, prompt, hit, end))
                blocks += new + sum(entry != GAP for entry in table)
            if blocks > self.free_blocks():
                return False
        return True

    def allocate(self, tables, prompt, start, end):
        wanted = []
        for group, table in zip(self.groups, tables, strict=True):
            new = max(0, ceil_div(end, group.block) - len(table))
            gaps = 0
            if group.kind == "state":
                gaps = max(0, new - 1 - self.extra_states(group, prompt, start, end))
            wanted.append([GAP] * gaps + [RAW] * (new - gaps))
        if sum(places.count(RAW) for places in wanted) > self.free_blocks():
            return False
        for table, places in zip(tables, wanted, strict=True):
            self.take(places.count(RAW))
            table.extend(places)
        return True

    def request(self, prompt):
        """Run a prompt; return the tokens that hit, or -1 if it does not fit."""
        names = {
            group.block: prefixes(prompt, self.id_tokens, group.block, object()) for group in self.groups
        }
        hit, junction = self.lookup(names, prompt.tokens)
        tables = []
        for group, copies in zip(self.groups, self.copies, strict=True):
            end = hit // group.block
            first = min(skipped(group, hit), end)
            found = [next(iter(copies[names[group.block][block]])) for block in range(first, end)]
            tables.append([GAP] * first + found)
        if not self.fits(tables, prompt.tokens, hit, self.step_end(hit, prompt.tokens, junction)):
            return -1
        for table in tables:
            for entry in table:
                if entry != GAP:
                    del self.queue[entry]
        seen = [len(table) for table in tables]
        done, known, last_step = hit, prompt.tokens, 0
        while done < prompt.tokens + prompt.generated:
            end = self.step_end(done, prompt.tokens, junction) if done < prompt.tokens else done + 1
            if done > hit:
                for group, table in zip(self.groups, tables, strict=True):
                    first = min(len(table), skipped(group, done - last_step * self.in_flight))
                    self.hand_back(reversed(table[:first]))
                    table[:first] = [GAP] * first
            if done >= prompt.tokens + self.in_flight:
                known += 1
            if not self.allocate(tables, prompt.tokens, done, end):
                for table in tables:
                    self.hand_back(reversed(table))
                return -1
            last_step, done = end - done, end
            computed = min(done, known) // self.alignment * self.alignment
            for place, (group, table) in enumerate(zip(self.groups, tables, strict=True)):
                last = max(seen[place], computed // group.block)
                ends = (prompt.tokens - 1, junction)
                for block in self.found_later(group, seen[place], last, ends):
                    if table[block] == RAW:
                        of_size = names[group.block]
                        table[block] = self.add_copy(place, of_size[block] if block < len(of_size) else None)
                seen[place] = last
        for table in tables:
            self.hand_back(reversed(table))
        return hit

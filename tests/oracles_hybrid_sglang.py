"""SGLang's prefix cache of hybrid models as anybody would write it down: a radix tree of tokens with times.

Full attention alone, beside sliding windows, or beside states; one request at a time.
"""

from __future__ import annotations

from itertools import count
from math import lcm

INFINITE = float("inf")


class FullError(Exception):
    """There is not enough left that could be evicted."""


class Node:
    def __init__(self, tokens, start, parent):
        self.tokens, self.start, self.parent, self.children = tokens, start, parent, {}
        self.last_use = 0
        self.window = self.state = False
        self.locked = self.window_locked = self.state_locked = False

    @property
    def end(self):
        return self.start + len(self.tokens)

    def up(self):
        """The node and its ancestors, without the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent


class Run:
    """What a request has at some moment.

    The tree has tokens up to ``own``; its own window content in front of ``gone`` is free again; ``computed``
    tokens are there; ``held`` states are its own.
    """

    def __init__(self, tokens, prompt, hit):
        self.tokens, self.prompt = tokens, prompt
        self.own = self.computed = hit
        self.gone, self.held, self.tracked = 0, 0, None
        self.window_branch = self.state_branch = None


class SglangHybrid:
    def __init__(
        self,
        capacity,
        id_tokens,
        *,
        page=1,
        window=None,
        window_pool=0,
        states=None,
        step_tokens=8192,
        extra_buffer=True,
        track_tokens=256,
        state_step=64,
        slide_every=128,
    ):
        self.id_tokens, self.page, self.window, self.step_tokens = id_tokens, page, window, step_tokens
        self.capacity = self.free = capacity
        self.window_capacity = self.window_free = window_pool
        self.has_states, self.states_free = states is not None, states or 0
        self.extra_buffer, self.state_step, self.slide_every = extra_buffer, state_step, slide_every
        self.grid = lcm(max(state_step, page), page)
        self.track_every = lcm(self.grid, track_tokens)
        self.root, self.clock, self.private = Node([], 0, None), 0, count(-1, -1)
        self.window_order, self.state_order, self.locks = [], [], []

    def up(self, tokens):
        return -(-tokens // self.page) * self.page

    def down(self, tokens):
        return tokens // self.page * self.page

    # The tree
    def now(self):
        self.clock += 1
        return self.clock

    def nodes(self):
        found = [self.root]
        for node in found:
            found.extend(node.children.values())
        return found[1:]

    def first_page(self, tokens):
        return tuple(tokens[: self.page])

    def shared(self, node, tokens, end):
        """How many whole pages of tokens a node shares with a sequence."""
        n = 0
        while n < min(len(node.tokens), end - node.start) and node.tokens[n] == tokens[node.start + n]:
            n += 1
        return self.down(n)

    def split(self, node, n):
        """Cut a node; return the new front. The rest, with a state, counts as used just now."""
        front = Node(node.tokens[:n], node.start, node.parent)
        front.last_use = self.now()
        front.parent.children[self.first_page(front.tokens)] = front
        node.tokens, node.start, node.parent = node.tokens[n:], node.start + n, front
        front.children[self.first_page(node.tokens)] = node
        if node.window:
            front.window = True
            self.window_order.insert(self.window_order.index(node), front)
        node.last_use = self.now()
        return front

    def drop(self, node):
        self.free += len(node.tokens)
        self.drop_window(node)
        self.drop_state(node)
        del node.parent.children[self.first_page(node.tokens)]

    def drop_window(self, node):
        if node.window:
            node.window = False
            self.window_order.remove(node)
            self.window_free += len(node.tokens)

    def drop_state(self, node):
        if node.state:
            node.state = False
            self.state_order.remove(node)
            self.states_free += 1

    def evict(self, tokens=0, window=0, states=0):
        """Free so much more: oldest leaves, then oldest window content, then oldest states."""
        tokens, window, states = self.free + tokens, self.window_free + window, self.states_free + states
        while self.free < tokens:
            leaves = [node for node in self.nodes() if not node.children and not node.locked]
            if not leaves:
                break
            self.drop(min(leaves, key=lambda node: node.last_use))
        self.evict_from(
            self.window_order, "window_locked", self.drop_window, lambda: self.window_free < window
        )
        self.evict_from(self.state_order, "state_locked", self.drop_state, lambda: self.states_free < states)

    def evict_from(self, order, lock, drop_content, is_short):
        while is_short():
            node = next((node for node in order if not getattr(node, lock)), None)
            if node is None:
                return
            if node.children or node.locked:
                drop_content(node)
            else:
                self.drop(node)

    def lock(self, node):
        self.unlock()
        covered = 0
        for above in node.up():
            above.locked = True
            if self.window is not None and covered < self.window:
                above.window_locked = True
            covered += len(above.tokens)
        node.state_locked = self.has_states
        self.locks = [*node.up(), node]

    def unlock(self):
        for node in self.locks:
            node.locked = node.window_locked = node.state_locked = False
        self.locks = []

    def touch_window(self, node):
        """Make the window that ends with a node newest, the node itself newest of all."""
        if self.window is None:
            return
        place, covered = len(self.window_order), 0
        for above in node.up():
            if covered >= self.window + self.page:
                return
            if above.window:
                self.window_order.remove(above)
                place -= 1
                self.window_order.insert(place, above)
            covered += len(above.tokens)

    def touch_state(self, node):
        if node.state:
            self.state_order.remove(node)
        node.state = True
        self.state_order.append(node)

    def match(self, tokens, end):
        """The deepest node that can be resumed from, and how far the tree goes on."""
        end = self.down(end)
        node, best, place, covered = self.root, self.root, 0, INFINITE
        while place < end:
            child = node.children.get(self.first_page(tokens[place:end]))
            if child is None:
                break
            n = self.shared(child, tokens, end)
            is_cut = n < len(child.tokens)
            node = self.split(child, n) if is_cut else child
            place += n
            covered = covered + n if node.window else 0
            if (self.window is None or covered >= self.window) and (node.state or not self.has_states):
                best = node
            if is_cut:
                break
        self.touch_window(best)
        if best.state:
            self.touch_state(best)
        now = self.now()
        for depth, above in enumerate(best.up()):
            above.last_use = now - depth * 1e-6
        return best, place

    def insert(self, run, end, with_state):
        """Give the tree tokens of a run; return the node that ends there, and whether it had a state."""
        node, place, had_state = self.root, 0, False
        if end == 0:
            return node, True
        while place < end:
            child = node.children.get(self.first_page(run.tokens[place:end]))
            if child is None:
                break
            child.last_use = self.now()
            n = self.shared(child, run.tokens, end)
            node = self.split(child, n) if n < len(child.tokens) else child
            self.merge(run, node, place, place + n)
            place += n
        is_new = place < end
        if is_new:
            child = Node(run.tokens[place:end], place, node)
            child.last_use = self.now()
            node.children[self.first_page(child.tokens)] = child
            node = child
            if self.window is not None:
                self.begin_window(run, node)
        if self.has_states and with_state:
            had_state = node.state
            self.touch_state(node)
            node.last_use = self.now()
        self.touch_window(node)
        return node, had_state

    def merge(self, run, node, start, end):
        """Free what the run computed again; a node without window content takes over the run's."""
        if end <= run.own:
            return
        taken = end
        if self.window is not None:
            if not node.window:
                taken = max(start, run.gone)
                if taken < end:
                    if taken > start:
                        self.split(node, taken - start)
                    node.window = True
                    self.window_order.append(node)
                else:
                    taken = end
            self.window_free += max(0, taken - max(run.own, start, run.gone))
        self.free += end - max(run.own, start)

    def begin_window(self, run, node):
        """Cut a new node where its window content begins, and a window before its end."""
        start = max(node.start, run.gone)
        if start >= node.end:
            return
        if start > node.start:
            self.split(node, start - node.start)
        tail = self.up(self.window)
        if len(node.tokens) > tail:
            front = self.split(node, len(node.tokens) - tail)
            front.window = True
            self.window_order.append(front)
        node.window = True
        self.window_order.append(node)

    # The pools
    def make_room(self, tokens):
        short = max(0, tokens - self.free)
        short_window = max(0, tokens - self.window_free) if self.window is not None else 0
        if short or short_window:
            self.evict(short, short_window)

    def take(self, start, end, spare):
        self.make_room(end - start + spare)
        tokens = self.up(end) - self.up(start)
        if tokens > self.free or (self.window is not None and tokens > self.window_free):
            raise FullError
        self.free -= tokens
        if self.window is not None:
            self.window_free -= tokens

    def take_states(self, states):
        self.evict(states=max(0, states - self.states_free))
        if self.states_free < states:
            raise FullError
        self.states_free -= states

    # One request
    def request(self, prompt, output):
        """Run a prompt; return the tokens that hit, or -1 if it does not fit."""
        n = prompt.tokens
        if n + min(output, 4096) + self.page >= self.capacity:
            return -1
        covered = min(n, len(prompt.ids) * self.id_tokens)
        size = self.id_tokens
        tokens = [prompt.ids[p // size] * size + p % size for p in range(covered)]
        tokens += [next(self.private) for _ in range(n + max(0, output - 1) - covered)]
        best, depth = self.match(tokens, n - 1)
        run = Run(tokens, n, best.end)
        if self.window is not None and self.down(depth) > run.own:
            run.window_branch = self.down(depth)
        if self.has_states and depth // self.grid * self.grid > run.own:
            run.state_branch = depth // self.grid * self.grid
        self.lock(best)
        try:
            self.compute(run, best, output)
        except FullError:
            return -1
        finally:
            self.free += self.up(run.computed) - run.own
            if self.window is not None:
                self.window_free += max(0, self.up(run.computed) - max(run.own, run.gone))
            self.states_free += run.held
            self.unlock()
        return best.end

    def compute(self, run, best, output):
        if best.state:
            self.take_states(1)
            run.held = 1
        step_tokens = self.first_step(run, output)
        if self.has_states:
            states = (0 if run.held else 1) + (2 if self.extra_buffer else 0)
            self.take_states(states)
            run.held += states
        while True:
            end = min(run.prompt, run.computed + step_tokens)
            step_tokens = self.step_tokens
            self.take(run.computed, end, self.page if self.page > 1 else 0)
            if self.has_states and self.extra_buffer:
                self.track(run, end)
            run.computed = end
            if end == run.prompt:
                break
            self.publish(run, is_last=False)
        if output > 1:
            self.publish(run, is_last=False)
            for made in range(1, output):
                self.decode(run, made, is_last=made + 1 == output)
        self.publish(run, is_last=True)

    def first_step(self, run, output):
        """A step that the window pool can never hold is made smaller."""
        if self.window is None:
            return self.step_tokens
        rest = self.up(run.prompt - run.own)
        new = min(output, 4096)
        need = max(min(rest, self.step_tokens) - self.window, 0) + min(rest + new, self.window) + self.page
        locked = sum(len(node.tokens) for node in set(self.locks) if node.window_locked and node.window)
        left = self.window_capacity - locked
        if need < left:
            return self.step_tokens
        tokens = self.down(max(0, left - min(new, self.window) - self.page))
        if need < self.window_capacity or tokens == 0:
            raise FullError
        return min(self.step_tokens, tokens)

    def track(self, run, end):
        """Remember the depth at which a step leaves a state behind."""
        start = run.computed
        if end - start < self.grid:
            return
        run.tracked = start + (end - start) // self.grid * self.grid
        at_end = start + (end - start) // self.state_step * self.state_step == run.tracked
        seen = end if at_end else run.tracked + 1
        branch = run.state_branch
        if branch is None or not start < branch < seen:
            return
        if (branch - start) % max(self.state_step, self.page) == 0:
            run.tracked = branch

    def slide(self, run, tokens, every=1):
        """Free the window content that no later token sees."""
        if tokens - self.window < run.gone + every:
            return
        run.gone = max(run.gone, run.own)
        gone = self.down(max(run.gone, tokens - self.up(max(self.window, self.page))))
        self.window_free += gone - run.gone
        run.gone = gone

    def publish(self, run, *, is_last):
        end, branch = run.computed, None
        if run.window_branch is not None and run.own < run.window_branch <= end:
            end = branch = run.window_branch
        if self.has_states:
            at = run.tracked if self.extra_buffer else end
            run.tracked = None
            if not at:
                return
            end = min(end, at)
            if not is_last:
                self.take_states(1)
        if self.window is not None and not is_last:
            self.slide(run, end - 1)
        end = self.down(end)
        node, had_state = self.insert(run, end, self.has_states)
        prompt_end = self.down(run.prompt)
        if self.window is None and not self.has_states and 0 < prompt_end < end:
            self.insert(run, prompt_end, False)
        if self.has_states:
            if is_last and not had_state:
                run.held -= 1
            elif not is_last and had_state:
                self.states_free += 1
        self.lock(node)
        run.own = end
        if branch is not None and end >= branch:
            run.window_branch = None
            if not is_last:
                self.slide(run, run.computed - 1)

    def decode(self, run, made, *, is_last):
        place = run.prompt + made - 1
        if self.window is not None and made > 1:
            self.slide(run, place, self.slide_every)
        if place % self.page == 0:
            self.take(place, place + 1, self.page - 1)
            if not is_last and self.page > 1:
                self.make_room(self.page)
        else:
            self.make_room(self.page)
        run.computed = place + 1
        if self.has_states and self.extra_buffer and run.computed % self.track_every == 0:
            run.tracked = run.computed

"""Random traces for hypothesis: prefix forests with reuse, odd requests included."""

from __future__ import annotations

from hypothesis import strategies as st


@st.composite
def prefix_forests(draw: st.DrawFn, max_requests: int = 14) -> list[list[int]]:
    """Requests of small ids, many of which extend or cut a prefix of an earlier one.

    Empty requests, repeated ids, single blocks and exact repeats all occur.
    """
    requests: list[list[int]] = []
    for _ in range(draw(st.integers(0, max_requests))):
        tail = draw(st.lists(st.integers(0, 4), max_size=6))
        if requests and draw(st.booleans()):
            earlier = draw(st.sampled_from(requests))
            tail = earlier[: draw(st.integers(0, len(earlier)))] + tail
        requests.append(tail)
    return requests


def chunkings(n_requests: int, max_cuts: int = 4) -> st.SearchStrategy[list[int]]:
    """Ascending cuts of ``n_requests`` into chunks, from 0 to ``n_requests``."""
    cuts = st.lists(st.integers(0, n_requests), max_size=max_cuts)
    return cuts.map(lambda middle: sorted({0, n_requests, *middle}))

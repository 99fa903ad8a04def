"""What hit although the log had not shown it before, and what speaks for which reading of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kvcap.kernels.observed.waterfall import CLASSES

if TYPE_CHECKING:
    from kvcap.analysis.explain.observed import ObservedLog
    from kvcap.kernels.observed.waterfall import Waterfall

_TENTHS: Final = 10
_UNSEEN: Final = (CLASSES.index("never_seen"), CLASSES.index("partial_block"))


@dataclass(frozen=True)
class Surplus:
    """Tokens that hit beyond all that the log had shown, by where they lie.

    Attributes
    ----------
    within_a_block
        Less than a block of a request: how blocks are counted.
    generated
        As many as the request before had generated: answers that stayed in the cache.
    unlogged
        All others: cached before the log starts, or by requests that it lacks.
    unlogged_by_tenth
        The same by tenth of the log.
    """

    within_a_block: int
    generated: int
    unlogged: int
    unlogged_by_tenth: tuple[int, ...]

    @property
    def is_early(self) -> bool:
        """Whether what is not in the log came before it, rather than all along."""
        first = sum(self.unlogged_by_tenth[:3])
        return self.unlogged > 0 and first >= 0.8 * self.unlogged


def surplus(log: ObservedLog, found: Waterfall) -> Surplus:
    """Return what hit beyond all that the log had shown."""
    tokens = found.hit[:, _UNSEEN].sum(axis=1)
    own, pooled = log.prompts.own_tokens, log.prompts.known_tokens
    source = np.full(log.n_requests, -1, np.int64)
    source[log.runs.request] = log.runs.source_request
    left = log.prompts.input_tokens[source] + log.output_tokens[source] - np.maximum(own, pooled)
    generated = np.where(source >= 0, left, 0)
    is_small = tokens < log.block_size
    is_generated = ~is_small & (tokens <= generated)
    unlogged = np.where(is_small | is_generated, 0, tokens)
    tenth = np.arange(log.n_requests) * _TENTHS // max(1, log.n_requests)
    by_tenth = np.zeros(_TENTHS, np.int64)
    np.add.at(by_tenth, tenth, unlogged)
    return Surplus(
        within_a_block=int(tokens[is_small].sum()),
        generated=int(tokens[is_generated].sum()),
        unlogged=int(unlogged.sum()),
        unlogged_by_tenth=tuple(by_tenth.tolist()),
    )

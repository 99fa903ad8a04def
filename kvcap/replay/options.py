"""What a replay is told, with its defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from kvcap.blocks import PartialBlock
    from kvcap.models import ModelBytes

TouchOrder = Literal["tail-first", "head-first"]

DEFAULT_TOUCH_ORDER: Final[TouchOrder] = "tail-first"
DEFAULT_TARGET: Final = Fraction(99, 100)
DEFAULT_WARM_UP: Final = Fraction(0)


@dataclass(frozen=True)
class ReplayOptions:
    """What a replay is told.

    Parameters
    ----------
    kv_bytes_per_token
        Exact bytes of one token's keys and values; None gives answers in blocks and tokens.
    model_bytes
        A model and its deployment, in place of ``kv_bytes_per_token``.
    estimate_tokens
        Sequence length at which a model that is not linear in tokens is taken; None takes the mean
        input length of the trace.
    block_size
        Tokens per block: of a token trace (None: 64), or of hash ids that declare none.
    coarsen
        How many consecutive blocks become one.
    partial_block
        Whether an incomplete last block counts; None drops it in token traces, keeps it in hash traces.
    touch_order
        ``tail-first`` evicts leaves first; ``head-first`` is plain LRU front to back.
    target
        Share of its own ceiling that a request must reach, 0 < target <= 1.
    warm_up
        Share of the requests, from the first, that only fill the cache.
    """

    kv_bytes_per_token: Fraction | None = None
    model_bytes: ModelBytes | None = None
    estimate_tokens: int | None = None
    block_size: int | None = None
    coarsen: int = 1
    partial_block: PartialBlock | None = None
    touch_order: TouchOrder = DEFAULT_TOUCH_ORDER
    target: Fraction = field(default=DEFAULT_TARGET)
    warm_up: Fraction = field(default=DEFAULT_WARM_UP)

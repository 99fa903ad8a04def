"""What a replay is told, with its defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal

from kvcap.errors import UsageError

if TYPE_CHECKING:
    from kvcap.blocks import PartialBlock
    from kvcap.models import ModelBytes

TouchOrder = Literal["tail-first", "head-first"]
Policy = Literal["lru", "fifo", "optimal", "vllm-lru", "sglang-lru"]
Oversize = Literal["keep", "drop"]

POLICIES: Final[tuple[Policy, ...]] = ("lru", "fifo", "optimal", "vllm-lru", "sglang-lru")

DEFAULT_TOUCH_ORDER: Final[TouchOrder] = "tail-first"
DEFAULT_TARGET: Final = Fraction(99, 100)
DEFAULT_WARM_UP: Final = Fraction(0)
DEFAULT_TOKEN_BLOCK_SIZE: Final = 64


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
    engine
        Whose rules the options below follow, for the record; see :func:`kvcap.replay.engine_options`.
    compute_last_token
        Whether one token of every prompt has to be computed, so that at most ``floor((n - 1) /
        block_size)`` blocks of a prompt of n tokens hit.
    output_blocks
        Whether generated tokens enter the cache: from ``output_ids`` where a request has them, otherwise
        from ``output_length`` as blocks that no other request knows.
    token_block_size
        Tokens per block of a token trace without ``block_size``.
    chunk_tokens
        Tokens of a block after coarsening, in place of ``coarsen``.
    policies
        What to simulate at every one of ``capacities``, each pool on its own.
    capacities
        Comma list, as ``--capacities`` takes it; None for the defaults.
    capacity_factor
        Share of a capacity that holds data, above 0 to 1.
    reserve_blocks
        Blocks of every capacity that running requests hold for other than cached data. Simulations
        are made without them as well, as a bound.
    oversize
        ``drop`` takes a request that is larger than a capacity out of the stream there.
    request_hits
        Whether to keep every request's hits in every simulation.
    max_capacity
        The largest capacity of interest, such as ``64TiB``: what was last used deeper than that is
        forgotten, so that memory is bounded. Capacities up to it stay exact.
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
    engine: str | None = None
    compute_last_token: bool = False
    output_blocks: bool = False
    token_block_size: int = DEFAULT_TOKEN_BLOCK_SIZE
    chunk_tokens: int | None = None
    policies: tuple[Policy, ...] = ()
    capacities: str | None = None
    capacity_factor: Fraction = Fraction(1)
    reserve_blocks: int = 0
    oversize: Oversize = "keep"
    request_hits: bool = False
    max_capacity: str | None = None

    def __post_init__(self) -> None:
        unknown = [policy for policy in self.policies if policy not in POLICIES]
        if unknown:
            raise UsageError(f"policy is {unknown[0]!r}, expected one of {', '.join(POLICIES)}")
        if not 0 < self.capacity_factor <= 1:
            raise UsageError(f"capacity factor is {self.capacity_factor}, expected a number above 0 to 1")
        rules = self.capacity_factor != 1 or self.reserve_blocks or self.oversize != "keep"
        if not self.policies and (rules or self.request_hits):
            raise UsageError(
                "capacity rules and hits by request belong to simulations: expected policies with them"
            )
        if self.chunk_tokens is not None and self.coarsen != 1:
            raise UsageError("chunk tokens already say how blocks become larger, expected no coarsening")
        if self.max_capacity is not None and (set(self.policies) - {"lru"} or self.oversize == "drop"):
            raise UsageError("--max-capacity bounds plain LRU, expected no other policy and no oversize drop")

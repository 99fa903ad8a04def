"""What a routing what-if answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DealtInstance:
    """What one instance was dealt, measured requests only; computed tokens are those that did not hit."""

    requests: int
    input_tokens: int
    computed_tokens: int
    hit_blocks: int


@dataclass(frozen=True)
class RouteRow:
    """One way of dealing to one number of instances, or (``policy`` None) one shared pool of their total.

    Attributes
    ----------
    policy, instances
        How, and to how many.
    capacity_blocks
        Size of each cache: of every instance, or of the shared pool.
    hit_blocks, hit_tokens, block_hit_rate, token_hit_rate
        Over the measured requests; rates are None where nothing was asked.
    ceiling_block_hit_rate
        With unlimited caches.
    distinct_blocks
        What unlimited caches would hold in the end, copies included.
    held_blocks, different_held_blocks
        What the caches hold after the last request, with and without copies.
    requests_peak, input_tokens_peak, computed_tokens_peak
        Of the busiest instance, as a multiple of the mean; None for the shared pool.
    matching_capacity_blocks
        Capacity per instance from which this dealing hits as many blocks as the shared pool; None where
        none does, and for what deals by caches.
    deals_by_caches
        Whether decisions depend on what caches of this size hold.
    per_instance
        Empty for the shared pool.
    busiest_instance
        Which one was dealt most requests; None for the shared pool.
    checked_against, parameters
        Of a router: the version whose decisions its rule was compared with, and all of its parameters.
    draws
        How often a router was run: once where it draws nothing. The row is that of the first draw.
    drawn_share
        Decisions that a router draws among several instances, as a share of all.
    token_hit_rate_low, token_hit_rate_high, requests_peak_low, requests_peak_high
        Over the draws of a router.
    in_flight_peak
        Most requests in flight on one instance; None except for a router that looks at that.
    """

    policy: str | None
    instances: int
    capacity_blocks: int
    hit_blocks: int
    hit_tokens: int
    block_hit_rate: float | None
    token_hit_rate: float | None
    ceiling_block_hit_rate: float | None
    distinct_blocks: int
    held_blocks: int
    different_held_blocks: int
    requests_peak: float | None
    input_tokens_peak: float | None
    computed_tokens_peak: float | None
    matching_capacity_blocks: int | None
    per_instance: tuple[DealtInstance, ...]
    busiest_instance: int | None = None
    deals_by_caches: bool = False
    checked_against: str | None = None
    parameters: dict[str, str] | None = None
    draws: int | None = None
    drawn_share: float | None = None
    token_hit_rate_low: float | None = None
    token_hit_rate_high: float | None = None
    requests_peak_low: float | None = None
    requests_peak_high: float | None = None
    in_flight_peak: int | None = None


@dataclass(frozen=True)
class RoutingAnswer:
    """The answer of a routing what-if.

    Attributes
    ----------
    requests, measured_requests, blocks, input_tokens
        Of the stream, and (the last two) of its measured requests.
    block_size, block_bytes
        Tokens and bytes of a full block; bytes are None when unknown.
    capacity_blocks
        Of each instance.
    has_load_window
        Whether loads cover a window of time, and not all of the stream so far.
    rows
        Per number of instances: the shared pool, then every policy.
    notices
        What is doubtful about routers or what they do, a sentence each.
    """

    requests: int
    measured_requests: int
    blocks: int
    input_tokens: int
    block_size: int
    block_bytes: int | None
    capacity_blocks: int
    has_load_window: bool
    rows: tuple[RouteRow, ...]
    notices: tuple[str, ...]

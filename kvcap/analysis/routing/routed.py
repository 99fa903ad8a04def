"""What real routers make of a stream: how long its requests are in flight, and who gets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kvcap.analysis.routing.deal import Stream, arrivals_us
from kvcap.errors import UsageError
from kvcap.routers.cache_aware import TreeRule
from kvcap.routers.clock import Decisions, Times, run, seeded
from kvcap.routers.rule import Instances, Prompts
from kvcap.routers.rules import RULES

if TYPE_CHECKING:
    from fractions import Fraction

    import pyarrow as pa

    from kvcap.analysis.routing.options import Policy, RouteOptions
    from kvcap.kernels.arrays import Int64Array
    from kvcap.routers.catalog import Router

CHARACTERS_PER_TOKEN: Final = 4
"""What a token stands for where a router compares texts and a log has ids."""

_TOLD: Final = "give --prefill-ms-per-token and --decode-ms-per-token"


@dataclass(frozen=True)
class Routed:
    """What a router did with a stream.

    Attributes
    ----------
    draws
        Its decisions, once for each draw; a single one where it drew nothing.
    table_length
        What its table of one instance, or of all, would hold in the end, in characters or tokens as
        :attr:`kvcap.routers.catalog.Router.table_length`; None where it has none.
    """

    draws: tuple[Decisions, ...]
    table_length: int | None


class RoutedStream:
    """A stream that routers can be put before.

    Parameters
    ----------
    stream
        The requests.
    block_size
        Tokens of a full block.
    columns
        Of the trace: when requests came and how long they took.
    options
        How to deal.
    """

    def __init__(self, stream: Stream, block_size: int, columns: pa.Table, options: RouteOptions) -> None:
        self._stream = stream
        self._columns = columns
        self._options = options
        self._prompts = Prompts(
            stream.paths,
            block_size * CHARACTERS_PER_TOKEN,
            stream.input_tokens * CHARACTERS_PER_TOKEN,
            stream.input_tokens,
            block_size,
        )

    def route(self, policy: Policy, n_instances: int) -> Routed:
        """Let a router decide on every request.

        Raises
        ------
        UsageError
            If it looks at requests in flight, and nothing says which these are.
        """
        router = policy.router
        assert router is not None
        times = self._times(router) if router.needs_times else _one_at_a_time(self._stream.input_tokens.size)
        instances = Instances(n_instances, self._stream.capacity_blocks, self._stream.tail_first)
        draws: list[Decisions] = []
        table = None
        for draw in range(self._options.draws):
            rule = RULES[router.name](self._prompts, instances, policy.parameters)
            draws.append(run(rule, times, seeded(self._options.seed + draw)))
            if draw == 0 and isinstance(rule, TreeRule):
                held = rule.seen.held_characters
                table = int(held.sum() if router.shares_table else held.max())
                table //= 1 if router.reads_text else CHARACTERS_PER_TOKEN
            if not draws[-1].drawn_requests:
                break
        return Routed(tuple(draws), table)

    def _times(self, router: Router) -> Times:
        """Return when every request arrives, has its first token, and ends."""
        timestamps = self._columns.column("timestamp")
        if timestamps.null_count:
            raise UsageError(
                f"{router.name} looks at requests in flight, and {timestamps.null_count:,} requests have no "
                "timestamp, expected one for each: name the field with --time-field, or leave this router out"
            )
        arrivals = arrivals_us(timestamps, self._options)
        options = self._options
        if options.prefill_ms_per_token is None and options.decode_ms_per_token is None:
            ends = self._known("duration_us", router)
            first_tokens = self._known("ttft_us", router) if router.hears_caches else ends
            return Times(arrivals, arrivals + first_tokens, arrivals + ends)
        first_tokens = arrivals + _microseconds(self._stream.input_tokens, options.prefill_ms_per_token or 0)
        if options.decode_ms_per_token is None:
            return Times(arrivals, first_tokens, first_tokens)
        outputs = self._known("output_length", router)
        return Times(
            arrivals, first_tokens, first_tokens + _microseconds(outputs, options.decode_ms_per_token)
        )

    def _known(self, name: str, router: Router) -> Int64Array:
        """Return a column of the trace that has to be there for every request."""
        column = self._columns.column(name)
        if column.null_count:
            advice = "" if name == "output_length" else f": {_TOLD}"
            raise UsageError(
                f"{router.name} looks at requests in flight, and {column.null_count:,} of {len(column):,} "
                f"requests have no {name}, expected one for each{advice}"
            )
        values: Int64Array = column.to_numpy().astype(np.int64)
        return values


def _microseconds(tokens: Int64Array, ms_per_token: Fraction | int) -> Int64Array:
    times: Int64Array = np.rint(tokens * float(1000 * ms_per_token)).astype(np.int64)
    return times


def _one_at_a_time(n_requests: int) -> Times:
    """Return a clock on which each request has ended before the next one arrives."""
    arrivals = np.arange(n_requests, dtype=np.int64)
    return Times(arrivals, arrivals, arrivals)

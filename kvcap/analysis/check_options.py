"""What must hold of a replay."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from kvcap.option_fields import option, percent, share, whole_number
from kvcap.units import Capacity, parse_capacity


@dataclass(frozen=True)
class CheckOptions:
    """What must hold; at least one.

    Parameters
    ----------
    max_p99
        Largest p99 of the capacity that requests required.
    min_hit_rate
        Smallest block hit rate at ``capacity``.
    min_token_hit_rate
        Smallest token hit rate at ``capacity``.
    capacity
        Of each pool; None is unlimited storage.
    min_requests
        Fewest measured requests: a log that came in short is found out.
    max_unexplained
        Largest share of the prompt tokens that an explanation leaves unexplained.
    """

    max_p99: Capacity | None = option(
        None, "largest p99 of the capacity that requests required", metavar="SIZE", parse=parse_capacity
    )
    min_hit_rate: Fraction | None = option(
        None, "smallest block hit rate at --capacity, above 0 to 1", metavar="RATE", parse=share
    )
    min_token_hit_rate: Fraction | None = option(
        None, "smallest token hit rate at --capacity, above 0 to 1", metavar="RATE", parse=share
    )
    capacity: Capacity | None = option(
        None,
        "where the hit rates are taken (default: unlimited storage)",
        metavar="SIZE",
        parse=parse_capacity,
    )
    min_requests: int | None = option(
        None, "fewest requests, to notice a short log", metavar="N", parse=whole_number(1)
    )
    max_unexplained: Fraction | None = option(
        None,
        "largest share of the prompt tokens that `kvcap explain` left unexplained, such as 2%",
        metavar="PERCENT",
        parse=percent(zero_allowed=True),
    )

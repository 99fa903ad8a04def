"""What is added to plain prefix caching, and what is simulated."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, get_args

from kvcap.engines.policies import POLICIES
from kvcap.errors import UsageError
from kvcap.option_fields import names, option, whole_number
from kvcap.units import decimal_text, parse_number

Oversize = Literal["keep", "drop"]

DEFAULT_CAPACITIES: Final = (
    "100GiB,200GiB,400GiB,800GiB,1TiB,2TiB,4TiB,6TiB,8TiB,12TiB,16TiB,24TiB,32TiB,64TiB"
)

_NAMES: Final = ", ".join(POLICIES)


@dataclass(frozen=True)
class Rules:
    """What is added to plain prefix caching, and what is simulated at every capacity.

    Parameters
    ----------
    policies
        What to simulate at every one of ``capacities``, each pool on its own.
    engine
        Whose rules these are, for the record; see :mod:`kvcap.engines.presets`.
    compute_last_token
        Whether one token of every prompt has to be computed, so that at most ``floor((n - 1) /
        block_size)`` blocks of a prompt of n tokens hit.
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

    Raises
    ------
    UsageError
        If a policy is unknown, a number out of its range, or a rule has no policy to act on.
    """

    policies: tuple[str, ...] = option(
        (),
        f"also simulate these at every capacity: comma list of {_NAMES} (default: none; with "
        "--engine its own)",
        metavar="LIST",
        parse=names,
    )
    engine: str | None = None
    compute_last_token: bool = option(
        False,
        "one token of every prompt has to be computed, so its last block may not hit",
        form="negatable",
    )
    capacities: str | None = option(
        None,
        "comma list of sizes such as 640GiB,2TiB,5000blocks,2.5Mtokens, or pow2 for 1GiB, 2GiB, ... 16TiB "
        f"(default: {DEFAULT_CAPACITIES}; a power-of-two grid in blocks without bytes per token)",
        metavar="LIST",
    )
    capacity_factor: Fraction = option(
        Fraction(1),
        "share of each capacity that holds data, above 0 to 1 (default: {default})",
        metavar="SHARE",
        parse=parse_number,
        show=decimal_text,
    )
    reserve_blocks: int = option(
        0,
        "blocks of each capacity that running requests hold for other than cached data, about one for each "
        "request in flight; hits without this reserve are given as the bound (default: {default})",
        metavar="N",
        parse=whole_number(0),
    )
    oversize: Oversize = option(
        "keep",
        "drop takes a request that is larger than a capacity out of the stream at that capacity (default: "
        "{default})",
        choices=get_args(Oversize),
    )
    request_hits: bool = option(False, "with --out: also keep every request's hits by policy and capacity")

    def __post_init__(self) -> None:
        unknown = [policy for policy in self.policies if policy not in POLICIES]
        if unknown:
            raise UsageError(f"policy is {unknown[0]!r}, expected one of {_NAMES}")
        if not 0 < self.capacity_factor <= 1:
            raise UsageError(f"capacity factor is {self.capacity_factor}, expected a number above 0 to 1")
        if not self.policies and (self.limits_capacity or self.request_hits):
            raise UsageError(
                "capacity rules and hits by request belong to simulations: expected policies with them"
            )

    @property
    def limits_capacity(self) -> bool:
        """Whether a capacity does not hold cached data of all requests throughout."""
        return self.capacity_factor != 1 or self.reserve_blocks > 0 or self.oversize != "keep"

"""What a routing what-if is told, with its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from fractions import Fraction
from typing import Final

from kvcap.errors import UsageError
from kvcap.option_fields import option, whole_number
from kvcap.routers.catalog import ROUTERS, Router, parameters_of
from kvcap.units import parse_number

IDEAL_PREFIX: Final = "ideal-prefix"
DEALINGS: Final = ("round-robin", "random", "session", "least-loaded", IDEAL_PREFIX)
"""Ways of dealing that are those of no router."""

_OPTION: Final = "--policy"
_OTHER_NAMES: Final = {"prefix": IDEAL_PREFIX}


@dataclass(frozen=True)
class Policy:
    """A way of dealing: one of :data:`DEALINGS`, or a router and all of its parameters."""

    name: str
    router: Router | None
    parameters: Mapping[str, float]


def policy_of(text: str) -> Policy:
    """Return the policy that a text such as ``sglang-cache-aware:cache-threshold=0.3`` stands for.

    Raises
    ------
    UsageError
        If there is no such policy or parameter.
    """
    name, colon, said = text.partition(":")
    name = _OTHER_NAMES.get(name, name)
    router = ROUTERS.get(name)
    if router is None and name not in DEALINGS:
        raise UsageError(f"{_OPTION} is {name!r}, expected some of {', '.join((*DEALINGS, *ROUTERS))}")
    given: dict[str, str] = {}
    for part in said.split(",") if colon else ():
        parameter, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"{_OPTION}: {part!r} of {name}, expected NAME=VALUE")
        given[parameter.strip()] = value.strip()
    if router is None:
        if colon:
            raise UsageError(f"{_OPTION}: {name} has no parameters, expected it alone")
        return Policy(name, None, {})
    return Policy(name, router, parameters_of(router, given, _OPTION))


def _policies(text: str, name: str) -> tuple[str, ...]:
    """Return the policies of a comma list, in which parameters follow their policy."""
    found: list[str] = []
    for part in text.split(","):
        if "=" in part and ":" not in part and found:
            found[-1] += f",{part.strip()}"
        elif part.strip():
            found.append(part.strip())
    if not found:
        raise UsageError(f"{name} is empty, expected names with commas between them")
    return tuple(dict.fromkeys(found))


def _numbers(text: str, name: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{name} is {text!r}, expected whole numbers such as 8,16") from None


@dataclass(frozen=True)
class RouteOptions:
    """How a stream is dealt.

    Parameters
    ----------
    capacity_per_instance
        Size of each instance's cache, as ``--capacity-per-instance`` takes it.
    instances
        Numbers of instances to try, each at least 1.
    policies
        ``round-robin``: one after the other. ``random``: independent draws. ``session``: sessions round
        robin as they begin, and all of a session to one instance; a request without one is a session of
        its own. ``least-loaded``: the least load. ``ideal-prefix`` (or ``prefix``): most leading hits, among
        the instances whose load is within the bound. A router of :data:`kvcap.routers.catalog.ROUTERS`, with
        parameters behind a colon: as it decides. None takes those that are no router's and that the log
        allows: ``session`` needs session ids.
    load_window_seconds
        The load of an instance is the input tokens that it was dealt in so many seconds up to the request;
        None, or a trace without timestamps, takes all of the stream so far.
    max_load_percent
        ``ideal-prefix``: an instance above this percentage of the mean load takes no request, at least 100.
    prefill_ms_per_token, decode_ms_per_token
        How long requests are in flight, for routers that look at it: for each prompt token until the first
        one comes out, then for each generated token. Either alone takes 0 for the other; None of both takes
        the log's own durations.
    arrival_speedup
        Requests arrive so many times as fast.
    seed
        Of ``random``, and of what routers draw.
    draws
        How often a router that draws is run, from ``seed`` on.

    Raises
    ------
    UsageError
        If a number is out of range, or there is no policy or number of instances.
    """

    capacity_per_instance: str = option(
        MISSING,
        "each instance's cache, such as 640GiB or 5000blocks; the shared pool has the total",
        metavar="SIZE",
    )
    instances: tuple[int, ...] = option(
        (16,),
        "comma list of numbers of instances to try (default: {default})",
        metavar="LIST",
        parse=_numbers,
        show=lambda numbers: ",".join(map(str, numbers)),
    )
    policies: tuple[str, ...] | None = option(
        None,
        "comma list of how to deal: round-robin, random, session (sticky), least-loaded, ideal-prefix "
        "(longest resident prefix, within a bound on loads) (default: all of these that the log allows); or "
        f"as a router does, with parameters as in NAME:cache-threshold=0.3: {', '.join(ROUTERS)}",
        _OPTION,
        metavar="LIST",
        parse=_policies,
    )
    load_window_seconds: Fraction | None = option(
        Fraction(60),
        "least-loaded and ideal-prefix: an instance's load is the prompt tokens dealt to it in so many "
        "seconds (default: {default}; all of the stream so far where a log has no timestamps)",
        metavar="S",
        parse=parse_number,
    )
    max_load_percent: int = option(
        125,
        "ideal-prefix: an instance above this percentage of the mean load takes no request "
        "(default: {default})",
        metavar="P",
        parse=whole_number(100),
    )
    prefill_ms_per_token: Fraction | None = option(
        None,
        "routers: a request waits so long for its first token, for each of its prompt tokens (default: as "
        "the log says)",
        metavar="MS",
        parse=parse_number,
    )
    decode_ms_per_token: Fraction | None = option(
        None,
        "routers: and then so long for each generated token (default: as the log says)",
        metavar="MS",
        parse=parse_number,
    )
    arrival_speedup: Fraction = option(
        Fraction(1),
        "requests arrive so many times as fast (default: {default})",
        metavar="X",
        parse=parse_number,
    )
    seed: int = option(
        0, "of random, and of what routers draw (default: {default})", metavar="N", parse=whole_number(0)
    )
    draws: int = option(
        5, "how often a router that draws is run (default: {default})", metavar="N", parse=whole_number(1)
    )

    def __post_init__(self) -> None:
        if not self.instances or min(self.instances) < 1:
            raise UsageError(f"--instances are {self.instances}, expected whole numbers from 1")
        if self.policies == ():
            raise UsageError(f"{_OPTION} is missing, expected some of {', '.join((*DEALINGS, *ROUTERS))}")
        for text in self.policies or ():
            policy_of(text)
        if self.draws < 1:
            raise UsageError(f"--draws is {self.draws}, expected at least 1")
        if self.arrival_speedup <= 0:
            raise UsageError(f"--arrival-speedup is {self.arrival_speedup}, expected more than 0")
        if self.max_load_percent < 100:
            raise UsageError(f"the load bound is {self.max_load_percent} %, expected at least 100 %")
        if self.load_window_seconds is not None and self.load_window_seconds <= 0:
            raise UsageError(f"the load window is {self.load_window_seconds} s, expected more than 0")

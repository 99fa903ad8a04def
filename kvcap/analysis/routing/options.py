"""What a routing what-if is told, with its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, get_args

from kvcap.errors import UsageError

Policy = Literal["round-robin", "random", "session", "least-loaded", "prefix"]

POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)
DEFAULT_LOAD_WINDOW_SECONDS: Final = Fraction(60)
DEFAULT_MAX_LOAD_PERCENT: Final = 125


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
        its own. ``least-loaded``: the least load. ``prefix``: most leading hits, among the instances
        whose load is within the bound. None takes all that the log allows: ``session`` needs session ids.
    load_window_seconds
        The load of an instance is the input tokens that it was dealt in so many seconds up to the request;
        None, or a trace without timestamps, takes all of the stream so far.
    max_load_percent
        ``prefix``: an instance above this percentage of the mean load takes no request, at least 100.
    seed
        Of ``random``.

    Raises
    ------
    UsageError
        If a number is out of range, or there is no policy or number of instances.
    """

    capacity_per_instance: str
    instances: tuple[int, ...] = (16,)
    policies: tuple[Policy, ...] | None = None
    load_window_seconds: Fraction | None = DEFAULT_LOAD_WINDOW_SECONDS
    max_load_percent: int = DEFAULT_MAX_LOAD_PERCENT
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.instances or min(self.instances) < 1:
            raise UsageError(f"--instances are {self.instances}, expected whole numbers from 1")
        unknown = [name for name in self.policies or () if name not in POLICIES]
        if unknown or self.policies == ():
            found = repr(unknown[0]) if unknown else "missing"
            raise UsageError(f"--policy is {found}, expected some of {', '.join(POLICIES)}")
        if self.max_load_percent < 100:
            raise UsageError(f"the load bound is {self.max_load_percent} %, expected at least 100 %")
        if self.load_window_seconds is not None and self.load_window_seconds <= 0:
            raise UsageError(f"the load window is {self.load_window_seconds} s, expected more than 0")

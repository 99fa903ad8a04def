"""What a routing what-if is told, with its defaults."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from fractions import Fraction
from typing import Final, Literal, get_args

from kvcap.errors import UsageError
from kvcap.option_fields import names, option, whole_number
from kvcap.units import parse_number

Dealing = Literal["round-robin", "random", "session", "least-loaded", "prefix"]

DEALINGS: Final[tuple[Dealing, ...]] = get_args(Dealing)


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
    policies: tuple[Dealing, ...] | None = option(
        None,
        "comma list of how to deal: round-robin, random, session (sticky), least-loaded, prefix (longest "
        "resident prefix, within a bound on loads) (default: all that the log allows)",
        "--policy",
        metavar="LIST",
        parse=names,
    )
    load_window_seconds: Fraction | None = option(
        Fraction(60),
        "least-loaded and prefix: an instance's load is the prompt tokens dealt to it in so many seconds "
        "(default: {default}; all of the stream so far where a log has no timestamps)",
        metavar="S",
        parse=parse_number,
    )
    max_load_percent: int = option(
        125,
        "prefix: an instance above this percentage of the mean load takes no request (default: {default})",
        metavar="P",
        parse=whole_number(100),
    )
    seed: int = option(0, "of random (default: {default})", metavar="N", parse=whole_number(0))

    def __post_init__(self) -> None:
        if not self.instances or min(self.instances) < 1:
            raise UsageError(f"--instances are {self.instances}, expected whole numbers from 1")
        unknown = [name for name in self.policies or () if name not in DEALINGS]
        if unknown or self.policies == ():
            found = repr(unknown[0]) if unknown else "missing"
            raise UsageError(f"--policy is {found}, expected some of {', '.join(DEALINGS)}")
        if self.max_load_percent < 100:
            raise UsageError(f"the load bound is {self.max_load_percent} %, expected at least 100 %")
        if self.load_window_seconds is not None and self.load_window_seconds <= 0:
            raise UsageError(f"the load window is {self.load_window_seconds} s, expected more than 0")

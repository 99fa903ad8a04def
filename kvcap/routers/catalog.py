"""Every router by name: its version, its parameters under its own names, and what its rule looks at.

Loads nothing heavy; :mod:`~kvcap.routers.rules` has the rules themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kvcap.errors import UsageError


@dataclass(frozen=True)
class Router:
    """One rule of one router.

    Attributes
    ----------
    name
        Router and rule.
    checked_against
        The version whose own decisions the rule was compared with.
    defaults
        Its parameters, under the names that the router itself gives them.
    needs_times
        Whether decisions depend on which requests are in flight.
    hears_caches
        Whether engines tell it what they hold, from each first token on.
    reads_text
        Whether it compares characters, which tokens and blocks only stand for.
    table_length
        Characters (or tokens, where it does not read text) that its tree keeps of each instance or
        (``shares_table``) of all, before it evicts what is old; None: no limit. The rule itself never evicts.
    shares_table
        See above.
    """

    name: str
    checked_against: str
    defaults: Mapping[str, float]
    needs_times: bool = True
    hears_caches: bool = False
    reads_text: bool = True
    table_length: int | None = None
    shares_table: bool = False


_CACHE_AWARE: Final = MappingProxyType(
    {"cache-threshold": 0.3, "balance-abs-threshold": 64.0, "balance-rel-threshold": 1.5}
)

_ROUTERS: Final = (
    Router(
        "sglang-cache-aware",
        "sglang-router 0.3.2",
        _CACHE_AWARE,
        table_length=1 << 26,
    ),
    Router(
        "vllm-router-cache-aware",
        "vllm-router 0.1.17",
        _CACHE_AWARE,
        reads_text=False,
        table_length=1 << 25,
    ),
    Router(
        "smg-cache-aware",
        "smg 1.13.0",
        _CACHE_AWARE,
        table_length=1 << 26,
        shares_table=True,
    ),
    Router(
        "dynamo-kv",
        "Dynamo 1.6.1",
        MappingProxyType(
            {
                "overlap-score-credit": 1.0,
                "overlap-score-credit-decay": 0.0,
                "prefill-load-scale": 1.0,
                "decode-active-request-weight": 0.0,
            }
        ),
        hears_caches=True,
        reads_text=False,
    ),
    Router(
        "ray-prefix",
        "Ray Serve LLM 2.60",
        MappingProxyType({"imbalanced_threshold": float("inf"), "match_rate_threshold": 0.1}),
    ),
    Router(
        "production-stack-prefix",
        "production-stack a6c01db",
        MappingProxyType({"prefix-min-match-length": 0.0}),
        needs_times=False,
    ),
)

ROUTERS: Final[Mapping[str, Router]] = MappingProxyType({router.name: router for router in _ROUTERS})
"""Routers by name."""


def parameters_of(router: Router, given: Mapping[str, str], option: str) -> dict[str, float]:
    """Return every parameter of a router, those that were given in place of its defaults.

    Parameters
    ----------
    router
        Whose.
    given
        Parameters as they were written.
    option
        Where they were written, for messages.

    Raises
    ------
    UsageError
        If the router has no such parameter, or one is no number from 0.
    """
    parameters = dict(router.defaults)
    for name, text in given.items():
        if name not in parameters:
            expected = ", ".join(parameters)
            raise UsageError(f"{option}: {router.name} has no {name!r}, expected some of {expected}")
        value = _number(text)
        if not value >= 0:
            raise UsageError(f"{option}: {name} of {router.name} is {text!r}, expected a number from 0")
        parameters[name] = value
    return parameters


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")

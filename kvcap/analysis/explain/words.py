"""What observed hits cannot tell, and what to do about it: a sentence for each case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from kvcap.analysis.explain.fits import Fit
    from kvcap.analysis.explain.fitting import Fitting
    from kvcap.analysis.explain.groups import Cells
    from kvcap.analysis.explain.observed import ObservedLog
    from kvcap.analysis.explain.surplus import Surplus

CAUSES: Final = {
    "expected_hit": "hit, as expected",
    "more_than_expected": "hit, more than expected",
    "never_seen": "never seen before",
    "partial_block": "in no full block",
    "last_token": "last token, always computed",
    "other_instance": "on another instance only",
    "capacity_and_ttl": "capacity, and TTL alike",
    "capacity": "capacity",
    "ttl": "TTL",
    "restart": "restart",
    "source_running": "source still running",
    "below_minimum": "below the provider's step or least",
    "unexplained": "unexplained",
}
"""What each step of the waterfall is called."""

_AS_WELL: Final = 0.01
_SHORT_US: Final = 5_000_000
_WORTH_SAYING: Final = 0.001
_WIDE_CUTS: Final = 10
_FEWEST_VALUES: Final = 20
_LEAST_OF_PROVIDERS: Final = range(512, 4097)


def remarks(log: ObservedLog, fitting: Fitting, cells: Cells, beyond: Surplus) -> tuple[str, ...]:
    """Return what cannot be told, a sentence each."""
    said = [
        *_about_limits(log, fitting),
        *_about_surplus(log, beyond),
        *_about_the_log(log, fitting, cells),
    ]
    return tuple(said)


def _about_limits(log: ObservedLog, fitting: Fitting) -> Iterator[str]:
    fitted, chosen = fitting.fitted, fitting.fitted.chosen
    by_name = {fit.name: fit for fit in fitted.tried}
    if chosen.parameters == 0 and chosen.error < max(1, _AS_WELL * fitted.known_tokens):
        yield f"no limit is visible: {_at_least(log, fitting)}"
    elif chosen.parameters == 0:
        depths = fitting.cut_depths
        wide = depths.size >= _WIDE_CUTS and np.quantile(depths, 0.95) > _WIDE_CUTS * (
            1 + np.quantile(depths, 0.05)
        )
        where = "; give --instance-field" if len(log.cache_names) == 1 else ""
        if wide:
            yield f"hits and misses occur at the same depths: several caches or another policy{where}"
        else:
            yield "no capacity and no TTL explains what was missed: see hits by age, and the worst requests"
    if chosen.scope == "one" and not chosen.has_lifetime:
        alone, both = by_name.get("ttl"), by_name.get("capacity and ttl")
        if (
            alone is not None
            and alone.has_lifetime
            and not fitting.cut_depths.size
            and _as_good(alone, fitting)
        ):
            yield f"a TTL of {alone.lifetime_us / 1e6:g} s explains it as well"
        elif both is not None and both.has_lifetime and both.lifetime is not None and both.lifetime.low:
            yield f"a TTL above {both.lifetime.low / 1e6:,.0f} s cannot be told from the capacity"


def _as_good(fit: Fit, fitting: Fitting) -> bool:
    fitted = fitting.fitted
    return fitted.misfit(fit) <= fitted.misfit(fitted.chosen) + _AS_WELL


def _at_least(log: ObservedLog, fitting: Fitting) -> str:
    pieces = fitting.pieces
    hit = fitting.usable & (pieces.hit_blocks > 0)
    if not hit.any():
        return "nothing was asked for twice"
    deepest = int((pieces.depth + pieces.hit_blocks)[hit].max())
    oldest = f", and {pieces.age_us[hit].max() / 1e6:,.0f} s" if log.has_time else ""
    return f"each cache kept at least {deepest:,} blocks{oldest}"


def _about_surplus(log: ObservedLog, beyond: Surplus) -> Iterator[str]:
    least = _WORTH_SAYING * log.prompts.input_tokens[log.observed].sum()
    if beyond.unlogged > least and beyond.is_early:
        yield f"cached before the log starts: {beyond.unlogged:,} tokens"
    elif beyond.unlogged > least:
        yield (
            f"the log lacks requests, since {beyond.unlogged:,} tokens hit that it had not shown: depths are "
            "too small, and so is the capacity"
        )
    if beyond.generated > least:
        yield (
            f"{beyond.generated:,} tokens had been generated before: the capacity is low by about their "
            "share; --output-blocks on counts them where the log says how many there were"
        )


def _about_the_log(log: ObservedLog, fitting: Fitting, cells: Cells) -> Iterator[str]:
    step = fitting.step_tokens
    if step > log.block_size and step % log.block_size == 0:
        yield f"all values are multiples of {step:,}: replay with --coarsen {step // log.block_size}"
    values = log.lookups.observed_tokens[log.lookups.observed_tokens > 0]
    if not fitting.least_tokens and values.size >= _FEWEST_VALUES:
        smallest = int(values.min())
        has_misses = (log.lookups.observed_tokens == 0).any()
        if smallest > log.block_size and smallest in _LEAST_OF_PROVIDERS and has_misses:
            yield f"no value lies between 0 and {smallest:,}: give --least {smallest} if that is a rule"
    if not log.has_time:
        yield "the log does not say when requests came: no TTL can be told"
    elif not log.has_durations:
        pieces = fitting.pieces
        young = fitting.usable & (pieces.age_us < _SHORT_US)
        missed = ((pieces.blocks - pieces.missed_from) * pieces.tokens_per_block)[young].sum()
        if missed > _WORTH_SAYING * log.prompts.input_tokens[log.observed].sum():
            yield (
                f"log the time to the first token or the duration: {missed:,} tokens missed whose source "
                f"came less than {_SHORT_US // 1_000_000} s before"
            )
    unbounded = [limit for limit in fitting.fitted.limits if limit.high is None and limit.best is None]
    if unbounded and fitting.fitted.chosen.scope != "none":
        names = ", ".join(str(log.cache_names[limit.cache]) for limit in unbounded[:5])
        yield f"no capacity is visible on {names}"

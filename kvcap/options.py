"""What a replay is told, composed of what a block is and of the rules in force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, get_args

from kvcap.blocks.options import DEFAULT_TOUCH_ORDER, BlockOptions, TouchOrder
from kvcap.engines.hybrid_options import HybridOptions
from kvcap.engines.policies import POLICIES
from kvcap.engines.presets import ENGINES
from kvcap.engines.rules import Rules
from kvcap.errors import UsageError
from kvcap.option_fields import changed, option, percent, whole_number
from kvcap.units import decimal_text, parse_number

if TYPE_CHECKING:
    from kvcap.engines.hybrid import HybridCache
    from kvcap.models import ModelBytes

DEFAULT_TARGET: Final = Fraction(99, 100)


def _percent_text(share: Fraction) -> str:
    return decimal_text(share * 100)


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
    blocks
        What a block is.
    touch_order
        ``tail-first`` evicts leaves first; ``head-first`` is plain LRU front to back.
    target
        Share of its own ceiling that a request must reach, 0 < target <= 1.
    warm_up
        Share of the requests, from the first, that only fill the cache.
    rules
        What is added to plain prefix caching, and what is simulated.
    hybrid
        How the engine is started, where its own blocks and groups of layers are simulated.
    max_capacity
        The largest capacity of interest, such as ``64TiB``: what was last used deeper than that is
        forgotten, so that memory is bounded. Capacities up to it stay exact.

    Raises
    ------
    UsageError
        If options contradict each other.
    """

    kv_bytes_per_token: Fraction | None = option(
        None,
        "bytes of one token's keys and values, may be decimal (default: answers in blocks and tokens)",
        metavar="BYTES",
        parse=parse_number,
    )
    model_bytes: ModelBytes | None = None
    estimate_tokens: int | None = option(
        None,
        "length at which a model that is not linear in tokens is taken (default: the mean input length)",
        metavar="N",
        parse=whole_number(1),
    )
    blocks: BlockOptions = field(default_factory=BlockOptions)
    touch_order: TouchOrder = option(
        DEFAULT_TOUCH_ORDER,
        "tail-first evicts leaves first, as engines do; head-first is plain LRU front to back (default: "
        "{default})",
        choices=get_args(TouchOrder),
    )
    target: Fraction = option(
        DEFAULT_TARGET,
        "share of its own ceiling that a request must reach, above 0 to 100 (default: {default})",
        "--target-hit-rate-percent",
        metavar="P",
        parse=percent(zero_allowed=False),
        show=_percent_text,
    )
    warm_up: Fraction = option(
        Fraction(0),
        "share of the requests, from the first, that only fill the cache, 0 to 100, as 20 or 20% (default: "
        "{default})",
        "--warm-up-percent",
        metavar="P",
        parse=percent(zero_allowed=True),
        show=_percent_text,
    )
    rules: Rules = field(default_factory=Rules)
    hybrid: HybridOptions = field(default_factory=HybridOptions)
    max_capacity: str | None = option(
        None,
        "largest capacity of interest, such as 64TiB: bounds memory, exact up to it (default: all)",
        metavar="SIZE",
    )

    def __post_init__(self) -> None:
        rules = self.rules
        simulated = [name for name in rules.policies if not POLICIES[name].one_pass]
        if self.max_capacity is not None and (simulated or rules.oversize == "drop"):
            raise UsageError("--max-capacity bounds plain LRU, expected no other policy and no oversize drop")

    @property
    def tail_first(self) -> bool:
        """Whether blocks are touched last to first."""
        return self.touch_order == "tail-first"

    @classmethod
    def of(cls, engine: str | None = None, **values: Any) -> ReplayOptions:
        """Return options from names and values alone, each put where it stands in the composition.

        Parameters
        ----------
        engine
            Whose blocks and rules to begin with: ``vllm``, ``sglang``, ``lmcache`` or ``mooncake``.
        values
            Fields of these options, of :class:`~kvcap.blocks.options.BlockOptions` and of
            :class:`~kvcap.engines.rules.Rules`; what is given wins over the engine's.

        Raises
        ------
        UsageError
            If there is no such engine or option, or options contradict each other.
        """
        if engine is None:
            return changed(cls(), values)
        if engine not in ENGINES:
            raise UsageError(f"engine is {engine!r}, expected one of {', '.join(ENGINES)}")
        preset = ENGINES[engine]
        options = changed(cls(blocks=preset.blocks, rules=preset.rules), values)
        chosen = values.get("policies")
        if chosen is not None and not _has_hybrid(chosen):
            return options
        cache = options._engine_cache()
        if cache is None:
            return options
        # Ids, an incomplete last one included, say how far prompts agree; generated tokens have none.
        values["counts_generated"] = values.pop("output_blocks", True)
        blocks = BlockOptions(token_block_size=cache.id_tokens)
        rules = replace(preset.rules, policies=("lru", cache.policy))
        return changed(cls(blocks=blocks, rules=rules), values)

    def hybrid_cache(self) -> HybridCache | None:
        """Return the engine's cache of the model where its own blocks and groups of layers are simulated.

        Raises
        ------
        UsageError
            If the model does not fit the engine, or there is nothing that options of it would act on.
        """
        is_simulated = _has_hybrid(self.rules.policies)
        cache = self._engine_cache() if is_simulated else None
        if cache is None and (is_simulated or self.hybrid != HybridOptions()):
            raise UsageError(
                "blocks and steps of an engine are simulated for --engine vllm with a --model of several "
                "kinds of layers or with --engine-block-size, as policy vllm-hybrid: expected these"
            )
        return cache

    def _engine_cache(self) -> HybridCache | None:
        if self.model_bytes is None:
            return None
        from kvcap.engines.hybrid import hybrid_cache

        return hybrid_cache(self.rules.engine, self.model_bytes, self.hybrid)


def engine_options(engine: str, **values: Any) -> ReplayOptions:
    """Return the options that predict an engine; see :meth:`ReplayOptions.of`."""
    return ReplayOptions.of(engine, **values)


def _has_hybrid(policies: Sequence[str]) -> bool:
    return any(name in POLICIES and POLICIES[name].is_hybrid for name in policies)

"""How an engine is started, as far as the prefix cache of a model of several kinds of layers is concerned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvcap.errors import UsageError
from kvcap.option_fields import on_off, option, whole_number

_DENSE: Final = "none"


def _retention(text: str, name: str) -> str:
    if text == _DENSE or (text.isascii() and text.isdecimal()):
        return text
    raise UsageError(f"{name} is {text!r}, expected {_DENSE}, 0 or a number of tokens")


def _on_off_text(value: bool) -> str:
    return "on" if value else "off"


@dataclass(frozen=True)
class HybridOptions:
    """How an engine is started.

    Parameters
    ----------
    engine_block_size
        Tokens of the engine's own block; None for its default.
    max_num_batched_tokens
        vLLM: tokens of one step; 0 for a whole prompt.
    async_scheduling
        vLLM: whether a step is scheduled while one is under way.
    counts_generated
        Whether generated tokens take blocks, as ``output_blocks`` says for full attention.
    prefix_cache_retention_interval
        vLLM: windows and states are kept before every so many tokens; ``0`` for where prompts end and
        part alone, ``none`` for everywhere.

    Raises
    ------
    UsageError
        If the interval is none of these.
    """

    engine_block_size: int | None = option(
        None,
        "the engine's own block (SGLang's page; default: the engine's)",
        metavar="TOKENS",
        parse=whole_number(1),
    )
    max_num_batched_tokens: int = option(
        8192,
        "vllm: tokens of one step, 0 for a whole prompt (default: {default})",
        metavar="N",
        parse=whole_number(0),
    )
    async_scheduling: bool = option(
        True,
        "vllm: whether a step is scheduled while one is under way (default: {default})",
        choices=("on", "off"),
        parse=on_off,
        show=_on_off_text,
        form="value",
    )
    prefix_cache_retention_interval: str = option(
        "0",
        "vllm: keep windows and states before every R tokens; 0: only where prompts end and part; none: "
        "everywhere (default: {default})",
        metavar="R",
        parse=_retention,
    )

    counts_generated: bool = True

    def __post_init__(self) -> None:
        _retention(self.prefix_cache_retention_interval, "prefix cache retention interval")

    @property
    def retention_tokens(self) -> int | None:
        """The interval as a number; None for everywhere."""
        text = self.prefix_cache_retention_interval
        return None if text == _DENSE else int(text)

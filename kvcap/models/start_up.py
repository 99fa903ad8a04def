"""What serving engines print when they start: the memory of the cache and the tokens that fit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal

from kvcap.errors import UsageError

_COUNT: Final = r"(\d[\d,_]*)\b"
_GB: Final = r"(\d+(?:\.\d+)?)\s*Gi?B"
_VLLM_TOKENS: Final = re.compile(rf"KV cache size:\s*{_COUNT}\s*tokens", re.IGNORECASE)
_VLLM_BLOCKS: Final = re.compile(rf"num_gpu_blocks\D{{0,3}}{_COUNT}", re.IGNORECASE)
_BLOCK_SIZE: Final = re.compile(rf"block_size\D{{0,3}}{_COUNT}", re.IGNORECASE)
_VLLM_MEMORY: Final = re.compile(r"Available KV cache memory:\s*(\d+(?:\.\d+)?)\s*GiB", re.IGNORECASE)
_GIB: Final = re.compile(r"(\d+(?:\.\d+)?)\s*GiB", re.IGNORECASE)
_CONCURRENCY: Final = re.compile(
    rf"Maximum concurrency for {_COUNT} tokens per request:\s*(\d+(?:\.\d+)?)x", re.IGNORECASE
)
_VLLM_HYBRID: Final = re.compile(
    r"Add \d+ padding layers|mamba page size|attention block size to \d+ tokens"
    r"|kv cache group sizes \(\d+, \d+|hybrid KV cache manager",
    re.IGNORECASE,
)
_SGLANG_TOKENS: Final = re.compile(rf"#tokens:\s*{_COUNT}", re.IGNORECASE)
_SGLANG_SIZE: Final = re.compile(rf"\b(?:KV|K|V) size:\s*{_GB}", re.IGNORECASE)
_SGLANG_STATES: Final = re.compile(
    rf"max_mamba_cache_size:\s*{_COUNT},\s*conv_state size:\s*{_GB},?\s*ssm_state size:\s*{_GB}",
    re.IGNORECASE,
)
_SGLANG_WINDOWS: Final = re.compile(r"sliding window memory pool|swa_layer_tokens", re.IGNORECASE)
_GIB_BYTES: Final = 1024**3
_KERNEL_BLOCK_TOKENS: Final = 16
_CONCURRENCY_DIGITS: Final = Fraction(1, 100)


@dataclass(frozen=True)
class PrintedSize:
    """A memory as an engine printed it.

    Parameters
    ----------
    size_bytes
        The bytes that its digits say.
    rounding_bytes
        How far the memory may be from them: half a unit of the last digit.
    """

    size_bytes: Fraction
    rounding_bytes: Fraction

    def __add__(self, other: PrintedSize) -> PrintedSize:
        return PrintedSize(self.size_bytes + other.size_bytes, self.rounding_bytes + other.rounding_bytes)


@dataclass(frozen=True)
class StartUp:
    """The start of an engine, as its lines tell it.

    Attributes
    ----------
    engine
        Whose lines they are.
    pools
        Tokens and memory of one rank for every pool; SGLang's window pool comes after that of full attention.
    max_model_len, concurrency
        Of vLLM's line *Maximum concurrency*; None without it.
    states
        Slots and memory of SGLang's states; None without any.
    hybrid
        What shows that layers of several kinds share the memory, so that tokens are no rate; None for none.
    prints_blocks
        Whether the tokens are those of vLLM before 0.21, which are not those of a request's blocks.
    """

    engine: Literal["vllm", "sglang"]
    pools: tuple[tuple[int, PrintedSize], ...]
    max_model_len: int | None = None
    concurrency: Fraction | None = None
    states: tuple[int, PrintedSize] | None = None
    hybrid: str | None = None
    prints_blocks: bool = False


def read_start_up(text: str) -> StartUp:
    """Return what start-up lines of vLLM or SGLang say; other lines of a log may stand among them.

    Parameters
    ----------
    text
        ``GPU KV cache size: N tokens`` with ``Available KV cache memory: X GiB`` (or ``num_gpu_blocks`` and
        ``block_size`` with it), of vLLM; or ``#tokens: N, KV size: X GB`` (or ``K size`` and ``V size``) of
        SGLang, whose GB is 2^30 bytes. Lines of several ranks count once; the least memory decides.

    Raises
    ------
    UsageError
        If tokens or memory are not there, or are those of several starts.
    """
    if _SGLANG_TOKENS.search(text):
        return _sglang(text)
    if _VLLM_TOKENS.search(text) or (_VLLM_BLOCKS.search(text) and _BLOCK_SIZE.search(text)):
        return _vllm(text)
    raise UsageError(
        f"calibration line is {_short(text)}, expected vLLM's 'GPU KV cache size: N tokens' with "
        "'Available KV cache memory: X GiB', or SGLang's '#tokens: N, KV size: X GB'"
    )


def _vllm(text: str) -> StartUp:
    memory = _vllm_memory(text)
    if not _VLLM_TOKENS.search(text):
        tokens = _only(_VLLM_BLOCKS, text, "num_gpu_blocks") * _only(_BLOCK_SIZE, text, "block_size")
        return StartUp("vllm", ((tokens, memory),), hybrid=_first(_VLLM_HYBRID, text))
    tokens = _only(_VLLM_TOKENS, text, "GPU KV cache size")
    longest, concurrency = None, None
    found = _CONCURRENCY.search(text)
    if found is not None:
        longest, concurrency = _count(found[1]), Fraction(Decimal(found[2]))
    blocks_printed = (
        longest is not None
        and concurrency is not None
        and abs(concurrency * longest - tokens) > longest * _CONCURRENCY_DIGITS
    )
    hybrid = _first(_VLLM_HYBRID, text)
    if blocks_printed:
        hybrid = hybrid or "its concurrency is not that of its tokens"
    if tokens % _KERNEL_BLOCK_TOKENS and not _BLOCK_SIZE.search(text):
        hybrid = hybrid or f"{tokens:,} tokens are no multiple of {_KERNEL_BLOCK_TOKENS}"
    return StartUp("vllm", ((tokens, memory),), longest, concurrency, None, hybrid, blocks_printed)


def _vllm_memory(text: str) -> PrintedSize:
    sizes = _VLLM_MEMORY.findall(text) or list(dict.fromkeys(_GIB.findall(text)))
    if not sizes or (len(sizes) > 1 and not _VLLM_MEMORY.search(text)):
        raise UsageError(
            f"calibration line has {len(sizes)} sizes in GiB, expected 'Available KV cache memory: X GiB'"
        )
    return min(map(_size, sizes), key=lambda size: size.size_bytes)


def _sglang(text: str) -> StartUp:
    places = [match.start() for match in _SGLANG_TOKENS.finditer(text)]
    pools: dict[int, PrintedSize] = {}
    for start, end in zip(places, [*places[1:], len(text)], strict=True):
        line = text[start:end]
        tokens = _only(_SGLANG_TOKENS, line, "#tokens")
        sizes = _SGLANG_SIZE.findall(line)
        if not sizes:
            raise UsageError(f"calibration line is {_short(line)}, expected SGLang's 'KV size: X GB' with it")
        size = sum(map(_size, sizes[1:]), _size(sizes[0]))
        # Ranks print the same pool, and a draft worker a smaller one of as many tokens.
        pools[tokens] = max(size, pools.get(tokens, size), key=lambda other: other.size_bytes)
    states = _SGLANG_STATES.search(text)
    hybrid = _first(_SGLANG_WINDOWS, text) or (states and "Mamba Cache") or None
    windowed = _SGLANG_WINDOWS.search(text) is not None or len(pools) == 2
    if len(pools) > 1 + windowed:
        raise UsageError(
            f"calibration line has #tokens as {', '.join(map(str, pools))}, expected one number above 0"
        )
    if len(pools) > 1:
        hybrid = hybrid or "two pools of different tokens"
    return StartUp(
        "sglang",
        tuple(sorted(pools.items(), reverse=True)),
        states=None if states is None else (_count(states[1]), _size(states[2]) + _size(states[3])),
        hybrid=hybrid,
    )


def _only(pattern: re.Pattern[str], text: str, what: str) -> int:
    numbers = list(dict.fromkeys(pattern.findall(text)))
    if len(numbers) != 1 or _count(numbers[0]) == 0:
        raise UsageError(f"calibration line has {what} as {', '.join(numbers)}, expected one number above 0")
    return _count(numbers[0])


def _count(digits: str) -> int:
    return int(re.sub(r"\D", "", digits) or 0)


def _size(digits: str) -> PrintedSize:
    number = Decimal(digits)
    if number == 0:
        raise UsageError(f"calibration line has a size of {digits} GiB, expected one above 0")
    decimals = len(digits.partition(".")[2])
    return PrintedSize(Fraction(number) * _GIB_BYTES, Fraction(_GIB_BYTES, 2 * 10**decimals))


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return None if found is None else f"'{found[0]}'"


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")

"""Bytes per token from what a serving engine printed when it started."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Final

from kvcap.errors import UsageError

_VLLM_TOKENS: Final = re.compile(r"GPU KV cache size:\s*(\d[\d,_]*\b)\s*tokens", re.IGNORECASE)
_VLLM_BLOCKS: Final = re.compile(r"num_gpu_blocks\D{0,3}(\d[\d,_]*\b)", re.IGNORECASE)
_BLOCK_SIZE: Final = re.compile(r"block_size\D{0,3}(\d[\d,_]*\b)", re.IGNORECASE)
_VLLM_MEMORY: Final = re.compile(r"Available KV cache memory:\s*(\d+(?:\.\d+)?)\s*GiB", re.IGNORECASE)
_GIB: Final = re.compile(r"(\d+(?:\.\d+)?)\s*GiB", re.IGNORECASE)
_SGLANG_TOKENS: Final = re.compile(r"#tokens:\s*(\d[\d,_]*\b)", re.IGNORECASE)
_SGLANG_SIZE: Final = re.compile(r"\b(?:KV|K|V) size:\s*(\d+(?:\.\d+)?)\s*G(?:i)?B", re.IGNORECASE)
_GIB_BYTES: Final = 1024**3


def calibrate(line: str) -> Fraction:
    """Return the bytes per token of one rank, from start-up lines of vLLM or SGLang.

    Parameters
    ----------
    line
        ``GPU KV cache size: N tokens`` with ``Available KV cache memory: X GiB`` (or ``num_gpu_blocks`` and
        ``block_size`` with it), of vLLM; or ``#tokens: N, KV size: X GB`` (or ``K size`` and ``V size``) of
        SGLang, whose GB is 2^30 bytes. Several lines may be given as one text.

    Returns
    -------
    Fraction
        Memory over tokens, as exact as the digits printed. A hybrid model's figure is that of
        the engine's own mixture of pools.

    Raises
    ------
    UsageError
        If tokens or memory are not there, or more than once.
    """
    if _SGLANG_TOKENS.search(line):
        tokens = _only(_SGLANG_TOKENS, line, "#tokens")
        sizes = _SGLANG_SIZE.findall(line)
        if not sizes:
            raise UsageError(f"calibration line is {_short(line)}, expected SGLang's 'KV size: X GB' with it")
        return sum(map(_bytes, sizes), Fraction(0)) / tokens
    if _VLLM_TOKENS.search(line):
        return _vllm_memory(line) / _only(_VLLM_TOKENS, line, "GPU KV cache size")
    if _VLLM_BLOCKS.search(line) and _BLOCK_SIZE.search(line):
        blocks = _only(_VLLM_BLOCKS, line, "num_gpu_blocks")
        return _vllm_memory(line) / (blocks * _only(_BLOCK_SIZE, line, "block_size"))
    raise UsageError(
        f"calibration line is {_short(line)}, expected vLLM's 'GPU KV cache size: N tokens' with "
        "'Available KV cache memory: X GiB', or SGLang's '#tokens: N, KV size: X GB'"
    )


def _vllm_memory(line: str) -> Fraction:
    sizes = _VLLM_MEMORY.findall(line) or _GIB.findall(line)
    if len(sizes) != 1:
        raise UsageError(
            f"calibration line has {len(sizes)} sizes in GiB, expected 'Available KV cache memory: X GiB'"
        )
    return _bytes(sizes[0])


def _only(pattern: re.Pattern[str], line: str, what: str) -> int:
    numbers = pattern.findall(line)
    count = int(re.sub(r"\D", "", numbers[0]) or 0)
    if len(numbers) != 1 or count == 0:
        raise UsageError(f"calibration line has {what} as {', '.join(numbers)}, expected one number above 0")
    return count


def _bytes(gib: str) -> Fraction:
    size = Fraction(Decimal(gib)) * _GIB_BYTES
    if size == 0:
        raise UsageError(f"calibration line has a size of {gib} GiB, expected one above 0")
    return size


def _short(line: str) -> str:
    return repr(line if len(line) <= 80 else f"{line[:77]}...")

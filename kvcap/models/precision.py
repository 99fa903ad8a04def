"""Names of number formats, and the bytes of one element in each."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from kvcap.errors import UsageError

ELEMENT_BYTES: Final = {
    "bf16_fp16": Fraction(2),
    "fp8_int8": Fraction(1),
    "fp4_int4": Fraction(1, 2),
    "mxfp8": Fraction(1),
    "fp32": Fraction(4),
}
"""Bytes of one element, without scales. ``mxfp8`` stands apart from ``fp8_int8`` because of its scales."""

STATE_ELEMENT_BYTES: Final = {"fp32": Fraction(4), "bf16_fp16": Fraction(2)}
"""Bytes of one element of a recurrent state."""

_ALIASES: Final = {
    **dict.fromkeys(("bf16", "fp16", "bfloat16", "float16"), "bf16_fp16"),
    **dict.fromkeys(("fp8", "int8", "fp8_e4m3", "fp8_e5m2"), "fp8_int8"),
    **dict.fromkeys(("fp4", "int4", "fp4_e2m1", "nvfp4", "mxfp4"), "fp4_int4"),
    **dict.fromkeys(("float32", "f32"), "fp32"),
}
KV_PRECISIONS: Final = tuple(ELEMENT_BYTES)
INDEXER_PRECISIONS: Final = ("bf16_fp16", "fp8_int8", "fp4_int4")
STATE_PRECISIONS: Final = tuple(STATE_ELEMENT_BYTES)


def parse_precision(text: str, what: str, allowed: tuple[str, ...]) -> str:
    """Return the full name of a number format, from itself or a short name such as ``fp8``.

    Raises
    ------
    UsageError
        If it is none of ``allowed`` nor an alias of one; ``what`` names the option.
    """
    name = text.strip().lower()
    name = _ALIASES.get(name, name)
    if name not in allowed:
        short = sorted(alias for alias, full in _ALIASES.items() if full in allowed)
        raise UsageError(f"{what} is {text!r}, expected {', '.join(allowed)} (or {', '.join(short)})")
    return name

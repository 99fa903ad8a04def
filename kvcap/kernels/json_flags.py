"""What is special about an array of integers, as flags; apart from the kernel, so that it needs no Numba."""

from __future__ import annotations

from typing import Final

NEGATIVE: Final = 1
"""An integer is below 0 (kept as two's complement)."""
ABOVE_INT64: Final = 2
"""An integer is 2**63 or more."""
ABOVE_UINT32: Final = 4
"""An integer is 2**32 or more."""

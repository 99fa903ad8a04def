"""How every kernel is compiled: cached on disk, without the GIL, integers exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def jit(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a single-threaded kernel at its first call."""
    compiled: Callable[..., Any] = numba.njit(cache=True, nogil=True)(kernel)
    return compiled


def parallel_jit(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel whose outer loop is a ``prange`` at its first call."""
    compiled: Callable[..., Any] = numba.njit(cache=True, nogil=True, parallel=True)(kernel)
    return compiled

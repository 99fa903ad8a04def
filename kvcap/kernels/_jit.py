"""How every kernel is compiled: cached on disk, without the GIL, integers exact."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])

jit: Callable[[_Function], _Function] = partial(numba.njit, cache=True, nogil=True, fastmath=False)
"""Decorator of a single-threaded kernel."""

parallel_jit: Callable[[_Function], _Function] = partial(
    numba.njit, cache=True, nogil=True, fastmath=False, parallel=True
)
"""Decorator of a kernel whose outer loop is a ``prange``."""

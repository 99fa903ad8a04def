"""How every kernel is compiled: cached on disk, without the GIL, integers exact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba


def jit(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a single-threaded kernel at its first call."""
    compiled: Callable[..., Any] = numba.njit(cache=True, nogil=True)(kernel)
    return compiled


def inner_jit(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Compile what only other kernels call, a third faster: Python itself has no way in."""
    options: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    compiled: Callable[..., Any] = numba.njit(cache=True, nogil=True, **options)(kernel)
    return compiled


def parallel_jit(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel whose outer loop is a ``prange`` at its first call."""
    compiled: Callable[..., Any] = numba.njit(cache=True, nogil=True, parallel=True)(kernel)
    return compiled


@contextmanager
def kernel_threads(threads: int) -> Iterator[None]:
    """Let parallel kernels that this thread calls use at most so many threads."""
    before = numba.get_num_threads()
    most: int = vars(numba.config)["NUMBA_NUM_THREADS"]
    numba.set_num_threads(min(threads, most))
    try:
        yield
    finally:
        numba.set_num_threads(before)


def is_compiled(kernel: Callable[..., Any]) -> bool:
    """Whether an earlier run on this machine left the kernel compiled, so that its first call is quick."""
    cache = getattr(kernel, "_cache", None)
    if cache is None:
        return True
    return any(Path(cache.cache_path).glob(f"*.{kernel.__name__}-*.nbi"))

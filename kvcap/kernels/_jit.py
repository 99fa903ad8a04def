"""How every kernel is compiled: cached on disk, without the GIL, integers exact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache


class _ForgivingCache(FunctionCache):
    """Numba's cache on disk; a damaged file of it, or a full disk, costs no more than to compile again."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what is stored for a signature, or None."""
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:
            # What was cut off or overwritten raises whatever unpickling it comes to.
            with suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call]
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store what was compiled, where there is room."""
        with suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


def _compiled(kernel: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    compiled: Any = numba.njit(nogil=True, **options)(kernel)
    # Without a directory to write, what is compiled stays in memory. With NUMBA_DISABLE_JIT it is the kernel.
    with suppress(RuntimeError):
        if compiled is not kernel:
            compiled._cache = _ForgivingCache(kernel)  # type: ignore[no-untyped-call]
    return compiled  # type: ignore[no-any-return]


def jit(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a single-threaded kernel at its first call."""
    return _compiled(kernel)


def inner_jit(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Compile what only other kernels call, a third faster: Python itself has no way in."""
    return _compiled(kernel, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def parallel_jit(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel whose outer loop is a ``prange`` at its first call."""
    return _compiled(kernel, parallel=True)


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
    path = _cache_path(kernel)
    if path is None:
        return not hasattr(kernel, "py_func")
    return any(Path(path).glob(f"*.{kernel.__name__}-*.nbi"))


def is_kept(kernel: Callable[..., Any]) -> bool:
    """Whether what is compiled is there for later runs: there is a directory that can be written."""
    return _cache_path(kernel) is not None or not hasattr(kernel, "py_func")


def _cache_path(kernel: Callable[..., Any]) -> str | None:
    """Return where a kernel is cached; None for nowhere, and for one that is not compiled at all."""
    path: str | None = getattr(getattr(kernel, "_cache", None), "cache_path", None)
    return path

"""How much KV cache does your LLM traffic need? Exact hit rates at every capacity, from request logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcap._version import __version__
from kvcap.convert import ConvertOptions, convert
from kvcap.errors import KvcapError
from kvcap.options import ReplayOptions, engine_options
from kvcap.replay import replay

if TYPE_CHECKING:
    from kvcap.analysis import Answer, answer
    from kvcap.formats.options import ReadOptions
    from kvcap.queries import Results, open_results

__all__ = [
    "Answer",
    "ConvertOptions",
    "KvcapError",
    "ReadOptions",
    "ReplayOptions",
    "Results",
    "__version__",
    "answer",
    "convert",
    "engine_options",
    "open_results",
    "replay",
]

_LAZY = {
    "Answer": "kvcap.analysis",
    "ReadOptions": "kvcap.formats.options",
    "Results": "kvcap.queries",
    "answer": "kvcap.analysis",
    "open_results": "kvcap.queries",
}


def __getattr__(name: str) -> Any:
    """Import the heavier part of the public surface when it is first asked for."""
    import importlib

    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'kvcap' has no attribute {name!r}")

"""One trace from one or many logs: :func:`convert`."""

from __future__ import annotations

from kvcap.convert.job import ConvertOptions, ConvertResult, convert

__all__ = ["ConvertOptions", "ConvertResult", "convert"]

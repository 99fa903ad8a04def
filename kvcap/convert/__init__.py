"""One trace from one or many logs: :func:`convert`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcap.convert.options import ConvertOptions, ConvertResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvcap.formats import ReadOptions

__all__ = ["ConvertOptions", "ConvertResult", "convert"]


def convert(
    inputs: Sequence[str],
    output: str,
    read_options: ReadOptions | None = None,
    options: ConvertOptions | None = None,
    *,
    progress: Callable[[int], None] | None = None,
) -> ConvertResult:
    """Write one trace from one or many logs.

    Parameters
    ----------
    inputs
        Logs, as :func:`kvcap.formats.open_trace` takes them.
    output
        The file to write. It appears, or replaces the old one, only when it is complete.
    read_options
        How to read the logs.
    options
        How to write the trace.
    progress
        Called with the number of requests so far.

    Returns
    -------
    ConvertResult
        With the account of what was read and left out.

    Raises
    ------
    UsageError
        If the output exists (without ``force``), or an option does not fit these logs.
    TraceError
        If a log cannot be read.
    """
    from kvcap.convert.job import convert_logs

    return convert_logs(inputs, output, read_options, options, progress)

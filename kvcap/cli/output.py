"""Where a command's answer goes: stdout, or a file that appears when it is complete."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from kvcap.writing import written_beside


@contextmanager
def text_output(path: str | None, *, force: bool) -> Iterator[TextIO]:
    """Yield a text stream: stdout for None and ``-``, else a file written beside its place and renamed.

    Raises
    ------
    UsageError
        As :func:`kvcap.writing.check_new`.
    """
    if path is None or path == "-":
        yield sys.stdout
        return
    with (
        written_beside(path, force=force) as beside,
        beside.open("w", encoding="utf-8", newline="") as stream,
    ):
        yield stream

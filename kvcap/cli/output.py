"""Where a command's answer goes: stdout, or a file that appears when it is complete."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from kvcap.errors import OutputExistsError


@contextmanager
def text_output(path: str | None, *, force: bool) -> Iterator[TextIO]:
    """Yield a text stream; a file is written beside and renamed when the block ends without an error.

    Raises
    ------
    UsageError
        If the file exists and ``force`` is not given.
    """
    if path is None or path == "-":
        yield sys.stdout
        return
    target = Path(path)
    if target.exists() and not target.is_file():
        # A device or pipe takes what is written to it; to rename a file over it would remove it.
        with target.open("w", encoding="utf-8", newline="") as stream:
            yield stream
        return
    if target.exists() and not force:
        raise OutputExistsError(path)
    handle, partial = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            yield stream
        umask = os.umask(0)
        os.umask(umask)
        Path(partial).chmod(0o666 & ~umask)
        Path(partial).replace(target)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise

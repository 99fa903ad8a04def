"""One process writes a directory: a lock that ends with its process, and says whose it is."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import Final

from kvcap.errors import UsageError

_NAME: Final = ".kvcap-serve.lock"


class DirectoryLock:
    """Hold a directory until :meth:`release`, or until the process is gone.

    Parameters
    ----------
    directory
        Where requests are recorded.

    Raises
    ------
    UsageError
        If another process holds it.
    """

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._file, 200).decode(errors="replace").strip()
            os.close(self._file)
            raise UsageError(
                f"{directory} is written by another kvcap serve ({holder or 'which is starting'}): stop it, "
                "or record to a directory of its own"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        """Let others write the directory."""
        os.close(self._file)

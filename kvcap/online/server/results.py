"""What finalizing leaves: a replay of the request log, with the service's definitions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvcap.formats.options import ReadOptions
from kvcap.online.server.options import ServeOptions
from kvcap.replay import ReplayOptions, replay


def write_results(options: ServeOptions, files: Sequence[Path], out: str) -> None:
    """Replay the files of a log into a results directory, in place of an older one.

    Raises
    ------
    UsageError
        If ``out`` exists and is no results directory.
    """
    replay(
        list(files),
        ReplayOptions(
            kv_bytes_per_token=options.kv_bytes_per_token,
            blocks=options.blocks,
            touch_order=options.touch_order,
            target=options.target,
        ),
        reading=ReadOptions(block_size=options.block_size),
        out=out,
        force=True,
    ).close()

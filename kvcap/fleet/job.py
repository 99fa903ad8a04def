"""What all parts of a fleet's replay are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, Literal

from kvcap.errors import UsageError
from kvcap.formats import ReadOptions
from kvcap.formats.sources import STDIN, expand
from kvcap.replay import ReplayOptions

if TYPE_CHECKING:
    from kvcap.tokenize import TokenizeOptions

PoolPath = Literal["file", "directory"]

ONE_SERVER_FORMATS: Final = frozenset({"sglang", "sglang-lines", "sglang-text-requests", "vllm"})
"""Formats whose records depend on others of the same server alone, whose log is taken to be one file."""


@dataclass(frozen=True)
class FleetJob:
    """A replay of many files, each of them read on its own.

    Parameters
    ----------
    reading
        How to read each file. ``skip_bad`` bounds the bad records of all files together.
    options
        What a block, a hit and the target are.
    tokenizing
        How to turn texts into token ids; None refuses logs of texts.
    pool_path
        Name pools after the file, or the directory, that a request was read from, in place of a column.

    Raises
    ------
    UsageError
        If an option only means something in one process.
    """

    reading: ReadOptions = field(default_factory=ReadOptions)
    options: ReplayOptions = field(default_factory=ReplayOptions)
    tokenizing: TokenizeOptions | None = None
    pool_path: PoolPath | None = None

    def __post_init__(self) -> None:
        if self.reading.max_requests is not None:
            raise UsageError("a fleet's files are read apart, expected no limit on requests")
        if self.options.rules.policies:
            raise UsageError(
                "a fleet is replayed for plain LRU, expected no policies, nor an engine that has some"
            )
        if self.pool_path is not None and self.reading.pool is not None:
            raise UsageError("pools are named by a column or by paths, expected one of them")

    @property
    def pool_column(self) -> str | None:
        """What names the pools."""
        return self.pool_path or self.reading.pool

    def pool_of(self, name: str) -> str:
        """Return the pool of a file where paths name them."""
        path = PurePosixPath(name)
        return str(path.parent if self.pool_path == "directory" else path)


def fleet_files(paths: Sequence[str]) -> list[str]:
    """Return every file that paths, directories, globs or URLs name, in replay order.

    Raises
    ------
    UsageError
        If standard input is among them.
    TraceError
        If a directory or a glob holds no file.
    """
    names = [source.name for source in expand(paths)]
    if STDIN in names:
        raise UsageError("a fleet's files are read on many machines, expected no standard input")
    return names

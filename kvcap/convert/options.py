"""How a trace is written, with the defaults, and what a conversion says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from kvcap.option_fields import option

if TYPE_CHECKING:
    from kvcap.formats import ReadReport
    from kvcap.schema import TraceKind

Target = Literal["parquet", "mooncake"]


@dataclass(frozen=True)
class ConvertOptions:
    """How to write a trace.

    Parameters
    ----------
    target
        ``parquet``, or ``mooncake`` for hash ids as JSON Lines.
    anonymize
        Number ids (of token lists: the keys of their blocks) by first appearance, and drop text, names and
        kept columns.
    force
        Overwrite an existing output.
    """

    target: Target = option(
        "parquet",
        "what to write: a Parquet trace, or hash ids as JSON Lines (default: {default})",
        "--to",
        choices=get_args(Target),
    )
    anonymize: bool = option(
        False,
        "replace ids by integers in order of first appearance, and drop text, names and kept columns; what "
        "remains replays to the same answers",
    )
    force: bool = False


@dataclass(frozen=True)
class ConvertResult:
    """What a conversion did.

    Parameters
    ----------
    path
        The file written.
    kind
        What its requests are.
    report
        The account of the reading.
    chained
        Whether no id ever follows two different ids, so that ids are keys of whole prefixes.
    """

    path: str
    kind: TraceKind
    report: ReadReport
    chained: bool

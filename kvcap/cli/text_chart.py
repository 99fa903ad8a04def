"""A small chart of the hit-rate curve for terminals."""

from __future__ import annotations

from math import ceil, floor, log
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from kvcap.analysis.figures import Figures

COLUMNS: Final = 64
ROWS: Final = 8
SMALLEST_SHARE_OF_AXIS: Final = 1024
"""The capacity axis begins at about this part of its end, or at one block."""

_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_COARSE: Final = "    #####"
_MARGIN: Final = 8
_LABEL_WIDTH: Final = 10
_OVERHANG: Final = 14
"""Of the last label of the axis and the word behind it."""


def curve_chart(figures: Figures, *, width: int | None = None, unicode: bool = True) -> list[str]:
    """Return block hit rate over capacity as lines of text.

    Parameters
    ----------
    figures
        What was measured; with a block looked up.
    width
        Of the terminal, which the chart takes at most; None is wide enough.
    unicode
        Whether eighths of a character can be drawn; else columns are of ``#``.
    """
    base, low, high = _axis_powers(figures)
    columns = COLUMNS if width is None else max(1, min(COLUMNS, width - _MARGIN - _OVERHANG))
    size = figures.run.block_bytes or 1
    capacities = (float(base) ** np.linspace(low, high, columns) / size).astype(np.int64)
    hit_blocks, _ = figures.hits_at(capacities)
    top = max(1, figures.total_ceiling_blocks)
    eighths = hit_blocks * (8 * ROWS) // top
    marks = _EIGHTHS if unicode else _COARSE
    lines = ["Block hit rate over capacity (log scale)"]
    for row in range(ROWS - 1, -1, -1):
        share = (row + 1) / ROWS * top / figures.total_blocks
        label = f"{100 * share:.1f} %" if row in (ROWS - 1, ROWS // 2 - 1) else ""
        cells = "".join(marks[int(level)] for level in np.clip(eighths - 8 * row, 0, 8))
        lines.append(f"{label.rjust(_MARGIN - 1)} {cells}".rstrip())
    return [*lines, _axis_line(figures, base, low, high, columns)]


def _axis_powers(figures: Figures) -> tuple[int, int, int]:
    """Return the base of the axis, 2 for bytes and 10 for blocks, and the powers at its ends."""
    size = figures.run.block_bytes
    base = 10 if size is None else 2
    last = max(1, int(figures.curve.capacity_blocks[-1]))
    first = max(1.0, last / SMALLEST_SHARE_OF_AXIS)
    low, high = (log(blocks * (size or 1), base) for blocks in (first, last))
    return base, floor(low), max(ceil(high), floor(low) + 1)


def _axis_line(figures: Figures, base: int, low: int, high: int, columns: int) -> str:
    from kvcap.report.axes import count_text, size_text

    step = max(1, ceil((high - low) * _LABEL_WIDTH / columns))
    text = count_text if figures.run.block_bytes is None else size_text
    line = ""
    for power in range(low, high + 1, step):
        column = _MARGIN + round((power - low) / (high - low) * (columns - 1))
        line = f"{line.ljust(column)}{text(float(base) ** power)}"
    return line if figures.run.block_bytes is not None else f"{line} blocks"

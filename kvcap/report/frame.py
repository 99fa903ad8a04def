"""What charts share: the plot area with its axes, and keys of what is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from kvcap.report.axes import Axis
from kvcap.report.svg import element, line, text, text_width

ROW: Final = 18
"""Height of a line of labels."""
_LABEL_GAP: Final = 8
_BOTTOM: Final = 44
_RIGHT: Final = 14


@dataclass(frozen=True)
class Frame:
    """The plot area inside an image, in its units.

    ``top`` to ``bottom`` and ``left`` to ``right`` are where values are drawn.
    """

    width: int
    height: int
    left: float
    right: float
    top: float
    bottom: float

    def x(self, share: float) -> float:
        """Return where a share of the x axis stands."""
        return self.left + share * (self.right - self.left)

    def y(self, share: float) -> float:
        """Return where a share of the y axis stands."""
        return self.bottom - share * (self.bottom - self.top)


def frame_for(width: int, height: int, y: Axis, header_rows: int) -> Frame:
    """Return the plot area beside the labels of ``y`` and below so many rows of keys and marks."""
    labels = [label for _, label in y.ticks(_y_ticks(height))]
    left = max((text_width(label) for label in labels), default=0) + _LABEL_GAP + 4
    top = ROW * (header_rows + 1) + 12
    return Frame(width, height, left, width - _RIGHT, top, height - _BOTTOM)


def draw_y_axis(frame: Frame, y: Axis) -> str:
    """Return grid lines with their labels, and the axis title above them."""
    parts = [text(0, ROW - 5, y.title, class_="axis-title")]
    for value, label in y.ticks(_y_ticks(frame.height)):
        at = frame.y(y.position(value))
        parts.append(line(frame.left, at, frame.right, at, "grid"))
        parts.append(text(frame.left - _LABEL_GAP, at + 4, label, anchor="end"))
    return "".join(parts)


def draw_x_axis(frame: Frame, x: Axis) -> str:
    """Return the base line with labelled ticks and the axis title."""
    ticks = x.ticks(max(2, int((frame.right - frame.left) / 76)))
    marks = [(frame.x(x.position(value)), label) for value, label in ticks]
    return draw_base(frame) + _tick_labels(frame, marks, with_ticks=True) + _x_title(frame, x.title)


def draw_categories(frame: Frame, title: str, labels: Sequence[str]) -> str:
    """Return the base line with a label under each of equal bands, some left out where they collide."""
    band = (frame.right - frame.left) / max(1, len(labels))
    every = 1
    widest = max((text_width(label) for label in labels), default=0)
    while every * band < widest + 10:
        every += 1
    marks = [(frame.left + (i + 0.5) * band, label) for i, label in enumerate(labels) if i % every == 0]
    return draw_base(frame) + _tick_labels(frame, marks, with_ticks=False) + _x_title(frame, title)


def draw_base(frame: Frame) -> str:
    """Return the base line of the plot."""
    return line(frame.left, frame.bottom, frame.right, frame.bottom, "base")


def draw_key(frame: Frame, names: Sequence[tuple[str, str]], row: int) -> str:
    """Return a key of (class of the mark, name), in one row of the header counted from its title."""
    parts = []
    at = frame.left
    y = ROW * (row + 1) - 5
    for mark, name in names:
        parts.append(line(at, y - 4, at + 16, y - 4, mark))
        parts.append(text(at + 21, y, name, class_="key"))
        at += 21 + text_width(name) + 16
    return "".join(parts)


def draw_vertical_marks(frame: Frame, x: Axis, marks: Sequence[tuple[float, str]], first_row: int) -> str:
    """Return hairlines at values of x, labelled in the header rows from ``first_row`` on."""
    lines, labels = [], []
    for (value, label), row in zip(marks, mark_rows(frame, x, marks), strict=True):
        at = frame.x(x.position(value))
        y = ROW * (first_row + row + 1) - 5
        lines.append(line(at, y + 4, at, frame.bottom, "mark"))
        labels.append(text(_mark_start(frame, at, label), y, label, class_="mark-label"))
    return "".join(lines + labels)


def mark_rows(frame: Frame, x: Axis, marks: Sequence[tuple[float, str]]) -> list[int]:
    """Return the row of each mark's label, so that none covers another."""
    ends: list[float] = []
    rows = []
    for value, label in marks:
        start = _mark_start(frame, frame.x(x.position(value)), label)
        row = next((i for i, end in enumerate(ends) if start >= end), len(ends))
        if row == len(ends):
            ends.append(0)
        ends[row] = start + text_width(label, 11) + 10
        rows.append(row)
    return rows


def picture(frame: Frame, title: str, body: str) -> str:
    """Return the image."""
    return element(
        "svg",
        element("title", escape(title)) + body,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {frame.width} {frame.height}",
        width=frame.width,
        height=frame.height,
        role="img",
    )


def _mark_start(frame: Frame, at: float, label: str) -> float:
    """Return where a mark's label begins: at its line, or further left near the right edge."""
    return max(0.0, min(at, frame.width - text_width(label, 11) - 2))


def _tick_labels(frame: Frame, marks: Sequence[tuple[float, str]], *, with_ticks: bool) -> str:
    parts = []
    for at, label in marks:
        if with_ticks:
            parts.append(line(at, frame.bottom, at, frame.bottom + 4, "base"))
        half = text_width(label) / 2
        centre = min(max(at, half), frame.width - half)
        parts.append(text(centre, frame.bottom + 17, label, anchor="middle"))
    return "".join(parts)


def _x_title(frame: Frame, title: str) -> str:
    return text(frame.right, frame.height - 6, title, class_="axis-title", anchor="end")


def _y_ticks(height: int) -> int:
    return 5 if height >= 220 else 3

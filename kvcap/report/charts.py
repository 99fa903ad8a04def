"""Charts: what is drawn, as data, and its image at any size."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Protocol

from kvcap.report.axes import Axis
from kvcap.report.frame import (
    ROW,
    Frame,
    draw_categories,
    draw_key,
    draw_vertical_marks,
    draw_x_axis,
    draw_y_axis,
    frame_for,
    mark_rows,
    picture,
)
from kvcap.report.svg import line, path, rect, text, text_width

HOVER_STRIPS = 120


class Chart(Protocol):
    """Something with a title that draws itself at a size."""

    @property
    def title(self) -> str:
        """What the picture shows."""
        ...

    def svg(self, width: int) -> str:
        """Return the image at a width in CSS pixels."""
        ...


@dataclass(frozen=True)
class Series:
    """A line: its points by ascending x, and its place in the palette, from 1."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int = 1


@dataclass(frozen=True)
class LineChart:
    """Lines over a common x axis.

    Parameters
    ----------
    title
        What the picture shows.
    x, y
        The axes.
    series
        The lines; the first is filled down to the base when ``filled``.
    marks
        Labelled values of x, ascending.
    level
        A labelled value of y that the lines cannot exceed.
    filled
        Whether the area under the first line is tinted.
    flat
        Whether the picture is low, to stand under another one.
    """

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    marks: Sequence[tuple[float, str]] = ()
    level: tuple[float, str] | None = None
    filled: bool = False
    flat: bool = False

    def svg(self, width: int) -> str:
        """Return the image at a width in CSS pixels."""
        height = (170 if self.flat else 320) if width > 400 else (150 if self.flat else 270)
        keyed = 1 if len(self.series) > 1 else 0
        draft = frame_for(width, height, self.y, keyed)
        rows = max(mark_rows(draft, self.x, self.marks), default=-1) + 1
        frame = frame_for(width, height + ROW * rows, self.y, keyed + rows)
        parts = [draw_y_axis(frame, self.y), draw_x_axis(frame, self.x)]
        if keyed:
            parts.append(draw_key(frame, [(f"line s{s.colour}", s.name) for s in self.series], 1))
        parts.append(draw_vertical_marks(frame, self.x, self.marks, 1 + keyed))
        if self.level is not None:
            parts.append(self._draw_level(frame, *self.level))
        parts.append(self._draw_lines(frame))
        parts.append(self._draw_hover(frame))
        return picture(frame, self.title, "".join(parts))

    def _draw_level(self, frame: Frame, value: float, label: str) -> str:
        at = frame.y(self.y.position(value))
        return line(frame.left, at, frame.right, at, "level") + text(
            frame.left + 6, at - 5, label, class_="mark-label"
        )

    def _draw_lines(self, frame: Frame) -> str:
        parts = []
        for index, series in enumerate(self.series):
            points = [(frame.x(self.x.position(x)), frame.y(self.y.position(y))) for x, y in series.points]
            if self.filled and index == 0 and points:
                base = [(points[-1][0], frame.bottom), (points[0][0], frame.bottom)]
                parts.append(path([*points, *base], f"area s{series.colour}"))
            parts.append(path(points, f"line s{series.colour}"))
        return "".join(parts)

    def _draw_hover(self, frame: Frame) -> str:
        """Return invisible strips that say the values of every line at their middle."""
        points = self.series[0].points
        every = max(1, len(points) // HOVER_STRIPS)
        xs = [x for x, _ in points[::every]]
        centres = [frame.x(self.x.position(x)) for x in xs]
        borders = [frame.left, *((a + b) / 2 for a, b in pairwise(centres)), frame.right]
        strips = []
        for x, (left, right) in zip(xs, pairwise(borders), strict=True):
            values = (
                f"{series.name}: {self.y.text(_value_at(series, self.x, x))}"
                for series in self.series
                if series.points[0][0] <= x <= series.points[-1][0]
            )
            tip = "\n".join([self.x.text(x), *values])
            strips.append(rect(left, frame.top, right - left, frame.bottom - frame.top, "hover", tip))
        return "".join(strips)


@dataclass(frozen=True)
class BarChart:
    """Columns over named ranges, standing side by side.

    Parameters
    ----------
    title
        What the picture shows.
    x_title
        What the ranges are of.
    labels, values
        One per column.
    y
        The value axis.
    marks
        Positions between columns (0 is left of the first) that get a labelled hairline, ascending.
    tips
        What is said on hover; None says label and value.
    """

    title: str
    x_title: str
    labels: Sequence[str]
    values: Sequence[float]
    y: Axis
    marks: Sequence[tuple[float, str]] = ()
    tips: Sequence[str] | None = None

    def svg(self, width: int) -> str:
        """Return the image at a width in CSS pixels."""
        height = 300 if width > 400 else 260
        places = Axis("", 0, len(self.values), "linear", str, lambda _: ())
        draft = frame_for(width, height, self.y, 0)
        rows = max(mark_rows(draft, places, self.marks), default=-1) + 1
        frame = frame_for(width, height + ROW * rows, self.y, rows)
        band = (frame.right - frame.left) / max(1, len(self.values))
        gap = 2 if band > 6 else 0.5
        parts = [draw_y_axis(frame, self.y), draw_categories(frame, self.x_title, self.labels)]
        for i, value in enumerate(self.values):
            left = frame.left + i * band
            at = frame.y(self.y.position(value))
            parts.append(rect(left + gap / 2, at, band - gap, frame.bottom - at, "bar s1"))
            tip = self.tips[i] if self.tips else f"{self.labels[i]}\n{self.y.text(value)}"
            parts.append(rect(left, frame.top, band, frame.bottom - frame.top, "hover", tip))
        parts.append(draw_vertical_marks(frame, places, self.marks, 1))
        return picture(frame, self.title, "".join(parts))


@dataclass(frozen=True)
class HeatMap:
    """Shares of 1 in a grid, darker for more, each written in its cell.

    Parameters
    ----------
    title
        What the picture shows.
    x_title, y_title
        What columns and rows are.
    columns, rows
        Their names; the first row is drawn at the bottom.
    values
        One list per row.
    """

    title: str
    x_title: str
    y_title: str
    columns: Sequence[str]
    rows: Sequence[str]
    values: Sequence[Sequence[float]]

    def svg(self, width: int) -> str:
        """Return the image at a width in CSS pixels."""
        row_height = 30
        height = row_height * len(self.rows) + 70
        names = Axis(self.y_title, 0, 1, "linear", str, lambda _: ())
        left = max(text_width(name) for name in self.rows) + 14
        frame = Frame(width, height, left, width - 2, 26, 26 + row_height * len(self.rows))
        cell = (frame.right - frame.left) / len(self.columns)
        short = cell < 44
        parts = [draw_y_axis(frame, names), draw_categories(frame, self.x_title, self.columns)]
        for r, (name, values) in enumerate(zip(self.rows, self.values, strict=True)):
            top = frame.bottom - (r + 1) * row_height
            parts.append(text(left - 8, top + row_height / 2 + 4, name, anchor="end"))
            for c, value in enumerate(values):
                x = frame.left + c * cell
                shade = self._shade(value)
                parts.append(rect(x + 1, top + 1, cell - 2, row_height - 2, f"cell q{shade}"))
                words = f"{100 * value:.0f}" if short else f"{100 * value:.1f} %"
                parts.append(
                    text(
                        x + cell / 2, top + row_height / 2 + 4, words, class_=f"in q{shade}", anchor="middle"
                    )
                )
                tip = f"{self.x_title}: {self.columns[c]}\n{self.y_title}: {name}\n{100 * value:.2f} %"
                parts.append(rect(x, top, cell, row_height, "hover", tip))
        return picture(frame, self.title, "".join(parts))

    def _shade(self, value: float) -> int:
        top = max((v for row in self.values for v in row), default=0.0)
        return min(6, int(7 * value / top)) if top > 0 else 0


@dataclass(frozen=True)
class ShareBar:
    """One whole cut into named parts, side by side.

    Parameters
    ----------
    title
        What the picture shows.
    parts
        Name and share of 1 of each; the last is what is left over, drawn without colour.
    """

    title: str
    parts: Sequence[tuple[str, float]]

    def svg(self, width: int) -> str:
        """Return the image at a width in CSS pixels."""
        row = 22
        frame = Frame(width, 44 + row * len(self.parts), 0, width, 4, 34)
        total = sum(share for _, share in self.parts) or 1.0
        body = []
        at = 0.0
        for i, (name, share) in enumerate(self.parts):
            colour = f"bar s{i + 1}" if i < len(self.parts) - 1 else "bar rest"
            wide = share / total * width
            words = f"{name}: {100 * share:.1f} %"
            body.append(rect(at, frame.top, wide - 2, frame.bottom - frame.top, colour, words))
            y = frame.bottom + row * (i + 1)
            body.append(rect(0, y - 11, 12, 12, colour))
            body.append(text(18, y, words, class_="key"))
            at += wide
        return picture(frame, self.title, "".join(body))


def _value_at(series: Series, axis: Axis, x: float) -> float:
    """Return where a line stands at x, between its first and last point."""
    after = bisect_right(series.points, (x, inf))
    if after == len(series.points):
        return series.points[-1][1]
    (x0, y0), (x1, y1) = series.points[after - 1], series.points[after]
    left, right = axis.position(x0), axis.position(x1)
    part = (axis.position(x) - left) / (right - left) if right > left else 0.0
    return y0 + part * (y1 - y0)

"""SVG elements as text."""

from __future__ import annotations

from html import escape


def element(name: str, body: str = "", **attributes: str | float | None) -> str:
    """Return an element; ``class_`` is ``class``, ``a_b`` is ``a-b``, None leaves an attribute out.

    The body is markup already; attribute values are escaped.
    """
    parts = [name]
    for key, value in attributes.items():
        if value is not None:
            parts.append(f'{key.rstrip("_").replace("_", "-")}="{_attribute(value)}"')
    opening = " ".join(parts)
    return f"<{opening}>{body}</{name}>" if body else f"<{opening}/>"


def _attribute(value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return escape(str(value)).replace("\n", "&#10;")


def text(x: float, y: float, words: str, *, class_: str = "label", anchor: str | None = None) -> str:
    """Return a line of text with its baseline at ``y``."""
    return element("text", escape(words), x=float(x), y=float(y), class_=class_, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """Return a straight line."""
    return element("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)


def rect(x: float, y: float, width: float, height: float, class_: str, tip: str | None = None) -> str:
    """Return a rectangle; ``tip`` is shown on hover."""
    return element(
        "rect",
        x=float(x),
        y=float(y),
        width=max(0.0, float(width)),
        height=max(0.0, float(height)),
        class_=class_,
        data_tip=tip,
    )


def path(points: list[tuple[float, float]], class_: str) -> str:
    """Return a line through points; those that would not move it are left out."""
    rounded = [(round(x, 1), round(y, 1)) for x, y in points]
    kept = [
        point
        for i, point in enumerate(rounded)
        if i in (0, len(rounded) - 1) or not (rounded[i - 1][1] == point[1] == rounded[i + 1][1])
    ]
    steps = " ".join(f"{x:g},{y:g}" for x, y in kept)
    return element("polyline", points=steps, class_=class_)


def text_width(words: str, size: float = 12) -> float:
    """Return about how wide a text is in a sans-serif font."""
    return 0.56 * size * len(words)

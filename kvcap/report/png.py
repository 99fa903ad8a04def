"""Charts as PNG files, through resvg."""

from __future__ import annotations

from kvcap.errors import MissingExtraError
from kvcap.report.charts import Chart
from kvcap.report.svg import element, text
from kvcap.report.theme import standalone_css

_WIDTH = 1000
_SCALE = 2
_MARGIN = 28
_TITLE_HEIGHT = 34


def chart_png(chart: Chart) -> bytes:
    """Return a chart with its title as a light PNG, 2112 pixels wide.

    Raises
    ------
    MissingExtraError
        If resvg is not installed.
    """
    try:
        import resvg_py
    except ImportError:
        raise MissingExtraError("writing PNG", "report") from None
    return bytes(resvg_py.svg_to_bytes(svg_string=standalone_svg(chart), zoom=_SCALE))


def standalone_svg(chart: Chart) -> str:
    """Return a chart with its title as an SVG document that needs no page around it."""
    inner = chart.svg(_WIDTH)
    height = int(inner.split('height="', 1)[1].split('"', 1)[0])
    total = (_WIDTH + 2 * _MARGIN, height + _TITLE_HEIGHT + 2 * _MARGIN)
    body = (
        element("style", standalone_css() + " .title { font-size: 17px; font-weight: 600; fill: #0b0b0b; }")
        + element("rect", width=total[0], height=total[1], fill="#fcfcfb")
        + text(_MARGIN, _MARGIN + 14, chart.title, class_="title")
        + element("g", inner, transform=f"translate({_MARGIN},{_MARGIN + _TITLE_HEIGHT})")
    )
    return element(
        "svg",
        body,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {total[0]} {total[1]}",
        width=total[0],
        height=total[1],
    )

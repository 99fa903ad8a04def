"""Charts are well-formed SVG that stays inside its image and says its values."""

from __future__ import annotations

import sys
from xml.etree import ElementTree

import pytest

from kvcap.errors import MissingExtraError
from kvcap.report import (
    BarChart,
    Chart,
    HeatMap,
    LineChart,
    Page,
    Section,
    Series,
    ShareBar,
    Table,
    chart_png,
    linear_axis,
    render,
    size_axis,
    table_csv,
)
from kvcap.report.axes import percent_text
from kvcap.report.png import standalone_svg

SVG = "{http://www.w3.org/2000/svg}"

SHARES = linear_axis("Hit rate", 0.4, percent_text)
CHARTS: list[Chart] = [
    LineChart(
        "Lines <&>",
        size_axis("Capacity", 1, 1e6, in_bytes=False),
        SHARES,
        [Series("a", [(1, 0.0), (100, 0.1), (1e6, 0.4)]), Series("b", [(1, 0.2), (1e6, 0.3)], colour=2)],
        marks=[(10, "p50"), (12, "p90"), (9e5, "a mark near the right edge")],
        level=(0.4, "ceiling"),
        filled=True,
    ),
    LineChart("Flat", SHARES, SHARES, [Series("a", [(0.1, 0.1)])], flat=True),
    BarChart("Bars", "Age", ["≤ 1 s", "≤ 1 min", "more"], [0.1, 0.2, 0.0], SHARES, marks=[(0.5, "p50")]),
    HeatMap("Heat", "Capacity", "TTL", ["1", "2"], ["a", "b", "c"], [[0.0, 0.1], [0.2, 0.3], [0.4, 0.5]]),
    ShareBar("Parts", [("hbm", 0.5), ("dram", 0.2), ("rest", 0.3)]),
]


@pytest.mark.parametrize("width", [350, 640, 1000])
@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.title.split()[0])
def test_everything_is_drawn_inside_the_image(chart: Chart, width: int) -> None:
    root = ElementTree.fromstring(chart.svg(width))
    assert root.get("width") == str(width)
    height = float(root.get("height", "0"))
    assert root.findtext(f"{SVG}title") == chart.title
    for element in root.iter():
        for name, limit in (("x", width), ("x1", width), ("x2", width), ("y", height), ("y1", height)):
            if (value := element.get(name)) is not None:
                assert -1 <= float(value) <= limit + 1, ElementTree.tostring(element)
        if element.tag == f"{SVG}rect":
            assert float(element.get("x", "0")) + float(element.get("width", "0")) <= width + 1


def test_a_line_passes_through_its_points_at_their_places() -> None:
    chart = LineChart("t", SHARES, SHARES, [Series("a", [(0.0, 0.0), (SHARES.high, SHARES.high)])])
    root = ElementTree.fromstring(chart.svg(640))
    (line,) = (e for e in root.iter(f"{SVG}polyline") if e.get("class") == "line s1")
    points = [tuple(map(float, pair.split(","))) for pair in line.get("points", "").split()]
    base = next(e for e in root.iter(f"{SVG}line") if e.get("class") == "base")
    grid = [float(e.get("y1", "0")) for e in root.iter(f"{SVG}line") if e.get("class") == "grid"]
    assert points[0] == pytest.approx((float(base.get("x1", "0")), float(base.get("y1", "0"))), abs=0.1)
    assert points[-1][0] == pytest.approx(float(base.get("x2", "0")), abs=0.1)
    assert points[-1][1] <= min(grid)


def test_hovering_tells_the_values_of_every_line() -> None:
    tips = [e.get("data-tip", "") for e in ElementTree.fromstring(CHARTS[0].svg(640)).iter(f"{SVG}rect")]
    assert tips[0] == "1\na: 0 %\nb: 20 %"
    assert tips[1] == "100\na: 10 %\nb: 23.3 %"


def test_marks_that_would_cover_each_other_stand_in_rows() -> None:
    root = ElementTree.fromstring(CHARTS[0].svg(640))
    labels = {e.text: e.get("y") for e in root.iter(f"{SVG}text") if e.get("class") == "mark-label"}
    assert labels["p50"] != labels["p90"]


def test_columns_are_as_high_as_their_values() -> None:
    root = ElementTree.fromstring(CHARTS[2].svg(640))
    heights = [float(e.get("height", "0")) for e in root.iter(f"{SVG}rect") if e.get("class") == "bar s1"]
    assert heights[1] == pytest.approx(2 * heights[0], abs=0.2)
    assert heights[2] == 0


def test_a_picture_of_its_own_has_its_title_and_no_variables() -> None:
    picture = standalone_svg(CHARTS[0])
    ElementTree.fromstring(picture)
    assert "Lines &lt;&amp;&gt;" in picture
    assert "var(" not in picture


def test_a_chart_becomes_a_png() -> None:
    pytest.importorskip("resvg_py")
    data = chart_png(CHARTS[0])
    assert data.startswith(b"\x89PNG")
    assert int.from_bytes(data[16:20], "big") == 2112


def test_a_png_without_the_extra_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(MissingExtraError, match=r"kvcap\[report\]"):
        chart_png(CHARTS[0])


def test_a_page_escapes_what_users_named_and_offers_its_tables() -> None:
    table = Table("numbers", ["tenant", "share"], [["<b>&", 0.25], [None, 1]])
    page = Page(
        title="<script>alert(1)</script>",
        subtitle="s",
        answer=["a 5 GiB answer"],
        figures=[("k", "v")],
        sections=[Section("One", "w", [CHARTS[3]], table)],
        footnotes=[("Definitions", [("term", "meaning")])],
    )
    text = render(page)
    assert "<script>alert" not in text
    assert "<td>&lt;b&gt;&amp;</td><td>0.25</td>" in text
    assert "a 5\u00a0GiB answer" in text
    assert 'download="numbers.csv"' in text
    assert table_csv(table) == "tenant,share\n<b>&,0.25\n,1\n"

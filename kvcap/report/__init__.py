"""Reports: charts as SVG, and one HTML page that needs nothing else."""

from kvcap.report.axes import Axis, linear_axis, linear_size_axis, size_axis, time_axis
from kvcap.report.charts import BarChart, Chart, HeatMap, LineChart, Series, ShareBar
from kvcap.report.page import Page, Section, Table, render, table_csv
from kvcap.report.png import chart_png

__all__ = [
    "Axis",
    "BarChart",
    "Chart",
    "HeatMap",
    "LineChart",
    "Page",
    "Section",
    "Series",
    "ShareBar",
    "Table",
    "chart_png",
    "linear_axis",
    "linear_size_axis",
    "render",
    "size_axis",
    "table_csv",
    "time_axis",
]

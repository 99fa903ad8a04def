"""The report as a whole: which sections a replay gets, and that its pictures show its numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from replayed import replayed

from kvcap.analysis.plan_options import PlanOptions, parse_tier
from kvcap.analysis.report import report
from kvcap.cli import main
from kvcap.errors import UsageError
from kvcap.report import HeatMap, LineChart, Page, ShareBar, render

REQUESTS = [[i % 7, i % 5, i] for i in range(200)]
TIERS = PlanOptions(tiers=(parse_tier("hbm=4GiB"), parse_tier("dram=8GiB:4.5")))


def titles(page: Page) -> list[str]:
    return [section.title for section in page.sections]


def test_a_full_log_gets_every_section() -> None:
    columns = {"tenant": ["a", "b"] * 100, "session_id": [str(i % 9) for i in range(200)]}
    with replayed(REQUESTS, seconds=range(0, 2000, 10), columns=columns) as results:
        page = report(results, TIERS)
    assert titles(page) == [
        "Hit rate over capacity",
        "Ideal prefill speed-up",
        "Capacity that requests required",
        "Tiers",
        "How far to trust this",
        "Over time",
        "Age at reuse",
        "Time to live",
        "By tenant",
        "Top sessions",
    ]
    assert [name for name, _ in page.footnotes] == ["Definitions", "Provenance"]


def test_without_timestamps_sessions_tiers_or_bytes_those_sections_are_left_out() -> None:
    with replayed(REQUESTS, bytes_per_token=None) as results:
        page = report(results)
    assert titles(page) == [
        "Hit rate over capacity",
        "Ideal prefill speed-up",
        "Capacity that requests required",
        "How far to trust this",
    ]
    assert "blocks" in dict(page.figures)["Capacity for the goal"]
    render(page)


def test_a_log_without_any_reuse_is_reported_too() -> None:
    with replayed([[i] for i in range(10)], seconds=range(10)) as results:
        page = report(results, TIERS)
    assert dict(page.figures)["Ceiling"] == "0 %"
    render(page)


def test_pools_are_a_table_of_their_own() -> None:
    with replayed(REQUESTS, columns={"tenant": ["a", "b"] * 100}, pool="tenant") as results:
        page = report(results)
    (section,) = (section for section in page.sections if section.title == "By tenant")
    assert "cache of its own" in section.words
    assert section.table is not None
    assert sorted(row[0] for row in section.table.rows) == ["a", "b"]


def test_the_curve_ends_at_the_ceiling_and_tiers_add_up_to_everything() -> None:
    with replayed(REQUESTS, seconds=range(200)) as results:
        page = report(results, TIERS)
    charts = {chart.title: chart for section in page.sections for chart in section.charts}
    curve = charts["Block hit rate over capacity"]
    assert isinstance(curve, LineChart)
    assert curve.level is not None
    assert curve.series[0].points[-1][1] == pytest.approx(curve.level[0])
    rates = [rate for _, rate in curve.series[0].points]
    assert rates == sorted(rates)
    tiers = charts["Prompt tokens by tier"]
    assert isinstance(tiers, ShareBar)
    assert sum(share for _, share in tiers.parts) == pytest.approx(1)
    surface = charts["Block hit rate over time to live and capacity"]
    assert isinstance(surface, HeatMap)
    assert surface.values[-1][-1] == pytest.approx(curve.level[0])


def test_policies_that_were_simulated_are_lines_and_a_table() -> None:
    with replayed(REQUESTS, policies=("lru", "fifo", "optimal"), capacities="4GiB,8GiB,12GiB") as results:
        page = report(results)
    (curve,) = page.sections[0].charts
    assert isinstance(curve, LineChart)
    assert [series.name for series in curve.series] == ["LRU", "FIFO", "optimal"]
    (section,) = (section for section in page.sections if section.title == "Policies")
    assert section.table is not None
    assert section.table.columns == ["capacity", "lru", "fifo", "optimal"]
    assert len(section.table.rows) == 3


def test_a_bounded_replay_claims_nothing_beyond_its_bound() -> None:
    with replayed(REQUESTS, max_capacity="4GiB") as results:
        page = report(results)
        with pytest.raises(UsageError, match="--tier dram is above the --max-capacity"):
            report(results, TIERS)
    assert "nothing more is known" in page.sections[0].words
    assert any("--max-capacity" in words for words in page.answer)


@pytest.mark.parametrize(
    "options",
    [
        {"compute_last_token": True},
        {"max_capacity": "4GiB"},
        {"seconds": [(37 * i) % 2000 for i in range(200)]},
    ],
)
def test_a_working_set_that_is_unknown_is_left_out(options: dict[str, object]) -> None:
    with replayed(REQUESTS, **{"seconds": range(0, 2000, 10), **options}) as results:
        (section,) = (one for one in report(results).sections if one.title == "Over time")
    assert "Working set" not in {chart.title for chart in section.charts}
    assert "working set" not in section.words
    assert len(section.charts) == 2


def test_a_bounded_curve_ends_at_the_bound() -> None:
    with replayed(REQUESTS, max_capacity="20GiB") as results:
        chart = report(results).sections[0].charts[0]
    assert isinstance(chart, LineChart)
    assert chart.x.high == chart.series[0].points[-1][0] == 20 << 30


def test_windows_are_called_by_their_length() -> None:
    options = PlanOptions(tiers=TIERS.tiers, window_seconds=30)
    with replayed(REQUESTS, seconds=range(200)) as results:
        (section,) = (one for one in report(results, options).sections if one.title == "Tiers")
    assert "windows of 30 s" in section.words


def test_sessions_under_rules_are_those_of_most_hits() -> None:
    columns = {"session_id": [str(i % 9) for i in range(200)]}
    with replayed(REQUESTS, columns=columns, compute_last_token=True) as results:
        (section,) = (one for one in report(results).sections if one.title == "Top sessions")
    assert section.words.startswith("The sessions with most of the hits of a cache of")
    assert section.table is not None
    assert "Holds" not in (section.table.headers or [])


def test_the_command_writes_one_file_that_asks_for_nothing(tmp_path: Path) -> None:
    log = Path(__file__).parents[2] / "sample_traces" / "rag.hash_ids.jsonl.gz"
    results, page = tmp_path / "results", tmp_path / "report.html"
    replay = ["replay", str(log), "--kv-bytes-per-token", "163840", "--out", str(results), "--quiet"]
    assert main([*replay, "--max-requests", "600", "-o", str(tmp_path / "answer.txt")]) == 0
    command = ["report", str(results), "--tier", "hbm=80GiB", "--title", "Our <fleet>", "-o", str(page)]
    assert main(command) == 0
    text = page.read_text(encoding="utf-8")
    assert "<title>Our &lt;fleet&gt;</title>" in text
    assert set(re.findall(r"https?://[^\"'\s)<]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"(src|href)=[\"']?(?!\"?data:)", text)
    assert main(command) == 2


def test_png_files_are_written_beside(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    from kvcap.cli.commands.report import _write_png

    with replayed(REQUESTS) as results:
        page = report(results)
    _write_png(page, str(tmp_path / "png"), force=False)
    assert sorted(path.name for path in (tmp_path / "png").iterdir()) == [
        "block_hit_rate_over_capacity.png",
        "ideal_prefill_speed-up_over_capacity.png",
        "requests_by_required_capacity.png",
    ]

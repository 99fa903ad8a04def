"""In which order requests of several files, and of files that run backwards, are replayed; repeats."""

from __future__ import annotations

import gzip
import json
import shutil
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading import read_log, write_log

import kvcap
from kvcap.cli.layouts import account_lines
from kvcap.convert import convert
from kvcap.fleet import FleetJob, FleetResults, plan_pools, read_file, replay_pool
from kvcap.formats.timestamps import YearSteps

TIMES = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=12), min_size=1, max_size=5)


def write_files(directory: Path, files: list[list[int]]) -> list[Path]:
    """Write one file for each list of times; every request has a token of its own."""
    paths = []
    token = 0
    for number, times in enumerate(files):
        lines = []
        for time in times:
            lines.append(json.dumps({"token_ids": [token], "timestamp": time}))
            token += 1
        paths.append(write_log(directory / f"{number}.jsonl", *lines))
    return paths


def order(paths: list[Path], **options: Any) -> list[int]:
    return [tokens[0] for tokens in read_log(paths, **options)[0]["token_ids"].to_pylist()]


def merged(files: list[list[int]]) -> list[int]:
    """Return requests by the latest time of their file so far: files first to last where that is equal."""
    keys = [key for times in files for key in accumulate(times, max)]
    return sorted(range(len(keys)), key=lambda request: keys[request])


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(files=TIMES)
def test_files_that_overlap_are_merged_by_time_and_each_stays_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[int]]
) -> None:
    # Files that run backwards as a whole are another case.
    files = [sorted(times[:1]) + sorted(times[1:], key=lambda t: t // 5) for times in files]
    paths = write_files(tmp_path_factory.mktemp("order"), files)
    if len(files) > 1:
        assert order(paths) == merged(files)
    assert order(paths, order="file") == list(range(sum(map(len, files))))
    flat = [time for times in files for time in times]
    for by_time in ({"order": "time"}, {"sort_by_time": True}):
        assert order(paths, **by_time) == sorted(range(len(flat)), key=lambda request: flat[request])


@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=15)
@given(files=TIMES)
def test_stored_traces_and_fleets_are_merged_as_logs_are(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[int]]
) -> None:
    directory = tmp_path_factory.mktemp("order")
    files = [sorted(times) for times in files]
    paths = write_files(directory, files)
    traces = []
    for path in paths:
        traces.append(path.with_suffix(".parquet"))
        convert([str(path)], str(traces[-1]))
    table, report = read_log(paths)
    stored, stored_report = read_log(traces)
    assert stored["token_ids"].to_pylist() == table["token_ids"].to_pylist()
    assert stored_report.backward_timestamps == report.backward_timestamps == 0
    job = FleetJob(options=kvcap.ReplayOptions.of(block_size=1))
    parts = [list(read_file(job, str(path))) for path in paths]
    heads = [part[0] for part in parts]
    plan = plan_pools(job, heads)
    with FleetResults(job, heads, plan, directory / "results") as results:
        for pool in plan.pools:
            pieces = [parts[file][1 + piece] for file, piece in pool.pieces]
            results.add(replay_pool(job, plan.facts, pool, *pieces))
        with results.commit() as found:
            assert found.table("requests")["timestamp"].to_pylist() == table["timestamp"].to_pylist()
            assert [n for n in found.run.reading.notices if "--order" in n] == [
                n for n in report.notices if "--order" in n
            ]


def test_merging_says_so_and_files_that_follow_each_other_are_left_alone(tmp_path: Path) -> None:
    def notices(files: list[list[int]], **options: Any) -> list[str]:
        paths = write_files(tmp_path, files)
        return [text for text in read_log(paths, **options)[1].notices if "--order" in text]

    assert notices([[0, 1], [2, 3]]) == []
    assert notices([[0, 5], [2, 3]]) == [
        "files overlap in time: their requests are merged in the order of time (--order file keeps that of "
        "the files)"
    ]
    assert "not in the order given" in notices([[2, 3], [0, 1]])[0]
    assert notices([[2, 3], [0, 1]], order="file") == []


def test_large_compressed_files_are_merged_chunk_by_chunk(tmp_path: Path) -> None:
    paths, n = [], 3000
    for number in range(3):
        path = tmp_path / f"{number}.jsonl.gz"
        lines = (
            json.dumps({"token_ids": [*range(800), 3 * r + number], "timestamp": 3 * r + number})
            for r in range(n)
        )
        with gzip.open(path, "wt", compresslevel=1) as stream:
            stream.write("".join(line + "\n" for line in lines))
        paths.append(path)
    table, report = read_log(paths)
    assert [tokens[-1] for tokens in table["token_ids"].to_pylist()] == list(range(3 * n))
    assert report.backward_timestamps == 0


@pytest.mark.parametrize("times", [[9, 8, 8, 5, 1], [40, 30, 20, 10]])
def test_a_log_that_runs_backwards_is_replayed_forwards(tmp_path: Path, times: list[int]) -> None:
    [path] = write_files(tmp_path, [times])
    table, report = read_log(path)
    assert [tokens[0] for tokens in table["token_ids"].to_pylist()] == list(range(len(times)))[::-1]
    assert report.backward_timestamps == 0
    assert any(text.startswith("the log runs backwards, newest first") for text in report.notices)
    assert order([path], order="file") == list(range(len(times)))


def test_what_was_put_in_order_is_no_longer_said_to_be_out_of_it(tmp_path: Path) -> None:
    [path] = write_files(tmp_path, [[5, 6, 1, 7]])
    out_of_order, in_order = read_log(path)[1], read_log(path, order="time")[1]
    assert (out_of_order.backward_timestamps, out_of_order.largest_step_back_us) == (1, 5_000)
    assert (in_order.backward_timestamps, in_order.largest_step_back_us) == (0, 0)
    assert "1 requests (25.00 %) are earlier than the one before them, by up to 0.005 s" in " ".join(
        account_lines(out_of_order)
    )


def test_a_stored_trace_goes_back_as_far_as_its_log(tmp_path: Path) -> None:
    [path] = write_files(tmp_path, [[5, 6, 1, 7, 4]])
    convert([str(path)], str(tmp_path / "trace.parquet"))
    stored, logged = (read_log(name)[1] for name in (str(tmp_path / "trace.parquet"), path))
    assert stored.largest_step_back_us == logged.largest_step_back_us == 5_000
    assert stored.backward_timestamps == logged.backward_timestamps == 2


def vllm(day: str, name: str) -> str:
    return (
        f"INFO {day} 10:00:00 [logger.py:43] Received request {name}: prompt: 'x', params: S(n=1), "
        "prompt_token_ids: [1], lora_request: None."
    )


def test_the_year_steps_over_new_year(tmp_path: Path) -> None:
    path = write_log(
        tmp_path / "log", vllm("12-31", "a"), vllm("01-01", "b"), vllm("12-31", "c"), vllm("01-02", "d")
    )
    years = [time.year for time in read_log(path)[0]["timestamp"].to_pylist()]
    assert years == [2000, 2001, 2000, 2001]
    december = write_log(tmp_path / "1", vllm("12-30", "a"), vllm("12-31", "b"))
    january = write_log(tmp_path / "2", vllm("01-01", "c"), vllm("01-02", "d"))
    for options in ({}, {"order": "file"}):
        table, report = read_log([december, january], **options)
        assert [time.year for time in table["timestamp"].to_pylist()] == [2000, 2000, 2001, 2001]
        assert report.backward_timestamps == 0


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40), st.integers(0, 364))
def test_dates_without_a_year_ascend_over_any_number_of_years(steps: list[int], start: int) -> None:
    from datetime import date, timedelta

    # 2001 has as many days as 2000 but for one, which no date here is.
    days = [date(2001, 1, 1) + timedelta(days=start + total) for total in accumulate(steps)]
    days = [day for day in days if (day.month, day.day) != (2, 29)]
    years = YearSteps()
    dated = [years.dated(f"2000-{day:%m-%d} 00:00:00") for day in days]
    assert dated == sorted(dated)
    assert [int(text[:4]) - 2000 for text in dated] == [day.year - days[0].year for day in days]


def test_the_same_file_twice_is_said_and_left_out_where_that_is_wanted(tmp_path: Path) -> None:
    [path] = write_files(tmp_path, [[1, 2, 3]])
    copy = tmp_path / "copy.jsonl"
    shutil.copy(path, copy)
    for again in (path, copy):
        table, report = read_log([path, again], order="file")
        assert table.num_rows == 6
        assert (
            f"{again} holds the same bytes as {path}: its requests count again (--drop-repeats)"
            in report.notices
        )
        table, report = read_log([path, again], drop_repeats=True)
        assert table.num_rows == 3
        assert f"{again} holds the same bytes as {path}: it is left out" in report.notices


def test_requests_with_the_same_id_and_time_are_counted_or_left_out(tmp_path: Path) -> None:
    records = [
        {"token_ids": [1], "request_id": "a", "timestamp": 5},
        {"token_ids": [1], "request_id": "a", "timestamp": 5},
        {"token_ids": [1], "request_id": "a", "timestamp": 6},
        {"token_ids": [1], "timestamp": 6},
        {"token_ids": [1], "timestamp": 6},
    ]
    path = write_log(tmp_path / "log", *map(json.dumps, records))
    table, report = read_log(path)
    assert table.num_rows == 5
    assert (
        "1 requests come again, with the same id and time: --drop-repeats leaves them out" in report.notices
    )
    table, report = read_log(path, drop_repeats=True)
    assert table.num_rows == 4
    assert report.skipped == {"requests that are logged again, with the same id and time": 1}

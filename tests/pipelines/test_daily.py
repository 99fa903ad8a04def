"""The nightly job over three synthetic days: incremental, changed inputs, a kill in between."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from types import ModuleType

import pytest

from kvcap.cli import main as kvcap_main
from kvcap.errors import SchemaError
from kvcap.queries import History, is_history

SCRIPT = Path(__file__).parents[2] / "pipelines" / "daily.py"
DAYS = ["2026-01-01", "2026-01-02", "2026-01-03"]


@pytest.fixture(scope="module")
def daily() -> ModuleType:
    spec = importlib.util.spec_from_file_location("daily", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_day(logs: Path, day: str, n_requests: int = 60) -> Path:
    folder = logs / day
    folder.mkdir(parents=True, exist_ok=True)
    start = 1000 * int(time.mktime(time.strptime(day, "%Y-%m-%d")))
    lines = (
        json.dumps(
            {"timestamp": start + 1000 * i, "input_length": 8, "block_size": 4, "hash_ids": [i % 7, i % 11]}
        )
        for i in range(n_requests)
    )
    path = folder / "log.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def arguments(tmp_path: Path, *more: str) -> list[str]:
    where = ["--logs", f"{tmp_path}/logs/%Y-%m-%d/*.jsonl", "--root", str(tmp_path / "root")]
    days = ["--day", DAYS[-1], "--since", DAYS[0]]
    return [*where, *days, "--replay", f"--kv-bytes-per-token {1 << 28}", *more]


def replayed_at(tmp_path: Path) -> dict[str, int]:
    root = tmp_path / "root"
    return {day: (root / f"day={day}" / "run.json").stat().st_mtime_ns for day in DAYS}


def left_over(root: Path) -> list[str]:
    return [
        path.name
        for path in root.iterdir()
        if path.name.startswith(".day=") or path.name.startswith(".report")
    ]


def test_days_are_done_once_and_redone_when_their_logs_or_options_change(
    daily: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for day in DAYS:
        write_day(tmp_path / "logs", day)
    assert daily.main(arguments(tmp_path)) == 0
    first = replayed_at(tmp_path)
    capsys.readouterr()

    assert daily.main(arguments(tmp_path)) == 0
    assert capsys.readouterr().out.count("up to date") == 3
    assert replayed_at(tmp_path) == first

    write_day(tmp_path / "logs", DAYS[1], n_requests=80)
    assert daily.main(arguments(tmp_path)) == 0
    changed = replayed_at(tmp_path)
    assert [day for day in DAYS if changed[day] != first[day]] == [DAYS[1]]

    assert daily.main(arguments(tmp_path, "--replay", "--warm-up-percent 10")) == 0
    assert all(replayed_at(tmp_path)[day] != changed[day] for day in DAYS)
    assert left_over(tmp_path / "root") == []


def test_a_run_that_is_killed_leaves_no_half_day_and_the_next_one_goes_on(
    daily: ModuleType, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    write_day(tmp_path / "logs", DAYS[0])
    write_day(tmp_path / "logs", DAYS[2])
    # The second day is large enough to be caught at work.
    write_day(tmp_path / "logs", DAYS[1], n_requests=100_000)
    command = [sys.executable, str(SCRIPT), *arguments(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])}
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        while not any(root.glob(f".day={DAYS[1]}*")):
            assert process.poll() is None
            time.sleep(0.002)
        os.killpg(process.pid, signal.SIGKILL)
    assert sorted(path.name for path in root.glob("day=*")) == [f"day={DAYS[0]}"]
    assert left_over(root) != []

    before = (root / f"day={DAYS[0]}" / "run.json").stat().st_mtime_ns
    assert daily.main(arguments(tmp_path)) == 0
    assert sorted(path.name for path in root.glob("day=*")) == [f"day={day}" for day in DAYS]
    assert (root / f"day={DAYS[0]}" / "run.json").stat().st_mtime_ns == before
    assert left_over(root) == []


def test_results_without_a_note_of_their_inputs_are_not_trusted(daily: ModuleType, tmp_path: Path) -> None:
    for day in DAYS:
        write_day(tmp_path / "logs", day)
    assert daily.main(arguments(tmp_path)) == 0
    first = replayed_at(tmp_path)
    (tmp_path / "root" / f"day={DAYS[2]}" / "inputs.json").unlink()
    assert daily.main(arguments(tmp_path)) == 0
    again = replayed_at(tmp_path)
    assert [day for day in DAYS if again[day] != first[day]] == [DAYS[2]]


def test_limits_decide_the_exit_code_and_the_report_is_of_the_last_day(
    daily: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for day in DAYS:
        write_day(tmp_path / "logs", day)
    assert daily.main(arguments(tmp_path, "--check", "--max-p99 1TiB --min-requests 60")) == 0
    assert capsys.readouterr().out.count("ok ") == 2
    assert daily.main(arguments(tmp_path, "--check", "--max-p99 1GiB")) == 1
    assert "BROKEN" in capsys.readouterr().out
    assert f"<h1>{DAYS[-1]}</h1>" in (tmp_path / "root" / "report.html").read_text()


def test_a_last_day_without_logs_fails(
    daily: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_day(tmp_path / "logs", DAYS[0])
    assert daily.main(arguments(tmp_path)) == 1
    assert f"{DAYS[1]}: no logs" in capsys.readouterr().out
    assert daily.main([*arguments(tmp_path), "--day", DAYS[0]]) == 0


def test_a_day_that_cannot_be_read_fails_the_job_and_leaves_nothing(
    daily: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_day(tmp_path / "logs", DAYS[0])
    write_day(tmp_path / "logs", DAYS[2]).write_text("no log at all\n")
    assert daily.main(arguments(tmp_path)) == 1
    assert "error" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "root").glob("day=*")] == [f"day={DAYS[0]}"]


def test_a_second_run_at_the_same_time_gives_way(
    daily: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_day(tmp_path / "logs", DAYS[2])
    root = tmp_path / "root"
    root.mkdir()
    with daily.only_run(root) as is_alone:
        assert is_alone
        assert daily.main(arguments(tmp_path)) == 1
    assert "another run is at work" in capsys.readouterr().err


def test_all_days_are_read_as_one(
    daily: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = list(zip(DAYS, (10, 20, 30), strict=True))
    for day, n_requests in counts:
        write_day(tmp_path / "logs", day, n_requests)
    assert daily.main(arguments(tmp_path)) == 0
    capsys.readouterr()
    root = str(tmp_path / "root")
    text = "SELECT day, count(*) AS n FROM requests JOIN run USING (day) GROUP BY day ORDER BY day"
    assert kvcap_main(["sql", root, text, "--format", "csv"]) == 0
    assert capsys.readouterr().out.split() == ["day,n", *(f"{day},{n}" for day, n in counts)]

    assert kvcap_main(["sql", root, "--query", "totals", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["day"], row["requests"]) for row in rows] == counts

    assert is_history(root)
    assert not is_history(f"{root}/day={DAYS[0]}")
    with History(root) as history:
        assert list(history.days) == [date.fromisoformat(day) for day in DAYS]
        assert history.table_names == ("requests", "reuse_runs", "curve", "trace")
    assert kvcap_main(["sql", root, "--attach", str(tmp_path / "out.duckdb")]) == 2
    assert f"day={DAYS[-1]}" in capsys.readouterr().err


def test_a_root_without_days_is_no_history(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="results by day"):
        History(tmp_path)
    (tmp_path / "day=yesterday").mkdir()
    (tmp_path / "day=yesterday" / "run.json").write_text("{}")
    with pytest.raises(SchemaError, match="YYYY-MM-DD"):
        History(tmp_path)

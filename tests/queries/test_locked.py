"""SQL over results reaches their tables and nothing else; a directory's name is no pattern."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from small_results import EXAMPLE

import kvcap
from kvcap.cli import main
from kvcap.errors import QueryError, SchemaError
from kvcap.queries import History

N_REQUESTS = EXAMPLE.table().num_rows


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("locked") / "run"
    kvcap.replay(EXAMPLE.table(), out=out).close()
    return out


WAYS_OUT = {
    "read_csv": "FROM read_csv('{file}')",
    "a path as a table": "FROM '{file}'",
    "read_text": "FROM read_text('{file}')",
    "read_blob": "FROM read_blob('{file}')",
    "glob": "FROM glob('{root}/*')",
    "its own Parquet": "FROM read_parquet('{run}/requests.parquet')",
    "COPY TO": "COPY (SELECT 1) TO '{root}/copied.csv'",
    "COPY TO its own Parquet": "COPY (SELECT 1 AS a) TO '{run}/requests.parquet' (USE_TMP_FILE false)",
    "EXPLAIN ANALYZE COPY": "EXPLAIN ANALYZE COPY (SELECT 1) TO '{root}/explained.csv'",
    "PREPARE COPY": "PREPARE p AS COPY (SELECT 1) TO '{root}/prepared.csv'",
    "EXPORT": "EXPORT DATABASE '{root}/exported'",
    "IMPORT": "IMPORT DATABASE '{root}'",
    "ATTACH": "ATTACH '{root}/attached.duckdb'",
    "INSTALL": "INSTALL httpfs",
    "LOAD": "LOAD httpfs",
    "LOAD a file": "LOAD '{file}'",
    "an extension's function": "CALL dsdgen(sf=0)",
    "SET": "SET threads = 1",
    "SET GLOBAL": "SET GLOBAL temp_directory = '{root}'",
    "RESET": "RESET threads",
    "SET the lock": "SET lock_configuration = false",
    "SET the access": "SET enable_external_access = true",
    "PRAGMA": "PRAGMA profiling_output = '{root}/profile.json'",
    "CALL enable_logging": "CALL enable_logging(storage = 'file', storage_path = '{root}/log')",
    "after a statement that is allowed": "SELECT 1; COPY (SELECT 1) TO '{root}/second.csv'",
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_way_out_is_one_line_that_names_unsafe(
    way: str, stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("a,b\n1,2\n")
    before = (stored / "requests.parquet").read_bytes()
    text = WAYS_OUT[way].format(file=file, root=tmp_path, run=stored)
    assert main(["sql", str(stored), text]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("kvcap: error: ")
    assert printed.err.count("\n") == 1
    assert "; --unsafe (unsafe=True in Python) gives DuckDB" in printed.err
    assert list(tmp_path.iterdir()) == [file]
    assert (stored / "requests.parquet").read_bytes() == before


def test_unsafe_gives_the_powers_back(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.csv"
    assert main(["sql", str(stored), f"COPY (SELECT 7 AS a) TO '{file}'", "--unsafe"]) == 0
    capsys.readouterr()
    assert main(["sql", str(stored), f"FROM '{file}'", "--unsafe", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"a": 7}]


def test_what_asks_the_tables_alone_still_runs(stored: Path) -> None:
    with kvcap.open_results(stored) as results:
        for text in ("DESCRIBE requests", "SUMMARIZE curve", "SHOW TABLES", "PRAGMA table_info('requests')"):
            assert results.sql(text).num_rows, text
        assert results.sql("CREATE TABLE mine AS FROM requests; FROM mine").num_rows == N_REQUESTS


def test_results_in_memory_and_days_are_locked_too(stored: Path, tmp_path: Path) -> None:
    root = tmp_path / "days"
    shutil.copytree(stored, root / "day=2026-01-01")
    with EXAMPLE.replayed() as results, History(root) as days, History(root, unsafe=True) as unsafe:
        copy = f"COPY (SELECT 1) TO '{tmp_path / 'out.csv'}'"
        for locked in (results, days):
            with pytest.raises(QueryError, match="--unsafe"):
                locked.sql(copy)
            assert not (tmp_path / "out.csv").exists()
        unsafe.sql(copy)
    assert (tmp_path / "out.csv").exists()


NAMES = (
    "run[1]",
    "r*",
    "r?n",
    "**",
    "it's",
    'a "quoted" run',
    "{a,b}",
    "100%zz",
    "day=x",
    "a;b",
    "s3:",
    "ünï",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_directory_is_the_one_that_is_named(name: str, stored: Path, tmp_path: Path) -> None:
    kvcap.replay(EXAMPLE.table().slice(0, 1), out=tmp_path / "run1").close()
    for other in ("run", "a", "b"):
        shutil.copytree(tmp_path / "run1", tmp_path / other)
    shutil.copytree(stored, tmp_path / name)
    with kvcap.open_results(tmp_path / name) as results:
        assert results.sql("FROM requests").num_rows == N_REQUESTS
    shutil.copytree(stored, tmp_path / "days" / name / "day=2026-01-01")
    with History(tmp_path / "days" / name) as days:
        assert days.sql("FROM requests WHERE day = DATE '2026-01-01'").num_rows == N_REQUESTS


def test_a_table_that_is_no_parquet_is_one_line(stored: Path, tmp_path: Path) -> None:
    shutil.copytree(stored, tmp_path / "run")
    (tmp_path / "run" / "curve.parquet").write_bytes(b"PAR1 not PAR1")
    with (
        kvcap.open_results(tmp_path / "run") as results,
        pytest.raises(SchemaError, match=r"curve\.parquet: expected a Parquet file, found"),
    ):
        results.sql("FROM curve")

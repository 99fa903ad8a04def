"""Results as a DuckDB file that needs nothing of kvcap."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from small_results import EXAMPLE, EXAMPLE_BYTES_PER_TOKEN

import kvcap
from kvcap.errors import QueryError, UsageError
from kvcap.queries import list_queries, write_database


@pytest.fixture(scope="module")
def results() -> Iterator[kvcap.Results]:
    with EXAMPLE.replayed(kv_bytes_per_token=EXAMPLE_BYTES_PER_TOKEN) as opened:
        yield opened


def test_tables_macros_and_queries_answer_in_another_client(results: kvcap.Results, tmp_path: Path) -> None:
    path = tmp_path / "out.duckdb"
    write_database(results, path)
    with duckdb.connect(str(path), read_only=True) as client:
        for name in ("requests", "reuse_runs", "curve", "run"):
            assert client.sql(f"FROM {name}").to_arrow_table().equals(results.sql(f"FROM {name}"))
        for query in list_queries():
            defaults = all(parameter.default is not None for parameter in query.parameters)
            if defaults and set(query.reads) <= {*results.table_names, "run"}:
                answer = client.sql(f"FROM {query.name}").to_arrow_table()
                assert answer.equals(results.query(query.name)), query.name
        tiers = client.sql("FROM tiers('hbm=10, dram=160KiB')").to_arrow_table()
        assert tiers.equals(results.query("tiers", tiers="hbm=10, dram=160KiB"))
        assert client.sql("SELECT bytes('1KiB')").fetchall() == [(1024,)]
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.duckdb"]


def test_queries_over_tables_that_a_run_lacks_stay_out(results: kvcap.Results, tmp_path: Path) -> None:
    write_database(results, tmp_path / "plain.duckdb")
    with (
        duckdb.connect(str(tmp_path / "plain.duckdb")) as client,
        pytest.raises(duckdb.CatalogException, match="policy_hit_rates"),
    ):
        client.sql("FROM policy_hit_rates")
    with EXAMPLE.replayed(policies=("fifo",), capacities="20blocks") as simulated:
        write_database(simulated, tmp_path / "policies.duckdb")
        with duckdb.connect(str(tmp_path / "policies.duckdb")) as client:
            answer = client.sql("FROM policy_hit_rates").to_arrow_table()
            assert answer.equals(simulated.query("policy_hit_rates"))


def test_an_existing_file_is_replaced_only_on_request(results: kvcap.Results, tmp_path: Path) -> None:
    path = tmp_path / "out.duckdb"
    path.write_text("something else")
    with pytest.raises(UsageError, match=r"out\.duckdb exists; give --force to overwrite it"):
        write_database(results, path)
    assert path.read_text() == "something else"
    write_database(results, path, force=True)
    with duckdb.connect(str(path), read_only=True) as client:
        assert client.sql("SELECT count(*) FROM requests").fetchall() == [(12,)]


def test_a_failure_leaves_nothing_behind(
    results: kvcap.Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvcap.queries.database.setup_sql", lambda: "SELECT nonsense")
    with pytest.raises(QueryError, match="nonsense"):
        write_database(results, tmp_path / "out.duckdb")
    assert list(tmp_path.iterdir()) == []

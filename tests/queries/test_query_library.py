"""Headers of the query files, and queries as tables of SQL text.

With KVCAP_REWRITE_EXAMPLES=1 the examples in the headers are written anew.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from fractions import Fraction

import pyarrow as pa
import pytest
from small_results import EXAMPLE, EXAMPLE_BYTES_PER_TOKEN

import kvcap
from kvcap.analysis.explain.answer import explained_trace
from kvcap.analysis.explain.options import ExplainOptions
from kvcap.cli.layouts import ROWS
from kvcap.cli.writer import write
from kvcap.errors import QueryError, UsageError
from kvcap.formats import open_table
from kvcap.queries import NamedQuery, list_queries
from kvcap.queries.library import sql_directory
from kvcap.queries.results import TABLE_NAMES
from kvcap.schema import EXPLAINED, LIMITS, RESTARTS, SURVIVAL

QUERIES = {query.name: query for query in list_queries()}
REQUIRED = {"hit_rate": {"capacity_blocks": "20"}, "tiers": {"tiers": "hbm=10, dram=160KiB, ssd=unlimited"}}
every_query = pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)

ISSUED = {
    "totals", "hit_rate", "hit_rate_curve", "capacity_percentiles", "capacity_for_hit_rate", "by_group",
    "by_hour", "top_sessions", "reuse_time", "ttl_surface", "tiers", "miss_reasons", "session_vs_cross",
    "prefix_hotness", "length_buckets", "block_size_sensitivity",
}  # fmt: skip

ARROW_TYPES = {
    "BIGINT": "int64",
    "DOUBLE": "double",
    "VARCHAR": "string",
    "BOOLEAN": "bool",
    "TIMESTAMP": "timestamp[us]",
}


OBSERVED_BLOCKS = (0, 3, 5, 0, 4, 3, 8, 3, 2, 0, 4, 3)
"""Of the requests of the example log, by a cache of some 20 blocks that lost all before the tenth."""


def example(warm_up: Fraction = Fraction(0)) -> kvcap.Results:
    results = EXAMPLE.replayed(
        warm_up=warm_up,
        kv_bytes_per_token=EXAMPLE_BYTES_PER_TOKEN,
        policies=("lru", "fifo"),
        capacities="10blocks,20blocks",
    )
    tables = {name: results.table(name) for name in results.table_names}
    return kvcap.Results(results.run, {**tables, **explained_tables(is_measured=warm_up == 0)})


def explained_tables(*, is_measured: bool) -> dict[str, pa.Table]:
    """The tables that explain what was observed of the example log; empty where nothing is measured."""
    if not is_measured:
        schemas = {"explained": EXPLAINED, "limits": LIMITS, "restarts": RESTARTS, "survival": SURVIVAL}
        return {name: schema.empty_table() for name, schema in schemas.items()}
    table = EXAMPLE.table()
    observed = pa.array([blocks * EXAMPLE.block_size for blocks in OBSERVED_BLOCKS], pa.int64())
    place = table.schema.get_field_index("observed_cached_tokens")
    table = table.set_column(place, table.schema.field(place), observed)
    found = explained_trace(open_table(table), ExplainOptions(), kvcap.ReplayOptions()).tables
    return {name: found[name] for name in ("explained", "limits", "restarts", "survival")}


@pytest.fixture(scope="module")
def results() -> Iterator[kvcap.Results]:
    with example() as opened:
        yield opened


@pytest.fixture(scope="module")
def unmeasured() -> Iterator[kvcap.Results]:
    with example(warm_up=Fraction(1)) as opened:
        yield opened


def returned(query: NamedQuery) -> list[tuple[str, str]]:
    """The columns that a header promises: name and Arrow type."""
    bare = re.sub(r"\([^()]*\)", "", query.returns)
    columns = [column.split() for column in bare.split(",")]
    return [(name, ARROW_TYPES[sql_type]) for name, sql_type in columns]


def test_every_question_has_its_query() -> None:
    assert set(QUERIES) >= ISSUED


@every_query
def test_a_query_returns_the_columns_of_its_header(query: NamedQuery, results: kvcap.Results) -> None:
    schema = results.query(query.name, **REQUIRED.get(query.name, {})).schema
    assert [(field.name, str(field.type)) for field in schema] == returned(query)


@every_query
def test_a_query_is_one_select_over_what_its_header_reads(query: NamedQuery) -> None:
    assert re.match(r"(WITH|SELECT)\b", query.sql)
    assert ";" not in re.sub(r"--.*", "", query.sql)
    assert set(query.reads) <= set(TABLE_NAMES)
    assert {parameter.name for parameter in query.parameters} == set(re.findall(r"\$(\w+)", query.sql))
    assert max(map(len, (sql_directory() / f"{query.name}.sql").read_text().splitlines())) <= 112


@every_query
def test_the_example_of_a_header_is_what_the_query_answers(query: NamedQuery, results: kvcap.Results) -> None:
    text, *lines = query.example
    stream = io.StringIO()
    write(ROWS, results.sql(text), "table", stream)
    answer = stream.getvalue().rstrip("\n").split("\n")
    if os.environ.get("KVCAP_REWRITE_EXAMPLES"):
        rewrite_example(query, answer)
    else:
        assert lines == answer


def rewrite_example(query: NamedQuery, answer: list[str]) -> None:
    path = sql_directory() / f"{query.name}.sql"
    file = path.read_text()
    header = file[: file.index("-- example:")]
    example = "\n".join(f"--     {line}" for line in (query.example[0], *answer))
    path.write_text(f"{header}-- example:\n{example}\n{query.sql}\n")


@every_query
def test_a_query_is_a_table_of_sql_text(query: NamedQuery, results: kvcap.Results) -> None:
    given = REQUIRED.get(query.name, {})
    arguments = ", ".join(f"{name} := '{text}'" for name, text in given.items())
    assert results.sql(f"FROM {query.name}({arguments})").equals(results.query(query.name, **given))


@every_query
def test_a_query_with_defaults_is_a_view(query: NamedQuery, results: kvcap.Results) -> None:
    if any(parameter.default is None for parameter in query.parameters):
        with pytest.raises(QueryError):
            results.sql(f"FROM {query.name}")
    else:
        assert results.sql(f"FROM {query.name}").equals(results.query(query.name))


def test_queries_compose(results: kvcap.Results) -> None:
    text = """
        SELECT tier_name, hit_tokens / totals.input_tokens AS token_hit_rate
        FROM tiers(['10', 'dram=30'], mode := 'inclusive'), totals
        WHERE totals.pool IS NULL
        ORDER BY tier
    """
    found = results.sql(text).to_pylist()
    expected = results.query("tiers", tiers="10, dram=30", mode="inclusive").to_pylist()
    assert found == [{name: row[name] for name in ("tier_name", "token_hit_rate")} for row in expected]


def test_lists_may_be_lists_in_sql_text(results: kvcap.Results) -> None:
    found = results.sql("FROM hit_rate_curve([5, 20])")
    assert found.equals(results.query("hit_rate_curve", capacities_blocks=[5, 20]))


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("tiers", {"tiers": "1, 2", "mode": "both"}, "mode is 'both', expected exclusive or inclusive"),
        ("top_sessions", {"order_by": "size"}, "order_by is 'size', expected held, hits or p99"),
        ("by_group", {"column_name": "colour"}, "colour"),
        ("hit_rate", {"capacity_blocks": "2 bananas"}, "size is '2 bananas', expected a number and a unit"),
        ("ttl_surface", {"ttls_seconds": "soon"}, "soon"),
    ],
)
def test_a_value_that_does_not_fit_is_named(
    results: kvcap.Results, name: str, parameters: dict[str, str], message: str
) -> None:
    with pytest.raises(QueryError, match=message):
        results.query(name, **parameters)


def test_parameters_that_are_missing_or_unknown_are_named(results: kvcap.Results) -> None:
    with pytest.raises(UsageError, match="query tiers needs tiers"):
        results.query("tiers")
    with pytest.raises(
        UsageError, match="query tiers has no parameter size; it has tiers, mode, window_seconds"
    ):
        results.query("tiers", size=1)
    with pytest.raises(UsageError, match="there is no query 'teirs', expected one of block_size_sensitivity"):
        results.query("teirs")


@every_query
def test_no_measured_request_is_an_answer_too(query: NamedQuery, unmeasured: kvcap.Results) -> None:
    table = unmeasured.query(query.name, **REQUIRED.get(query.name, {}))
    assert [(field.name, str(field.type)) for field in table.schema] == returned(query)
    counts = [name for name in table.column_names if re.match(r"(hit|reused|missed|ceiling)_\w+s\b", name)]
    assert all(set(table[name].to_pylist()) <= {0} for name in counts)

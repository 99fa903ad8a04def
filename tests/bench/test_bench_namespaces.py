"""What a namespace costs a replay: processor time of the same trace with and without one.

pytest -m bench -s tests/bench/test_bench_namespaces.py
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shared_data import shared_path

import kvcap
from kvcap.convert import convert

pytestmark = pytest.mark.bench

MAX_RATIO = 1.03
ROUNDS = 9


def seconds(trace: Path, namespace: tuple[str, ...] | None) -> float:
    start = time.process_time()
    kvcap.replay(trace, reading=kvcap.ReadOptions(namespace=namespace, threads=1)).close()
    return time.process_time() - start


@pytest.mark.parametrize("models", ["one model", "six models"])
def test_a_namespace_costs_at_most_three_percent(tmp_path: Path, models: str) -> None:
    trace = tmp_path / "trace.parquet"
    convert([str(shared_path("traces/agentic_coding.jsonl.xz"))], str(trace))
    if models == "one model":
        table = pq.read_table(trace)
        index = table.schema.get_field_index("namespace")
        same = pa.array(["model=m"] * table.num_rows)
        pq.write_table(table.set_column(index, table.schema.field(index), same), trace, row_group_size=500)
    seconds(trace, None)
    rounds = [(seconds(trace, ()), seconds(trace, None)) for _ in range(ROUNDS)]
    # The two runs of a round share what the rest of the machine does meanwhile.
    ratio = statistics.median(apart / together for together, apart in rounds)
    print(f"\n{models}: {min(t for t, _ in rounds):.2f} s as one world, ratio {ratio:.3f}")
    assert ratio <= MAX_RATIO

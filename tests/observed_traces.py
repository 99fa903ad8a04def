"""Traces with what their caches were seen to do."""

from __future__ import annotations

import pyarrow as pa

from kvcap.analysis.explain.observed import observed_log
from kvcap.options import ReplayOptions
from kvcap.replay.job import streamed_trace
from kvcap.schema import trace_schema


def trace_table(rows):
    """A trace of hash ids with the columns of what its caches did."""
    schema = trace_schema("hash_ids")
    n = len(rows)
    arrays = [
        pa.array(range(n), field.type)
        if field.name == "request_id"
        else pa.array([row.get(field.name) for row in rows], field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def observe(trace, **blocks):
    """Return an open trace as its caches saw it, full blocks only unless options say otherwise."""
    options = ReplayOptions.of(**{"partial_block": "drop", **blocks})
    return observed_log(streamed_trace(trace, options, None, None, None, 1), options)

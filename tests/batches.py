"""Hand-made record batches of traces."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kvcap.schema import trace_schema


def token_batch(prompts: Sequence[Sequence[int]]) -> pa.RecordBatch:
    """A batch of a token trace."""
    schema = trace_schema("token_ids")
    columns = {
        "request_id": range(len(prompts)),
        "input_length": [len(prompt) for prompt in prompts],
        "token_ids": prompts,
    }
    return _batch(columns, len(prompts), schema)


def hash_batch(
    requests: Sequence[Sequence[int]],
    input_lengths: Sequence[int],
    block_size: int | None,
    block_tokens: Sequence[Sequence[int]] | None = None,
    pools: Sequence[str] | None = None,
) -> pa.RecordBatch:
    """A batch of a hash trace."""
    schema = trace_schema("hash_ids")
    columns = {
        "request_id": range(len(requests)),
        "pool": pools,
        "input_length": input_lengths,
        "block_size": [block_size] * len(requests),
        "hash_ids": requests,
        "block_tokens": block_tokens,
    }
    return _batch(columns, len(requests), schema)


def _batch(columns: dict, n_rows: int, schema: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        arrays.append(pa.nulls(n_rows, field.type) if values is None else pa.array(list(values), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

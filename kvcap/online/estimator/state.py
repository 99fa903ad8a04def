"""An estimator's state as an Arrow table: one row per array, what it belongs to in the metadata."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kvcap.errors import SchemaError

STATE_VERSION: Final = 2
_STATE_KEY: Final = b"kvcap.estimator_state"
_SCHEMA: Final = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("dtype", pa.string(), nullable=False),
        pa.field("shape", pa.list_(pa.int64()), nullable=False),
        pa.field("values", pa.large_binary(), nullable=False),
    ]
)

Arrays = dict[str, npt.NDArray[Any]]


def pack_state(arrays: Arrays, metadata: dict[str, Any]) -> pa.Table:
    """Return arrays and their metadata as a table that shares no memory with them."""
    rows = {
        "name": list(arrays),
        "dtype": [array.dtype.str for array in arrays.values()],
        "shape": [list(array.shape) for array in arrays.values()],
        "values": [array.tobytes() for array in arrays.values()],
    }
    text = json.dumps({"version": STATE_VERSION, **metadata})
    return pa.table(rows, schema=_SCHEMA).replace_schema_metadata({_STATE_KEY: text.encode()})


def unpack_state(table: pa.Table) -> tuple[Arrays, dict[str, Any]]:
    """Return what :func:`pack_state` was given.

    Raises
    ------
    SchemaError
        If the table is not of this version of it.
    """
    text = (table.schema.metadata or {}).get(_STATE_KEY)
    if text is None:
        raise SchemaError("estimator state", "the state of a kvcap estimator", "another table")
    metadata: dict[str, Any] = json.loads(text)
    if metadata.pop("version") != STATE_VERSION:
        raise SchemaError("estimator state", f"version {STATE_VERSION}", "another version")
    arrays: Arrays = {}
    for row in table.to_pylist():
        array = np.frombuffer(row["values"], np.dtype(row["dtype"])).reshape(row["shape"]).copy()
        arrays[row["name"]] = array
    return arrays, metadata

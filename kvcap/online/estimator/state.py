"""An estimator's state as an Arrow table: one row per array, what it belongs to in the metadata.

The metadata holds a checksum, which tells a damaged file; a file that somebody made to do harm has a right
one, so whoever takes the arrays checks what is in them.
"""

from __future__ import annotations

import json
import math
from hashlib import blake2b
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kvcap.errors import SchemaError
from kvcap.kernels.arrays import Int64Array
from kvcap.online.estimator.requests import RequestKind

STATE_VERSION: Final = 3
_STATE_KEY: Final = b"kvcap.estimator_state"
_DTYPES: Final = tuple(np.dtype(kind).str for kind in (np.int64, np.uint64))
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
    table = pa.table(rows, schema=_SCHEMA)
    text = json.dumps({"version": STATE_VERSION, "checksum": _checksum(table), **metadata})
    return table.replace_schema_metadata({_STATE_KEY: text.encode()})


def unpack_state(table: pa.Table) -> tuple[Arrays, dict[str, Any]]:
    """Return what :func:`pack_state` was given.

    Raises
    ------
    SchemaError
        If the table is not of this version of it.
    """
    text = (table.schema.metadata or {}).get(_STATE_KEY)
    if text is None or table.schema.remove_metadata() != _SCHEMA:
        raise state_error("another table")
    try:
        metadata: Any = json.loads(text)
    except ValueError as error:
        raise state_error(f"metadata that is no JSON ({error})") from error
    version = metadata.pop("version", None) if isinstance(metadata, dict) else None
    if version != STATE_VERSION:
        raise SchemaError("estimator state", f"version {STATE_VERSION}", f"version {version}")
    if metadata.pop("checksum", None) != _checksum(table):
        raise state_error("a damaged one (its checksum differs)")
    return {row["name"]: _array(row) for row in table.to_pylist()}, metadata


def state_error(found: str) -> SchemaError:
    """Return the error that says what a state is instead of one."""
    return SchemaError("estimator state", "the state of a kvcap estimator; remove it to begin anew", found)


def _array(row: dict[str, Any]) -> npt.NDArray[Any]:
    shape = row["shape"]
    if row["dtype"] not in _DTYPES or not all(type(n) is int and n >= 0 for n in shape):
        raise state_error(f"{row['name']} of {row['dtype']} {shape}")
    if math.prod(shape) * np.dtype(row["dtype"]).itemsize != len(row["values"]):
        raise state_error(f"{row['name']} of {shape} in {len(row['values'])} bytes")
    return np.frombuffer(row["values"], row["dtype"]).reshape(shape).copy()


def _checksum(table: pa.Table) -> str:
    """Return a digest of names, types, shapes and values."""
    digest = blake2b(digest_size=16)
    for row in range(table.num_rows):
        described = [table.column(name)[row].as_py() for name in ("name", "dtype", "shape")]
        digest.update(json.dumps(described).encode())
        digest.update(table.column("values")[row].as_buffer())
    return digest.hexdigest()


def checked_metadata(
    metadata: dict[str, Any], max_pools: int
) -> tuple[RequestKind | None, int | None, list[str | None]]:
    """Return the kind of the requests, the latest time and the names of the pools.

    Raises
    ------
    SchemaError
        If one of them is not what an estimator stores.
    """
    kind, latest_us, pools = (metadata.get(name) for name in ("kind", "latest_us", "pools"))
    if kind not in (None, *get_args(RequestKind)):
        raise state_error(f"requests of kind {kind!r:.40}")
    if latest_us is not None and (type(latest_us) is not int or abs(latest_us) >= 2**63):
        raise state_error(f"a time of {latest_us!r:.40}")
    if type(pools) is not list or not all(pool is None or type(pool) is str for pool in pools):
        raise state_error(f"pools {pools!r:.40}")
    if len(set(pools)) != len(pools) or len(pools) > max_pools:
        raise state_error(f"{len(pools)} pools, of at most {max_pools} different ones")
    return kind, latest_us, pools


def checked_rows(array: npt.NDArray[Any] | None, n_dimensions: int, n_columns: int) -> Int64Array:
    """Return an array of int64 with ``n_columns`` at its end.

    Raises
    ------
    SchemaError
        If it is none.
    """
    if array is None or array.dtype != np.int64 or array.ndim != n_dimensions or array.shape[-1] != n_columns:
        raise state_error("counts of other columns")
    return array

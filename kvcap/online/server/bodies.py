"""Bodies of ``POST /v1/requests``: one request, a list, lines of them, or an Arrow IPC stream.

A request is an object with ``token_ids``, or with ``hash_ids`` and perhaps ``input_length``; further
``timestamp`` (seconds since 1970), ``pool``, ``session_id`` and ``output_length``, which only the log keeps.
What besides tokens must agree for blocks to be shared is ``namespace``, or ``model``, ``cache_salt``,
``lora_name`` and the like. An Arrow stream has the same columns, its timestamps of any Arrow timestamp type.
All requests of a body are taken, or none.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kvcap.blocks.keyer import list_arrays
from kvcap.errors import RequestRefusedError, UsageError
from kvcap.formats.identity import IDENTITY_FIELDS, namespace_of
from kvcap.kernels.arrays import offsets_of
from kvcap.online.estimator import RequestBatch
from kvcap.online.estimator.requests import RequestKind, as_ids
from kvcap.online.server.arrow_bounds import MalformedStreamError, decompressed_bytes
from kvcap.online.server.http import ARROW_TYPES, LINES_TYPES
from kvcap.online.server.incoming import Incoming
from kvcap.online.server.options import ClientLimits
from kvcap.schema import HASH_IDS, TOKEN_IDS

MAX_LENGTH: Final = 2**31
"""Tokens of one prompt or answer, at most: totals stay exact."""
MAX_NAME: Final = 1024
"""Characters of a pool, a session, a model or a namespace."""
_MAX_TIMESTAMP_S: Final = 2**43 - 1

_LABELS: Final[dict[str, type[str] | type[int]]] = {"session_id": str, "model": str, "output_length": int}
_FIELDS: Final = (
    "token_ids",
    "hash_ids",
    "input_length",
    "timestamp",
    "pool",
    *_LABELS,
    "namespace",
    *sorted(IDENTITY_FIELDS),
)


def decode_body(
    body: bytes, content_type: str, limits: ClientLimits, namespace: tuple[str, ...] | None = None
) -> Incoming:
    """Return the requests of a body.

    Parameters
    ----------
    body
        As received.
    content_type
        Its media type, without parameters; what is no Arrow stream and no lines is JSON.
    limits
        How many requests a body may hold, how many ids each of them, and how many bytes once decompressed.
    namespace
        Fields that make the namespace; None takes those that are known for it.

    Raises
    ------
    RequestRefusedError
        If it is not what it should be.
    """
    if content_type in ARROW_TYPES:
        return _from_arrow(body, limits, namespace)
    if content_type in LINES_TYPES:
        lines = [line for line in body.splitlines() if line.strip()]
        _check_count(len(lines), limits)
        found = [_json(line, f"line {n}: ") for n, line in enumerate(lines, 1)]
        return _from_objects(found, limits, namespace)
    found = _json(body, "")
    return _from_objects(found if isinstance(found, list) else [found], limits, namespace)


def _check_count(requests: int, limits: ClientLimits) -> None:
    if requests > limits.max_pending:
        raise RequestRefusedError(
            413, f"the body holds {requests} requests, expected at most {limits.max_pending} (--max-pending)"
        )


def _json(text: bytes, where: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RequestRefusedError(400, f"{where}is no JSON ({error}), expected a request") from error


def _from_objects(requests: list[Any], limits: ClientLimits, namespace: tuple[str, ...] | None) -> Incoming:
    _check_count(len(requests), limits)
    kinds: set[RequestKind] = set()
    ids = []
    for number, request in enumerate(requests):
        where = f"request {number}: " if len(requests) > 1 else ""
        try:
            kind, values = _ids(request, namespace)
        except UsageError as error:
            raise RequestRefusedError(422, f"{where}{error}") from error
        if values.size > limits.max_ids_per_request:
            raise RequestRefusedError(
                413, f"{where}holds {values.size} {kind}, expected at most {limits.max_ids_per_request}"
            )
        kinds.add(kind)
        ids.append(values)
    if len(kinds) != 1:
        found = "both token_ids and hash_ids" if kinds else "no request"
        raise RequestRefusedError(422, f"the body holds {found}, expected requests of one kind")
    lengths = np.array([values.size for values in ids], np.int64)
    try:
        return Incoming(
            RequestBatch(
                kind=kinds.pop(),
                ids=ids[0] if len(ids) == 1 else np.concatenate(ids),
                offsets=offsets_of(lengths),
                input_tokens=_numbers(requests, "input_length"),
                timestamps_us=_timestamps(requests),
                pools=_column(requests, "pool", str),
                namespaces=_namespaces(requests, namespace),
            ),
            _labels(requests),
        )
    except UsageError as error:
        raise RequestRefusedError(422, str(error)) from error


def _ids(request: Any, namespace: tuple[str, ...] | None) -> tuple[RequestKind, Any]:
    if not isinstance(request, dict):
        raise UsageError("is no object, expected one with token_ids or hash_ids")
    unknown = [name for name in request if name not in _FIELDS and name not in (namespace or ())]
    if unknown:
        raise UsageError(f"holds {unknown[0]}, expected only {', '.join(_FIELDS)}")
    tokens, hashes = request.get("token_ids"), request.get("hash_ids")
    if (tokens is None) == (hashes is None):
        raise UsageError("expected either token_ids or hash_ids")
    if tokens is not None and request.get("input_length") is not None:
        raise UsageError("holds input_length, which token_ids tell themselves")
    kind: RequestKind = "token_ids" if hashes is None else "hash_ids"
    values = tokens if hashes is None else hashes
    if not isinstance(values, list):
        raise UsageError(f"{kind} is no list, expected whole numbers")
    return kind, as_ids(values, kind)


def _namespaces(requests: list[dict[str, Any]], namespace: tuple[str, ...] | None) -> list[str | None] | None:
    """Return the namespace of every request; None where none has any."""
    found = [request_namespace(request, request.get("model"), namespace) for request in requests]
    return found if any(found) else None


def request_namespace(
    request: dict[str, Any], model: str | None, namespace: tuple[str, ...] | None
) -> str | None:
    """Return the namespace that the fields of one request make.

    Raises
    ------
    RequestRefusedError
        If it is too long to be remembered.
    """
    found = namespace_of(request, model, namespace)
    if found is not None and len(found) > MAX_NAME:
        raise RequestRefusedError(
            422, f"what keeps a request apart has {len(found)} characters, expected at most {MAX_NAME}"
        )
    return found


def _labels(requests: list[dict[str, Any]]) -> dict[str, list[Any]]:
    labels = {}
    for name, kind in _LABELS.items():
        column = _column(requests, name, kind)
        if column is not None:
            labels[name] = column
    return labels


def _column(requests: list[dict[str, Any]], name: str, kind: type) -> list[Any] | None:
    """Return one field of all requests; None when no request has it."""
    values = [request.get(name) for request in requests]
    if all(value is None for value in values):
        return None
    for value in values:
        _check_label(name, value, kind)
    return values


def _check_label(name: str, value: Any, kind: type) -> None:
    if value is None:
        return
    if type(value) is not kind:
        raise UsageError(f"{name} is {value!r:.60}, expected {'text' if kind is str else 'a whole number'}")
    if isinstance(value, int) and not 0 <= value <= MAX_LENGTH:
        raise UsageError(f"{name} is {value}, expected a whole number from 0 to {MAX_LENGTH}")
    if isinstance(value, str) and len(value) > MAX_NAME:
        raise UsageError(f"{name} has {len(value)} characters, expected at most {MAX_NAME}")


def _numbers(requests: list[dict[str, Any]], name: str) -> Any:
    values = _column(requests, name, int)
    if values is None:
        return None
    if any(value is None for value in values):
        raise UsageError(f"{name} stands in some requests only, expected in all or none")
    return np.array(values, np.int64)


def _timestamps(requests: list[dict[str, Any]]) -> Any:
    values: list[Any] = [request.get("timestamp") for request in requests]
    if all(value is None for value in values):
        return None
    for value in values:
        if type(value) not in (int, float) or not 0 <= value <= _MAX_TIMESTAMP_S:
            raise UsageError(
                f"timestamp is {value!r:.60}, expected seconds since 1970, in all requests or none"
            )
    return np.array([round(value * 1_000_000) for value in values], np.int64)


def _from_arrow(body: bytes, limits: ClientLimits, namespace: tuple[str, ...] | None) -> Incoming:
    try:
        size = decompressed_bytes(body)
        if size > limits.max_body_bytes:
            raise RequestRefusedError(
                413,
                f"the stream holds {size} bytes, expected at most {limits.max_body_bytes} (--max-body-size)",
            )
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            table = reader.read_all()
        table.validate(full=True)
        return _from_table(table, limits, namespace)
    except (pa.ArrowException, OSError, MalformedStreamError) as error:
        first_line = str(error).splitlines()[0] if str(error) else repr(error)
        raise RequestRefusedError(
            400, f"the body does not read as an Arrow IPC stream of requests ({first_line})"
        ) from error
    except UsageError as error:
        raise RequestRefusedError(422, str(error)) from error


def _from_table(table: pa.Table, limits: ClientLimits, namespace: tuple[str, ...] | None) -> Incoming:
    unknown = [name for name in table.column_names if name not in _FIELDS and name not in (namespace or ())]
    if unknown:
        raise UsageError(f"the stream holds {unknown[0]}, expected only {', '.join(_FIELDS)}")
    if len({"token_ids", "hash_ids"} & set(table.column_names)) != 1:
        raise UsageError("expected a column of either token_ids or hash_ids")
    kind: RequestKind = "token_ids" if "token_ids" in table.column_names else "hash_ids"
    if kind == "token_ids" and "input_length" in table.column_names:
        raise UsageError("the stream holds input_length, which token_ids tell themselves")
    if table.num_rows == 0:
        raise UsageError("the stream holds no request")
    _check_count(table.num_rows, limits)
    for name in table.column_names:
        _check_encoding(name, table.column(name))
    table = table.combine_chunks()
    column = _array(table, kind, TOKEN_IDS if kind == "token_ids" else HASH_IDS)
    if column.null_count or column.flatten().null_count:
        raise UsageError(f"{kind} holds nulls, expected whole numbers")
    ids, offsets = list_arrays(column, np.dtype(np.uint32 if kind == "token_ids" else np.uint64))
    longest = int(np.diff(offsets).max())
    if longest > limits.max_ids_per_request:
        raise RequestRefusedError(
            413, f"a request holds {longest} {kind}, expected at most {limits.max_ids_per_request}"
        )
    lengths = _integers(table, "input_length", pa.int64())
    if lengths is not None and not 0 <= lengths.min() <= lengths.max() <= MAX_LENGTH:
        raise UsageError(f"input_length holds a number outside 0 to {MAX_LENGTH}")
    times = _integers(table, "timestamp", pa.timestamp("us"))
    if times is not None and not 0 <= times.min() <= times.max() <= _MAX_TIMESTAMP_S * 1_000_000:
        raise UsageError("timestamp holds a time out of range, expected times since 1970")
    labels = {name: _optional(table, name, kind_) for name, kind_ in _LABELS.items()}
    parts = sorted({*IDENTITY_FIELDS, "namespace", "model", *(namespace or ())} & set(table.column_names))
    namespaces = _namespaces(table.select(parts).to_pylist(), namespace) if parts else None
    return Incoming(
        RequestBatch(kind, ids, offsets, lengths, times, _optional(table, "pool", str), namespaces),
        {name: values for name, values in labels.items() if values is not None},
    )


def _check_encoding(name: str, column: pa.ChunkedArray) -> None:
    """Refuse what takes more room as plain values than in the stream, but for short names."""
    kind = column.type
    if pa.types.is_run_end_encoded(kind) or (
        pa.types.is_dictionary(kind) and pa.types.is_nested(kind.value_type)
    ):
        raise UsageError(f"{name} is {kind}, expected plain values")
    if pa.types.is_dictionary(kind) and not pa.types.is_primitive(kind.value_type):
        longest = max(pc.max(pc.binary_length(part.dictionary)).as_py() or 0 for part in column.chunks)
        if longest > MAX_NAME:
            raise UsageError(f"{name} has a value of {longest} bytes, expected at most {MAX_NAME}")


def _array(table: pa.Table, name: str, wanted: pa.DataType) -> pa.Array:
    column = table.column(name)
    array = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    if array.type == pa.list_(pa.int64()) and wanted == HASH_IDS:
        return pa.ListArray.from_arrays(array.offsets, array.values.view(pa.uint64()))
    if array.type == wanted:
        return array
    return pc.cast(array, wanted)


def _integers(table: pa.Table, name: str, wanted: pa.DataType) -> Any:
    if name not in table.column_names:
        return None
    array = _array(table, name, wanted)
    if array.null_count:
        raise UsageError(f"{name} holds nulls, expected a value in every request, or no such column")
    return np.ascontiguousarray(array.cast(pa.int64()).to_numpy(zero_copy_only=False))


def _optional(table: pa.Table, name: str, kind: type) -> list[Any] | None:
    if name not in table.column_names:
        return None
    values: list[Any] = _array(table, name, pa.string() if kind is str else pa.int64()).to_pylist()
    for value in values:
        _check_label(name, value, kind)
    return values

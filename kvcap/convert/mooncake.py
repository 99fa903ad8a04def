"""Hash ids as JSON Lines in the shape of Mooncake's traces, which other tools read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import orjson

from kvcap.writing import check_ending, written_beside

if TYPE_CHECKING:
    import pyarrow as pa

_MICROSECONDS = 1000


def write_mooncake(batches: Iterable[pa.RecordBatch], path: str, *, force: bool) -> None:
    """Write one line per request: timestamp in milliseconds, lengths, block size, ids, and kept columns.

    Raises
    ------
    UsageError
        If ``path`` exists and ``force`` is false, or its name says another format.
    """
    check_ending(path, "JSON Lines", ".jsonl", ".json", ".ndjson")
    with written_beside(path, force=force) as beside, beside.open("wb") as stream:
        for batch in batches:
            stream.writelines(_lines(batch))


def _lines(batch: pa.RecordBatch) -> Iterable[bytes]:
    import pyarrow as pa

    scalars = [
        field.name for field in batch.schema if field.name not in ("request_id", "hash_ids", "block_tokens")
    ]
    rows = batch.select(scalars).set_column(
        scalars.index("timestamp"), "timestamp", batch.column("timestamp").cast(pa.int64())
    )
    ids, weights = batch.column("hash_ids"), batch.column("block_tokens")
    for index, row in enumerate(rows.to_pylist()):
        record: dict[str, Any] = {name: value for name, value in row.items() if value is not None}
        if "timestamp" in record:
            record["timestamp"] = _milliseconds(record["timestamp"])
        if "model" in record:
            # Readers would make one of the model otherwise.
            record.setdefault("namespace", "")
        record["hash_ids"] = ids[index].values.to_numpy()
        if weights[index].is_valid:
            record["block_tokens"] = weights[index].values.to_numpy()
        yield orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE, default=str)


def _milliseconds(time_us: int) -> int | float:
    """Return milliseconds, whole where they are."""
    whole, rest = divmod(time_us, _MICROSECONDS)
    return whole if rest == 0 else time_us / _MICROSECONDS

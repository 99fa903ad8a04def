"""Open Parquet files, and read what they say about themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kvcap.errors import SchemaError
from kvcap.schema import PROVENANCE_KEY, SCHEMA_KEY

if TYPE_CHECKING:
    import pyarrow.parquet as pq


def read_provenance(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    """Return how a file came about by its metadata, empty if it does not say."""
    text = (metadata or {}).get(PROVENANCE_KEY)
    if text is None:
        return {}
    try:
        provenance = json.loads(text)
    except ValueError:
        return {}
    return provenance if isinstance(provenance, dict) else {}


def read_schema_name(schema: pa.Schema) -> tuple[str, int] | None:
    """Return table and version of a file that kvcap wrote, or None for any other."""
    name, _, version = (schema.metadata or {}).get(SCHEMA_KEY, b"").decode(errors="replace").partition("/")
    return (name, int(version)) if version.isdecimal() else None


@contextmanager
def open_parquet(name: str, filesystem: Any = None, path: str | None = None) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file for reading.

    Raises
    ------
    SchemaError
        If it is damaged or no Parquet file.
    """
    import pyarrow.parquet as pq  # Slow to import, and logs are seldom Parquet.

    try:
        with pq.ParquetFile(path or name, filesystem=filesystem) as file:
            yield file
    except pa.ArrowException as error:
        raise SchemaError(name, "a Parquet file", f"something else ({_first_line(error)})") from error
    except OSError as error:
        if error.errno is None:
            raise SchemaError(name, "a Parquet file", f"damaged data ({_first_line(error)})") from error
        raise


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].rstrip(".")


def row_group_sizes(file: pq.ParquetFile, columns: Sequence[str]) -> list[tuple[int, int]]:
    """Return rows and values, of all of ``columns`` together, of each row group of a file."""
    sizes: list[tuple[int, int]] = []
    for index in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(index)
        chunks = (group.column(i) for i in range(group.num_columns))
        values = sum(chunk.num_values for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns)
        sizes.append((group.num_rows, values))
    return sizes

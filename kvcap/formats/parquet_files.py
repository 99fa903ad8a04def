"""Open Parquet files, and read what they say about themselves."""

from __future__ import annotations

import faulthandler
import json
import os
import warnings
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
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise SchemaError(name, "a Parquet file", f"something else ({_first_line(error)})") from error
    except OSError as error:
        if error.errno is None:
            raise SchemaError(name, "a Parquet file", f"damaged data ({_first_line(error)})") from error
        raise


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].rstrip(".")


def checked_row_group_sizes(
    file: pq.ParquetFile, columns: Sequence[str], name: str, max_row_values: int
) -> list[tuple[int, int]]:
    """Return :func:`row_group_sizes` of a file from anywhere.

    Raises
    ------
    SchemaError
        If the file's description of a column is damaged, or its rows hold more than ``max_row_values`` each.
    """
    if not _is_described(file.metadata):
        raise SchemaError(name, "a Parquet file", "damaged data (its description of a column)")
    sizes = row_group_sizes(file, columns)
    for rows, values in sizes:
        if values > max_row_values * max(1, rows) * max(1, len(columns)):
            most = f"at most {max_row_values:,} values a row (--max-request-tokens)"
            raise SchemaError(name, most, f"{values:,} in {rows:,} rows")
    return sizes


def row_group_sizes(file: pq.ParquetFile, columns: Sequence[str]) -> list[tuple[int, int]]:
    """Return rows and values, of all of ``columns`` together, of each row group of a file."""
    sizes: list[tuple[int, int]] = []
    for index in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(index)
        chunks = (group.column(i) for i in range(group.num_columns))
        values = sum(chunk.num_values for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns)
        sizes.append((group.num_rows, values))
    return sizes


def _is_described(metadata: pq.FileMetaData) -> bool:
    """Return whether the description of every column can be asked for.

    Asking for one that is damaged ends the process, from within Arrow; so a child asks first, which has
    nothing to lose and shares all there is to know.
    """
    if not hasattr(os, "fork"):
        return True
    with warnings.catch_warnings():
        # What other threads hold matters to nothing that the child does.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            # Nobody is to hear of how it ends.
            faulthandler.disable()
            with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
                os.dup2(nowhere.fileno(), 2)
            for index in range(metadata.num_row_groups):
                group = metadata.row_group(index)
                for column in range(group.num_columns):
                    group.column(column)
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0

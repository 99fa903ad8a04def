"""The estimator's state in a file: always a whole one, the last that was finished."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kvcap.errors import SchemaError
from kvcap.online.estimator import Estimator, EstimatorOptions
from kvcap.parquet_io import write_table


def save_state(state: pa.Table, path: str) -> None:
    """Write a state beside the file and put it in its place."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_table(state, path, force=True)


def load_estimator(path: str | None, options: EstimatorOptions) -> Estimator:
    """Return the estimator of a state file, or a new one where there is none.

    Raises
    ------
    SchemaError
        If the file is no state, or one of other options.
    """
    if path is None or not Path(path).exists():
        return Estimator(options)
    try:
        table = pq.read_table(path)
    except pa.ArrowException as error:
        raise SchemaError(path, "an estimator's state", str(error).splitlines()[0]) from error
    try:
        return Estimator.restore(options, table)
    except SchemaError as error:
        raise SchemaError(path, error.expected, error.found) from error

"""Every error that kvcap raises on purpose.

::

    KvcapError
    |- UsageError (ValueError)    a bad argument or a combination that means nothing
    |  `- OutputExistsError        what would be written is there already
    |- TraceError                 a log that cannot be read as it stands
    |  |- UnknownFormatError      no reader recognizes it
    |  |- RecordError             one record is wrong
    |  `- EmptyTraceError         it holds no request
    |- SchemaError                a Parquet file or column is not what it should be
    |- ModelError                 an unknown model, or a config that cannot be accounted for
    |- QueryError                 SQL that does not run
    |- RequestRefusedError        a request that the service does not take as it is, or now
    `- MissingExtraError          a command whose optional dependency is not installed

``OSError`` passes through unchanged. The command line prints any of these as one line and exits
with ``exit_code``; an HTTP service answers with ``http_status``.
"""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any, ClassVar


class KvcapError(Exception):
    """Base of every error that kvcap raises on purpose."""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as it stands: constructors take parts of the message, not the message."""
        return _restored, (type(self), self.args, self.__dict__)


class UsageError(KvcapError, ValueError):
    """An argument, or a combination of arguments, that cannot be right."""

    exit_code = 2
    http_status = 400


class OutputExistsError(UsageError):
    """What would be written is there already, and is not to be overwritten.

    Parameters
    ----------
    path
        The file or directory.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        super().__init__(f"{fspath(path)} exists; give --force to overwrite it")


class TraceError(KvcapError):
    """A log that cannot be read.

    Parameters
    ----------
    path
        The file, as the user named it.
    reason
        What is wrong, without the path.
    """

    http_status = 422

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class UnknownFormatError(TraceError):
    """No reader recognizes the first record, or several do and the user must choose."""


class EmptyTraceError(TraceError):
    """A log without a single request."""


class RecordError(TraceError):
    """One record of a log is wrong.

    Parameters
    ----------
    path
        The file, as the user named it.
    line
        Number of the line (or of the record, in a binary file), from 1.
    field
        The field at fault, such as ``hash_ids[3]``; empty when the record as a whole is.
    reason
        What was found and what was expected, such as ``is 1.5, expected an integer``.
    """

    def __init__(self, path: str, line: int, field: str, reason: str) -> None:
        super().__init__(f"{path}:{line}", f"{field} {reason}".strip())
        self.path = path
        self.line = line
        self.field = field
        self.record_reason = reason


class SchemaError(KvcapError):
    """A Parquet file or one of its columns is not what it should be.

    Parameters
    ----------
    path
        The file or directory.
    expected
        What kvcap needs there.
    found
        What is there.
    """

    http_status = 422

    def __init__(self, path: str, expected: str, found: str) -> None:
        super().__init__(f"{path}: expected {expected}, found {found}")
        self.path = path
        self.expected = expected
        self.found = found


class ModelError(KvcapError):
    """An unknown model, or a config whose bytes cannot be accounted for completely."""

    http_status = 422


class QueryError(KvcapError):
    """SQL that does not parse or run.

    Parameters
    ----------
    query
        The query's name or text.
    reason
        What the database said.
    """

    http_status = 422

    def __init__(self, query: str, reason: str) -> None:
        super().__init__(reason)
        self.query = query


class RequestRefusedError(KvcapError):
    """A request that the service does not take as it is, or now.

    Parameters
    ----------
    status
        The HTTP status that says so.
    reason
        What was found and what was expected.
    retry_after_s
        When it may be worth another try; None when never.
    """

    def __init__(self, status: int, reason: str, retry_after_s: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after_s = retry_after_s


class MissingExtraError(KvcapError):
    """An optional dependency is not installed.

    Parameters
    ----------
    feature
        What the user asked for.
    extra
        The extra of the ``kvcap`` package that brings it.
    """

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional dependency: pip install 'kvcap[{extra}]'")
        self.extra = extra


def _restored(kind: type[KvcapError], args: tuple[Any, ...], state: dict[str, Any]) -> KvcapError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error

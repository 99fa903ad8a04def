"""Paths of fields (``usage.details.cached``) in records of any shape.

A part names a key, or an item of a list by its number. Keys that hold dots themselves are found too: the
longest run of parts that is a key goes first. Objects that a log holds as JSON text are looked into.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from kvcap.formats.rows import FieldError, show

EACH: Final = "[]"
"""Stands after a key for every item of its list."""


def find(record: Any, path: str) -> Any:
    """Return what stands at a path, or None."""
    return _find(record, path.split(".")) if path else record


def first(scopes: tuple[Any, ...], paths: tuple[str, ...]) -> Any:
    """Return what stands at the first path that has more than empty text, looked for in all scopes."""
    for path in paths:
        for scope in scopes:
            found = find(scope, path)
            if found is not None and found != "":
                return found
    return None


def each(record: Any, path: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield place and scopes of every item that a path with ``[]`` names: it, and what is around it.

    Raises
    ------
    FieldError
        If there is no list where the path says so.
    """
    yield from _each((record,), path.split(EACH)[:-1], "")


def _each(scopes: tuple[Any, ...], keys: list[str], where: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    if not keys:
        yield where, scopes
        return
    key, *below = keys
    name = key.strip(".")
    items = unpacked(find(scopes[0], name))
    at = f"{where}.{name}" if where else name
    if type(items) is not list:
        raise FieldError(at, f"is {'missing' if items is None else show(items)}, expected a list")
    for index, item in enumerate(items):
        yield from _each((item, *scopes), below, f"{at}[{index}]")


def _find(value: Any, parts: list[str]) -> Any:
    value = unpacked(value)
    if isinstance(value, dict):
        for count in range(len(parts), 0, -1):
            key = ".".join(parts[:count])
            if key in value:
                return value[key] if count == len(parts) else _find(value[key], parts[count:])
        return None
    if isinstance(value, list) and parts[0].isdecimal() and int(parts[0]) < len(value):
        item = value[int(parts[0])]
        return item if len(parts) == 1 else _find(item, parts[1:])
    return None


def unpacked(value: Any) -> Any:
    """Return an object or list, also one that stands as JSON text."""
    if type(value) is str and value[:1] in ("{", "["):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return None
    return value

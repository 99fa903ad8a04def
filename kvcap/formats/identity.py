"""What besides tokens must agree for two prefixes to be the same, and which media stand among them.

Engines key a block on its model, its adapter, a salt that the client gave and an extra key, too. Logs have
them under many names, in the record or in the request inside it; here they become the parts of one text, the
namespace: ``model=llama adapter=fr cache_salt=tenant-7``. Images and the like are known by digests: their
placeholders are the same tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import orjson

from kvcap.formats.rows import FieldError, Ids, Row, Values, number_of_name, show

_PARTS: Final[dict[str, tuple[str, ...]]] = {
    "adapter": (
        "lora_name",
        "lora_path",
        "lora_request",
        "lora_id",
        "lora_int_id",
        "lora",
        "adapter_name",
        "adapter_id",
        "adapter",
    ),
    "cache_salt": ("cache_salt", "salt", "salt_hash"),
    "extra_key": ("extra_key",),
}
IDENTITY_FIELDS: Final = frozenset(name for names in _PARTS.values() for name in names)
"""Fields of a record that say what besides its tokens a prefix is."""

_NO_ADAPTER: Final = (None, "", "None", 0)
_QUOTED: Final = frozenset(" \t\r\n\"'=,")
_MEDIA_FIELDS: Final = (
    "media_hashes",
    "mm_hashes",
    "multi_modal_hashes",
    "multi_modal_uuids",
    "mm_uuids",
    "image_data",
    "video_data",
    "audio_data",
)
_MEDIA_NAMES: Final = frozenset(_MEDIA_FIELDS)
_PLACE_FIELDS: Final = ("media_offsets", "mm_offsets", "mm_positions", "mm_placeholders")


def identity_of(*records: Any) -> dict[str, str] | None:
    """Return what some records say of a request's identity, None for nothing; the first that says it wins."""
    found: dict[str, str] = {}
    for record in records:
        if type(record) is not dict or IDENTITY_FIELDS.isdisjoint(record):
            continue
        for part, names in _PARTS.items():
            texts = (_text_of(record.get(name)) for name in names)
            text = None if part in found else next(filter(None, texts), None)
            if text is not None:
                found[part] = text
    return found or None


def namespace_of(record: Mapping[str, Any], model: str | None, columns: Sequence[str] | None) -> str | None:
    """Return the namespace of one request: of ``columns``, or (None) of what its fields say."""
    if columns is not None:
        return compose((name, record.get(name)) for name in columns)
    given = record.get("namespace")
    if given is not None:
        return as_text(given) or None
    return compose([("model", model), *sorted((identity_of(record) or {}).items())])


def _text_of(value: Any) -> str | None:
    """Return what names an adapter, a salt or a key, or None for none."""
    if value in _NO_ADAPTER:
        return None
    if type(value) is dict:
        for name in ("lora_name", "name", "lora_path", "path", "lora_int_id", "id"):
            if value.get(name) not in _NO_ADAPTER:
                return _text_of(value[name])
    return as_text(value)


def as_text(value: Any) -> str:
    """Return a value of a record as text: JSON, but for texts themselves."""
    return (
        value
        if type(value) is str
        else orjson.dumps(value, option=orjson.OPT_SORT_KEYS, default=str).decode()
    )


def compose(parts: Iterable[tuple[str, Any]]) -> str | None:
    """Return the namespace that named parts make, those that are None left out; None for none at all.

    Different parts make different texts: what could be taken for the end of a value is quoted.
    """
    texts = [
        f"{name}={orjson.dumps(text).decode() if not text or not _QUOTED.isdisjoint(text) else text}"
        for name, value in parts
        if value is not None
        for text in (as_text(value),)
    ]
    return " ".join(texts) or None


def parts_of(namespace: str) -> dict[str, str]:
    """Return the parts that :func:`compose` made a namespace of; none of a text that it did not make."""
    parts: dict[str, str] = {}
    rest = namespace
    while rest:
        name, equals, rest = rest.partition("=")
        if not equals or not name or not _QUOTED.isdisjoint(name):
            return {}
        if rest.startswith('"'):
            end = _end_of_quoted(rest)
            try:
                parts[name] = orjson.loads(rest[:end])
            except orjson.JSONDecodeError:
                return {}
            rest = rest[end:].removeprefix(" ")
        else:
            parts[name], _, rest = rest.partition(" ")
    return parts


def _end_of_quoted(text: str) -> int:
    end = 1
    while end < len(text) and text[end] != '"':
        end += 2 if text[end] == "\\" else 1
    return end + 1


def find_media(row: Row, records: Sequence[Any], values: Values) -> None:
    """Put digests of the media that a record names, and where they stand, into its row.

    Raises
    ------
    FieldError
        If ``media_hashes`` or ``media_offsets`` are not what kvcap writes.
    """
    for record in records:
        if type(record) is not dict or _MEDIA_NAMES.isdisjoint(record):
            continue
        digests = [
            digest
            for name in _MEDIA_FIELDS
            if record.get(name) is not None
            for digest in _digests(record[name], name, values)
        ]
        if digests:
            places = [
                place
                for name in _PLACE_FIELDS
                if record.get(name) is not None
                for place in _places(record[name], name, values)
            ]
            row.media = digests
            row.media_offsets = places if len(places) == len(digests) else None
            return


def _digests(value: Any, field: str, values: Values) -> Iterator[int]:
    """Yield 64 bits of every medium; numbers stand for themselves."""
    if type(value) is dict and "identifier" not in value and "hash" not in value:
        # By kind of medium.
        for kind in sorted(value):
            yield from _digests(value[kind], field, values) if value[kind] is not None else ()
        return
    if type(value) is list and value and all(type(item) is int for item in value):
        ids = values.ids(value, field)
        assert isinstance(ids, Ids)
        yield from ids.values.tolist()
        return
    for item in value if type(value) is list else [value]:
        name = (item.get("identifier") or item.get("hash") or item) if type(item) is dict else item
        if name is not None:
            yield number_of_name(as_text(name))


def _places(value: Any, field: str, values: Values) -> Iterator[int]:
    """Yield the tokens at which media begin: numbers, or objects with an offset."""
    if type(value) is dict and "offset" not in value:
        for kind in sorted(value):
            yield from _places(value[kind], field, values) if value[kind] is not None else ()
        return
    if type(value) is list and value and all(type(item) is int for item in value):
        numbers = values.integers(value, field).values.view(np.int64).tolist()
    else:
        numbers = [
            item.get("offset") if type(item) is dict else item
            for item in (value if type(value) is list else [value])
        ]
    for index, number in enumerate(numbers):
        if type(number) is not int or not 0 <= number < 2**31:
            raise FieldError(f"{field}[{index}]", f"is {show(number)}, expected a token's place from 0")
        yield number

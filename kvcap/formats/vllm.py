"""Request lines in the log of a vLLM server (``--enable-log-requests``).

::

    INFO 10-01 18:43:27 logger.py:36] Received request cmpl-c5-0: prompt: '...', params: SamplingParams(n=1,
    ...),
        prompt_token_ids: [1, 2, 3], lora_request: None.
    DEBUG 02-13 11:33:33 [logger.py:42] Request chatcmpl-a2 details: prompt: '...', prompt_token_ids: [1, 2],
        prompt_embeds shape: None.
    INFO 02-13 11:33:33 [logger.py:49] Received request chatcmpl-a2: params: SamplingParams(...),
    lora_request: None.

Older servers log the token ids with the request; newer ones only in the ``details`` line of
VLLM_LOGGING_LEVEL=DEBUG, just before it. A request without ids cannot be placed and is a bad record. Do not
set ``--max-log-len``: it cuts lists without a mark. Times have no year: they are dated in 2000.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

from kvcap.formats.base import ReadReport
from kvcap.formats.dialect import Dialect
from kvcap.formats.options import ReadOptions
from kvcap.formats.rows import FieldError, Row, Skip, Values, an_object, show

_LINE: Final = re.compile(
    rb"^.*?(?P<month>\d\d)-(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d) .*?\]\s+"
    rb"(?:Received request (?P<received>[^\s:]+):|Request (?P<details>\S+) details:) "
)
_EVENTS: Final = (b"Received request ", b" details: ")
_MARK: Final = b"prompt_token_ids: "
_END: Final = (b", prompt_embeds shape:", b", lora_request:")
_YEAR: Final = "2000"


def _decode(text: bytes) -> Any:
    match = _LINE.match(text)
    if match is None:
        return {}
    date = b"-".join((_YEAR.encode(), match["month"], match["day"])) + b" " + match["time"]
    # The prompt itself may hold the mark, and comes first.
    begin = text.rfind(_MARK)
    ids = None
    if begin >= 0:
        tail = text[begin + len(_MARK) :]
        ends = [tail.find(end) for end in _END if end in tail]
        ids = tail[: min(ends)] if ends else tail
    name = match["received"] or match["details"]
    return {
        "timestamp": date.decode(),
        "request_id": name.decode(errors="replace"),
        "details": match["details"] is not None,
        "ids": ids,
    }


def _read(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "a request")
    if not record:
        yield Skip("other lines of the server's log")
        return
    ids = None
    if record["ids"] not in (None, b"None"):
        try:
            ids = values.tokens(orjson.loads(record["ids"]), "prompt_token_ids")
        except orjson.JSONDecodeError:
            found = show(record["ids"].decode(errors="replace"))
            raise FieldError("prompt_token_ids", f"is {found}, expected a whole list of integers") from None
    if ids is None and record["details"]:
        raise FieldError("prompt_token_ids", "is None, expected a list of integers")
    yield Row(
        ids=ids, timestamp=record["timestamp"], extra=(record["request_id"], record["details"]), record=record
    )


class _DetailsFirst:
    """Count a request once: at its details, or where it is received with its ids."""

    def __init__(self, options: ReadOptions, report: ReadReport) -> None:
        self._detailed: set[str] = set()

    def __call__(self, row: Row) -> Row | Skip:
        name, is_details = row.extra
        if is_details:
            self._detailed.add(name)
            return row
        if name in self._detailed:
            self._detailed.discard(name)
            return Skip("further lines of a request that is already counted")
        if row.ids is None:
            raise FieldError(
                "prompt_token_ids",
                "is missing, expected a list of integers: log with VLLM_LOGGING_LEVEL=DEBUG",
            )
        return row


def _is_request_line(line: Any) -> bool:
    # The pattern looks for a date at every byte: slow on long lines of any other log.
    is_candidate = isinstance(line, bytes) and any(event in line for event in _EVENTS)
    return is_candidate and _LINE.match(line) is not None


VLLM: Final = Dialect(
    name="vllm",
    summary="vLLM server logs with prompt_token_ids (--enable-log-requests, DEBUG on new versions)",
    kind="token_ids",
    matches=_is_request_line,
    read=_read,
    sequencer=_DetailsFirst,
    decode=_decode,
)

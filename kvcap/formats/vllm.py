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
VLLM_LOGGING_LEVEL=DEBUG, just before the line that names its adapter. A request without ids cannot be placed
and is a bad record. Do not set ``--max-log-len``: it cuts lists without a mark. Times have no year: they are
dated in 2000, and in the next year after New Year.
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
from kvcap.formats.start_up_lines import start_up_line

_LINE: Final = re.compile(
    rb"^.*?(?P<month>\d\d)-(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d) .*?\]\s+"
    rb"(?:Received request (?P<received>[^\s:]+):|Request (?P<details>\S+) details:) "
)
_EVENTS: Final = (b"Received request ", b" details: ")
_MARK: Final = b"prompt_token_ids: "
_END: Final = (b", prompt_embeds shape:", b", lora_request:")
_LORA: Final = re.compile(rb", lora_request: (LoRARequest\(.*\))[.,]?")
_LORA_FIELD: Final = re.compile(r"\b(lora_\w+)=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\d+)")
_YEAR: Final = "2000"


def _decode(text: bytes) -> Any:
    match = _LINE.match(text)
    if match is None:
        return {"start_up": start_up_line(text)}
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
        **_adapter(text),
    }


def _adapter(text: bytes) -> dict[str, str]:
    """Return what a line says of an adapter; a prompt, which comes before it, may hold the same words."""
    begin = text.rfind(b", lora_request: ")
    match = _LORA.match(text, begin) if begin >= 0 else None
    if match is None:
        return {}
    request = match[1].decode(errors="replace")
    fields = {name: value.strip("'\"") for name, value in _LORA_FIELD.findall(request)}
    return {"lora_request": request, **fields}


def _read(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "a request")
    if "start_up" in record:
        yield Skip("other lines of the server's log", start_up=record["start_up"])
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


_FURTHER: Final = "further lines of a request that is already counted"
_MOST_WAITING: Final = 256


class _OncePerRequest:
    """Count a request once: where it is received, with the ids of its details if it has none itself.

    The two lines follow each other but for those of other servers in between: of a log of details alone no
    more wait than that.
    """

    def __init__(self, options: ReadOptions, report: ReadReport) -> None:
        self._waiting: dict[str, Row] = {}
        self._counted: set[str] = set()
        self._report = report

    def __call__(self, row: Row) -> Row | Skip:
        name, is_details = row.extra
        if is_details:
            self._waiting[name] = row
            if len(self._waiting) <= _MOST_WAITING:
                return Skip(_FURTHER)
            oldest = next(iter(self._waiting))
            self._counted.add(oldest)
            return self._waiting.pop(oldest)
        if name in self._counted:
            self._counted.discard(name)
            return Skip(_FURTHER)
        details = self._waiting.pop(name, None)
        if row.ids is None and details is not None:
            row.ids = details.ids
        if row.ids is None:
            raise FieldError(
                "prompt_token_ids",
                "is missing, expected a list of integers: log with VLLM_LOGGING_LEVEL=DEBUG",
            )
        return row

    def rest(self) -> list[Row]:
        """Return what still waits at the end of the log."""
        if self._waiting:
            self._report.skip(_FURTHER, -len(self._waiting))
        return list(self._waiting.values())


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
    sequencer=_OncePerRequest,
    decode=_decode,
    has_no_year=True,
)

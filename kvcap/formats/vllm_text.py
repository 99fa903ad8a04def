r"""Request lines of vLLM servers that hold the rendered prompt and no token ids (0.4 to 0.10).

::

    INFO 03-12 11:16:50 logger.py:39] Received request chatcmpl-9: prompt: '<|im_start|>user\nhi', params:
    SamplingParams(n=1, ..., max_tokens=16), prompt_token_ids: None, lora_request: None.

The prompt is what the chat template made, with its special tokens, so none are added. Where a line has token
ids, they are taken. Prompts of different adapters share nothing. Times have no year: they are dated in 2000.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

from kvcap.formats.dialect import Dialect
from kvcap.formats.rows import FieldError, Row, Skip, Values, an_object, show
from kvcap.formats.text_rows import text_row

_RECEIVED: Final = b"Received request "
_LINE: Final = re.compile(
    rb"^.*?(?P<month>\d\d)-(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d) .*?\]\s+"
    rb"Received request (?P<id>[^\s:]+): prompt: (?P<prompt>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"), params: "
    rb"(?P<rest>.*)$",
    re.DOTALL,
)
_IDS: Final = re.compile(rb"prompt_token_ids: (\[[\d, ]*\])")
_ADAPTER: Final = re.compile(rb"lora_request: LoRARequest\(.*?lora_name='([^']*)'")
_YEAR: Final = "2000"


def _decode(text: bytes) -> Any:
    match = _LINE.match(text)
    if match is None:
        return {}
    ids = _IDS.search(match["rest"])
    adapter = _ADAPTER.search(match["rest"])
    try:
        prompt = ast.literal_eval(match["prompt"].decode())
    except (ValueError, SyntaxError):
        shown = show(match["prompt"].decode(errors="replace"))
        raise FieldError("prompt", f"is {shown}, expected a Python string") from None
    month, day, time = (match[name].decode() for name in ("month", "day", "time"))
    return {
        "timestamp": f"{_YEAR}-{month}-{day} {time}",
        "request_id": match["id"].decode(errors="replace"),
        "prompt": prompt if ids is None else orjson.loads(ids[1]),
        "adapter": None if adapter is None else adapter[1].decode(errors="replace"),
    }


def _read(record: Any, values: Values) -> Iterator[Row | Skip]:
    record = an_object(record, "a request")
    if not record:
        yield Skip("other lines of the server's log")
        return
    yield text_row(
        {"prompt": record["prompt"], "add_special_tokens": False},
        timestamp=record["timestamp"],
        identity={"adapter": record["adapter"]} if record["adapter"] else None,
        record=record,
    )


def _is_text_line(line: Any) -> bool:
    # The words first: the pattern is slow on long lines of any other log.
    if not isinstance(line, bytes) or _RECEIVED not in line or b": prompt: " not in line:
        return False
    match = _LINE.match(line)
    return match is not None and _IDS.search(match["rest"]) is None


VLLM_TEXT: Final = Dialect(
    name="vllm-text",
    summary="vLLM server logs with rendered prompts and no token ids, 0.4 to 0.10 (needs a tokenizer)",
    kind="request_json",
    matches=_is_text_line,
    read=_read,
    decode=_decode,
)

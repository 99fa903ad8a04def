"""Bodies within their limits."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from starlette.requests import ClientDisconnect, Request

from kvcap.errors import RequestRefusedError
from kvcap.online.server.options import ClientLimits

JSON_TYPE: Final = "application/json"
ARROW_TYPES: Final = ("application/vnd.apache.arrow.stream", "application/x-apache-arrow-stream")
LINES_TYPES: Final = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
_TOO_SLOW: Final = "too slow"


def media_type(request: Request) -> str:
    """Return the media type of a body without parameters.

    Raises
    ------
    RequestRefusedError
        With status 415 when it is none that the service reads. A page of another site can make a browser send
        forms and plain text, but none of these without asking first.
    """
    found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if found not in (JSON_TYPE, *LINES_TYPES, *ARROW_TYPES):
        raise RequestRefusedError(
            415,
            f"the content type is {found or 'missing'}, expected {JSON_TYPE}, {LINES_TYPES[0]} or "
            f"{ARROW_TYPES[0]} (curl: -H 'content-type: {JSON_TYPE}')",
        )
    return found


async def read_body(request: Request, limits: ClientLimits) -> bytes:
    """Return the whole body.

    Raises
    ------
    RequestRefusedError
        With status 413 when it is too large, 408 when it takes too long, 415 when it is compressed.
    """
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise RequestRefusedError(415, f"the body is encoded as {encoding}, expected it as it is")
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > limits.max_body_bytes:
        raise RequestRefusedError(
            413, f"the body has {announced} bytes, expected at most {limits.max_body_bytes}"
        )
    task = asyncio.current_task()
    assert task is not None
    # What wait_for does, without the task of its own that it gives every body.
    deadline = asyncio.get_running_loop().call_later(limits.body_timeout_s, task.cancel, _TOO_SLOW)
    try:
        return await _collect(request, limits.max_body_bytes)
    except asyncio.CancelledError as cancelled:
        if cancelled.args != (_TOO_SLOW,):
            raise
        if sys.version_info >= (3, 11):
            task.uncancel()
        reason = f"the body took longer than {limits.body_timeout_s:g} s"
        raise RequestRefusedError(408, reason) from None
    except ClientDisconnect:
        raise RequestRefusedError(400, "the client went away before its body was complete") from None
    finally:
        deadline.cancel()


async def _collect(request: Request, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise RequestRefusedError(413, f"the body has more than the {max_bytes} bytes allowed")
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)

"""Ask an ASGI application without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: Any,
    method: str,
    path: str,
    body: Any = b"",
    headers: dict[str, str] | None = None,
    parts: Sequence[bytes | float] | None = None,
) -> Answer:
    """Send one request; ``parts`` are pieces of its body, and seconds to wait between them."""
    sent = {"content-type": "application/json", **(headers or {})} if method == "POST" else headers or {}
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    pieces: list[bytes | float] = [raw] if parts is None else list(parts)
    gone = asyncio.Event()
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        while pieces and isinstance(pieces[0], float):
            await asyncio.sleep(pieces[0])
            del pieces[0]
        if not pieces:
            await gone.wait()
            return {"type": "http.disconnect"}
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message: Any) -> None:
        messages.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(k.lower().encode(), v.encode()) for k, v in sent.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    try:
        await app(scope, receive, send)
    except Exception:
        # A server logs what the application raises after its answer.
        if not messages:
            raise
    gone.set()
    found = {k.decode(): v.decode() for k, v in messages[0]["headers"]}
    return Answer(messages[0]["status"], found, b"".join(m.get("body", b"") for m in messages[1:]))


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[Any]:
    """Start an application, and shut it down at the end."""
    inbox: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    outbox: asyncio.Queue[Any] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}}
    task = asyncio.create_task(app(scope, inbox.get, outbox.put))
    await inbox.put({"type": "lifespan.startup"})
    assert (await outbox.get())["type"] == "lifespan.startup.complete"
    try:
        yield app
    finally:
        await inbox.put({"type": "lifespan.shutdown"})
        assert (await outbox.get())["type"] == "lifespan.shutdown.complete"
        await task

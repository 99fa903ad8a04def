"""For an engine whose API is an ASGI application, as SGLang's is: a mirror without a proxy in front.

::

    app.add_middleware(Mirror, url="http://localhost:8080")

sends a copy of every chat or text completion that the engine is asked for to a running ``kvcap serve``. The
engine's own traffic passes through as it is and never waits: copies leave in order of arrival, from a thread
of their own, and are dropped and counted when the service cannot keep up or is away.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final

from kvcap.errors import UsageError
from kvcap.http_address import parse_http_address

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

DEFAULT_PATHS: Final = ("/v1/chat/completions", "/v1/completions")
DEFAULT_MAX_BODY_BYTES: Final = 64 << 20
DEFAULT_WAITING: Final = 256
_PAUSE_S: Final = 1.0

_log = logging.getLogger("kvcap.mirror")


@dataclass
class MirrorCounts:
    """What became of the requests to mirror: answered by the service, dropped here, or failed there."""

    sent: int = 0
    dropped: int = 0
    failed: int = 0


class Mirror:
    """ASGI middleware that sends copies of requests to ``kvcap serve``.

    Parameters
    ----------
    app
        The engine's application.
    url
        Where the service listens, such as ``http://localhost:8080``.
    api_key
        The service's bearer token, where it asks for one.
    paths
        What is copied: POST requests to these.
    max_body_bytes
        Larger bodies are not copied, and count as dropped.
    waiting
        How many copies may wait before further ones are dropped.
    timeout_s
        After so long without an answer a copy has failed.

    Attributes
    ----------
    counts : MirrorCounts
        Copies so far, of this process.

    Raises
    ------
    UsageError
        If ``url`` is no HTTP address.
    """

    def __init__(
        self,
        app: App,
        url: str,
        *,
        api_key: str | None = None,
        paths: Sequence[str] = DEFAULT_PATHS,
        max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
        waiting: int = DEFAULT_WAITING,
        timeout_s: float = 10.0,
    ) -> None:
        self._app = app
        self._paths = frozenset(paths)
        self._max_body_bytes = max_body_bytes
        self.counts = MirrorCounts()
        self._copies: queue.Queue[tuple[str, bytes]] = queue.Queue(waiting)
        self._service = _Service(url, api_key, timeout_s)
        self._sender: threading.Thread | None = None
        self._starting = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and copy its body on the way if it is one to mirror."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in self._paths:
            await self._app(scope, receive, send)
            return
        parts: list[bytes] = []
        size = 0

        async def copying() -> Message:
            nonlocal size
            message = await receive()
            if message["type"] == "http.request":
                part = message.get("body", b"")
                size += len(part)
                if size <= self._max_body_bytes:
                    parts.append(part)
                if not message.get("more_body", False):
                    self._submit(scope["path"], b"".join(parts), complete=size <= self._max_body_bytes)
            return message

        await self._app(scope, copying, send)

    def _submit(self, path: str, body: bytes, *, complete: bool) -> None:
        with self._starting:
            # Not at the start: a server may fork in between, which leaves threads behind.
            if self._sender is None or not self._sender.is_alive():
                self._sender = threading.Thread(target=self._send_all, name="kvcap-mirror", daemon=True)
                self._sender.start()
        try:
            if not complete:
                raise queue.Full
            self._copies.put_nowait((path, body))
        except queue.Full:
            self.counts.dropped += 1

    def _send_all(self) -> None:
        """Send copies one after the other, for as long as the process lives."""
        reachable = True
        while True:
            path, body = self._copies.get()
            try:
                status = self._service.post(path, body)
            except Exception as error:
                # Whatever it is, the engine's requests go on.
                self._service.close()
                self.counts.failed += 1
                if reachable:
                    _log.warning("kvcap cannot be reached, copies are dropped until it can (%s)", error)
                reachable = False
                time.sleep(_PAUSE_S)
                continue
            reachable = True
            if status < 400:
                self.counts.sent += 1
            else:
                self.counts.failed += 1


class _Service:
    """One connection to ``kvcap serve``, for one thread."""

    def __init__(self, url: str, api_key: str | None, timeout_s: float) -> None:
        address = parse_http_address(url)
        if address is None:
            raise UsageError(f"the mirror's url is {url!r}, expected one such as http://localhost:8080")
        kind = HTTPSConnection if address.is_https else HTTPConnection
        self._connection = kind(address.host, address.port, timeout=timeout_s)
        self._prefix = address.path
        self._headers = {"content-type": "application/json"}
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {api_key}"

    def post(self, path: str, body: bytes) -> int:
        """Return the status of the answer."""
        try:
            return self._ask(path, body)
        except (ConnectionError, HTTPException):
            # A connection that was idle may have been closed by the service.
            self.close()
            return self._ask(path, body)

    def close(self) -> None:
        """Give the connection up; the next request opens another."""
        self._connection.close()

    def _ask(self, path: str, body: bytes) -> int:
        self._connection.request("POST", self._prefix + path, body, self._headers)
        with self._connection.getresponse() as answer:
            answer.read()
            return answer.status

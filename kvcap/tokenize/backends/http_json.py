"""JSON over HTTP with the standard library: one kept connection per thread, transport errors of one kind."""

from __future__ import annotations

import http.client
import threading
from dataclasses import dataclass
from typing import Any, Final

import orjson

from kvcap.errors import UsageError
from kvcap.http_address import parse_http_address

_MEDIA_TYPE: Final = "application/json"


@dataclass(frozen=True)
class Answer:
    """What a server answered.

    Parameters
    ----------
    status
        The HTTP status.
    body
        The bytes of the answer.
    retry_after_s
        How long the server asks to wait, if it does.
    """

    status: int
    body: bytes
    retry_after_s: float | None = None

    def json(self) -> Any:
        """Return the body as JSON, or None if it is none."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None


class JsonClient:
    """Sends JSON to one server; for several threads at once.

    Parameters
    ----------
    url
        ``http://`` or ``https://``, host, and a path before all others if need be. Proxies are not used.
    api_key
        Sent as a bearer token.
    timeout_s
        Seconds without a byte after which an answer has failed.

    Raises
    ------
    UsageError
        If the address is none.
    """

    def __init__(self, url: str, api_key: str | None, timeout_s: float) -> None:
        address = parse_http_address(url)
        if address is None:
            raise UsageError(f"--engine-url is {url!r}, expected an address such as http://localhost:8000")
        self.url = url.rstrip("/").removesuffix("/v1")
        self._prefix = address.path.removesuffix("/v1")
        self._address = (address.host, address.port)
        self._is_https = address.is_https
        self._timeout_s = timeout_s
        self._headers = {"Accept": _MEDIA_TYPE}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._local = threading.local()
        self._opened: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def get(self, path: str) -> Answer:
        """Ask for a path; see :meth:`post`."""
        return self._request("GET", path, None, self._headers)

    def post(self, path: str, value: Any) -> Answer:
        """Send a JSON value.

        Raises
        ------
        ConnectionError
            If no complete answer came, whatever the reason.
        """
        headers = {**self._headers, "Content-Type": _MEDIA_TYPE}
        return self._request("POST", path, orjson.dumps(value), headers)

    def close(self) -> None:
        """Close all connections; no request is under way."""
        for connection in self._opened:
            connection.close()

    def _request(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        connection = self._connection()
        try:
            connection.request(method, self._prefix + path, body=body, headers=headers)
            response = connection.getresponse()
            payload = response.read()
        except (OSError, http.client.HTTPException) as error:
            # A connection in doubt is never used again: its next bytes may belong to this answer.
            connection.close()
            reason = str(error) or type(error).__name__
            raise ConnectionError(reason) from error
        return Answer(response.status, payload, _seconds(response.getheader("Retry-After")))

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            kind = http.client.HTTPSConnection if self._is_https else http.client.HTTPConnection
            connection = self._local.connection = kind(*self._address, timeout=self._timeout_s)
            with self._lock:
                self._opened.append(connection)
        return connection


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text)) if text is not None else None
    except ValueError:
        return None

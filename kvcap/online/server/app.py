"""The ASGI application: routes, who may ask, and errors as JSON with a cause."""

from __future__ import annotations

import hmac
import sys
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kvcap.errors import KvcapError, RequestRefusedError
from kvcap.online.server.endpoints import Endpoints, json_response
from kvcap.online.server.prompts import PromptEncoder
from kvcap.online.server.service import Service

_OPEN_PATHS: Final = ("/", "/health", "/healthz")
"""What needs no token: the page holds no data, and probes have none."""


def make_app(service: Service, encoder: PromptEncoder) -> ASGIApp:
    """Return the application; its lifespan starts the service, and at its end closes all.

    Parameters
    ----------
    service
        Not yet started.
    encoder
        Tokenizes what is mirrored.
    """
    endpoints = Endpoints(service, encoder)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.start()
        yield
        await service.close()
        endpoints.close()

    app = Starlette(
        routes=endpoints.routes(),
        lifespan=lifespan,
        exception_handlers={KvcapError: _kvcap_error, HTTPException: _http_error, Exception: _bug},
    )
    key = service.options.api_key
    guarded = app if key is None else _BearerToken(app, key)
    return _SameSite(guarded, service.options.host, service.options.allowed_hosts)


class _BearerToken:
    """Let only those pass who show the token."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _OPEN_PATHS:
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                answer = _error(401, "the request shows no valid bearer token", "Unauthorized")
                answer.headers["www-authenticate"] = "Bearer"
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


class _SameSite:
    """Let no page of another site drive the service through somebody's browser.

    Such a page's requests tell its ``Origin``. One whose own name was made to lead here (DNS rebinding) has
    the same origin, but its name in ``Host``. Addresses, ``localhost`` and names without a dot cannot be made
    to lead elsewhere by whoever owns a domain, so they pass; other names are told by option.

    Parameters
    ----------
    app
        What they would drive.
    own
        The name that the service listens on.
    allowed
        Further names that ``Host`` and ``Origin`` may show; ``*`` for all, ``*.example.com`` for those below.
    """

    def __init__(self, app: ASGIApp, own: str, allowed: Sequence[str]) -> None:
        self._app = app
        self._own = own.lower()
        self._names = frozenset(name.lower() for name in allowed if not name.startswith("*"))
        self._suffixes = tuple(name[1:].lower() for name in allowed if name.startswith("*"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refusal(dict(scope["headers"])) if scope["type"] == "http" else None
        if refused is not None:
            answer = _error(403, f"{refused}; --allowed-hosts names those that may ask", "Forbidden")
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Mapping[bytes, bytes]) -> str | None:
        host = headers.get(b"host", b"").decode("latin-1")
        if host and not self._is_allowed_host(_host_name(f"//{host}")):
            return f"the request is for the host {host:.100}"
        origin = headers.get(b"origin")
        if origin is None:
            return None
        shown = origin.decode("latin-1")
        if shown.partition("://")[2] == host or self._is_told(_host_name(shown)):
            return None
        return f"the request comes from a page of {shown:.100}"

    def _is_allowed_host(self, name: str | None) -> bool:
        if name is None:
            return False
        return name == self._own or "." not in name or _is_address(name) or self._is_told(name)

    def _is_told(self, name: str | None) -> bool:
        return name is not None and (name in self._names or name.endswith(self._suffixes))


def _host_name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _error(status: int, message: str, kind: str) -> Response:
    return json_response({"error": {"message": message, "type": kind, "code": status}}, status)


def _kvcap_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, KvcapError)
    status = error.status if isinstance(error, RequestRefusedError) else error.http_status
    answer = _error(status, str(error), type(error).__name__)
    if isinstance(error, RequestRefusedError) and error.retry_after_s is not None:
        answer.headers["retry-after"] = str(error.retry_after_s)
    return answer


def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = _error(error.status_code, error.detail, "HTTPException")
    answer.headers.update(error.headers or {})
    return answer


def _bug(_: Request, error: Exception) -> Response:
    traceback.print_exception(error, file=sys.stderr)
    return _error(500, f"the service failed: {error!r}", type(error).__name__)

"""The ASGI application: routes, who may ask, and errors as JSON with a cause."""

from __future__ import annotations

import hmac
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kvcap.errors import KvcapError, RequestRefusedError
from kvcap.online.server.endpoints import Endpoints, json_response
from kvcap.online.server.prompts import PromptEncoder
from kvcap.online.server.service import Service

_OPEN_PATHS: Final = ("/", "/health")
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
    return app if key is None else _BearerToken(app, key)


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

"""The process: a socket, signals, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Coroutine, Generator
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kvcap.errors import KvcapError, UsageError
from kvcap.online.server.app import make_app
from kvcap.online.server.endpoints import THREADS
from kvcap.online.server.options import ServeOptions
from kvcap.online.server.prompts import TokenizingEncoder
from kvcap.online.server.service import Service

_DRAIN_S: Final = 5
_HEALTH_PATHS: Final = (b"/health", b"/healthz")
_LAST_WORK_S: Final = 0.5
_KEEP_ALIVE_S: Final = 75


def serve(options: ServeOptions) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code.

    Raises
    ------
    KvcapError
        If state, log or tokenizer cannot be used.
    OSError
        If the address cannot be listened on.
    """
    listener = _listen(options.host, options.port)
    try:
        service = Service(options)
        service.warm_up()
        app = make_app(service, TokenizingEncoder(options.tokenize))
        config = uvicorn.Config(
            app,
            http=_protocol(options.limits.body_timeout_s),
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            limit_concurrency=options.limits.max_connections,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_DRAIN_S,
        )
        host, port = listener.getsockname()[:2]
        greeting = f"kvcap: {_restored(service)}listening on http://{host}:{port}"
        _run_on_fastest_loop(_run(_Server(config, greeting), listener))
    finally:
        listener.close()
    if service.broken is not None:
        raise KvcapError(f"the service could not keep everything: {service.broken}")
    _end_in_spite_of_workers()
    return 0


def _end_in_spite_of_workers() -> None:
    """End the process when a worker does not: all is kept, and Python would wait for it for ever."""
    workers = [thread for thread in threading.enumerate() if thread.name.startswith(THREADS)]
    for thread in workers:
        thread.join(_LAST_WORK_S)
    if any(thread.is_alive() for thread in workers):
        print("kvcap: ended with a request still being tokenized", file=sys.stderr, flush=True)
        os._exit(0)


class _Server(uvicorn.Server):
    """Uvicorn's, but it says when it is ready, and raises no signal again: the end is an orderly one."""

    def __init__(self, config: uvicorn.Config, greeting: str) -> None:
        super().__init__(config)
        self._greeting = greeting

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        if self.started:
            print(self._greeting, file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to the event loop."""
        yield


def _run_on_fastest_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop, which takes twice the requests a second; it does not exist for Windows."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


async def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    def stop() -> None:
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await server.serve(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except socket.gaierror as error:
        raise UsageError(f"host is {host!r}, expected an address to listen on ({error.strerror})") from error
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from error
    listener.setblocking(False)
    return listener


def _restored(service: Service) -> str:
    if not service.restored:
        return ""
    after = f", {service.from_log} of them from the log" if service.from_log else ""
    return (
        f"going on after {service.restored} requests{after}; what arrived in the last moments before a "
        "crash is not among them; "
    )


def _protocol(timeout_s: float) -> type[HttpToolsProtocol]:
    """Return uvicorn's protocol, but with a limit to how long a client may take to begin a request."""

    class Impatient(HttpToolsProtocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._deadline = self.loop.call_later(timeout_s, transport.close)

        def on_headers_complete(self) -> None:
            self._deadline.cancel()
            if self.url.partition(b"?")[0] in _HEALTH_PATHS:
                # However many others are connected: a probe that is refused ends the service.
                self.limit_concurrency = None
            super().on_headers_complete()
            self.limit_concurrency = self.config.limit_concurrency

        def on_message_begin(self) -> None:
            self._deadline.cancel()
            self._deadline = self.loop.call_later(timeout_s, self.transport.close)
            super().on_message_begin()

        def connection_lost(self, exc: Exception | None) -> None:
            self._deadline.cancel()
            super().connection_lost(exc)

    return Impatient

"""A service in this process, for tests that ask it without a socket."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from asgi import Answer, ask, lifespan

from kvcap.errors import RequestRefusedError
from kvcap.online.server.app import make_app
from kvcap.online.server.options import ServeOptions
from kvcap.online.server.service import Service
from kvcap.online.server.settings import serve_options

BLOCK = 4


class FakeEncoder:
    """Words of a prompt as token ids; each body may be made to take its time."""

    def __init__(self, delay: Callable[[str], float] = lambda _: 0.0) -> None:
        self._delay = delay
        self.gate = threading.Event()
        self.gate.set()

    def encode(self, body: bytes) -> list[Any]:
        text = json.loads(body)["prompt"]
        self.gate.wait(10)
        time.sleep(self._delay(text))
        if text == "bad":
            raise RequestRefusedError(422, "a bad prompt")
        return [np.array([int(word) for word in text.split()], np.uint32)]

    def close(self) -> None:
        pass


def options(**changes: Any) -> ServeOptions:
    flags = {"kv_bytes_per_token": "1000", "block_size": BLOCK, "capacities": "3blocks,10blocks,1000blocks"}
    limits = changes.pop("limits", None)
    found = serve_options({**flags, **changes}, {}, None)
    return found if limits is None else replace(found, limits=limits)


@asynccontextmanager
async def running(
    chosen: ServeOptions | None = None, encoder: Any = None, service: Service | None = None
) -> AsyncIterator[tuple[Any, Service]]:
    service = service or Service(chosen or options())
    async with lifespan(make_app(service, encoder or FakeEncoder())) as app:
        yield app, service


def go(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


async def post(app: Any, path: str, body: Any, **more: Any) -> Answer:
    return await ask(app, "POST", path, body, **more)

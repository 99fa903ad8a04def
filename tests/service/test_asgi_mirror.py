"""An engine that is an ASGI application, as SGLang's is, mirrors its own traffic to a real service."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from service_process import serving

from kvcap.online.mirror import Mirror

pytestmark = pytest.mark.service


def engine() -> Any:
    """An application built as SGLang's: middleware is added to it, and uvicorn serves it."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def complete(request: Request) -> JSONResponse:
        message = {"role": "assistant", "content": (await request.json())["messages"][-1]["content"]}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        head = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        return JSONResponse({**head, "choices": [choice]})

    return Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"])])


@contextmanager
def running(app: Any) -> Iterator[str]:
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        deadline = time.monotonic() + 20
        while not server.started:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def test_the_service_observes_what_the_engine_answers(word_tokenizer: Path) -> None:
    openai = pytest.importorskip("openai")
    flags = ("--kv-bytes-per-token", "1000", "--block-size", "4", "--tokenizer", str(word_tokenizer))
    app = engine()
    with serving(*flags) as service:
        app.add_middleware(Mirror, url=service.url)
        with (
            running(app) as url,
            openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client,
        ):
            history: list[dict[str, str]] = []
            for number in range(30):
                history = [*history[-8:], {"role": "user", "content": f"w{number} w{number + 1}"}]
                found = client.chat.completions.create(model="m", messages=history)
                assert found.choices[0].message.content == history[-1]["content"]
            deadline = time.monotonic() + 20
            while (totals := service.ask("/status")[1]["totals"])["requests"] < 30:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert totals["requests"] == 30
        assert totals["ceiling_blocks"] > 0
        assert service.terminate() == 0

"""What each path answers."""

from __future__ import annotations

import asyncio
import importlib.resources
import re
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any, Final, Literal

import orjson
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from kvcap._version import __version__
from kvcap.errors import RequestRefusedError
from kvcap.online.estimator import ObservedBatch
from kvcap.online.server.bodies import decode_body, request_namespace
from kvcap.online.server.http import JSON_TYPE, LINES_TYPES, media_type, read_body
from kvcap.online.server.prompts import PromptEncoder, World, incoming_prompts
from kvcap.online.server.service import Service
from kvcap.online.server.shadow import Endpoint, completion, completion_events, read_shadow

POOL_HEADER: Final = "x-kvcap-pool"
_POOL: Final = re.compile(r"[A-Za-z0-9._-]*")
DOWNLOADS: Final = ("grafana-dashboard.json", "nginx-mirror.conf", "envoy-mirror.yaml")
"""What goes into other programs' configuration, under ``/assets/``."""

THREADS: Final = "kvcap-serve"
"""How the names begin of threads that may be at work when the service ends."""
_MAX_INLINE_BYTES: Final = 1 << 18
"""Bodies that are decoded on the event loop: a millisecond or two."""

_Handler = Callable[[Request], Awaitable[Response]]


class Endpoints:
    """The endpoints of one service.

    Parameters
    ----------
    service
        Started by whoever runs the application.
    encoder
        Tokenizes what is mirrored.
    """

    def __init__(self, service: Service, encoder: PromptEncoder) -> None:
        self._service = service
        self._encoder = encoder
        tokenize = service.options.tokenize
        workers = 2 if tokenize is None else tokenize.workers
        self._tokenizers = ThreadPoolExecutor(workers, thread_name_prefix=f"{THREADS}-tokenize")
        self._decoders = ThreadPoolExecutor(2, thread_name_prefix=f"{THREADS}-decode")

    def routes(self) -> list[Route]:
        """Return the paths."""
        chat = partial(self._shadow, endpoint="chat.completion")
        text = partial(self._shadow, endpoint="text_completion")
        return [
            Route("/v1/requests", self._counting(self._requests, "overloaded"), methods=["POST"]),
            Route("/v1/chat/completions", self._counting(chat, "dropped"), methods=["POST"]),
            Route("/v1/completions", self._counting(text, "dropped"), methods=["POST"]),
            Route("/v1/models", self._models),
            Route("/status", self._status),
            Route("/finalize", self._finalize, methods=["POST"]),
            Route("/metrics", self._metrics),
            Route("/health", self._health),
            Route("/healthz", self._health),
            Route("/openapi.json", self._openapi),
            Route("/assets/{name}", self._asset),
            Route("/", self._page),
        ]

    def close(self) -> None:
        """Release the tokenizers, without waiting for what they are at."""
        for pool in (self._tokenizers, self._decoders):
            pool.shutdown(wait=False, cancel_futures=True)
        self._encoder.close()

    def _counting(self, handler: _Handler, when_full: Literal["overloaded", "dropped"]) -> _Handler:
        """Return a handler that counts what it did not observe."""
        metrics = self._service.metrics

        async def counted(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestRefusedError as error:
                metrics.count(
                    when_full if error.status == 429 else "failed" if error.status >= 500 else "refused"
                )
                raise
            except Exception:
                metrics.count("failed")
                raise

        return counted

    async def _requests(self, request: Request) -> Response:
        limits = self._service.options.limits
        kind = media_type(request)
        body = await read_body(request, limits)
        decode = partial(decode_body, body, kind, limits, self._service.options.namespace)
        if len(body) <= _MAX_INLINE_BYTES:
            observed = await self._service.submit(decode(), len(body))
        else:
            observed, _ = await self._service.submit_work(self._decoders, decode, len(body))
        found = _observations(observed, self._service.options.block_bytes)
        if kind in LINES_TYPES:
            return Response(b"".join(orjson.dumps(item) + b"\n" for item in found), media_type=kind)
        single = len(found) == 1 and kind == JSON_TYPE and not body.lstrip().startswith(b"[")
        return json_response(found[0] if single else {"observations": found})

    async def _shadow(self, request: Request, endpoint: Endpoint) -> Response:
        options = self._service.options
        limits = options.limits
        media_type(request)
        body = await read_body(request, limits)
        read = partial(read_shadow, body, endpoint, options.served_model, limits.max_json_depth)
        if len(body) <= _MAX_INLINE_BYTES:
            asked = read()
        else:
            asked = await asyncio.get_running_loop().run_in_executor(self._decoders, read)
        # A model that the service assumes for a body keeps it apart from nothing.
        namespace = request_namespace(asked.fields, asked.fields.get("model"), options.namespace)
        world = World(_pool(request), namespace)
        work = partial(
            incoming_prompts, self._encoder, body, {"model": asked.model}, world, limits.max_ids_per_request
        )
        observed, seconds = await self._service.submit_work(self._tokenizers, work, len(body))
        self._service.metrics.tokenize_seconds.observe(seconds)
        if asked.stream:
            events = completion_events(asked, list(observed), options, seconds)
            return StreamingResponse(events, media_type="text/event-stream")
        return json_response(completion(asked, list(observed), options, seconds))

    async def _models(self, _: Request) -> Response:
        model = {"id": self._service.options.served_model, "object": "model", "created": 0}
        return json_response({"object": "list", "data": [{**model, "owned_by": "kvcap"}]})

    async def _status(self, _: Request) -> Response:
        service = self._service
        snapshot = await service.snapshot()
        options = service.options
        return json_response(
            {
                "version": __version__,
                "uptime_seconds": time.time() - service.started_at,
                "pending": service.pending,
                "finalized": service.finalized,
                "broken": service.broken,
                "restored_requests": service.restored,
                "restored_from_log": service.from_log,
                "options": {
                    "kv_bytes_per_token": str(options.kv_bytes_per_token),
                    "block_size": options.block_size,
                    "block_bytes": options.block_bytes,
                    "capacities_bytes": options.capacities_bytes,
                    "max_capacity_bytes": options.max_capacity_bytes,
                    "target_hit_rate_ratio": float(options.target),
                    "touch_order": options.touch_order,
                    "slide_window_size": options.window_requests,
                    "slide_window_seconds": options.window_seconds,
                    "record": options.record,
                    "output_path": options.output_path,
                },
                **asdict(snapshot),
            }
        )

    async def _finalize(self, request: Request) -> Response:
        media_type(request)
        return json_response(asdict(await self._service.finalize()))

    async def _metrics(self, _: Request) -> Response:
        service = self._service
        text = service.metrics.render(await service.snapshot(), service.pending)
        return Response(text, headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _health(self, _: Request) -> Response:
        broken = self._service.broken
        if broken is not None:
            raise RequestRefusedError(503, f"the service does not observe now: {broken}")
        stuck = self._service.stuck()
        if stuck is not None:
            raise RequestRefusedError(503, f"the service is not ready: {stuck}")
        return json_response({"status": "ok"})

    async def _openapi(self, _: Request) -> Response:
        document = orjson.loads(asset("openapi.json"))
        document["info"]["version"] = __version__
        return json_response(document)

    async def _asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in DOWNLOADS:
            raise RequestRefusedError(404, f"there is no {name}, expected {', '.join(DOWNLOADS)}")
        kind = "application/json" if name.endswith(".json") else "text/plain"
        return Response(asset(name), media_type=kind)

    async def _page(self, _: Request) -> Response:
        return HTMLResponse(asset("live.html"))


def asset(name: str) -> bytes:
    """Return a file that comes with the package."""
    return importlib.resources.files("kvcap.online.server").joinpath("assets", name).read_bytes()


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return JSON."""
    return Response(orjson.dumps(content), status, headers, "application/json")


def _pool(request: Request) -> str | None:
    pool = request.headers.get(POOL_HEADER, "")
    if not _POOL.fullmatch(pool):
        raise RequestRefusedError(422, f"{POOL_HEADER} is {pool!r:.60}, expected letters, digits, . _ or -")
    return pool or None


def _observations(batch: ObservedBatch, block_bytes: int) -> list[dict[str, Any]]:
    return [
        {**vars(observation), "required_bytes": observation.required_blocks * block_bytes}
        for observation in batch
    ]

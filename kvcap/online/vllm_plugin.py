"""Inside vLLM, without a fork: a general plugin that feeds the estimator from the engine's own token ids.

vLLM loads it wherever kvcap is installed beside it. It does nothing unless ``KVCAP_KV_BYTES_PER_TOKEN`` is
set; further settings come from ``KVCAP_*`` as for ``kvcap serve``, and the block size is the engine's own
unless ``KVCAP_BLOCK_SIZE`` says otherwise. What it knows joins the engine's ``/metrics`` under ``kvcap_``.
Each API server process sees and exports the requests that it takes itself; with several of them (when
``PROMETHEUS_MULTIPROC_DIR`` is set) vLLM exports no metrics of plugins.

A failure here is logged once and ends the observing, never a request.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from kvcap.online.estimator import RequestBatch
    from kvcap.online.server.options import ServeOptions

NEEDED_VARIABLE: Final = "KVCAP_KV_BYTES_PER_TOKEN"

_log = logging.getLogger("vllm.kvcap")
_installed = threading.Lock()


def register() -> None:
    """Begin to observe what this process's engine is asked; vLLM may call it in every process, and again."""
    if not os.environ.get(NEEDED_VARIABLE):
        return
    if not _installed.acquire(blocking=False):
        return
    try:
        from vllm.v1.engine.input_processor import InputProcessor
    except ImportError as error:
        _log.warning("kvcap does not know this version of vLLM (%s): it observes nothing", error)
        return
    begin, process = InputProcessor.__init__, InputProcessor.process_inputs

    @wraps(begin)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self._kvcap_observer = _observer(self.vllm_config.cache_config.block_size)

    @wraps(process)
    def process_inputs(self: Any, *args: Any, **kwargs: Any) -> Any:
        request = process(self, *args, **kwargs)
        observer = getattr(self, "_kvcap_observer", None)
        if observer is not None:
            observer.observe(request.prompt_token_ids, observer.namespace_of(request))
        return request

    InputProcessor.__init__ = init
    InputProcessor.process_inputs = process_inputs


def _observer(block_size: int) -> EngineObserver | None:
    """Return who observes an engine; None, with the cause in the log, where settings are wrong."""
    try:
        from prometheus_client import REGISTRY

        observer = EngineObserver(observer_options(block_size))
        REGISTRY.register(observer)
    except Exception:
        _log.exception("kvcap cannot observe this engine")
        return None
    return observer


def observer_options(block_size: int) -> ServeOptions:
    """Return the settings of the environment, for an engine of this block size.

    Raises
    ------
    UsageError
        If a setting is not what it should be.
    """
    from kvcap.online.server.settings import serve_options

    given = os.environ.get("KVCAP_BLOCK_SIZE")
    return serve_options({"block_size": None if given else str(block_size)}, os.environ, None)


class EngineObserver:
    """An estimator that threads may feed, and that Prometheus may collect.

    Parameters
    ----------
    options
        As of the service; what concerns HTTP and files is not used.
    """

    def __init__(self, options: ServeOptions) -> None:
        from kvcap.online.estimator import Estimator
        from kvcap.online.server.metrics import Metrics

        # Kernels compile here, not while a request waits.
        Estimator(options.estimator).observe_many(_one_request([1] * options.block_size))
        self._options = options
        self._estimator = Estimator(options.estimator)
        self._metrics = Metrics(options)
        self._lock = threading.Lock()
        self._failed = False

    def observe(self, token_ids: list[int] | None, namespace: str | None = None) -> None:
        """Observe one prompt; prompts without token ids (embeddings) are counted as refused."""
        if self._failed:
            return
        if token_ids is None:
            self._metrics.count("refused")
            return
        try:
            with self._lock:
                self._metrics.observed(self._estimator.observe_many(_one_request(token_ids, namespace)))
        except Exception:
            self._failed = True
            _log.exception("kvcap has stopped observing")

    def namespace_of(self, request: Any) -> str | None:
        """Return what besides its tokens the engine keys a request on; there is one model."""
        from kvcap.formats.identity import namespace_of

        adapter = getattr(getattr(request, "lora_request", None), "lora_name", None)
        fields = {"lora_name": adapter, "cache_salt": getattr(request, "cache_salt", None)}
        return namespace_of(fields, None, self._options.namespace)

    def collect(self) -> Iterator[Metric]:
        """Yield what Prometheus reads."""
        with self._lock:
            snapshot = self._estimator.snapshot(time.time_ns() // 1000)
        yield from self._metrics.collect(snapshot, 0)


def _one_request(token_ids: list[int], namespace: str | None = None) -> RequestBatch:
    import numpy as np

    from kvcap.online.estimator import RequestBatch
    from kvcap.online.estimator.requests import as_ids

    ids = as_ids(token_ids, "token_ids")
    offsets, now = np.array((0, ids.size), np.int64), np.array((time.time_ns() // 1000,), np.int64)
    namespaces = None if namespace is None else (namespace,)
    return RequestBatch("token_ids", ids, offsets, timestamps_us=now, namespaces=namespaces)

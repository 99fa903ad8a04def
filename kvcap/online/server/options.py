"""What the service is told, checked and in the units that it works in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from kvcap.blocks.options import DEFAULT_TOUCH_ORDER, BlockOptions, TouchOrder
from kvcap.errors import UsageError
from kvcap.online.estimator import EstimatorOptions
from kvcap.online.estimator.options import DEFAULT_BLOCKS
from kvcap.options import DEFAULT_TARGET
from kvcap.tokenize import TokenizeOptions

DEFAULT_PORT: Final = 8080
STATE_NAME: Final = ".estimator.state"
"""The state file in a log's directory; its name hides it from whoever reads the directory as a log."""


@dataclass(frozen=True)
class Limits:
    """What one client, and all of them together, may ask.

    Parameters
    ----------
    max_pending
        Requests that wait for the estimator.
    max_pending_bytes
        Bytes of their bodies.
    max_body_bytes
        Bytes of one body.
    max_ids_per_request
        Token ids or hash ids of one request.
    max_json_depth
        How deep objects and lists of a shadowed body may nest.
    body_timeout_s
        Seconds that a client may take to send a request.
    max_connections
        Connections at once.
    """

    max_pending: int = 4096
    max_pending_bytes: int = 256 * 1024**2
    max_body_bytes: int = 64 * 1024**2
    max_ids_per_request: int = 4 * 1024**2
    max_json_depth: int = 64
    body_timeout_s: float = 30.0
    max_connections: int = 1024


@dataclass(frozen=True)
class ServeOptions:
    """What the service is told.

    Parameters
    ----------
    kv_bytes_per_token
        Exact bytes of one token's keys and values.
    capacities_bytes
        Capacities whose hits are counted, ascending.
    max_capacity_bytes
        The bound up to which counts are exact; the largest capacity where it is not given.
    blocks, touch_order, target
        The definitions, as of a replay.
    window_requests, window_seconds
        The window, as of the estimator.
    max_pools
        Pools that are told apart.
    output_path
        Where finalizing leaves results; needs ``record``.
    record
        Directory of the request log.
    record_seconds, record_bytes
        When a file of the log is closed: what is in memory until then is lost by a crash.
    durable
        Whether requests are on disk before they are answered; needs ``record``.
    state
        The state file; in the log's directory where there is one and this is not given.
    state_seconds
        How often the state is saved.
    tokenize
        How shadowed texts are tokenized; None refuses them.
    served_model
        What ``/v1/models`` lists.
    host, port
        Where to listen.
    api_key
        What clients have to show as bearer token; None asks for none.
    allowed_hosts
        Names beside ``host``, addresses and names without a dot that requests may be for, or come from pages
        of; ``*`` for all.
    limits
        What clients may ask.
    """

    kv_bytes_per_token: Fraction
    capacities_bytes: tuple[int, ...]
    max_capacity_bytes: int
    blocks: BlockOptions = DEFAULT_BLOCKS
    touch_order: TouchOrder = DEFAULT_TOUCH_ORDER
    target: Fraction = DEFAULT_TARGET
    window_requests: int = 3000
    window_seconds: float | None = None
    max_pools: int = 64
    output_path: str | None = None
    record: str | None = None
    record_seconds: float = 10.0
    record_bytes: int = 64 * 1024**2
    durable: bool = False
    state: str | None = None
    state_seconds: float = 60.0
    tokenize: TokenizeOptions | None = None
    served_model: str = "kvcap"
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    api_key: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if not self.capacities_bytes:
            raise UsageError("no capacity is given, expected at least one")
        if self.output_path is not None and self.record is None:
            raise UsageError("output_path needs a request log: give --record DIR")
        if self.durable and self.record is None:
            raise UsageError("durable needs a request log: give --record DIR")

    @property
    def block_size(self) -> int:
        """Tokens of a full block."""
        return self.blocks.block_size or self.blocks.token_block_size

    @property
    def block_bytes(self) -> int:
        """Bytes of a full block, rounded up."""
        return math.ceil(self.kv_bytes_per_token * self.block_size)

    @property
    def state_path(self) -> str | None:
        """Where the state is kept, if anywhere."""
        if self.state is None and self.record is not None:
            return f"{self.record}/{STATE_NAME}"
        return self.state

    @property
    def estimator(self) -> EstimatorOptions:
        """What the estimator is told."""
        return EstimatorOptions(
            capacities_blocks=tuple(size // self.block_bytes for size in self.capacities_bytes),
            max_capacity_blocks=max(1, self.max_capacity_bytes // self.block_bytes),
            blocks=self.blocks,
            block_bytes=self.block_bytes,
            target=self.target,
            touch_order=self.touch_order,
            window_requests=self.window_requests,
            window_seconds=self.window_seconds,
            max_pools=self.max_pools,
        )

"""What the service is told, checked and in the units that it works in."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Final, get_args

from kvcap.blocks.options import (
    DEFAULT_TOKEN_BLOCK_SIZE,
    DEFAULT_TOUCH_ORDER,
    BlockOptions,
    PartialBlock,
    TouchOrder,
)
from kvcap.engines.rules import DEFAULT_CAPACITIES
from kvcap.errors import UsageError
from kvcap.formats.options import namespace_columns
from kvcap.option_fields import names, option, seconds, share, size_bytes, true_false, whole_number
from kvcap.options import DEFAULT_TARGET
from kvcap.units import decimal_text, format_size, parse_capacity, parse_number

if TYPE_CHECKING:
    from kvcap.online.estimator import EstimatorOptions
    from kvcap.tokenize import TokenizeOptions

DEFAULT_PORT: Final = 8080
STATE_NAME: Final = ".estimator.state"
"""The state file in a log's directory; its name hides it from whoever reads the directory as a log."""


def _port(text: str, name: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise UsageError(f"{name} is {text!r}, expected 0 (any free one) to 65535")
    return int(text)


@dataclass(frozen=True)
class ClientLimits:
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

    max_pending: int = option(
        4096,
        "requests that may wait, and that one body may hold; further ones are refused or dropped (default: "
        "{default})",
        metavar="N",
        parse=whole_number(1),
    )
    max_pending_bytes: int = 256 * 1024**2
    max_body_bytes: int = option(
        64 * 1024**2,
        "largest body (default: {default})",
        "--max-body-size",
        metavar="SIZE",
        parse=size_bytes,
        show=format_size,
    )
    max_ids_per_request: int = option(
        4 * 1024**2, "most ids of one request (default: {default})", metavar="N", parse=whole_number(1)
    )
    max_json_depth: int = 64
    body_timeout_s: float = option(
        30.0,
        "time that a client has to send a request (default: {default})",
        "--body-timeout-seconds",
        metavar="S",
        parse=seconds,
        show="{:g}".format,
    )
    max_connections: int = option(
        1024, "connections at once (default: {default})", metavar="N", parse=whole_number(1)
    )


@dataclass(frozen=True)
class ServeOptions:
    """What the service is told.

    Parameters
    ----------
    kv_bytes_per_token
        Exact bytes of one token's keys and values.
    capacities
        Comma list of capacities whose hits are counted.
    max_capacity
        The bound in bytes up to which counts are exact; the largest capacity where it is not given.
    block_size, include_partial_page
        Tokens of a full block, and whether an incomplete last one counts; None counts those of hash ids.
    touch_order, target
        The definitions, as of a replay.
    window_requests, window_seconds
        The window, as of the estimator.
    max_pools
        Pools that are told apart.
    namespace
        Fields of a request that must agree, besides its tokens, for blocks to be shared; none of them makes
        all requests one world, None takes its model, adapter, salt and extra key.
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

    kv_bytes_per_token: Fraction = option(
        MISSING, "bytes of one token's keys and values, may be decimal", metavar="BYTES", parse=parse_number
    )
    capacities: str = option(
        DEFAULT_CAPACITIES,
        "comma list of sizes whose hits are counted, such as 640GiB,2TiB (default: {default})",
        metavar="LIST",
    )
    max_capacity: int | None = option(
        None,
        "bound up to which counts are exact (default: the largest of --capacities)",
        metavar="SIZE",
        parse=size_bytes,
    )
    block_size: int = option(
        DEFAULT_TOKEN_BLOCK_SIZE,
        "tokens per block (default: {default})",
        "--block-size",
        "--page-size",
        metavar="TOKENS",
        parse=whole_number(1),
    )
    include_partial_page: bool | None = option(
        None,
        "count an incomplete last block as a block (default: only of hash ids)",
        parse=true_false,
        form="switch",
    )
    touch_order: TouchOrder = option(
        DEFAULT_TOUCH_ORDER,
        "tail-first evicts leaves first, as engines do; head-first is plain LRU (default: {default})",
        choices=get_args(TouchOrder),
    )
    target: Fraction = option(
        DEFAULT_TARGET,
        "share of its own ceiling that a request must reach (default: {default})",
        "--target-hit-rate-ratio",
        metavar="R",
        parse=share,
        show=decimal_text,
    )
    window_requests: int = option(
        3000,
        "latest requests in the window (default: {default})",
        "--slide-window-size",
        metavar="N",
        parse=whole_number(1),
    )
    window_seconds: float | None = option(
        None, "how old they may be (default: any age)", "--slide-window-seconds", metavar="S", parse=seconds
    )
    max_pools: int = option(
        64,
        "pools told apart, each with a cache of its own (default: {default})",
        metavar="N",
        parse=whole_number(1),
    )
    namespace: tuple[str, ...] | None = option(
        None,
        "what besides tokens must agree for blocks to be shared: fields of a request, or none (default: "
        "model, adapter, cache salt and extra key)",
        metavar="FIELD,...",
        parse=namespace_columns,
    )
    output_path: str | None = option(
        None, "where POST /finalize writes results for `kvcap sql`", metavar="DIR"
    )
    record: str | None = option(
        None, "append every request to a Parquet log that `kvcap replay` reads", metavar="DIR"
    )
    record_seconds: float = option(
        10.0,
        "close a file of the log so often (default: {default})",
        metavar="S",
        parse=seconds,
        show="{:g}".format,
    )
    record_bytes: int = 64 * 1024**2
    durable: bool = option(
        False,
        "answer when a request is on disk (default: what was answered within --record-seconds before a crash "
        "is lost)",
        parse=true_false,
    )
    state: str | None = option(
        None, "keep the estimator's state there (default: in the log's directory, if any)", metavar="FILE"
    )
    state_seconds: float = option(
        60.0, "save the state so often (default: {default})", metavar="S", parse=seconds, show="{:g}".format
    )
    tokenize: TokenizeOptions | None = None
    served_model: str = option(
        "kvcap", "what /v1/models lists (default: the tokenizer's name, else {default})", metavar="NAME"
    )
    host: str = option("127.0.0.1", "address to listen on (default: {default})", metavar="ADDRESS")
    port: int = option(
        DEFAULT_PORT,
        "port to listen on, 0 for any free one (default: {default})",
        metavar="PORT",
        parse=_port,
    )
    api_key: str | None = option(None, "bearer token that clients have to show", metavar="TOKEN")
    allowed_hosts: tuple[str, ...] = option(
        (),
        "comma list of names that requests may be for, or come from pages of, beside addresses and names "
        "without a dot; *.example.com for those below, * for all",
        metavar="NAMES",
        parse=names,
    )
    limits: ClientLimits = field(default_factory=ClientLimits)

    def __post_init__(self) -> None:
        if not self.capacities_bytes:
            raise UsageError("capacities is empty, expected sizes such as 640GiB,2TiB")
        if self.output_path is not None and self.record is None:
            raise UsageError("output_path needs a request log: give --record DIR")
        if self.durable and self.record is None:
            raise UsageError("durable needs a request log: give --record DIR")

    @property
    def blocks(self) -> BlockOptions:
        """What a block is, as of a replay."""
        known: dict[bool | None, PartialBlock | None] = {None: None, True: "keep", False: "drop"}
        return BlockOptions(self.block_size, partial_block=known[self.include_partial_page])

    @cached_property
    def capacities_bytes(self) -> tuple[int, ...]:
        """Capacities whose hits are counted, ascending."""
        parts = [part.strip() for part in self.capacities.split(",") if part.strip()]
        found = {parse_capacity(part, "capacities") for part in parts}
        per_unit = {
            "bytes": Fraction(1),
            "tokens": self.kv_bytes_per_token,
            "blocks": Fraction(self.block_bytes),
        }
        return tuple(sorted({int(capacity.amount * per_unit[capacity.unit]) for capacity in found}))

    @property
    def max_capacity_bytes(self) -> int:
        """The bound up to which counts are exact."""
        return self.capacities_bytes[-1] if self.max_capacity is None else self.max_capacity

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
        from kvcap.online.estimator import EstimatorOptions

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
            namespace=self.namespace,
        )

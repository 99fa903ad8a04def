"""The Arrow schema of every table that kvcap reads or writes, in one place.

Each Parquet file carries ``kvcap.schema`` (``NAME/VERSION``) in its metadata, and
``kvcap.provenance`` (JSON) with how it came about.
"""

from __future__ import annotations

from typing import Final, Literal

import pyarrow as pa

SCHEMA_VERSION: Final = 2
SCHEMA_KEY: Final = b"kvcap.schema"
PROVENANCE_KEY: Final = b"kvcap.provenance"

TraceKind = Literal["token_ids", "hash_ids", "request_json"]
TableName = Literal[
    "trace",
    "requests",
    "reuse_runs",
    "curve",
    "policies",
    "policy_requests",
    "explained",
    "limits",
    "restarts",
    "survival",
]

TIMESTAMP: Final = pa.timestamp("us")
EARLIEST_US: Final = -62_135_596_800_000_000
LATEST_US: Final = 253_402_300_799_999_999
"""The years 1 to 9999, which dates of Python, Arrow and SQL can all hold."""
TOKEN_IDS: Final = pa.list_(pa.uint32())
HASH_IDS: Final = pa.list_(pa.uint64())
MEDIA_HASHES: Final = pa.list_(pa.uint64())
MEDIA_OFFSETS: Final = pa.list_(pa.int32())
BLOCK_TOKENS: Final = pa.list_(pa.int32())

LOGGED_COLUMNS: Final[tuple[pa.Field, ...]] = (
    pa.field("namespace", pa.string()),
    pa.field("media_hashes", MEDIA_HASHES),
    pa.field("media_offsets", MEDIA_OFFSETS),
    pa.field("observed_cached_tokens", pa.int64()),
    pa.field("instance", pa.string()),
    pa.field("queue_us", pa.int64()),
    pa.field("ttft_us", pa.int64()),
    pa.field("duration_us", pa.int64()),
)
"""What a log may say of a request beside its prompt; null where it does not. Since version 2.

``namespace`` is what besides tokens must agree for two prefixes to be the same. ``media_hashes`` are digests
of images and the like, ``media_offsets`` the tokens at which they stand (null: somewhere).
``observed_cached_tokens`` were served from a cache, by ``instance``; ``queue_us``, ``ttft_us`` and
``duration_us`` end the wait, the first token and the answer, all counted from ``timestamp``, the arrival.
"""

REQUEST_COLUMNS: Final[tuple[pa.Field, ...]] = (
    pa.field("request_id", pa.int64(), nullable=False),
    pa.field("timestamp", TIMESTAMP),
    pa.field("pool", pa.string()),
    pa.field("session_id", pa.string()),
    pa.field("model", pa.string()),
    pa.field("input_length", pa.int64()),
    pa.field("output_length", pa.int64()),
    pa.field("block_size", pa.int32()),
    *LOGGED_COLUMNS,
)
"""Columns of every trace, before its payload."""

PAYLOAD_COLUMNS: Final[dict[TraceKind, tuple[pa.Field, ...]]] = {
    "token_ids": (pa.field("token_ids", TOKEN_IDS, nullable=False), pa.field("output_ids", TOKEN_IDS)),
    "hash_ids": (pa.field("hash_ids", HASH_IDS, nullable=False), pa.field("block_tokens", BLOCK_TOKENS)),
    "request_json": (
        pa.field("request_json", pa.string(), nullable=False),
        pa.field("source_file", pa.string(), nullable=False),
        pa.field("source_line", pa.int64(), nullable=False),
    ),
}
"""What a request's prompt is: token ids, ids of its blocks, or text that still needs a tokenizer.

Text says where it stands in the logs (the file as the user named it, the line from 1), since only
rendering it shows whether it is sound.
"""

REQUESTS: Final = pa.schema(
    [
        pa.field("request_id", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP),
        pa.field("pool", pa.string()),
        pa.field("session_id", pa.string()),
        pa.field("model", pa.string()),
        pa.field("input_length", pa.int64(), nullable=False),
        pa.field("output_length", pa.int64()),
        pa.field("blocks", pa.int64(), nullable=False),
        pa.field("cacheable_tokens", pa.int64(), nullable=False),
        pa.field("touched_blocks", pa.int64(), nullable=False),
        pa.field("cold_blocks", pa.int64(), nullable=False),
        pa.field("ceiling_blocks", pa.int64(), nullable=False),
        pa.field("ceiling_tokens", pa.int64(), nullable=False),
        pa.field("required_blocks", pa.int64(), nullable=False),
        pa.field("measured", pa.bool_(), nullable=False),
        *LOGGED_COLUMNS,
    ]
)
"""One row per request; ``measured`` is false during warm-up. Kept columns follow.

``cacheable_tokens`` are those of its prompt's blocks. ``touched_blocks`` are what it leaves in the cache,
generated ones included; it is the first to leave ``cold_blocks`` of them there.
"""

REUSE_RUNS: Final = pa.schema(
    [
        pa.field("request_id", pa.int64(), nullable=False),
        pa.field("source_request_id", pa.int64(), nullable=False),
        pa.field("first_block", pa.int64(), nullable=False),
        pa.field("blocks", pa.int64(), nullable=False),
        pa.field("tokens_per_block", pa.int64(), nullable=False),
        pa.field("depth", pa.int64(), nullable=False),
        pa.field("depth_head_first", pa.int64(), nullable=False),
    ]
)
"""One row per reuse run; ``depth`` is the tail-first depth of its first block."""

CURVE: Final = pa.schema(
    [
        pa.field("pool", pa.string()),
        pa.field("capacity_blocks", pa.int64(), nullable=False),
        pa.field("hit_blocks", pa.int64(), nullable=False),
        pa.field("hit_tokens", pa.int64(), nullable=False),
        pa.field("blocks_per_capacity_block", pa.int64(), nullable=False),
        pa.field("tokens_per_capacity_block", pa.int64(), nullable=False),
    ]
)
"""Cumulative hits over capacity, as the corners of an exact piecewise linear function.

At a capacity C in ``[capacity_blocks, next row's capacity_blocks)`` the hits are ``hit_blocks + (C -
capacity_blocks) * blocks_per_capacity_block``, and likewise for tokens. ``pool`` is null for all
pools together, each of them at capacity C.
"""

POLICIES: Final = pa.schema(
    [
        pa.field("policy", pa.string(), nullable=False),
        pa.field("pool", pa.string()),
        pa.field("capacity_blocks", pa.int64(), nullable=False),
        pa.field("reserved_blocks", pa.int64(), nullable=False),
        pa.field("data_blocks", pa.int64(), nullable=False),
        pa.field("hit_blocks", pa.int64(), nullable=False),
        pa.field("hit_tokens", pa.int64(), nullable=False),
        pa.field("dropped_requests", pa.int64(), nullable=False),
    ]
)
"""Hits of the measured requests in every simulation, under the rules of the run.

Of ``capacity_blocks``, ``data_blocks`` held cached data; where ``reserved_blocks`` were set aside, the
simulation without them stands there as well. ``dropped_requests`` were larger than the cache. ``pool`` is
null for all pools together, each of them at that capacity.
"""

POLICY_REQUESTS: Final = pa.schema(
    [
        pa.field("policy", pa.string(), nullable=False),
        pa.field("capacity_blocks", pa.int64(), nullable=False),
        pa.field("reserved_blocks", pa.int64(), nullable=False),
        pa.field("request_id", pa.int64(), nullable=False),
        pa.field("hit_blocks", pa.int64(), nullable=False),
        pa.field("hit_tokens", pa.int64(), nullable=False),
    ]
)
"""Leading hits of every request, warm-up included, in every simulation; kept on demand."""


MISS_CAUSES: Final = (
    "never_seen",
    "partial_block",
    "last_token",
    "other_instance",
    "capacity_and_ttl",
    "capacity",
    "ttl",
    "restart",
    "source_running",
    "below_minimum",
)
"""Why a prompt token was not served from cache, in the order in which causes are taken; else unexplained."""

EXPLAINED: Final = pa.schema(
    [
        pa.field("request_id", pa.int64(), nullable=False),
        pa.field("input_tokens", pa.int64(), nullable=False),
        pa.field("observed_tokens", pa.int64(), nullable=False),
        pa.field("expected_tokens", pa.int64(), nullable=False),
        pa.field("more_tokens", pa.int64(), nullable=False),
        *(pa.field(f"{cause}_tokens", pa.int64(), nullable=False) for cause in MISS_CAUSES),
        pa.field("unexplained_tokens", pa.int64(), nullable=False),
        *(pa.field(f"{cause}_hit_tokens", pa.int64(), nullable=False) for cause in MISS_CAUSES),
    ]
)
"""One row per request whose observed hit the log tells.

Its prompt is what hit as expected (``observed_tokens - more_tokens``), ``more_tokens`` hit beyond that, the
tokens that missed by cause, and the unexplained ones. ``expected_tokens`` are those that hit as expected and
the unexplained ones. Columns that end in ``_hit_tokens`` say what hit although that cause speaks against it;
but for ``source_running``, where both are as expected, they add up to ``more_tokens``.
"""

LIMITS: Final = pa.schema(
    [
        pa.field("instance", pa.string()),
        pa.field("first_request_id", pa.int64(), nullable=False),
        pa.field("since", TIMESTAMP),
        pa.field("structure", pa.string(), nullable=False),
        pa.field("capacity_blocks", pa.int64()),
        pa.field("capacity_low_blocks", pa.int64()),
        pa.field("capacity_high_blocks", pa.int64()),
        pa.field("ttl_us", pa.int64()),
        pa.field("ttl_low_us", pa.int64()),
        pa.field("ttl_high_us", pa.int64()),
        pa.field("misfit", pa.float64(), nullable=False),
    ]
)
"""The limits of every instance by time; null where none is visible, or none bounds it from that side.

``misfit`` is the error of the whole structure as a share of what no limits get wrong.
"""

RESTARTS: Final = pa.schema(
    [
        pa.field("instance", pa.string()),
        pa.field("last_request_id", pa.int64()),
        pa.field("first_request_id", pa.int64()),
        pa.field("after", TIMESTAMP),
        pa.field("until", TIMESTAMP),
        pa.field("requests", pa.int64(), nullable=False),
        pa.field("missed_tokens", pa.int64(), nullable=False),
        pa.field("is_given", pa.bool_(), nullable=False),
    ]
)
"""Restarts of instances, each between two requests of it, and what missed because of it."""

SURVIVAL: Final = pa.schema(
    [
        pa.field("age_from_seconds", pa.float64()),
        pa.field("age_to_seconds", pa.float64()),
        pa.field("depth_from_blocks", pa.int64(), nullable=False),
        pa.field("depth_to_blocks", pa.int64(), nullable=False),
        pa.field("requests", pa.int64(), nullable=False),
        pa.field("known_tokens", pa.int64(), nullable=False),
        pa.field("hit_tokens", pa.int64(), nullable=False),
    ]
)
"""What was left of blocks that an instance had, by the time since their last use and by their depth.

Both ranges hold their lower end and not their upper one; null ages where the log has no times, or no bound.
"""


def trace_schema(kind: TraceKind, kept: tuple[pa.Field, ...] = ()) -> pa.Schema:
    """Return the schema of a trace of one kind, with the user's kept columns at its end."""
    return pa.schema([*REQUEST_COLUMNS, *PAYLOAD_COLUMNS[kind], *kept]).with_metadata(
        schema_metadata("trace")
    )


def schema_metadata(table: TableName) -> dict[bytes, bytes]:
    """Return the metadata that marks a Parquet file as one of kvcap's tables."""
    return {SCHEMA_KEY: f"{table}/{SCHEMA_VERSION}".encode()}


def trace_kind(schema: pa.Schema) -> TraceKind | None:
    """Return which payload a trace holds, or None when it has none of them."""
    present: list[TraceKind] = [kind for kind in PAYLOAD_COLUMNS if kind in schema.names]
    return present[0] if len(present) == 1 else None

"""What a replay was told and what it counted: the metadata that stands beside its tables."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kvcap.errors import SchemaError
from kvcap.option_fields import from_json_values
from kvcap.options import ReplayOptions
from kvcap.units import decimal_text

if TYPE_CHECKING:
    from kvcap.blocks.options import PartialBlock, TouchOrder
    from kvcap.engines import Rules


@dataclass(frozen=True)
class ReadAccount:
    """What reading the log left out or found odd; the frozen form of a reader's report."""

    format_name: str
    sources: tuple[str, ...]
    records: int
    requests: int
    skipped: dict[str, int]
    bad_records: int
    bad_examples: tuple[str, ...]
    overfull_requests: int
    underfull_requests: int
    backward_timestamps: int
    notices: tuple[str, ...]
    clipped_cached_tokens: int = 0
    kv_bytes_per_token: str | None = None
    largest_step_back_us: int = 0


@dataclass(frozen=True)
class LengthCost:
    """Bytes per token of a sequence as long as a percentile of the input lengths."""

    percent: int
    tokens: int
    kv_bytes_per_token: str


@dataclass(frozen=True)
class ModelSizing:
    """Where the bytes per token of a model come from.

    Attributes
    ----------
    model, kv_precision, indexer_precision, layout, scope
        The model's id, the formats in force (None without an indexer), whose pool, and whose bytes.
    estimate_tokens
        Sequence length at which the flat figure was taken.
    description
        One line that says all of this.
    notes
        What prevailed over the options, and what is not covered.
    length_costs
        For a model whose cost is not linear in tokens, what it would be at other lengths; else empty.
    """

    model: str
    kv_precision: str
    indexer_precision: str | None
    layout: str
    scope: str
    estimate_tokens: int
    description: str
    notes: tuple[str, ...]
    length_costs: tuple[LengthCost, ...]


@dataclass(frozen=True)
class GroupInfo:
    """Layers that share a block table in an engine; see :class:`kvcap.models.pools.CacheGroup`."""

    name: str
    kind: str
    layers: int
    block_tokens: int
    window_tokens: int | None


@dataclass(frozen=True)
class HybridInfo:
    """An engine's own cache of the model, which is simulated beside LRU at the mean bytes per token.

    Attributes
    ----------
    policy
        The policy that simulates it.
    groups
        What its pool is shared by, in order.
    alignment_tokens
        Tokens whose multiples hits end at.
    block_bytes, spare_blocks
        Bytes of a block of the pool, and blocks that hold no data.
    ceiling_tokens
        What the measured requests hit with unlimited memory.
    requests_without_output
        Requests that do not say what they generated.
    """

    policy: str
    groups: tuple[GroupInfo, ...]
    alignment_tokens: int
    block_bytes: int
    spare_blocks: int
    ceiling_tokens: int = 0
    requests_without_output: int = 0

    def usable_blocks(self, size_bytes: int) -> int:
        """Return the blocks of a pool that hold data."""
        return max(0, size_bytes // self.block_bytes - self.spare_blocks)

    def size_bytes(self, usable_blocks: int) -> int:
        """Return the bytes of a pool with so many blocks that hold data."""
        return (usable_blocks + self.spare_blocks) * self.block_bytes


@dataclass(frozen=True)
class RunInfo:
    """One replay.

    Attributes
    ----------
    kvcap_version, created_at
        Which kvcap ran, and when (ISO 8601, UTC).
    kind
        ``token_ids`` or ``hash_ids``.
    options
        What the replay was told; of a model, ``sizing`` and ``kv_bytes_per_token`` say what came of it.
    block_size
        Tokens of a full block, after coarsening ``coarsen`` blocks into one.
    pool_column
        The column whose values are the pools; None for one pool.
    kv_bytes_per_token
        Exact, as decimal text or as a fraction; None when unknown.
    sizing
        The model behind that figure; None when the figure itself was given.
    block_bytes
        Bytes of a full block, rounded up; None when unknown.
    requests, warm_up_requests, blocks, distinct_blocks, input_tokens, largest_request_blocks
        Counts over the whole trace, warm-up included. Blocks of generated tokens are counted among the
        distinct ones alone.
    requests_without_output
        Requests whose generated tokens would have entered the cache, had the log said how many there were.
    reading
        The reader's account.
    hybrid
        The engine's own cache, where that was simulated.
    max_capacity_blocks
        Capacity up to which results are exact; None for all.
    beyond_blocks, forgotten_blocks
        Accesses whose block was last used deeper than that, as far as it was remembered, and blocks
        that were forgotten, each of which may be one such access more. Such accesses count among the
        distinct blocks.
    """

    kvcap_version: str
    created_at: str
    kind: str
    options: ReplayOptions
    block_size: int
    coarsen: int
    pool_column: str | None
    kv_bytes_per_token: str | None
    sizing: ModelSizing | None
    block_bytes: int | None
    requests: int
    warm_up_requests: int
    blocks: int
    distinct_blocks: int
    input_tokens: int
    largest_request_blocks: int
    requests_without_output: int
    reading: ReadAccount
    hybrid: HybridInfo | None = None
    max_capacity_blocks: int | None = None
    beyond_blocks: int = 0
    forgotten_blocks: int = 0

    @property
    def bound_blocks(self) -> int | None:
        """The capacity beyond which nothing is known, or None where nothing lies beyond."""
        return self.max_capacity_blocks if self.beyond_blocks or self.forgotten_blocks else None

    @property
    def target(self) -> Fraction:
        """The target as a share of 1."""
        return self.options.target

    @property
    def target_percent(self) -> str:
        """The target as decimal text, exact."""
        return decimal_text(self.options.target * 100)

    @property
    def warm_up_percent(self) -> str:
        """The share of requests that only filled the cache, as decimal text, exact."""
        return decimal_text(self.options.warm_up * 100)

    @property
    def rules(self) -> Rules:
        """What was added to plain prefix caching, and what was simulated."""
        return self.options.rules

    @property
    def partial_block(self) -> PartialBlock:
        """What became of incomplete last blocks."""
        return self.options.blocks.partial_block_of(self.kind)

    @property
    def touch_order(self) -> TouchOrder:
        """In which order the blocks of a request were touched."""
        return self.options.touch_order

    @property
    def tail_first(self) -> bool:
        """Whether blocks are touched last to first."""
        return self.options.tail_first

    def to_json(self) -> str:
        """Return the metadata as JSON, fractions as text."""
        return json.dumps(asdict(self), indent=2, default=str) + "\n"

    @classmethod
    def from_json(cls, text: str, path: str) -> RunInfo:
        """Return the metadata that :meth:`to_json` wrote.

        Raises
        ------
        SchemaError
            If it is not that, or was written before options were part of it.
        """
        try:
            values: dict[str, Any] = json.loads(text)
            if "options" not in values and "rules" in values:
                written = f"results of kvcap {values['kvcap_version']}, which did not keep all options"
                raise SchemaError(path, "results of this version: replay the trace again", written)
            options = from_json_values(ReplayOptions, values.pop("options"))
            reading: dict[str, Any] = values.pop("reading")
            for name in ("sources", "bad_examples", "notices"):
                reading[name] = tuple(reading[name])
            sizing, hybrid = _sizing(values.pop("sizing")), _hybrid(values.pop("hybrid", None))
            return cls(
                **values, options=options, sizing=sizing, reading=ReadAccount(**reading), hybrid=hybrid
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SchemaError(path, "the metadata of a kvcap replay", str(error)) from error

    def summary(self) -> dict[str, Any]:
        """Return the facts of an answer: counts, sizes, ``rules``, and the definitions in force as text."""
        values = asdict(self)
        del values["options"]
        rules = {name: value for name, value in asdict(self.rules).items() if name != "request_hits"}
        rules["output_blocks"] = self.options.blocks.output_blocks
        rules["capacity_factor"] = decimal_text(self.rules.capacity_factor)
        rules["requests_without_output"] = values.pop("requests_without_output")
        for name in ("partial_block", "touch_order", "target_percent", "warm_up_percent"):
            values[name] = getattr(self, name)
        return {**values, "rules": rules}

    def scalars(self) -> dict[str, Any]:
        """Return the columns of the ``run`` view: what is flat in the summary, the rules, ``tail_first``."""
        values = self.summary()
        rules = {**values.pop("rules"), "policies": ",".join(self.rules.policies)}
        del values["reading"], values["sizing"], values["hybrid"]
        engine_block_bytes = None if self.hybrid is None else self.hybrid.block_bytes
        return {
            **values,
            **rules,
            "tail_first": self.tail_first,
            "engine_block_bytes": engine_block_bytes,
        }


def _sizing(values: dict[str, Any] | None) -> ModelSizing | None:
    if values is None:
        return None
    costs = tuple(LengthCost(**cost) for cost in values["length_costs"])
    return ModelSizing(**{**values, "notes": tuple(values["notes"]), "length_costs": costs})


def _hybrid(values: dict[str, Any] | None) -> HybridInfo | None:
    if values is None:
        return None
    return HybridInfo(**{**values, "groups": tuple(GroupInfo(**group) for group in values["groups"])})

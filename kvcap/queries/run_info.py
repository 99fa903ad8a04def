"""What a replay was told and what it counted: the metadata that stands beside its tables."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from typing import Any

from kvcap.errors import SchemaError


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
class Rules:
    """What a replay added to plain prefix caching, and what it simulated.

    Attributes
    ----------
    engine
        Whose rules these are; None for nobody's in particular.
    compute_last_token
        Whether one token of every prompt had to be computed.
    output_blocks
        Whether generated tokens entered the cache.
    requests_without_output
        Requests whose generated tokens would have entered, had the log said how many there were.
    policies
        What was simulated, at each of ``capacities`` (as the user wrote them; None for the defaults).
    capacity_factor
        Share of a capacity that holds data, as decimal text.
    reserve_blocks
        Blocks of every capacity that hold no cached data.
    oversize
        ``keep``, or ``drop`` where requests larger than a capacity were left out there.
    """

    engine: str | None
    compute_last_token: bool
    output_blocks: bool
    requests_without_output: int
    policies: tuple[str, ...]
    capacities: str | None
    capacity_factor: str
    reserve_blocks: int
    oversize: str


@dataclass(frozen=True)
class RunInfo:
    """One replay.

    Attributes
    ----------
    kvcap_version, created_at
        Which kvcap ran, and when (ISO 8601, UTC).
    kind
        ``token_ids`` or ``hash_ids``.
    block_size
        Tokens of a full block, after coarsening ``coarsen`` blocks into one.
    partial_block, touch_order
        The definitions in force.
    target_percent, warm_up_percent
        As decimal text, exact.
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
    rules
        What was added to plain prefix caching, and what was simulated.
    reading
        The reader's account.
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
    block_size: int
    coarsen: int
    partial_block: str
    touch_order: str
    target_percent: str
    warm_up_percent: str
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
    rules: Rules
    reading: ReadAccount
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
        return Fraction(self.target_percent) / 100

    @property
    def tail_first(self) -> bool:
        """Whether blocks are touched last to first."""
        return self.touch_order == "tail-first"

    def to_json(self) -> str:
        """Return the metadata as JSON."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, path: str) -> RunInfo:
        """Return the metadata that :meth:`to_json` wrote.

        Raises
        ------
        SchemaError
            If it is not that.
        """
        try:
            values: dict[str, Any] = json.loads(text)
            reading: dict[str, Any] = values.pop("reading")
            for name in ("sources", "bad_examples", "notices"):
                reading[name] = tuple(reading[name])
            sizing = _sizing(values.pop("sizing"))
            rules: dict[str, Any] = values.pop("rules")
            rules["policies"] = tuple(rules["policies"])
            return cls(**values, sizing=sizing, rules=Rules(**rules), reading=ReadAccount(**reading))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SchemaError(path, "the metadata of a kvcap replay", str(error)) from error

    def scalars(self) -> dict[str, Any]:
        """Return every flat field, the rules, and ``tail_first``: the columns of the ``run`` view."""
        nested = ("reading", "sizing", "rules")
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in nested}
        rules = {**asdict(self.rules), "policies": ",".join(self.rules.policies)}
        return {**values, **rules, "tail_first": self.tail_first}


def _sizing(values: dict[str, Any] | None) -> ModelSizing | None:
    if values is None:
        return None
    costs = tuple(LengthCost(**cost) for cost in values["length_costs"])
    return ModelSizing(**{**values, "notes": tuple(values["notes"]), "length_costs": costs})

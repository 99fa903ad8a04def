"""How a model is deployed: formats of its cache, parallel sizes, and the engine's version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from kvcap.errors import UsageError
from kvcap.models.layouts import LAYOUTS, SPARSE_BACKENDS
from kvcap.models.precision import (
    INDEXER_PRECISIONS,
    KV_PRECISIONS,
    STATE_PRECISIONS,
    parse_precision,
)

Scope = Literal["rank", "replica"]
SCOPES: Final[tuple[Scope, ...]] = ("rank", "replica")


@dataclass(frozen=True)
class ModelBytesOptions:
    """How a model is deployed. Short names of precisions are replaced by the full ones.

    Parameters
    ----------
    kv_precision, indexer_precision
        Formats of the cache and of an indexer's keys; None takes the model's default. What the model, or
        the engine's pool, fixes prevails and is noted.
    state_precision
        Format of recurrent states; None takes the model's own.
    include_draft_kv_cache
        Add the layers that draft tokens (MTP).
    include_state
        Count one state per sequence and replayed windows, which are otherwise shown apart.
    layout
        ``logical``, ``sglang`` or ``vllm``: see :mod:`kvcap.models.layouts`.
    tp, pp, dcp
        Ranks that split heads, pipeline stages that split layers, and ranks among the ``tp`` that split
        the tokens of a sequence (decode context parallelism).
    dp_attention
        Attention replicas among the ``tp`` ranks; each has a cache of its own and splits heads over
        ``tp / dp_attention`` ranks.
    scope
        Whose bytes: ``rank`` or all ranks of one attention ``replica`` together.
    sparse_backend
        The kernel of sparse latent attention, which decides the bytes of its fp8 rows; None takes flashmla.
    unquantized_layers
        Layers of full attention that stay at 16 bits beside a quantized cache.
    num_speculative_tokens
        Tokens drafted ahead: the draft layers are counted, and vLLM's states keep as many inputs more.
    engine_version
        The engine's version, such as ``0.5.22``; None for the newest that is known.

    Raises
    ------
    UsageError
        If a value is not among those allowed, or the parallel sizes do not divide.
    """

    kv_precision: str | None = None
    indexer_precision: str | None = None
    state_precision: str | None = None
    include_draft_kv_cache: bool = False
    include_state: bool = False
    layout: str = "logical"
    tp: int = 1
    pp: int = 1
    dp_attention: int = 1
    scope: str = "rank"
    dcp: int = 1
    sparse_backend: str | None = None
    unquantized_layers: int = 0
    num_speculative_tokens: int = 0
    engine_version: str | None = None

    def __post_init__(self) -> None:
        for field, allowed in (
            ("kv_precision", KV_PRECISIONS),
            ("indexer_precision", INDEXER_PRECISIONS),
            ("state_precision", STATE_PRECISIONS),
        ):
            text = getattr(self, field)
            if text is not None:
                # The dataclass is frozen for users; this is still its construction.
                object.__setattr__(self, field, parse_precision(text, field.replace("_", " "), allowed))
        if self.layout not in LAYOUTS:
            raise UsageError(f"layout is {self.layout!r}, expected {', '.join(LAYOUTS)}")
        if self.scope not in SCOPES:
            raise UsageError(f"scope is {self.scope!r}, expected {' or '.join(SCOPES)}")
        if self.sparse_backend not in {None, *SPARSE_BACKENDS}:
            raise UsageError(
                f"sparse backend is {self.sparse_backend!r}, expected {', '.join(SPARSE_BACKENDS)}"
            )
        parse_version(self.engine_version)
        for field, least in (
            ("tp", 1),
            ("pp", 1),
            ("dp_attention", 1),
            ("dcp", 1),
            ("unquantized_layers", 0),
            ("num_speculative_tokens", 0),
        ):
            if getattr(self, field) < least:
                name = field.replace("_", " ")
                raise UsageError(f"{name} is {getattr(self, field)}, expected a whole number from {least}")
        if self.tp % self.dp_attention:
            raise UsageError(
                f"dp attention is {self.dp_attention} of tp {self.tp}, expected a divisor of {self.tp}"
            )
        ranks = self.tp // self.dp_attention
        if ranks % self.dcp:
            raise UsageError(f"dcp is {self.dcp} of {ranks} ranks, expected a divisor of {ranks}")

    @property
    def counts_draft_layers(self) -> bool:
        """Whether the layers that draft tokens keep a cache in this deployment."""
        return self.include_draft_kv_cache or self.num_speculative_tokens > 0


def parse_version(text: str | None) -> tuple[int, ...] | None:
    """Return an engine's version as numbers to compare; None for the newest.

    Raises
    ------
    UsageError
        If it is not numbers with points between them.
    """
    if text is None:
        return None
    parts = text.removeprefix("v").split(".")
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"engine version is {text!r}, expected numbers such as 0.32 or 0.5.23")
    return tuple(map(int, parts))

"""SGLang's pools: tokens of full attention, tokens of windows, and slots of states, cut from one memory.

Source: ``model_executor/pool_configurator.py`` and ``mem_cache/kv_cache_configurator.py`` of SGLang 0.5.23.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from kvcap.errors import UsageError
from kvcap.models.kinds.compressed import CompressedLatent, SharedCompressedLatent
from kvcap.models.kinds.hybrids import WindowedConvHeads
from kvcap.models.kinds.states import KdaSparseLatent
from kvcap.models.kinds.uniform import SparseLatent
from kvcap.models.pools.groups import CacheGroup, CacheKind
from kvcap.models.sizing import model_bytes

if TYPE_CHECKING:
    from kvcap.models.catalog import Model
    from kvcap.models.deployment import ModelBytesOptions
    from kvcap.models.kinds import Attention
    from kvcap.models.sizing import ModelBytes
    from kvcap.models.terms import Term

_PAGE_TOKENS: Final[dict[type[Attention], int]] = {
    SparseLatent: 64,
    KdaSparseLatent: 64,
    CompressedLatent: 256,
    SharedCompressedLatent: 256,
}
_WINDOW_RATIO: Final = Fraction(8, 10)
_SMALL_WINDOW_RATIO: Final = Fraction(1, 10)
_SMALL_WINDOW_KINDS: Final = (CompressedLatent, SharedCompressedLatent, WindowedConvHeads)
_STATE_RATIO: Final = Fraction(9, 10)

_PACKED: Final = (CompressedLatent, SharedCompressedLatent)
_ROW_ALIGNMENT: Final = 576
"""Bytes to whose multiples pages of packed rows are rounded up."""

_FP32_BYTES: Final = 4
_OVERLAPPING_RATIO: Final = 4
_OVERLAPPING_ROWS: Final = 8
"""Rows of compressor states that stand by every page of the window pool, for entries of four tokens."""

_ESTIMATED_REQUESTS: Final = (2048, 4096)
_SPARE_REQUEST_SLOTS: Final = 3


@dataclass(frozen=True)
class SglangOptions:
    """How SGLang is started, as far as its pools are concerned.

    Parameters
    ----------
    page_tokens
        ``--page-size``; None for what the model's kernels demand, else 1.
    window_ratio
        ``--swa-full-tokens-ratio``; None for 0.8, or 0.1 for DeepSeek V4 and Inkling.
    state_ratio
        ``--mamba-full-memory-ratio``.
    state_slots
        ``--max-mamba-cache-size``; None to take them by ``state_ratio``.
    max_running_requests
        ``--max-running-requests``, by which DeepSeek V4's states are reserved; None for an estimate.
    dp
        Engines that share the requests, each with pools of its own.
    """

    page_tokens: int | None = None
    window_ratio: Fraction | None = None
    state_ratio: Fraction = _STATE_RATIO
    state_slots: int | None = None
    max_running_requests: int | None = None
    dp: int = 1

    def __post_init__(self) -> None:
        for name in ("page_tokens", "state_slots", "max_running_requests", "dp"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name.replace('_', ' ')} is {value}, expected a whole number from 1")
        if self.window_ratio is not None and not 0 < self.window_ratio <= 1:
            raise UsageError(f"window ratio is {float(self.window_ratio):g}, expected above 0 and at most 1")
        if self.state_ratio <= 0:
            raise UsageError(f"state ratio is {float(self.state_ratio):g}, expected above 0")


@dataclass(frozen=True)
class SglangSizes:
    """The pools of one rank.

    Attributes
    ----------
    max_total_num_tokens
        Tokens of the pool of full attention, as the engine prints it.
    window_tokens
        Tokens of the pool of sliding windows; None without one.
    state_slots
        States that can be kept; None without any.
    """

    max_total_num_tokens: int
    window_tokens: int | None = None
    state_slots: int | None = None


@dataclass(frozen=True)
class SglangPool:
    """What a memory is divided by.

    Attributes
    ----------
    groups
        Full attention, windows and states, each with its own pool.
    token_bytes
        Bytes of a token in the pool of full attention.
    window_token_bytes
        Bytes of a token in the pool of windows; 0 without one.
    state_bytes
        Bytes of one state in all layers; 0 without any.
    page_tokens, window_ratio, state_ratio, given_state_slots
        As in :class:`SglangOptions`, with the engine's defaults.
    request_bytes
        Bytes that are reserved for every request that may run.
    max_running_requests
        How many may; None for the engine's estimate by ``context_tokens``.
    context_tokens
        Tokens of the longest request.
    notes
        What was assumed, one sentence each.
    """

    groups: tuple[CacheGroup, ...]
    token_bytes: Fraction
    window_token_bytes: Fraction
    state_bytes: Fraction
    page_tokens: int
    window_ratio: Fraction
    state_ratio: Fraction
    given_state_slots: int | None
    request_bytes: int = 0
    max_running_requests: int | None = None
    context_tokens: int = 1
    notes: tuple[str, ...] = ()

    def sizes(self, memory_bytes: int) -> SglangSizes:
        """Return the pools that fit into the cache's memory of one GPU.

        Raises
        ------
        UsageError
            If not even one page of tokens and one state fit.
        """
        cell = self.token_bytes + self.window_ratio * self.window_token_bytes
        rest = Fraction(memory_bytes) - self._reserved_bytes(memory_bytes, cell)
        slots = None
        if self.state_bytes:
            budget = rest * self.state_ratio / (1 + self.state_ratio)
            slots = self.given_state_slots or int((budget - self.state_bytes) // self.state_bytes)
            rest -= (max(slots, 0) + 1) * self.state_bytes
        tokens = int(rest // cell) // self.page_tokens * self.page_tokens
        if tokens <= 0 or (slots is not None and slots <= 0):
            raise UsageError(f"memory is {memory_bytes:,} bytes, too few for a page of tokens of this model")
        window = int(tokens * self.window_ratio) // self.page_tokens * self.page_tokens
        return SglangSizes(tokens, window if self.window_token_bytes else None, slots)

    def _reserved_bytes(self, memory_bytes: int, cell: Fraction) -> int:
        requests = self.max_running_requests
        if requests is None:
            tokens = int(memory_bytes // cell)
            least, most = _ESTIMATED_REQUESTS
            requests = min(max(min(tokens * 512 // self.context_tokens, most), least), tokens // 2)
        return (requests + _SPARE_REQUEST_SLOTS) * self.request_bytes


def sglang_pool(
    model: Model, deployment: ModelBytesOptions, options: SglangOptions | None = None
) -> SglangPool:
    """Return the pools that SGLang makes of a model.

    Parameters
    ----------
    model
        From :func:`kvcap.models.resolve_model`.
    deployment
        Precisions and parallel sizes; its layout and scope play no part.
    options
        How the engine is started.

    Raises
    ------
    UsageError
        As :func:`kvcap.models.model_bytes`.
    """
    options = SglangOptions() if options is None else options
    cost = model_bytes(model, replace(deployment, layout="sglang", scope="rank", include_state=False))
    attention = model.attention
    page = options.page_tokens or _PAGE_TOKENS.get(type(attention), 1)
    small = isinstance(attention, _SMALL_WINDOW_KINDS)
    ratio = options.window_ratio or (_SMALL_WINDOW_RATIO if small else _WINDOW_RATIO)
    token_bytes, window_bytes, state_bytes = (
        sum(
            (_token_bytes(cost, term, page) for term in cost.terms if pool == _pool(attention, term)),
            Fraction(0),
        )
        for pool in ("full", "window", "state")
    )
    if isinstance(attention, CompressedLatent):
        window_bytes += Fraction(_OVERLAPPING_ROWS, page) * _overlapping_state_bytes(attention)
    notes = [f"SGLang keeps every token of {term.name}" for term in cost.terms if _is_merged(attention, term)]
    if options.dp > 1:
        notes.append(f"each of {options.dp} engines (dp) has pools like these")
    return SglangPool(
        groups=tuple(_group(attention, term, page) for term in cost.terms if term.pool != "workspace"),
        token_bytes=token_bytes,
        window_token_bytes=window_bytes,
        state_bytes=state_bytes,
        page_tokens=page,
        window_ratio=ratio,
        state_ratio=options.state_ratio,
        given_state_slots=options.state_slots,
        request_bytes=_request_bytes(attention),
        max_running_requests=options.max_running_requests,
        context_tokens=model.max_context or 1,
        notes=tuple(notes),
    )


def _is_merged(attention: Attention, term: Term) -> bool:
    """Return whether SGLang keeps a window's layers in the pool of full attention."""
    return attention.one_pool_in_sglang and term.retention in {"window", "chunk"}


def _pool(attention: Attention, term: Term) -> str:
    if term.retention == "state":
        return "state"
    windowed = term.retention in {"window", "chunk"} and not _is_merged(attention, term)
    return "window" if windowed else "full"


def _token_bytes(cost: ModelBytes, term: Term, page: int) -> Fraction:
    """Return the bytes of a token, or of one state, in all layers of a term."""
    if isinstance(cost.model.attention, _PACKED) and term.pool != "indexer":
        rows = -(-page // term.tokens_per_entry)
        padded = -(-rows * term.bytes_per_layer // _ROW_ALIGNMENT) * _ROW_ALIGNMENT
        return term.layers * Fraction(padded, page)
    return term.entry_bytes / term.tokens_per_entry


def _group(attention: Attention, term: Term, page: int) -> CacheGroup:
    merged = _is_merged(attention, term)
    kinds: dict[str, CacheKind] = {"window": "window", "chunk": "chunked", "state": "state"}
    kind = "full" if merged else kinds.get(term.retention, "full")
    return CacheGroup(
        name=term.name,
        kind=kind,
        layers=term.layers,
        block_tokens=page,
        group_bytes=int(term.entry_bytes * (1 if kind == "state" else page // term.tokens_per_entry)),
        window_tokens=None if merged else term.window_tokens,
    )


def _overlapping_state_bytes(attention: CompressedLatent) -> int:
    """Return the bytes of a row of compressor states in all layers whose entries overlap: keys and scores."""
    width = 4 * (attention.head_dim + attention.index_head_dim)
    return width * _FP32_BYTES * attention.compress_ratios.count(_OVERLAPPING_RATIO)


def _request_bytes(attention: Attention) -> int:
    """Return the bytes of compressor states that every running request has reserved."""
    if isinstance(attention, CompressedLatent):
        ratio, layers = 128, attention.compress_ratios.count(128)
    elif isinstance(attention, SharedCompressedLatent):
        ratio = 2
        layers = sum(attention.compress_ratios[layer] == ratio for layer in attention.kv_source_layers)
    else:
        return 0
    return ratio * 2 * attention.head_dim * _FP32_BYTES * layers

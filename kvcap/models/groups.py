"""Groups of layers that keep the same thing in the cache: what a model's attention is made of.

A group says how many elements a layer keeps, and for how long; :mod:`kvcap.models.layouts` turns
elements into bytes. Head counts and channels are those of the whole model, before any parallelism.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fractions import Fraction

Pool = Literal["kv", "window", "indexer", "state"]
"""Which memory pool keeps it: attention over the whole sequence, sliding windows, the keys of a sparse
attention's indexer, or states of fixed size."""


@dataclass(frozen=True)
class Scales:
    """Scales kept beside quantized elements: ``scale_bytes`` for every full ``group`` of elements."""

    group: int
    scale_bytes: int


@dataclass(frozen=True)
class HeadGroup:
    """Keys and values of attention heads (MHA, GQA, MQA).

    ``window_tokens`` is None where every token of the sequence stays; where layers are ``chunked``, it is
    the length of the chunks of the sequence, each of which attends to itself alone.
    """

    name: str
    layers: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    window_tokens: int | None = None
    chunked: bool = False

    @property
    def pool(self) -> Pool:
        """Its memory pool."""
        return "kv" if self.window_tokens is None else "window"


@dataclass(frozen=True)
class LatentGroup:
    """A latent that all heads share (MLA), one entry for every ``tokens_per_entry`` tokens.

    ``sparse`` marks attention that an indexer steers, whose fp8 layout differs in engines. A format
    that the model itself fixes stands in ``element_bytes`` and ``scales``. ``replayed`` marks a window
    that is computed anew from the last tokens rather than cached. ``packed`` marks latents that engines keep
    as rows of fp8 elements with one-byte scales and a 16-bit rotary part, whatever the cache's type (DeepSeek
    V4). ``vllm_elements`` is what a row has in vLLM where it is wider than the latent.
    """

    name: str
    layers: int
    rank: int
    rope_dim: int
    window_tokens: int | None = None
    tokens_per_entry: int = 1
    sparse: bool = False
    element_bytes: Fraction | None = None
    scales: Scales | None = None
    replayed: bool = False
    packed: bool = False
    vllm_elements: int | None = None

    @property
    def pool(self) -> Pool:
        """Its memory pool."""
        return "kv" if self.window_tokens is None else "window"


@dataclass(frozen=True)
class IndexGroup:
    """Keys by which a sparse attention selects tokens, one entry for every ``tokens_per_entry`` tokens.

    ``layers`` own an indexer; ``sharing_layers`` more use the selection of one that does. ``scales`` go
    by precision. ``tail_bytes_per_layer`` is kept while the last entry is still incomplete.
    """

    name: str
    layers: int
    head_dim: int
    sharing_layers: int = 0
    tokens_per_entry: int = 1
    scales: tuple[tuple[str, Scales], ...] = ()
    tail_bytes_per_layer: int = 0


@dataclass(frozen=True)
class StateTensor:
    """One tensor of a state: ``elements`` of ``element_bytes`` each, split over ranks by ``heads``.

    ``heads`` is None for what every rank keeps whole. A ``recurrent`` tensor follows the state's precision.
    ``history`` is how many past inputs a convolution's tensor holds, 0 for others; engines lengthen it by the
    tokens that they draft ahead. ``vllm_bytes`` is what an element of it has in vLLM, where that differs.
    """

    elements: int
    element_bytes: int
    heads: int | None = None
    recurrent: bool = False
    history: int = 0
    vllm_bytes: int | None = None


@dataclass(frozen=True)
class StateGroup:
    """A state of fixed size per layer, kept once for every position from which a sequence can resume.

    ``inner_checkpoint`` marks states that the last chunk of a prompt can save at a block's end without
    stopping there (Mamba 2). ``window_tokens`` is given where the state is the inputs of the last tokens
    alone, which vLLM keeps as a sliding window of that many.
    """

    name: str
    layers: int
    tensors: tuple[StateTensor, ...]
    inner_checkpoint: bool = False
    window_tokens: int | None = None


Group = HeadGroup | LatentGroup | IndexGroup | StateGroup

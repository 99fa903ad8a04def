"""Memory left for the cache on one GPU, term by term, as an engine would compute or find it.

vLLM measures: what it requests is a formula, what its process and one step take is profiled, so those are
typical figures of start-up lines here. SGLang reserves by formula. Sources: vLLM 0.32 ``v1/worker``, with the
terms that logs print; SGLang 0.5.23 ``arg_groups/memory_hook.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal

from kvcap.errors import UsageError

if TYPE_CHECKING:
    from kvcap.models.deployment import ModelBytesOptions
    from kvcap.models.hardware import Gpu

Basis = Literal["given", "formula", "typical", "measured", "checkpoint", "inferred", "estimate", "recalled"]
"""How a term is known; ``inferred`` is a size from a log that does not name the model, ``recalled`` a formula
over a memory that no log confirms."""

DEFAULT_UTILIZATION: Final = Fraction(92, 100)
_GIB: Final = 1024**3
_MIB: Final = 1024**2
_ACTIVATION_TOKENS: Final = 8192
_DENSE_ACTIVATION: Final = Fraction(16, 10)
_EXPERTS_ACTIVATION: Final = Fraction(28, 10)
_ONE_GPU_CONTEXT: Final = Fraction(2, 10)
_SEVERAL_GPUS_CONTEXT: Final = Fraction(2)
_GRAPHS: Final = Fraction(1, 2)
"""GiB that start-up lines of vLLM typically show: activations of a step of 8,192 tokens in dense models and
mixtures of experts, CUDA context and NCCL on one GPU and on several, and CUDA graphs."""

_SGLANG_CLASSES: Final = (
    # memory below (MiB), chunk tokens, decode graph batch at tp < 4, from 4 on
    (20 * 1024, 2048, 8, 8),
    (35 * 1024, 4096, 48, 160),
    (60 * 1024, 4096, 32, 160),
    (160 * 1024, 8192, 256, 512),
)
_SGLANG_LARGEST: Final = (16_384, 512)
_SGLANG_FLOOR_MIB: Final = 10 * 1024
_SGLANG_FLOOR_FROM_MIB: Final = 60 * 1024
_SGLANG_MANY_REQUESTS: Final = 300


@dataclass(frozen=True)
class MemoryTerm:
    """A summand of the memory of a GPU: ``size_bytes`` is below 0 where it is taken away."""

    name: str
    size_bytes: int
    basis: Basis


@dataclass(frozen=True)
class CacheMemory:
    """Memory left for the cache on one GPU.

    Attributes
    ----------
    terms
        What it is made of, in the order in which it is taken away.
    """

    terms: tuple[MemoryTerm, ...]

    @property
    def left_bytes(self) -> int:
        """Bytes that the terms leave."""
        return sum(term.size_bytes for term in self.terms)

    @property
    def is_typical(self) -> bool:
        """Whether a term is a typical figure rather than one of this deployment."""
        return any(term.basis in {"typical", "inferred", "estimate", "recalled"} for term in self.terms)


@dataclass(frozen=True)
class MemoryOptions:
    """What a GPU holds besides the cache.

    Parameters
    ----------
    weights_bytes, weights_basis
        Weights on all ranks of a replica together, and how they are known.
    experts
        Whether the model is a mixture of experts, whose steps take more.
    utilization
        ``--gpu-memory-utilization`` of vLLM or ``--mem-fraction-static`` of SGLang; None for its default.
    reserve_bytes
        What running takes beside weights and cache; None for the typical figures or the formula.
    step_tokens
        ``--max-num-batched-tokens`` of vLLM or ``--chunked-prefill-size`` of SGLang; None for its default.
    """

    weights_bytes: int
    weights_basis: Basis = "given"
    experts: bool = False
    utilization: Fraction | None = None
    reserve_bytes: int | None = None
    step_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.utilization is not None and not 0 < self.utilization <= 1:
            raise UsageError(
                f"memory utilization is {float(self.utilization):g}, expected above 0 and at most 1"
            )


def vllm_memory(gpu: Gpu, deployment: ModelBytesOptions, options: MemoryOptions) -> CacheMemory:
    """Return the memory that vLLM leaves for the cache on one GPU.

    Raises
    ------
    UsageError
        If nothing is left.
    """
    utilization = options.utilization or DEFAULT_UTILIZATION
    requested = -int(-_bytes(gpu.usable_gib) * utilization // 1)
    terms = [
        MemoryTerm(f"{float(utilization):g} of {gpu.name}'s {gpu.usable_gib:g} GiB", requested, _basis(gpu)),
        _weights(deployment, options),
    ]
    if options.reserve_bytes is not None:
        terms.append(MemoryTerm("reserve", -options.reserve_bytes, "given"))
    else:
        several = deployment.tp * deployment.pp > 1
        context = _SEVERAL_GPUS_CONTEXT if several else _ONE_GPU_CONTEXT
        activation = _EXPERTS_ACTIVATION if options.experts else _DENSE_ACTIVATION
        step = Fraction(options.step_tokens or _ACTIVATION_TOKENS, _ACTIVATION_TOKENS)
        terms += [
            MemoryTerm("CUDA context and NCCL", -int(context * _GIB), "typical"),
            MemoryTerm("activations of a step", -int(activation * step * _GIB), "typical"),
            MemoryTerm("CUDA graphs", -int(_GRAPHS * _GIB), "typical"),
        ]
    return _left(tuple(terms))


def sglang_memory(
    gpu: Gpu, deployment: ModelBytesOptions, options: MemoryOptions, *, latent: bool
) -> CacheMemory:
    """Return the memory that SGLang leaves for the cache on one GPU; ``latent`` models reserve more.

    Raises
    ------
    UsageError
        If nothing is left.
    """
    total_mib = Fraction(str(gpu.usable_gib)) * 1024
    if options.reserve_bytes is not None:
        terms = [
            MemoryTerm(f"{gpu.name}'s {gpu.usable_gib:g} GiB", int(total_mib * _MIB), _basis(gpu)),
            MemoryTerm("reserve", -options.reserve_bytes, "given"),
        ]
    else:
        fraction = options.utilization or sglang_fraction(
            total_mib, deployment, options.step_tokens, latent=latent
        )
        static = int(total_mib * _MIB * fraction)
        terms = [
            MemoryTerm(f"{float(fraction):g} of {gpu.name}'s {gpu.usable_gib:g} GiB", static, _basis(gpu))
        ]
    return _left((*terms, _weights(deployment, options)))


def sglang_fraction(
    total_mib: Fraction, deployment: ModelBytesOptions, chunk_tokens: int | None = None, *, latent: bool
) -> Fraction:
    """Return SGLang's default of ``--mem-fraction-static`` for models of text."""
    chunk, batch = _SGLANG_LARGEST
    for below, tokens, small, large in _SGLANG_CLASSES:
        if total_mib < below:
            chunk, batch = tokens, small if deployment.tp < 4 else large
            break
    chunk = chunk_tokens or chunk
    reserved = 512 + Fraction(3, 2) * max(chunk, 2048)
    reserved += Fraction(deployment.tp * deployment.pp * 1024, 8) + 2 * batch
    if deployment.dp_attention > 1:
        each = Fraction(9, 2) if batch > _SGLANG_MANY_REQUESTS else 3
        reserved += batch * deployment.dp_attention * each
    reserved += 1536 if latent else 8 * _prefill_graphs(chunk)
    if total_mib > _SGLANG_FLOOR_FROM_MIB:
        reserved = max(reserved, Fraction(_SGLANG_FLOOR_MIB))
    return Fraction(round(float((total_mib - reserved) / total_mib), 3)).limit_denominator(1000)


def _prefill_graphs(largest: int) -> int:
    """Return how many sizes of prefill SGLang captures up to a chunk: ever wider steps."""
    steps = ((4, 33, 4), (48, 257, 16), (288, 513, 32), (576, 1025, 64), (1280, 4097, 256))
    sizes = [size for step in steps for size in range(*step)] + list(range(4608, largest + 1, 512))
    return sum(size <= largest for size in sizes)


def _weights(deployment: ModelBytesOptions, options: MemoryOptions) -> MemoryTerm:
    ranks = deployment.tp * deployment.pp
    return MemoryTerm(f"weights over {ranks} ranks", -(options.weights_bytes // ranks), options.weights_basis)


def _basis(gpu: Gpu) -> Basis:
    return "recalled" if gpu.usable_confidence == "recalled" else "formula"


def _left(terms: tuple[MemoryTerm, ...]) -> CacheMemory:
    memory = CacheMemory(terms)
    if memory.left_bytes <= 0:
        said = ", ".join(f"{term.name} {term.size_bytes / _GIB:+.2f} GiB" for term in terms)
        raise UsageError(f"no memory is left for the cache ({said}); expected more GPUs or smaller weights")
    return memory


def _bytes(gib: float) -> Fraction:
    return Fraction(str(gib)) * _GIB

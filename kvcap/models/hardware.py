"""GPUs, and what models' weights take: data files beside this module, with the source of every figure."""

from __future__ import annotations

import difflib
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from kvcap.errors import ModelError
from kvcap.models.catalog import read_json
from kvcap.models.layouts import SparseBackend

Confidence = Literal["read", "recalled"]
"""Whether someone read a figure at its source; one that is recalled is to be checked before use."""

_GPUS: Final = Path(__file__).with_name("gpus.json")
_WEIGHTS: Final = Path(__file__).with_name("weights.json")
_NEAREST: Final = 4
_BLACKWELL: Final = (10, 0)
_CONSUMER_BLACKWELL: Final = (12, 0)


@dataclass(frozen=True)
class Gpu:
    """A device, as far as serving is concerned.

    Parameters
    ----------
    id, name, vendor
        How to ask for it, what people call it, and whose it is.
    compute_capability
        Of NVIDIA's devices, such as ``9.0``; None for others. Source: developer.nvidia.com/cuda-gpus, for
        A100 and H20 NVIDIA's MIG user guide.
    memory_gb
        The memory announced, in units of 1000^3 bytes.
    usable_gib
        What a process sees of it, in GiB.
    usable_source, usable_confidence
        Where that was ``read``, as a log printed it; ``recalled`` is from memory.
    hbm_tb_s, bf16_dense_tflops, fp8_dense_tflops, fp4_dense_tflops
        Bandwidth, and dense matrix throughput; None where it has no such units.
    host_memory_gb_per_gpu_typical, host_link_gb_s_per_direction
        Host memory that servers have for each device, and its link.
    source, confidence, note
        Where memory, bandwidth and throughput are from, whether they were ``read`` there; what else is known.
    """

    id: str
    name: str
    vendor: str
    compute_capability: str | None
    memory_gb: float
    usable_gib: float
    usable_source: str
    usable_confidence: Confidence
    hbm_tb_s: float | None
    bf16_dense_tflops: float | None
    fp8_dense_tflops: float | None
    fp4_dense_tflops: float | None
    host_memory_gb_per_gpu_typical: float | None
    host_link_gb_s_per_direction: float | None
    source: str
    confidence: Confidence
    note: str = ""

    @property
    def capability(self) -> tuple[int, ...] | None:
        """The compute capability as numbers to compare."""
        return (
            None if self.compute_capability is None else tuple(map(int, self.compute_capability.split(".")))
        )


@dataclass(frozen=True)
class Weights:
    """What the weights of a model take in some precision, on all devices together.

    ``basis`` is ``measured`` (an engine printed it), ``checkpoint`` (bytes of files), ``inferred`` (one of
    these, from a log that does not name the model) or ``estimate`` (parameters times bits); ``experts`` says
    whether the model is a mixture of experts.
    """

    model: str
    precision: str
    weights_gib: float
    experts: bool
    basis: str
    how: str
    source: str


@functools.cache
def gpus() -> tuple[Gpu, ...]:
    """Return the devices that kvcap knows."""
    return tuple(Gpu(**entry) for entry in read_json(_GPUS))


@functools.cache
def weights() -> tuple[Weights, ...]:
    """Return the weights that kvcap knows, the best basis of a model and precision first."""
    return tuple(Weights(**entry) for entry in read_json(_WEIGHTS))


def find_gpu(name: str) -> Gpu:
    """Return the device of that id or name, in any case.

    Raises
    ------
    ModelError
        If there is none; the message offers the nearest ids.
    """
    wanted = name.strip().lower()
    for gpu in gpus():
        if wanted in {gpu.id, gpu.name.lower()}:
            return gpu
    ids = [gpu.id for gpu in gpus()]
    nearest = difflib.get_close_matches(wanted, ids, _NEAREST, cutoff=0.4) or ids
    raise ModelError(f"GPU {name!r} is not known, expected one such as {', '.join(nearest)}")


def find_weights(model: str, precision: str | None = None) -> Weights:
    """Return what the weights of a model take, in a precision where it is given.

    Raises
    ------
    ModelError
        If no figure is known.
    """
    known = [entry for entry in weights() if entry.model == model]
    fitting = [entry for entry in known if precision is None or entry.precision.startswith(precision)]
    if not fitting:
        have = ", ".join(entry.precision for entry in known) or "none"
        raise ModelError(f"weights of {model} are known in {have}, expected --weights with their size")
    return fitting[0]


def default_sparse_backend(gpu: Gpu, engine: str) -> SparseBackend:
    """Return the kernel of sparse latent attention that an engine chooses for an fp8 cache on a device.

    Sources: ``platforms/cuda.py`` of vLLM 0.32, ``arg_groups/overrides.py`` of SGLang 0.5.23. FlashMLA's
    packed rows are also those of vLLM's kernel for consumer Blackwell.
    """
    capability = gpu.capability
    if capability is None:
        return "trtllm"
    if engine == "vllm":
        return "flashinfer" if _BLACKWELL <= capability < _CONSUMER_BLACKWELL else "flashmla"
    return "trtllm" if capability >= _BLACKWELL else "flashmla"

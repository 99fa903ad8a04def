"""What an engine's own start-up lines measure: a rate, or for layers of several kinds a pool's block."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from kvcap.errors import UsageError
from kvcap.models.pools import SglangOptions, VllmOptions, VllmPool, sglang_pool, vllm_pool
from kvcap.models.start_up import StartUp, read_start_up

if TYPE_CHECKING:
    from kvcap.models.catalog import Model
    from kvcap.models.deployment import ModelBytesOptions
    from kvcap.models.sizing import ModelBytes
    from kvcap.models.start_up import PrintedSize

_LAST_THAT_PRINTED_BLOCKS: Final = "0.20"
_HALF_DIGIT: Final = Fraction(1, 200)


@dataclass(frozen=True)
class Measured:
    """A figure of a model beside what the engine's lines say of it.

    Attributes
    ----------
    what
        A block of the pool, a token of full attention or of windows, or a state.
    formula_bytes, measured_bytes
        Bytes of one, computed and measured.
    rounding
        How far the measured bytes may be off, as a share, for the digits printed.
    """

    what: str
    formula_bytes: Fraction
    measured_bytes: Fraction
    rounding: Fraction

    @property
    def ratio(self) -> Fraction:
        """Measured over computed bytes."""
        return self.measured_bytes / self.formula_bytes

    @property
    def agrees(self) -> bool:
        """Whether the two are the same to the digits printed."""
        return abs(self.ratio - 1) <= self.rounding


@dataclass(frozen=True)
class Calibration:
    """A model's deployment held against an engine's start-up lines.

    Attributes
    ----------
    start_up
        What the lines say.
    pool_blocks
        Blocks of vLLM's pool that print the tokens, the null block included; None for SGLang.
    measured
        Every figure that the lines measure, that of full attention first.
    """

    start_up: StartUp
    pool_blocks: int | None
    measured: tuple[Measured, ...]

    def describe(self) -> str:
        """Return one line that says how the first figure compares."""
        first = self.measured[0]
        verdict = "as computed" if first.agrees else f"{float(first.ratio - 1):+.2%} of what is computed"
        return f"{first.what} is {float(first.measured_bytes):,.0f} B by the engine's lines, {verdict}"


def calibrate(text: str) -> Fraction:
    """Return the bytes per token of one rank, from start-up lines of vLLM or SGLang.

    Parameters
    ----------
    text
        As :func:`kvcap.models.start_up.read_start_up` takes it.

    Returns
    -------
    Fraction
        Memory over tokens, as exact as the digits printed.

    Raises
    ------
    UsageError
        If tokens or memory are not there, or are those of layers of several kinds, whose tokens are no rate.
    """
    start_up = read_start_up(text)
    if start_up.hybrid is not None:
        raise UsageError(
            f"calibration lines are of a hybrid model or of another block size ({start_up.hybrid}), whose "
            "tokens are no rate; expected --model with them"
        )
    tokens, memory = start_up.pools[0]
    return memory.size_bytes / tokens


def calibration(
    model: Model,
    deployment: ModelBytesOptions,
    start_up: StartUp,
    vllm: VllmOptions | None = None,
    sglang: SglangOptions | None = None,
) -> Calibration:
    """Return a model's deployment held against what an engine printed.

    Parameters
    ----------
    model, deployment
        What is served, and how.
    start_up
        From :func:`kvcap.models.start_up.read_start_up`.
    vllm, sglang
        How the engine was started; the lines' own *max model len* wins.

    Raises
    ------
    UsageError
        If a pool of several groups needs the longest request and neither lines nor options say it, or the
        lines have a pool that the model does not.
    """
    if start_up.engine == "vllm":
        return _vllm(model, deployment, start_up, vllm or VllmOptions())
    return _sglang(model, deployment, start_up, sglang or SglangOptions())


def calibrated(cost: ModelBytes, found: Calibration) -> ModelBytes:
    """Return a model's bytes as the engine's lines measure them; only a note is added where they agree."""
    first = found.measured[0]
    if first.agrees:
        return replace(cost, notes=(*cost.notes, found.describe()))
    terms = tuple(replace(term, bytes_per_layer=term.bytes_per_layer * first.ratio) for term in cost.terms)
    return replace(cost, terms=terms, notes=(*cost.notes, f"{found.describe()}, and all are scaled by it"))


def _vllm(
    model: Model, deployment: ModelBytesOptions, start_up: StartUp, options: VllmOptions
) -> Calibration:
    if start_up.prints_blocks and deployment.engine_version is None:
        deployment = replace(deployment, engine_version=_LAST_THAT_PRINTED_BLOCKS)
    longest = start_up.max_model_len or options.max_model_len
    pool = vllm_pool(model, deployment, replace(options, max_model_len=longest))
    if longest is None and len(pool.groups) > 1 and not pool.prints_blocks:
        raise UsageError(
            f"calibration lines of {model.name} do not say its longest request, which decides the tokens "
            "printed; expected vLLM's 'Maximum concurrency for N tokens per request' with them, or "
            "--max-model-len"
        )
    memory = start_up.pools[0][1]
    fitting = _blocks(pool, start_up)
    blocks = fitting[len(fitting) // 2]
    rounding = memory.rounding_bytes / memory.size_bytes + Fraction(len(fitting), blocks)
    block = Measured("a block", Fraction(pool.block_bytes), memory.size_bytes / blocks, rounding)
    return Calibration(start_up, blocks, (block,))


def _blocks(pool: VllmPool, start_up: StartUp) -> list[int]:
    """Return the blocks that print the tokens, and the concurrency where some do; else the nearest number."""
    printing = pool.blocks_from_printed(start_up.pools[0][0])
    printed = start_up.concurrency
    near = [n for n in printing if printed is not None and abs(pool.concurrency(n) - printed) <= _HALF_DIGIT]
    return near or list(printing) or [max(1, printing.start)]


def _sglang(
    model: Model, deployment: ModelBytesOptions, start_up: StartUp, options: SglangOptions
) -> Calibration:
    pool = sglang_pool(model, deployment, options)
    sizes: list[tuple[str, Fraction, int, PrintedSize]] = []
    names = (("a token of full attention", pool.token_bytes), ("a token of windows", pool.window_token_bytes))
    for (tokens, memory), (what, formula) in zip(start_up.pools, names, strict=False):
        sizes.append((what, formula, tokens, memory))
    if start_up.states is not None:
        slots, memory = start_up.states
        sizes.append(("a state", pool.state_bytes, slots + 1, memory))
    for what, formula, _, _ in sizes:
        if formula == 0:
            raise UsageError(
                f"calibration lines have {what}, which {model.name} has not; expected another model"
            )
    return Calibration(
        start_up,
        None,
        tuple(
            Measured(what, formula, memory.size_bytes / count, memory.rounding_bytes / memory.size_bytes)
            for what, formula, count, memory in sizes
        ),
    )

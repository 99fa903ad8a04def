"""SGLang's prefix cache of models with windows or states: hits from ids and the sizes of its pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from kvcap.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcap.engines.hybrid import IdRequests
    from kvcap.kernels.arrays import Int64Array
    from kvcap.models.pools import CacheGroup, SglangSizes

_UNLIMITED: Final = 1 << 50


@dataclass(frozen=True)
class SglangHybrid:
    """SGLang's radix tree over a pool of full attention and one of windows, or of states.

    Parameters
    ----------
    window_tokens
        Sliding window as the cache gets it, which is the model's less 1; None for models without.
    has_states
        Whether the model keeps states.
    page_tokens
        SGLang's ``--page-size``.
    chunked_prefill_size
        Tokens of one step.
    extra_buffer
        Whether a request keeps two states more, as ``--mamba-scheduler-strategy extra_buffer`` lets it.

    Raises
    ------
    UsageError
        If a model keeps windows and states, which is not simulated, or a number is out of its range.
    """

    window_tokens: int | None = None
    has_states: bool = False
    page_tokens: int = 1
    chunked_prefill_size: int = 8192
    extra_buffer: bool = True

    def __post_init__(self) -> None:
        if self.window_tokens is not None and self.has_states:
            raise UsageError("windows and states at once are not simulated for SGLang, expected one of them")
        for name in ("window_tokens", "page_tokens", "chunked_prefill_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name.replace('_', ' ')} is {value}, expected a whole number from 1")
        if self.chunked_prefill_size % self.page_tokens:
            raise UsageError(
                f"chunked prefill size is {self.chunked_prefill_size}, expected a multiple of the page size, "
                f"{self.page_tokens}"
            )

    @classmethod
    def of_groups(
        cls, groups: Sequence[CacheGroup], *, chunked_prefill_size: int = 8192, extra_buffer: bool = True
    ) -> SglangHybrid:
        """Return the cache of a model whose groups SGLang has made (:func:`kvcap.models.pools.sglang_pool`).

        Raises
        ------
        UsageError
            If it keeps something else than full attention beside one kind of windows, or states.
        """
        windows = {group.window_tokens for group in groups if group.kind == "window"}
        unknown = [group for group in groups if group.kind in {"chunked", "ring"}]
        if unknown or len(windows) > 1:
            what = unknown[0].name if unknown else "several windows"
            raise UsageError(f"{what} of this model is not simulated for SGLang, expected another model")
        window = next(iter(windows), None)
        return cls(
            window_tokens=None if window is None else window - 1,
            has_states=any(group.kind == "state" for group in groups),
            page_tokens=groups[0].block_tokens,
            chunked_prefill_size=chunked_prefill_size,
            extra_buffer=extra_buffer,
        )

    def hit_tokens(self, requests: IdRequests, sizes: Sequence[SglangSizes]) -> Int64Array:
        """Return what every request finds: int64 (n_sizes, n_requests), -1 where it does not fit.

        Parameters
        ----------
        requests
            All that go to the cache, in order.
        sizes
            Its pools, as :meth:`kvcap.models.pools.SglangPool.sizes` gives them for a memory.

        Raises
        ------
        UsageError
            If pools lack what the model keeps.
        """
        for size in sizes:
            if (self.window_tokens is not None and size.window_tokens is None) or (
                self.has_states and size.state_slots is None
            ):
                raise UsageError("sizes of the pools lack windows or states, expected those of this model")
        return self._hit_tokens(
            requests,
            [(size.max_total_num_tokens, size.window_tokens or 0, size.state_slots or 0) for size in sizes],
        )

    def ceiling_tokens(self, requests: IdRequests) -> Int64Array:
        """Return what every request finds with unlimited memory: int64 (n_requests,), in one pass."""
        ceiling: Int64Array = self._hit_tokens(requests, [(_UNLIMITED,) * 3])[0]
        return ceiling

    def _hit_tokens(self, requests: IdRequests, pools: npt.ArrayLike) -> Int64Array:
        from kvcap.kernels.hybrid.sglang import sglang_hybrid_hit_tokens
        from kvcap.kernels.hybrid.sglang_rules import sglang_rules

        rules = sglang_rules(
            page_tokens=self.page_tokens,
            window_tokens=self.window_tokens,
            has_states=self.has_states,
            step_tokens=self.chunked_prefill_size,
            extra_buffer=self.extra_buffer,
        )
        return sglang_hybrid_hit_tokens(
            requests.paths,
            requests.paths.segment_blocks * requests.id_tokens,
            requests.prompt_tokens,
            requests.output_tokens,
            rules,
            np.asarray(pools, np.int64),
        )

"""Prefix caches of models whose layers keep different things: what an engine finds, from ids and groups.

Examples
--------
>>> import numpy as np
>>> from kvcap.engines.hybrid import IdRequests, VllmHybrid
>>> from kvcap.kernels.reuse_runs import ReuseRunScanner
>>> from kvcap.models.pools import CacheGroup
>>> keys, offsets = np.array([1, 2, 3, 1, 2, 4], np.uint64), np.array([0, 3, 6])
>>> runs = ReuseRunScanner().feed(keys, offsets)
>>> requests = IdRequests.from_runs(runs, np.diff(offsets), 64, [192, 192], [1, 1])
>>> groups = (
...     CacheGroup("window", "window", 12, 16, 393216, window_tokens=128),
...     CacheGroup("full", "full", 12, 16, 393216),
... )
>>> VllmHybrid(groups).hit_tokens(requests, [1000]).tolist()
[[0, 0]]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from kvcap.engines.hybrid_options import HybridOptions
from kvcap.errors import UsageError
from kvcap.kernels.arrays import Int64Array
from kvcap.kernels.segments import segment_paths

if TYPE_CHECKING:
    from kvcap.kernels.reuse_runs import ReuseRuns
    from kvcap.kernels.run_tables import WeightedRuns
    from kvcap.kernels.segments import SegmentPaths
    from kvcap.models import ModelBytes
    from kvcap.models.pools import CacheGroup

UNLIMITED_BLOCKS: Final = 1 << 60


@dataclass(frozen=True)
class IdRequests:
    """The requests of one cache as paths of ids, numbered from 0.

    Attributes
    ----------
    paths
        Segments of ids.
    id_tokens
        Tokens of each id.
    prompt_tokens, output_tokens : int64 (n_requests,)
        Length of each prompt and of what is generated. Tokens that no id covers, and generated ones, are
        known to nobody else.
    """

    paths: SegmentPaths
    id_tokens: int
    prompt_tokens: Int64Array
    output_tokens: Int64Array

    @classmethod
    def from_runs(
        cls,
        runs: ReuseRuns | WeightedRuns,
        n_ids: Int64Array,
        id_tokens: int,
        prompt_tokens: npt.ArrayLike,
        output_tokens: npt.ArrayLike,
    ) -> IdRequests:
        """Return requests from the reuse runs over their ids, an incomplete last one included."""
        return cls(
            segment_paths(runs, n_ids),
            id_tokens,
            np.asarray(prompt_tokens, np.int64),
            np.asarray(output_tokens, np.int64),
        )


@dataclass(frozen=True)
class VllmHybrid:
    """vLLM's prefix cache of a model: groups of layers that share one pool of blocks.

    Parameters
    ----------
    groups
        In the order of the pool.
    options
        How the engine is started; its block size plays no part, groups have theirs.

    Raises
    ------
    UsageError
        If layers keep something that no request finds again, which is not simulated.
    """

    groups: tuple[CacheGroup, ...]
    options: HybridOptions = field(default_factory=HybridOptions)

    def __post_init__(self) -> None:
        for group in self.groups:
            if not group.prefix_cached or group.kind == "ring":
                raise UsageError(
                    f"{group.name} of this model is no prefix cache in vLLM, which is not simulated: "
                    "expected --policies vllm-lru, which takes every layer as full attention"
                )

    @property
    def alignment_tokens(self) -> int:
        """Tokens whose multiples hits end at."""
        return math.lcm(*(group.block_tokens for group in self.groups))

    def hit_tokens(self, requests: IdRequests, usable_blocks: npt.ArrayLike) -> Int64Array:
        """Return what every request finds: int64 (n_capacities, n_requests), -1 where it does not fit.

        Parameters
        ----------
        requests
            All that go to the cache, in order.
        usable_blocks
            Pool sizes, int64 (n_capacities,): vLLM's number of blocks less its null block.
        """
        from kvcap.kernels.hybrid.lookup import FULL, LOCAL, STATE, WINDOW
        from kvcap.kernels.hybrid.vllm import vllm_hybrid_hit_tokens
        from kvcap.kernels.hybrid.vllm_steps import vllm_rules

        kinds = {"full": FULL, "window": WINDOW, "chunked": LOCAL, "state": STATE}
        rows = [
            (
                kinds[group.kind],
                group.block_tokens,
                group.window_tokens or 0,
                int(group.checkpoint_blocks > 0),
            )
            for group in self.groups
        ]
        rules = vllm_rules(
            np.array(rows, np.int64),
            self.alignment_tokens,
            retention_tokens=self.options.retention_tokens,
            step_tokens=self.options.max_num_batched_tokens,
            async_scheduling=self.options.async_scheduling,
        )
        return vllm_hybrid_hit_tokens(
            requests.paths,
            requests.paths.segment_blocks * requests.id_tokens,
            requests.prompt_tokens,
            np.maximum(requests.output_tokens - 1, 0) * self.options.counts_generated,
            rules,
            np.asarray(usable_blocks, np.int64),
        )

    def ceiling_tokens(self, requests: IdRequests) -> Int64Array:
        """Return what every request finds with unlimited memory: int64 (n_requests,), in one pass."""
        ceiling: Int64Array = self.hit_tokens(requests, [UNLIMITED_BLOCKS])[0]
        return ceiling


@dataclass(frozen=True)
class HybridCache:
    """A model's prefix cache in an engine, and what a block of its pool costs.

    Attributes
    ----------
    policy
        Name of its simulation.
    cache
        What it finds.
    block_bytes
        Bytes of a block of the pool.
    spare_blocks
        Blocks of every pool that hold no data: vLLM's null block.
    """

    policy: str
    cache: VllmHybrid
    block_bytes: int
    spare_blocks: int

    @property
    def id_tokens(self) -> int:
        """Tokens of the ids that tell all blocks of all groups apart."""
        return math.gcd(*(group.block_tokens for group in self.cache.groups))


def hybrid_cache(engine: str | None, model: ModelBytes, options: HybridOptions) -> HybridCache | None:
    """Return the cache that an engine makes of a model of several kinds of layers; None for any other.

    Raises
    ------
    UsageError
        If the model does not fit the engine, or what its layers keep is not simulated.
    """
    if engine != "vllm":
        return None
    if model.options.scope != "rank" and model.options.tp * model.options.pp > 1:
        raise UsageError("pools of an engine are those of one GPU: expected --scope rank")
    from kvcap.models.pools import VllmOptions, vllm_pool

    pool = vllm_pool(
        model.model, model.options, VllmOptions(max_model_len=1, block_tokens=options.engine_block_size)
    )
    if options.engine_block_size is None and all(group.kind == "full" for group in pool.groups):
        return None
    return HybridCache("vllm-hybrid", VllmHybrid(pool.groups, options), pool.block_bytes, spare_blocks=1)

"""Every policy, as one record each: nothing else lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kvcap.engines.simulate import Requests
    from kvcap.kernels.arrays import Int64Array

    Simulation = Callable[[Requests, Int64Array], Int64Array]


@dataclass(frozen=True)
class Policy:
    """What a cache keeps.

    Parameters
    ----------
    name
        As options and tables call it.
    simulate
        Takes requests and capacities in blocks of data, int64 (n_capacities,), and returns every request's
        hits at each, int64 (n_capacities, n_requests), which its caller may change. None where it takes an
        engine's groups of layers (:mod:`kvcap.engines.hybrid`) and capacities in blocks of the engine's pool.
    one_pass
        Whether the reuse runs hold its hits at every capacity already.
    admits
        Whether it leaves out requests that are larger than the cache by itself.
    holds_running
        Whether requests hold capacity while they run, as in an engine.
    """

    name: str
    simulate: Simulation | None
    one_pass: bool = False
    admits: bool = False
    holds_running: bool = False

    @property
    def is_hybrid(self) -> bool:
        """Whether it is of an engine's pool for several kinds of layers."""
        return self.simulate is None


def _lru(requests: Requests, data_blocks: Int64Array) -> Int64Array:
    from kvcap.kernels.lru import lru_hit_blocks

    return lru_hit_blocks(requests.runs, requests.touched.size, data_blocks, tail_first=requests.tail_first)


def _fifo(requests: Requests, data_blocks: Int64Array) -> Int64Array:
    from kvcap.kernels.fifo import fifo_hit_blocks
    from kvcap.kernels.segments import segment_paths

    return fifo_hit_blocks(segment_paths(requests.runs, requests.touched), data_blocks)


def _optimal(requests: Requests, data_blocks: Int64Array) -> Int64Array:
    from kvcap.kernels.optimal import optimal_hit_blocks
    from kvcap.kernels.run_tables import leading_parts

    # What may not hit is not worth keeping.
    runs = leading_parts(requests.runs, requests.limits)
    return optimal_hit_blocks(runs, requests.touched.size, data_blocks)


def _vllm_lru(requests: Requests, data_blocks: Int64Array) -> Int64Array:
    from kvcap.kernels.block_lru import block_lru_hit_blocks
    from kvcap.kernels.segments import segment_paths

    paths = segment_paths(requests.runs, requests.touched, requests.limits)
    return block_lru_hit_blocks(paths, requests.limits, requests.held, data_blocks)


def _sglang_lru(requests: Requests, data_blocks: Int64Array) -> Int64Array:
    from kvcap.kernels.node_lru import node_lru_hit_blocks
    from kvcap.kernels.segments import segment_paths

    paths = segment_paths(requests.runs, requests.touched, requests.limits)
    return node_lru_hit_blocks(paths, requests.limits, requests.held, data_blocks)


def _sglang_by_rank(policy: str) -> Simulation:
    """Return the simulation of one of SGLang's policies other than lru."""

    def simulate(requests: Requests, data_blocks: Int64Array) -> Int64Array:
        from kvcap.kernels import node_policies
        from kvcap.kernels.segments import segment_paths

        paths = segment_paths(requests.runs, requests.touched, requests.limits)
        rank: int = getattr(node_policies, policy.upper())
        return node_policies.node_policy_hit_blocks(paths, requests.limits, requests.held, data_blocks, rank)

    return simulate


RADIX_EVICTION_POLICIES: Final = ("lru", "lfu", "slru", "fifo", "filo", "mru")
"""SGLang's own names of what its radix tree evicts first; policies here say ``sglang-`` before them."""

POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            Policy("lru", _lru, one_pass=True),
            Policy("fifo", _fifo),
            Policy("optimal", _optimal),
            Policy("vllm-lru", _vllm_lru, admits=True, holds_running=True),
            Policy("sglang-lru", _sglang_lru, holds_running=True),
            *(
                Policy(f"sglang-{name}", _sglang_by_rank(name), holds_running=True)
                for name in RADIX_EVICTION_POLICIES[1:]
            ),
            Policy("vllm-hybrid", None, admits=True, holds_running=True),
        )
    }
)
"""Every policy by its name, in the order of help texts."""

"""A replay in parts that can run anywhere: files one by one, pools one by one, then one set of results.

The parts are plain functions from picklable values to picklable values, so that any engine can run them and
repeat one that died: :func:`read_file` for every file, :func:`plan_pools`, :func:`replay_pool` for every
pool, and :class:`FleetResults` to put everything together. ``pipelines/fleet.py`` does so on Ray.
"""

from kvcap.fleet.combine import FleetResults
from kvcap.fleet.job import FleetJob, fleet_files
from kvcap.fleet.parts import FileHead, PieceHead, read_file
from kvcap.fleet.pools import FleetFacts, FleetPlan, PoolPlan, PoolResult, plan_pools, replay_pool

__all__ = [
    "FileHead",
    "FleetFacts",
    "FleetJob",
    "FleetPlan",
    "FleetResults",
    "PieceHead",
    "PoolPlan",
    "PoolResult",
    "fleet_files",
    "plan_pools",
    "read_file",
    "replay_pool",
]

"""Results of a replay, and the named SQL queries over them."""

from kvcap.queries.capacities import (
    ResolvedCapacity,
    largest_capacity,
    resolve_capacities,
)
from kvcap.queries.database import write_database
from kvcap.queries.history import History, is_history
from kvcap.queries.library import NamedQuery, QueryParameter, list_queries, load_query
from kvcap.queries.results import Results, open_results
from kvcap.queries.run_info import LengthCost, ModelSizing, ReadAccount, RunInfo

__all__ = [
    "History",
    "LengthCost",
    "ModelSizing",
    "NamedQuery",
    "QueryParameter",
    "ReadAccount",
    "ResolvedCapacity",
    "Results",
    "RunInfo",
    "is_history",
    "largest_capacity",
    "list_queries",
    "load_query",
    "open_results",
    "resolve_capacities",
    "write_database",
]

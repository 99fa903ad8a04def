"""Results of a replay, and the named SQL queries over them."""

from kvcap.queries.database import write_database
from kvcap.queries.library import NamedQuery, QueryParameter, list_queries, load_query
from kvcap.queries.results import Results, open_results
from kvcap.queries.run_info import LengthCost, ModelSizing, ReadAccount, RunInfo

__all__ = [
    "LengthCost",
    "ModelSizing",
    "NamedQuery",
    "QueryParameter",
    "ReadAccount",
    "Results",
    "RunInfo",
    "list_queries",
    "load_query",
    "open_results",
    "write_database",
]

"""What is doubtful about routers and what they do with a stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvcap.analysis.routing.options import Policy
    from kvcap.analysis.routing.routed import Routed
    from kvcap.analysis.routing.rows import RouteRow


def stream_notices(policies: Iterable[Policy], block_size: int, characters_per_token: int) -> list[str]:
    """Return what holds for all numbers of instances."""
    routers = [policy.router for policy in policies if policy.router is not None]
    readers = list(dict.fromkeys(router.name for router in routers if router.reads_text))
    notices = []
    if readers:
        notices.append(
            f"approximate: blocks of {block_size:,} tokens of {characters_per_token} characters stand for "
            f"the texts that {' and '.join(readers)} would see: hit rate reliable (0.1 point), spread not"
        )
    if any(router.needs_times for router in routers):
        notices.append(
            "requests in flight: each takes its time wherever it goes, so a busy instance slows nothing down "
            "and there is no back-pressure"
        )
    return notices


def router_notices(row: RouteRow, policy: Policy, routed: Routed | None) -> list[str]:
    """Return what a router did that one should know, at one number of instances."""
    if policy.router is None or routed is None:
        return []
    name, notices = f"{row.policy}, {row.instances} instances", []
    requests = [instance.requests for instance in row.per_instance]
    if row.instances > 2 and 2 * max(requests) > sum(requests):
        share = max(requests) / sum(requests)
        notices.append(f"{name}: instance {row.busiest_instance} takes {share:.0%} of the requests")
    limit = policy.router.table_length
    if limit is not None and routed.table_length is not None and routed.table_length > limit:
        unit = "characters" if policy.router.reads_text else "tokens"
        of = "all instances together" if policy.router.shares_table else "an instance"
        notices.append(
            f"{name}: the router keeps {limit:,} {unit} of {of}, and this traffic has "
            f"{routed.table_length:,}: what it forgets is not simulated"
        )
    return notices

"""What-ifs of routing: one stream dealt to several instances, against one shared pool."""

from kvcap.analysis.routing.answer import DealtInstance, RouteRow, RoutingAnswer, route
from kvcap.analysis.routing.options import POLICIES, Policy, RouteOptions

__all__ = ["POLICIES", "DealtInstance", "Policy", "RouteOptions", "RouteRow", "RoutingAnswer", "route"]

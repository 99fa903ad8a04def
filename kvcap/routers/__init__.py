"""Rules of the routers that people put before LLM servers, decision by decision.

:mod:`~kvcap.routers.catalog` names every router, its version and its parameters; :mod:`~kvcap.routers.clock`
runs one over a stream of requests.
"""

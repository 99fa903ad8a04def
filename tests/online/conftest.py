"""The service's packages are an extra: its tests are skipped without them."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = []
if any(importlib.util.find_spec(name) is None for name in ("starlette", "uvicorn", "prometheus_client")):
    collect_ignore_glob.append("test_server_*.py")

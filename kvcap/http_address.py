"""Addresses of HTTP services, as users write them."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit


class HttpAddress(NamedTuple):
    """Where a service listens; ``port`` is None for the usual one, ``path`` comes before all others."""

    is_https: bool
    host: str
    port: int | None
    path: str


def parse_http_address(url: str) -> HttpAddress | None:
    """Return the parts of an ``http://`` or ``https://`` address, or None if it is none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return None
    return HttpAddress(parts.scheme == "https", parts.hostname, port, parts.path.rstrip("/"))

"""The flag that writes generated documentation again."""

from __future__ import annotations

import pytest


@pytest.fixture
def overwrite_docs(request: pytest.FixtureRequest) -> bool:
    """Whether to write README.md's generated blocks instead of comparing them."""
    return bool(request.config.getoption("--overwrite-docs"))

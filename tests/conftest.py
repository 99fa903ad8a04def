"""What every test shares: hypothesis without deadlines, since first calls compile."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("kvcap", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("kvcap")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--overwrite-docs", action="store_true", help="write generated blocks of README.md again"
    )

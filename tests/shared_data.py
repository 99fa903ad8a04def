"""Real traces and expected values that are kept beside the checkout, not in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def shared_path(relative: str) -> Path:
    """Return a file of the shared folder, or skip the test where that folder is absent.

    The folder is ``$KVCAP_SHARED``, or ``../shared`` beside the checkout.
    """
    root = Path(os.environ.get("KVCAP_SHARED") or Path(__file__).resolve().parents[2] / "shared")
    if not root.is_dir():
        pytest.skip(f"needs the shared data folder ({relative})")
    return root / relative

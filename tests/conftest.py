"""What every test shares: hypothesis without deadlines, since first calls compile."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("kvcap", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("kvcap")

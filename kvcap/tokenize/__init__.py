"""Token ids of request logs that hold text: OpenAI bodies in, the ids that an engine would see out.

A body becomes one or more prompts (:mod:`~kvcap.tokenize.requests`), a backend turns each prompt into token
ids (:mod:`kvcap.tokenize.backends`), and the driver keeps the order of the log whatever finishes first.
"""

from __future__ import annotations

from kvcap.tokenize.options import BACKENDS, TokenizeOptions

__all__ = ["BACKENDS", "TokenizeOptions"]

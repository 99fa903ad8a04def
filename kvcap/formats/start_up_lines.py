"""Lines of an engine's start inside its log of requests: they tell what a token costs it."""

from __future__ import annotations

from typing import Final

_WORDS: Final = (
    b"KV cache",
    b"KV Cache",
    b"max_total_num_tokens",
    b"Maximum concurrency",
    b"max_model_len",
    b"Mamba Cache",
)
_LONGEST: Final = 4096
"""Such lines are short; a prompt that speaks of these things may not be."""


def start_up_line(line: bytes) -> str | None:
    """Return a line that may be of an engine's start as text, None for any other."""
    if len(line) > _LONGEST or not any(word in line for word in _WORDS):
        return None
    return line.decode(errors="replace").strip()

"""What simulators of hybrid models share: groups of layers, and names for the prefixes of prompts."""

from __future__ import annotations

from typing import NamedTuple


class Group(NamedTuple):
    """``full``, ``window``, ``local`` or ``state``; tokens of a block, of the window or chunk."""

    kind: str
    block: int
    span: int = 0
    checkpoint: bool = False


class Prompt(NamedTuple):
    """Ids, each of so many tokens; the length of the prompt; generated tokens that are fed back."""

    ids: tuple
    tokens: int
    generated: int = 0


def ceil_div(a, b):
    return -(-a // b)


def prefixes(prompt, id_tokens, block, private):
    """Return a name for the prefix that ends with each full block; ``private`` names those without an id."""
    names = []
    for end in range(block, prompt.tokens + 1, block):
        n_ids = ceil_div(end, id_tokens)
        if n_ids <= len(prompt.ids):
            names.append((prompt.ids[:n_ids], end))
        else:
            names.append((private, end))
    return names

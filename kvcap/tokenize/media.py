"""Message parts that are not text.

An engine turns an image into as many tokens as its vision tower makes of it, and tells images apart by their
content. A placeholder is a few tokens, and carries a digest so that different images stay different prefixes.
"""

from __future__ import annotations

import hashlib
from typing import Final

import orjson

from kvcap.formats.bodies.openai import MEDIA_TYPES
from kvcap.tokenize.options import MultimodalMode
from kvcap.tokenize.prompts import Json, PromptSource

_DIGEST_BYTES: Final = 4


def replace_media(messages: list[Json], source: PromptSource, mode: MultimodalMode) -> tuple[list[Json], int]:
    """Return the messages with placeholders for what is not text, and how many there are.

    Parameters
    ----------
    messages
        Checked messages; those without media come back as they are.
    source
        Where the request stands in the logs.
    mode
        ``refuse`` raises at the first one, ``placeholder`` puts a text such as ``<image 1b2c3d4e>`` in its
        place.

    Raises
    ------
    RecordError
        If there is one and the mode is ``refuse``.
    """
    replaced: list[Json] = []
    count = 0
    for position, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, list):
            parts, found = _replace_parts(content, f"messages[{position}].content", source, mode)
            message = {**message, "content": parts} if found else message
            count += found
        replaced.append(message)
    return replaced, count


def _replace_parts(
    parts: list[object], field: str, source: PromptSource, mode: MultimodalMode
) -> tuple[list[object], int]:
    replaced: list[object] = []
    count = 0
    for position, part in enumerate(parts):
        medium = MEDIA_TYPES.get(str(part.get("type"))) if isinstance(part, dict) else None
        if medium is None:
            replaced.append(part)
            continue
        if mode == "refuse":
            reason = f"is of kind {medium}, expected text; --multimodal placeholder counts a placeholder"
            raise source.error(f"{field}[{position}]", reason)
        digest = hashlib.blake2b(orjson.dumps(part, option=orjson.OPT_SORT_KEYS), digest_size=_DIGEST_BYTES)
        replaced.append({"type": "text", "text": f"<{medium} {digest.hexdigest()}>"})
        count += 1
    return replaced, count

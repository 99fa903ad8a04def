"""Every dialect, in the order in which they are tried: the particular before the general."""

from __future__ import annotations

from typing import Final

from kvcap.formats.dialect import Dialect
from kvcap.formats.hash_ids import HASH_IDS
from kvcap.formats.token_ids import TOKEN_IDS

DIALECTS: Final[tuple[Dialect, ...]] = (HASH_IDS, TOKEN_IDS)

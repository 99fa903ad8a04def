"""Every dialect, in the order in which they are tried: the particular before the general."""

from __future__ import annotations

from typing import Final

from kvcap.formats.agents import AGENTS
from kvcap.formats.aiperf import AIPERF_SINGLE, AIPERF_TURNS, BASETEN
from kvcap.formats.atif import ATIF, ATIF_IDS
from kvcap.formats.conversations import CONVERSATIONS
from kvcap.formats.dialect import Dialect
from kvcap.formats.dynamo import DYNAMO
from kvcap.formats.gateways import LITELLM, SAGEMAKER
from kvcap.formats.hash_ids import HASH_ID_LOG
from kvcap.formats.kv_cache_tester import KV_CACHE_TESTER
from kvcap.formats.lmcache import LMCACHE_LOOKUPS, LMCACHE_TEXT
from kvcap.formats.minimal_sessions import MINIMAL_SESSIONS
from kvcap.formats.mooncake import MOONCAKE, MOONCAKE_AGENTIC, MOONCAKE_SESSIONS
from kvcap.formats.openai import OPENAI_BATCH, OPENAI_REQUESTS
from kvcap.formats.otel import EXGENTIC, OTEL, PHOENIX
from kvcap.formats.preset_table import PRESETS
from kvcap.formats.presets import dialect_of
from kvcap.formats.qwen_bailian import QWEN_BAILIAN
from kvcap.formats.ragpulse import RAGPULSE
from kvcap.formats.sglang import SGLANG, SGLANG_LINES, SGLANG_TEXT
from kvcap.formats.tair import TAIR, TAIR_EVENTS
from kvcap.formats.token_ids import TOKEN_ID_LOG
from kvcap.formats.unusable import BATCH_OUTPUT, KV_EVENTS, LENGTHS, OPENASSISTANT, STORED_COMPLETIONS
from kvcap.formats.vllm import VLLM
from kvcap.formats.vllm_text import VLLM_TEXT

DIALECTS: Final[tuple[Dialect, ...]] = (
    MOONCAKE_AGENTIC,
    MOONCAKE_SESSIONS,
    QWEN_BAILIAN,
    MOONCAKE,
    RAGPULSE,
    KV_CACHE_TESTER,
    MINIMAL_SESSIONS,
    DYNAMO,
    LMCACHE_LOOKUPS,
    TAIR,
    TAIR_EVENTS,
    BASETEN,
    HASH_ID_LOG,
    KV_EVENTS,
    SGLANG,
    SGLANG_LINES,
    VLLM_TEXT,
    VLLM,
    ATIF_IDS,
    *AGENTS,
    TOKEN_ID_LOG,
    BATCH_OUTPUT,
    OPENASSISTANT,
    STORED_COMPLETIONS,
    OPENAI_BATCH,
    *CONVERSATIONS,
    ATIF,
    LITELLM,
    SAGEMAKER,
    OTEL,
    PHOENIX,
    EXGENTIC,
    *map(dialect_of, PRESETS),
    AIPERF_TURNS,
    LMCACHE_TEXT,
    SGLANG_TEXT,
    AIPERF_SINGLE,
    OPENAI_REQUESTS,
    LENGTHS,
)

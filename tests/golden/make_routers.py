"""Write the small golden values of routers again, from recordings of the real ones beside the checkout.

    PYTHONPATH=.:tests python tests/golden/make_routers.py

``routers.json`` holds the first requests of a public trace as tries of what the routers compare (characters,
tokens or blocks), and who got each request. Texts themselves are not in it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import routers_recorded as recorded
from shared_data import shared_path

N_REQUESTS = 1000
KEPT = (
    "sglang-cache_aware-overlap-8",
    "sglang-cache_aware-tight-overlap-4",
    "vllmrouter-tokens-overlap-8",
    "vllmrouter-tokens-tight-overlap-4",
    "smg-cache_aware-seq-4",
    "smg-cache_aware-tight-overlap-4",
    "ray-prefix-overlap-4",
    "ray-prefix-seq-8",
    "stack-prefixaware-4",
    "stack-prefixaware-min4096-4",
    "dynamo-kv-events-4",
    "dynamo-kv-block64-4",
)
TIMES = ("arrival", "first", "end")


def main() -> None:
    """Write the file."""
    sent = recorded.requests(shared_path("traces/mooncake_conversation.jsonl.gz"), N_REQUESTS)
    recordings = {}
    for name in KEPT:
        found = recorded.recorded(shared_path(f"golden/routers/{name}.jsonl.gz"))
        recordings[name] = {
            "n": found["n"],
            "mode": found.get("mode", "seq"),
            "parameters": recorded.parameters(found),
            "instances": found["instances"][:N_REQUESTS],
            **{key: found[key][:N_REQUESTS] for key in ("selected", "options") if key in found},
            **{key: [round(1000 * t) for t in found[key][:N_REQUESTS]] for key in TIMES if key in found},
        }
    document: dict[str, Any] = {
        "tokens": [request.tokens for request in sent],
        "output": [request.output for request in sent],
        "arrival_us": [request.arrival_us for request in sent],
        "tries": {
            kind: _trie(recorded.texts_of(sent, kind))
            for kind in ("characters", "tokens", "blocks64", "blocks512")
        },
        "recordings": recordings,
    }
    text = json.dumps(document, separators=(",", ":"))
    (Path(__file__).parent / "routers.json").write_text(text + "\n")


def _trie(texts: list[str]) -> dict[str, list[int]]:
    paths = recorded.paths_of(texts)
    ends = paths.path_offsets[1:] - 1
    last = [int(paths.path_segments[end]) if len(text) else -1 for end, text in zip(ends, texts, strict=True)]
    return {
        "parents": paths.segment_parents.tolist(),
        "blocks": paths.segment_blocks.tolist(),
        "last": last,
    }


if __name__ == "__main__":
    main()

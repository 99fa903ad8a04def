"""The main job with ``--engine vllm`` and a hybrid model of the catalog, against vLLM's own cache manager."""

from __future__ import annotations

import gzip
from itertools import islice

import numpy as np
import pytest
from shared_data import shared_path

import kvcap
from kvcap.models import ModelBytesOptions, model_bytes, resolve_model

CASES = [
    ("gpt-oss-20b", 64, "gptoss20b-b64__synthetic-trim__n3000__chunk8192__out0__ret0__async0"),
    ("gpt-oss-20b", 64, "gptoss20b-b64__synthetic__n3000__chunk8192__out0__ret0__async0"),
    ("gpt-oss-20b", 64, "gptoss20b-b64__synthetic-trim__n1500__chunk8192__out0__retNone__async0"),
    ("gemma-3-27b", 64, "gemma3-27b-b64__synthetic-trim__n500__chunk8192__out0__ret0__async1"),
    ("llama-4-scout", 64, "llama4-scout-b64__synthetic-trim__n300__chunk8192__out1__ret0__async0"),
    ("qwen3-next-80b-a3b", None, "qwen3next-b544__conversation__n3000__chunk8192__out0__ret0__async0"),
    ("qwen3-next-80b-a3b", None, "qwen3next-b544__synthetic-trim__n3000__chunk8192__out0__ret4352__async0"),
]


def log(name, n_requests, folder):
    path = folder / "trace.jsonl"
    with gzip.open(shared_path(f"traces/mooncake_{name}.jsonl.gz"), "rb") as lines:
        path.write_bytes(b"".join(islice(lines, n_requests)))
    return path


@pytest.mark.parametrize(("model", "block", "golden"), CASES)
def test_a_hybrid_model_hits_what_it_hits_in_vllm(model, block, golden, tmp_path):
    _, trace, requests, chunk, outputs, retention, in_flight = golden.split("__")
    name, _, trimmed = trace.partition("-")
    with np.load(shared_path(f"golden/hybrid/vllm/{golden}.npz")) as arrays:
        expected = {int(key[1:]) - 1: arrays[key] for key in arrays.files}
    options = kvcap.engine_options(
        "vllm",
        model_bytes=model_bytes(resolve_model(model), ModelBytesOptions(layout="vllm")),
        block_size=512,
        engine_block_size=block,
        capacities=",".join(f"{usable}blocks" for usable in expected),
        max_num_batched_tokens=int(chunk.removeprefix("chunk")),
        output_blocks=outputs == "out1",
        prefix_cache_retention_interval=retention.removeprefix("ret").lower(),
        async_scheduling=in_flight == "async1",
        cut_prompts_at_ids=trimmed == "trim",
        request_hits=True,
    )
    with kvcap.replay(log(name, int(requests[1:]), tmp_path), options) as results:
        rows = results.sql(
            "SELECT hit_tokens FROM policy_requests WHERE policy = 'vllm-hybrid' "
            "ORDER BY capacity_blocks, request_id"
        )
        policies = results.table("policies").to_pylist()
    hits = rows["hit_tokens"].to_numpy().reshape(len(expected), -1)
    for usable, row in zip(sorted(expected), hits, strict=True):
        assert np.count_nonzero(row != expected[usable]) == 0
    summed = {row["capacity_blocks"]: row["hit_tokens"] for row in policies if row["policy"] != "lru"}
    assert summed == {usable: array.sum() for usable, array in expected.items()}

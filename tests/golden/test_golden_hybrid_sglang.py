"""Hit tokens of every request under SGLang's own radix cache, for hybrid models."""

from __future__ import annotations

import re

import numpy as np
import pytest
from golden_traces import golden_trace
from shared_data import shared_path

from kvcap.kernels.hybrid.sglang import sglang_hybrid_hit_tokens
from kvcap.kernels.hybrid.sglang_rules import sglang_rules
from kvcap.kernels.reuse_runs import ReuseRunScanner
from kvcap.kernels.segments import segment_paths

FOLDER = "golden/hybrid/sglang"
ID_TOKENS = 512


def golden_names():
    try:
        folder = shared_path(FOLDER)
    except pytest.skip.Exception:
        return []
    return sorted(path.stem for path in folder.glob("*.npz"))


def stream(name):
    """Read the first requests that a file of expected values is about."""
    source, n_requests = re.fullmatch(r"([a-z]+?)(\d+)", name).groups()
    path = f"mooncake_{source}.jsonl.gz"
    if source.startswith("stress"):
        path = f"stress/stress_{source[-1]}{n_requests}.jsonl.gz"
    trace = golden_trace(path, n_requests=int(n_requests))
    blocks = np.diff(trace.request_offsets)
    paths = segment_paths(ReuseRunScanner().feed(trace.block_keys, trace.request_offsets), blocks)
    return paths, trace.input_tokens, trace.output_tokens


def said(key, letter):
    """Return the number that a key says behind a letter, or None."""
    found = re.search(rf"_{letter}(\d+)", key)
    return int(found[1]) if found else None


def rules_and_pools(key):
    rules = sglang_rules(
        page_tokens=said(key, "p"),
        window_tokens=said(key, "w"),
        has_states=said(key, "m") is not None,
        step_tokens=said(key, "c"),
        extra_buffer="no_buffer" not in key,
    )
    return rules, np.array([[said(key, "f"), said(key, "s") or 0, said(key, "m") or 0]])


def differing(name):
    """Return the number of requests that differ, by key."""
    paths, prompt_tokens, output_tokens = stream(name)
    counts = {}
    with np.load(shared_path(f"{FOLDER}/{name}.npz")) as arrays:
        for key in arrays.files:
            rules, pools = rules_and_pools(key)
            outputs = output_tokens
            if said(key, "o") is not None:
                outputs = np.full_like(output_tokens, said(key, "o"))
            found = sglang_hybrid_hit_tokens(
                paths, paths.segment_blocks * ID_TOKENS, prompt_tokens, outputs, rules, pools
            )
            counts[key] = np.count_nonzero(found[0] != arrays[key])
    return counts


@pytest.mark.parametrize("name", golden_names())
def test_every_request_hits_what_it_hits_in_sglang(name):
    counts = differing(name)
    assert len(counts) > 0
    assert set(counts.values()) == {0}

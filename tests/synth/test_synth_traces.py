"""What synthetic traces are: schema, sessions, reuse, and the same bytes for the same options."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import itertools
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from kvcap.synth.generate import generate_lines
from kvcap.synth.options import KINDS, PROFILES, Kind, Profile, default_options

ROOT = Path(__file__).parents[2]


def requests_of(profile: Profile, **changes: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in generate_lines(default_options(profile, **changes))]


def prefixes(tokens: list[int], block_size: int) -> list[bytes]:
    """The full blocks of a prompt, each named by everything up to its end."""
    names = []
    running = hashlib.sha256()
    for end in range(block_size, len(tokens) + 1, block_size):
        running.update(repr(tokens[end - block_size : end]).encode())
        names.append(running.digest())
    return names


def ceiling(requests: list[dict[str, Any]]) -> float:
    """The share of blocks whose whole prefix came before."""
    seen: set[tuple[int, int]] = set()
    names: dict[tuple[int, int], int] = {}
    known = accesses = 0
    for request in requests:
        parent = -1
        for block in request["hash_ids"]:
            name = (parent, block)
            known += name in seen
            accesses += 1
            seen.add(name)
            parent = names.setdefault(name, len(names))
    return known / accesses


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("profile", PROFILES)
def test_equal_options_give_equal_lines_and_another_seed_gives_others(profile: Profile, kind: Kind) -> None:
    changes: dict[str, Any] = {
        "kind": kind,
        "requests": 12,
        "opening_tokens": 300,
        "system_prompt_tokens": 300,
    }
    first = list(generate_lines(default_options(profile, seed=5, **changes)))
    assert len(first) == 12
    assert first == list(generate_lines(default_options(profile, seed=5, **changes)))
    assert first != list(generate_lines(default_options(profile, seed=6, **changes)))


def test_the_lines_are_the_same_on_every_machine() -> None:
    digest = hashlib.sha256()
    for profile, kind in itertools.product(PROFILES, KINDS):
        for line in generate_lines(
            default_options(profile, kind=kind, seed=9, requests=40, opening_tokens=500)
        ):
            digest.update(line)
    assert digest.hexdigest() == "65f848ce519307d201a2839f8932fbaf02f6437b63c3574c98a2d4b1aa681470"


def test_lines_do_not_depend_on_the_hash_seed_of_the_process() -> None:
    script = (
        "import hashlib\nfrom kvcap.synth.generate import generate_lines\n"
        "from kvcap.synth.options import default_options\n"
        "lines = generate_lines(default_options('rag', requests=50))\n"
        "print(hashlib.sha256(b''.join(lines)).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_a_longer_trace_begins_like_a_shorter_one() -> None:
    short = list(generate_lines(default_options("agent", requests=20)))
    assert list(generate_lines(default_options("agent", requests=60)))[:20] == short


@pytest.mark.parametrize("profile", PROFILES)
def test_hash_ids_fill_the_prompt_and_are_nearly_dense_from_0(profile: Profile) -> None:
    seen: set[int] = set()
    for request in requests_of(profile, requests=300, block_size=128, model='a "model"'):
        assert list(request) == [
            *("timestamp", "session_id", "model", "output_length"),
            *("block_size", "input_length", "hash_ids"),
        ]
        assert request["model"] == 'a "model"'
        assert request["output_length"] >= 1
        assert len(request["hash_ids"]) == -(-request["input_length"] // 128)
        seen.update(request["hash_ids"])
    assert min(seen) == 0
    assert max(seen) < 1.2 * len(seen)


@pytest.mark.parametrize("profile", PROFILES)
def test_time_does_not_run_backwards_and_every_session_is_served_in_parallel_with_others(
    profile: Profile,
) -> None:
    requests = requests_of(profile, requests=400)
    times = [request["timestamp"] for request in requests]
    assert times == sorted(times)
    spans = defaultdict(list)
    for request in requests:
        spans[request["session_id"]].append(request["timestamp"])
    assert any(a[0] < b[0] < a[-1] for a, b in itertools.pairwise(spans.values()))


@pytest.mark.parametrize("profile", PROFILES)
def test_token_ids_and_hash_ids_of_the_same_options_tell_of_the_same_full_blocks(profile: Profile) -> None:
    changes: dict[str, Any] = {
        "seed": 3,
        "requests": 120,
        "opening_tokens": 600,
        "turn_tokens": 200,
        "system_prompt_tokens": 500,
        "context_tokens": 3000,
        "edit_percent": 20,
        "subagent_percent": 20,
        "document_tokens": 150,
    }
    names: dict[bytes, int] = {}
    hashed = requests_of(profile, block_size=64, **changes)
    tokens = requests_of(profile, kind="token-ids", **changes)
    assert len(hashed) == len(tokens)
    for by_hash, by_token in zip(hashed, tokens, strict=True):
        head = ("timestamp", "session_id", "model", "output_length")
        assert [by_hash[name] for name in head] == [by_token[name] for name in head]
        assert by_hash["input_length"] == len(by_token["token_ids"])
        full = by_hash["hash_ids"][: by_hash["input_length"] // 64]
        for name, block in zip(prefixes(by_token["token_ids"], 64), full, strict=True):
            assert names.setdefault(name, block) == block
    assert len(set(names.values())) == len(names)


def test_token_ids_are_skewed_over_16_bits() -> None:
    tokens = [token for r in requests_of("chat", kind="token-ids", requests=5) for token in r["token_ids"]]
    assert min(tokens) >= 1
    assert max(tokens) < 1 << 16
    assert sum(token < 256 for token in tokens) / len(tokens) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("profile", "requests", "low", "high"),
    [("chat", 5000, 0.4, 0.6), ("agent", 3000, 0.9, 0.98), ("rag", 3000, 0.4, 0.65)],
)
def test_the_ceiling_is_like_that_of_real_traffic(
    profile: Profile, requests: int, low: float, high: float
) -> None:
    assert low < ceiling(requests_of(profile, requests=requests, block_size=256)) < high


def test_agents_grow_compact_and_start_subagents_with_a_shared_prompt() -> None:
    requests = requests_of(
        "agent", requests=3000, subagent_percent=10, context_tokens=50_000, opening_tokens=10_000
    )
    sessions = defaultdict(list)
    for request in requests:
        sessions[request["session_id"]].append(request)
    steps = [
        (a["input_length"], b["input_length"], a["hash_ids"][0] == b["hash_ids"][0])
        for session in sessions.values()
        for a, b in itertools.pairwise(session)
    ]
    assert sum(after > before for before, after, _ in steps) > 0.8 * len(steps)
    assert any(same and before > 40_000 and after < 0.75 * before for before, after, same in steps)
    assert any(not same and after < before for before, after, same in steps)
    first_blocks = {request["hash_ids"][0] for request in requests}
    assert 2 <= len(first_blocks) <= 6 < len(sessions)


def test_system_prompts_are_as_many_as_asked_for_and_popular_by_zipfs_law() -> None:
    requests = requests_of(
        "chat", requests=2000, system_prompts=5, turns=1, tool_percent=0, popularity_skew=1.5
    )
    counts: dict[int, int] = defaultdict(int)
    for request in requests:
        counts[request["hash_ids"][0]] += 1
    assert len(counts) == 5
    assert max(counts.values()) / len(requests) == pytest.approx(0.57, abs=0.05)


def test_more_document_reuse_means_more_reuse() -> None:
    def at(percent: float) -> float:
        return ceiling(requests_of("rag", requests=1000, document_reuse_percent=percent))

    assert at(0) < at(50) < at(100)


def test_the_mean_knobs_set_means() -> None:
    requests = requests_of(
        "chat", requests=4000, turns=1, tool_percent=0, output_tokens=500, sessions_per_hour=3600
    )
    assert sum(r["output_length"] for r in requests) / len(requests) == pytest.approx(500, rel=0.1)
    sessions = len({r["session_id"] for r in requests})
    assert sessions / requests[-1]["timestamp"] * 1000 == pytest.approx(1, rel=0.1)


def test_a_duration_ends_the_trace() -> None:
    requests = requests_of("rag", requests=None, duration_hours=0.05)
    assert 0.04 < requests[-1]["timestamp"] / 3_600_000 < 0.05


def test_openai_requests_repeat_their_conversation_and_answer_every_tool_call() -> None:
    requests = requests_of(
        "chat",
        kind="openai",
        requests=400,
        sessions_per_hour=30,
        turns=3,
        tool_percent=40,
        edit_percent=0,
        opening_tokens=50,
    )
    earlier: dict[str, list[Any]] = {}
    calls = 0
    for request in requests:
        messages = request["messages"]
        before = earlier.get(request["session_id"], [])
        assert messages[: len(before)] == before
        earlier[request["session_id"]] = messages
        assert [messages[0]["role"], messages[1]["role"]] == ["system", "user"]
        assert messages[-1]["role"] in ("user", "tool")
        names = {tool["function"]["name"] for tool in request["tools"]}
        for asked, answered in itertools.pairwise(messages):
            assert ("tool_calls" in asked) == (answered["role"] == "tool")
            if "tool_calls" in asked:
                calls += 1
                (call,) = asked["tool_calls"]
                assert asked["content"] is None
                assert call["function"]["name"] in names
                assert set(json.loads(call["function"]["arguments"])) == {"query"}
                assert (call["id"], call["function"]["name"]) == (answered["tool_call_id"], answered["name"])
    assert calls > 100


def test_the_script_of_the_sample_traces_says_what_it_takes() -> None:
    script = str(ROOT / "pipelines" / "make_sample_traces.py")
    said = subprocess.run([sys.executable, script, "--help"], check=True, capture_output=True, text=True)
    assert "[directory]" in said.stdout


def test_sample_traces_are_what_their_script_writes(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location(
        "make_sample_traces", ROOT / "pipelines" / "make_sample_traces.py"
    )
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.main(tmp_path)
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == sorted(path.name for path in (ROOT / "sample_traces").iterdir())
    for name in written:
        committed = ROOT / "sample_traces" / name
        assert committed.stat().st_size < 500 * 1024
        assert gzip.decompress(committed.read_bytes()) == gzip.decompress((tmp_path / name).read_bytes())

"""``kvcap synth``: options, files and errors."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kvcap.cli import main
from kvcap.errors import UsageError
from kvcap.synth import generate
from kvcap.synth.draws import Popularity, Quantiles
from kvcap.synth.encoders import number_run
from kvcap.synth.generate import generate_lines, write_trace
from kvcap.synth.options import SynthOptions, default_options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_options_reach_the_generator(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    argv = [
        "synth",
        "chat",
        "--kind",
        "token-ids",
        "--seed",
        "7",
        "--requests",
        "15",
        "--turns",
        "3.5",
        "--users",
        "9",
    ]
    assert main([*argv, "-o", str(path)]) == 0
    expected = default_options("chat", kind="token-ids", seed=7, requests=15, turns=3.5, users=9)
    assert path.read_bytes() == b"".join(generate_lines(expected))


def test_every_knob_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", "--help"]) == 0
    text = capsys.readouterr().out
    for name in SynthOptions.__dataclass_fields__:
        assert name == "profile" or f"--{name.replace('_', '-')} " in text


def test_standard_output_is_the_default(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["synth", "rag", "--requests", "3", "--page-size", "32"]) == 0
    lines = capsysbinary.readouterr().out.splitlines()
    assert [json.loads(line)["block_size"] for line in lines] == [32, 32, 32]


def test_a_duration_alone_lifts_the_default_number_of_requests(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    argv = [
        "synth",
        "rag",
        "--duration-hours",
        "0.5",
        "--sessions-per-hour",
        "40000",
        "--documents-per-request",
        "0",
    ]
    assert main(argv) == 0
    assert capsysbinary.readouterr().out.count(b"\n") > 10_000


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_the_name_of_the_file_chooses_its_compression(tmp_path: Path, suffix: str) -> None:
    options = default_options("agent", requests=30)
    path = tmp_path / f"trace{suffix}"
    assert write_trace(options, path) == 30
    content = path.read_bytes()
    if suffix.endswith(".gz"):
        content = gzip.decompress(content)
    if suffix.endswith(".zst"):
        content = pa.input_stream(path, compression="zstd").read()
    assert content == b"".join(generate_lines(options))


def test_equal_traces_are_equal_gzip_files(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        write_trace(default_options("agent", requests=10), tmp_path / name)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("mine")
    argv = ["synth", "chat", "--requests", "2", "-o", str(path)]
    assert main(argv) == 2
    assert path.read_text() == "mine"
    assert capsys.readouterr().err == (f"kvcap: error: {path} exists; give --force to overwrite it\n")
    assert main([*argv, "--force"]) == 0
    assert len(path.read_text().splitlines()) == 2


def test_a_run_that_dies_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(options: SynthOptions) -> Iterator[bytes]:
        yield b"{}\n"
        raise KeyboardInterrupt

    path = tmp_path / "trace.jsonl.gz"
    path.write_text("mine")
    monkeypatch.setattr(generate, "generate_lines", dies)
    assert main(["synth", "chat", "--force", "-o", str(path)]) == 130
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("trace.jsonl.gz", "mine")]


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone is no directory, expected one to write t\.jsonl in"):
        write_trace(default_options("chat"), tmp_path / "gone" / "t.jsonl")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--turns", "0", "turns is 0.0, expected a number above 0"),
        ("--edit-percent", "101", "edit_percent is 101.0, expected a percentage from 0 to 100"),
        ("--system-prompt-tokens", "0.5", "system_prompt_tokens is 0.5, expected a number from 1"),
        ("--duration-hours", "0", "duration_hours is 0.0, expected a number above 0"),
        ("--users", "0", "argument --users: is '0', expected a whole number from 1"),
        ("--turns", "nan", "argument --turns: is 'nan', expected a number from 0"),
        ("--seed", "-1", "argument --seed: is '-1', expected a whole number from 0"),
        ("--kind", "text", "argument --kind: invalid choice: 'text'"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(
    option: str, value: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["synth", "chat", option, value]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"kvcap: error: {message}")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "changes", [{"kind": "text"}, {"requests": None}, {"requests": 0}, {"turns": float("inf")}, {"colour": 1}]
)
def test_options_that_mean_nothing_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        default_options("chat", **changes)


def test_a_run_of_numbers_is_written_like_each_of_them() -> None:
    for first in (0, 7, 995, 999, 1000, 98_765, 10**9 - 2):
        for count in (0, 1, 6, 2003):
            expected = ",".join(map(str, range(first, first + count))).encode()
            assert number_run(first, first + count) == expected


def test_quantiles_are_linear_between_their_knots_and_know_their_mean() -> None:
    even = Quantiles(0, 2, 5, 10, 25, 50, 75, 90, 95, 97, 98, 99, 99.5, 99.8, 99.9, 100)
    assert even.mean == pytest.approx(50)
    assert [even.at(share) for share in (0, 0.01, 0.3, 0.96)] == pytest.approx([0, 1, 30, 96])
    assert even.at(1) == 100


def test_popularity_falls_with_the_rank() -> None:
    third = Popularity(3, 1)
    weights = [1, 1 / 2, 1 / 3]
    edges = [weights[0] / sum(weights), (weights[0] + weights[1]) / sum(weights)]
    assert [third.at(share) for share in (0, edges[0] - 0.01, edges[0] + 0.01, edges[1] + 0.01, 1)] == [
        0,
        0,
        1,
        2,
        2,
    ]
    assert [Popularity(4, 0).at(share) for share in (0.1, 0.3, 0.6, 0.9)] == [0, 1, 2, 3]

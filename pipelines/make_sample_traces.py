"""Write the traces of sample_traces/ anew."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from kvcap.synth.generate import write_trace
from kvcap.synth.options import SynthOptions, default_options

SAMPLES: Final[dict[str, SynthOptions]] = {
    "agent.hash_ids.jsonl.gz": default_options(
        "agent",
        seed=1,
        requests=3000,
        block_size=512,
        sessions_per_hour=1000,
        think_seconds=1800,
        turns=12,
        opening_tokens=24_000,
        turn_tokens=2800,
        context_tokens=72_000,
    ),
    "rag.hash_ids.jsonl.gz": default_options("rag", seed=2, requests=3000, block_size=128),
    "chat.token_ids.jsonl.gz": default_options(
        "chat",
        kind="token-ids",
        seed=3,
        requests=460,
        sessions_per_hour=150,
        turns=1.8,
        system_prompt_tokens=250,
        user_prompt_tokens=0,
        opening_tokens=400,
        turn_tokens=120,
        output_tokens=120,
        context_tokens=4000,
    ),
    "chat.openai.jsonl.gz": default_options(
        "chat",
        kind="openai",
        seed=4,
        requests=420,
        sessions_per_hour=60,
        turns=3,
        system_prompt_tokens=500,
        user_prompt_tokens=0,
        opening_tokens=250,
        turn_tokens=100,
        output_tokens=100,
        context_tokens=4000,
        tool_percent=30,
    ),
}
"""What each sample is; lengths are small where prompts are written out."""


def main(directory: Path) -> None:
    """Write every sample into a directory."""
    for name, options in SAMPLES.items():
        write_trace(options, directory / name, force=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "directory",
        nargs="?",
        type=Path,
        default=Path(__file__).parents[1] / "sample_traces",
        help="where to write them (default: sample_traces)",
    )
    main(parser.parse_args().directory)

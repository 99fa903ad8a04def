"""``kvcap synth``."""

from __future__ import annotations

import argparse
import math
import sys
from typing import TYPE_CHECKING, Final

from kvcap.cli.options import add_force, add_output, add_quiet, whole_number
from kvcap.synth.options import DEFAULTS, KINDS, PROFILES, SynthOptions, default_options

if TYPE_CHECKING:
    from collections.abc import Callable

NAME: Final = "synth"
HELP: Final = "Write a seeded synthetic trace of LLM requests whose reuse looks like that of real ones."


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(f"is {text!r}, expected a number from 0")
    return value


_COUNT: Final = whole_number(1)

_NEW_LINE: Final = "\r\x1b[K"
"""Makes a terminal write over its last line."""

_KNOBS: Final[tuple[tuple[str, Callable[[str], object], str, str], ...]] = (
    ("sessions_per_hour", _number, "RATE", "rate at which sessions start"),
    ("think_seconds", _number, "MEAN", "mean time from one request of a session to its next"),
    ("turns", _number, "MEAN", "mean turns of a session"),
    ("users", _COUNT, "N", "users"),
    ("user_prompt_tokens", _number, "MEAN", "mean length of what each user adds to the system prompt"),
    ("system_prompts", _COUNT, "N", "system prompts"),
    ("system_prompt_tokens", _number, "MEAN", "mean length of a system prompt with its tools"),
    ("popularity_skew", _number, "S", "Zipf exponent of system prompts, users and documents"),
    ("opening_tokens", _number, "MEAN", "mean length of what a session opens with"),
    ("turn_tokens", _number, "MEAN", "mean length of a later message or tool result"),
    ("output_tokens", _number, "MEAN", "mean length of an answer"),
    ("context_tokens", _COUNT, "N", "a longer context is compacted (agent) or ends the session"),
    ("tool_percent", _number, "P", "share of answers that call a tool"),
    ("edit_percent", _number, "P", "share of messages that are taken back and written anew"),
    ("subagent_percent", _number, "P", "share of tool calls that start a subagent"),
    ("documents", _COUNT, "N", "documents"),
    ("document_tokens", _number, "MEAN", "mean length of a document"),
    (
        "documents_per_request",
        _number,
        "MEAN",
        "mean number of documents before an opening question; 0 for none",
    ),
    ("document_reuse_percent", _number, "P", "how often a document is followed by its usual neighbour"),
)
"""Field of SynthOptions, parser, metavar and meaning of every knob whose default depends on the profile."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``kvcap synth``."""
    parser.add_argument(
        "profile",
        choices=PROFILES,
        help="chat: conversations of a few turns; agent: coding agents with tool calls, compaction and "
        "subagents; rag: questions over shared documents",
    )
    parser.add_argument(
        "--kind", choices=KINDS, default="hash-ids", help="what each line holds (default: %(default)s)"
    )
    parser.add_argument(
        "--seed",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="equal options give equal bytes (default: %(default)s)",
    )
    parser.add_argument(
        "--requests",
        type=_COUNT,
        metavar="N",
        help=f"stop after N requests (default: {SynthOptions.requests:,}, or no limit with --duration-hours)",
    )
    parser.add_argument(
        "--duration-hours",
        type=_number,
        metavar="H",
        help="stop at this time of the trace (default: no limit)",
    )
    parser.add_argument(
        "--block-size",
        "--page-size",
        dest="block_size",
        type=_COUNT,
        default=SynthOptions.block_size,
        metavar="TOKENS",
        help="tokens per block of hash ids (default: %(default)s)",
    )
    parser.add_argument(
        "--model",
        default=SynthOptions.model,
        metavar="NAME",
        help="name of the model in each request (default: %(default)s)",
    )
    add_output(
        parser, required=False, what="output file; .gz and .zst are compressed (default: standard output)"
    )
    add_force(parser)
    add_quiet(parser)
    knobs = parser.add_argument_group("knobs", "Lengths, counts and times are means of skewed distributions.")
    for name, parse, metavar, what in _KNOBS:
        defaults = ", ".join(f"{profile} {getattr(DEFAULTS[profile], name):g}" for profile in PROFILES)
        option = "--" + name.replace("_", "-")
        knobs.add_argument(option, type=parse, metavar=metavar, help=f"{what} (default: {defaults})")


def run(args: argparse.Namespace) -> int:
    """Write the trace."""
    from pathlib import Path

    from kvcap.synth.generate import generate_lines, write_trace

    options = _options(args)
    if args.output in (None, "-"):
        for line in generate_lines(options):
            sys.stdout.buffer.write(line)
        return 0
    visible = sys.stderr.isatty() and not args.quiet
    progress = _progress() if visible else None
    requests = write_trace(options, Path(args.output), force=args.force, progress=progress)
    if visible:
        print(f"{_NEW_LINE}{requests:,} requests in {args.output}", file=sys.stderr)
    return 0


def _options(args: argparse.Namespace) -> SynthOptions:
    given = {name: getattr(args, name) for name, *_ in _KNOBS if getattr(args, name) is not None}
    if args.requests is not None or args.duration_hours is not None:
        given["requests"] = args.requests
    return default_options(
        args.profile,
        kind=args.kind,
        seed=args.seed,
        duration_hours=args.duration_hours,
        block_size=args.block_size,
        model=args.model,
        **given,
    )


def _progress() -> Callable[[int, int], None]:
    """Return a reporter that shows a line of counts once a second, after the first second."""
    import time

    last = time.monotonic()

    def show(requests: int, size_bytes: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= 1:
            last = now
            text = f"{_NEW_LINE}{requests:,} requests, {size_bytes / 1e6:,.0f} MB"
            print(text, end="", file=sys.stderr, flush=True)

    return show

"""``kvcap serve``: the live service."""

from __future__ import annotations

import argparse
from typing import Final

HELP: Final = "Serve: the same numbers while traffic flows, fed live or by a mirror of the engine's traffic."

_FLAGS: Final = (
    ("--kv-bytes-per-token", "BYTES", "bytes of one token's keys and values, may be decimal"),
    ("--capacities", "LIST", "comma list of sizes whose hits are counted, such as 640GiB,2TiB"),
    ("--max-capacity", "SIZE", "bound up to which counts are exact (default: the largest of --capacities)"),
    ("--target-hit-rate-ratio", "R", "share of its own ceiling that a request must reach (default: 0.99)"),
    ("--slide-window-size", "N", "latest requests in the window (default: 3000)"),
    ("--slide-window-seconds", "S", "how old they may be (default: any age)"),
    ("--max-pools", "N", "pools told apart, each with a cache of its own (default: 64)"),
    ("--record", "DIR", "append every request to a Parquet log that `kvcap replay` reads"),
    ("--record-seconds", "S", "close a file of the log so often (default: 10)"),
    ("--state", "FILE", "keep the estimator's state there (default: in the log's directory, if any)"),
    ("--state-seconds", "S", "save the state so often (default: 60)"),
    ("--output-path", "DIR", "where POST /finalize writes results for `kvcap sql`"),
    ("--tokenizer", "NAME", "model directory or hub id that tokenizes mirrored texts"),
    ("--tokenize-backend", "NAME", "who tokenizes (default: huggingface, or engine with --engine-url)"),
    ("--engine-url", "URL", "a running engine whose /tokenize is asked"),
    ("--tokenize-workers", "N", "texts tokenized at once (default: 4)"),
    ("--served-model", "NAME", "what /v1/models lists (default: the tokenizer's name)"),
    ("--host", "ADDRESS", "address to listen on (default: 127.0.0.1)"),
    ("--port", "PORT", "port to listen on, 0 for any free one (default: 8080)"),
    (
        "--allowed-hosts",
        "NAMES",
        "comma list of names that requests may be for, or come from pages of, beside addresses and names "
        "without a dot; *.example.com for those below, * for all",
    ),
    (
        "--max-pending",
        "N",
        "requests that may wait, and that one body may hold; further ones are refused or dropped "
        "(default: 4096)",
    ),
    ("--max-body-size", "SIZE", "largest body (default: 64MiB)"),
    ("--max-ids-per-request", "N", "most ids of one request (default: 4194304)"),
    ("--body-timeout-seconds", "S", "time that a client has to send a request (default: 30)"),
    ("--max-connections", "N", "connections at once (default: 1024)"),
)

_EPILOG: Final = (
    "Every setting can also be given as KVCAP_<NAME> in the environment, such as KVCAP_PORT, or in a TOML or "
    "JSON file with --config; flags go before the environment, and that before the file. KVCAP_API_KEY, or "
    "api_key in the file, is the bearer token that clients have to show."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = _EPILOG
    parser.add_argument("--config", metavar="FILE", help="a TOML or JSON file with settings, or inline JSON")
    parser.add_argument(
        "--block-size",
        "--page-size",
        dest="block_size",
        metavar="TOKENS",
        help="tokens per block (default: 64)",
    )
    for flag, metavar, text in _FLAGS:
        parser.add_argument(flag, metavar=metavar, help=text)
    parser.add_argument(
        "--touch-order",
        choices=["tail-first", "head-first"],
        help="tail-first evicts leaves first, as engines do (default); head-first is plain LRU",
    )
    parser.add_argument(
        "--durable",
        action="store_const",
        const="true",
        help="answer when a request is on disk (default: what was answered within --record-seconds before a "
        "crash is lost)",
    )
    parser.add_argument(
        "--include-partial-page",
        action="store_const",
        const="true",
        help="count an incomplete last block as a block (default: only of hash ids)",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
    import os

    from kvcap.errors import MissingExtraError

    try:
        from kvcap.online.server.run import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "kvcap":
            raise
        raise MissingExtraError("kvcap serve", "serve") from error
    from kvcap.online.server.settings import SETTINGS, serve_options

    flags = {name: getattr(args, name) for name in SETTINGS if hasattr(args, name)}
    return serve(serve_options(flags, os.environ, args.config))

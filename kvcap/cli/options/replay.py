"""How a trace is replayed, and what is simulated capacity by capacity."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from kvcap.cli.options.model import given_bytes_per_token, given_model_bytes
from kvcap.cli.options.values import whole_number

if TYPE_CHECKING:
    from kvcap.replay import ReplayOptions


def add_replay_options(parser: argparse.ArgumentParser) -> None:
    """Add what says how a trace is replayed; :func:`replay_options` collects them."""
    group = parser.add_argument_group("replay")
    group.add_argument(
        "--kv-bytes-per-token",
        metavar="BYTES",
        help="bytes of one token's keys and values, may be decimal (default: answers in blocks and tokens)",
    )
    group.add_argument(
        "--coarsen",
        type=whole_number(1),
        default=1,
        metavar="M",
        help="make M consecutive blocks one (default: %(default)s)",
    )
    group.add_argument(
        "--target-hit-rate-percent",
        default="99",
        metavar="P",
        help="share of its own ceiling that a request must reach, above 0 to 100 (default: %(default)s)",
    )
    group.add_argument(
        "--warm-up-percent",
        default="0",
        metavar="P",
        help="share of the requests, from the first, that only fill the cache, 0 to 100, as 20 or 20%% "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--touch-order",
        choices=["tail-first", "head-first"],
        default="tail-first",
        help="tail-first evicts leaves first, as engines do; head-first is plain LRU front to back "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--partial-block",
        choices=["drop", "keep"],
        help="whether an incomplete last block counts as a block (default: drop for token ids, keep for "
        "hash ids)",
    )


def replay_options(args: argparse.Namespace) -> ReplayOptions:
    """Return what :func:`add_replay_options` collected.

    Raises
    ------
    UsageError
        If a number is not what its option expects.
    """
    from functools import partial

    from kvcap.replay import ReplayOptions, engine_options
    from kvcap.units import parse_percent

    engine = getattr(args, "engine", None)
    make = ReplayOptions if engine is None else partial(engine_options, engine)
    return make(
        kv_bytes_per_token=given_bytes_per_token(args),
        model_bytes=given_model_bytes(args),
        estimate_tokens=args.estimate_tokens,
        block_size=args.block_size,
        coarsen=args.coarsen,
        touch_order=args.touch_order,
        target=parse_percent(args.target_hit_rate_percent, "--target-hit-rate-percent", zero_allowed=False),
        warm_up=parse_percent(args.warm_up_percent, "--warm-up-percent", zero_allowed=True),
        max_capacity=getattr(args, "max_capacity", None),
        **_given_rules(args),
    )


def add_policy_options(parser: argparse.ArgumentParser) -> None:
    """Add what is simulated capacity by capacity, and by which rules; :func:`replay_options` collects it."""
    group = parser.add_argument_group("policies and engines")
    group.add_argument(
        "--policies",
        metavar="LIST",
        help="also simulate these at every capacity: comma list of lru, fifo, optimal, vllm-lru and "
        "sglang-lru (default: none; with --engine its own)",
    )
    group.add_argument(
        "--engine",
        choices=["vllm", "sglang", "lmcache", "mooncake"],
        help="predict this engine: sets --partial-block, --policies and the options below as it has them; "
        "what is given beside it wins",
    )
    group.add_argument(
        "--compute-last-token",
        action=argparse.BooleanOptionalAction,
        help="one token of every prompt has to be computed, so its last block may not hit",
    )
    group.add_argument(
        "--output-blocks",
        choices=["on", "off"],
        help="whether generated tokens enter the cache: from output_ids where the log has them, else from "
        "output_length as blocks that no other request knows (default: off)",
    )
    group.add_argument(
        "--chunk-tokens",
        type=whole_number(1),
        metavar="N",
        help="make blocks into chunks of N tokens (default: blocks as they are)",
    )
    group.add_argument(
        "--capacity-factor",
        metavar="SHARE",
        help="share of each capacity that holds data, above 0 to 1 (default: 1)",
    )
    group.add_argument(
        "--reserve-blocks",
        type=whole_number(0),
        metavar="N",
        help="blocks of each capacity that running requests hold for other than cached data, about one for "
        "each request in flight; hits without this reserve are given as the bound (default: 0)",
    )
    group.add_argument(
        "--oversize",
        choices=["keep", "drop"],
        help="drop takes a request that is larger than a capacity out of the stream at that capacity "
        "(default: keep)",
    )
    group.add_argument(
        "--omit-underfilled",
        action="store_true",
        help="leave out capacities that the warm-up requests do not fill (default: mark them)",
    )
    group.add_argument(
        "--request-hits",
        action="store_true",
        help="with --out: also keep every request's hits by policy and capacity",
    )


def _given_rules(args: argparse.Namespace) -> dict[str, Any]:
    """Return the rules that were given, which win over those of an engine; some commands take few of them."""
    from kvcap.units import parse_number

    if not hasattr(args, "policies"):
        return {"partial_block": args.partial_block}
    factor = args.capacity_factor
    rules = {
        "partial_block": args.partial_block,
        "policies": None if args.policies is None else _policies(args.policies),
        "compute_last_token": args.compute_last_token,
        "output_blocks": None if args.output_blocks is None else args.output_blocks == "on",
        "chunk_tokens": args.chunk_tokens,
        "capacity_factor": None if factor is None else parse_number(factor, "--capacity-factor"),
        "reserve_blocks": args.reserve_blocks,
        "oversize": args.oversize,
    }
    given = {name: value for name, value in rules.items() if value is not None}
    return {"capacities": args.capacities, "request_hits": args.request_hits, **given}


def _policies(text: str) -> tuple[str, ...]:
    from kvcap.errors import UsageError

    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise UsageError("--policies is empty, expected names such as lru,fifo,optimal")
    return names


def add_capacities(parser: argparse.ArgumentParser) -> None:
    """Add ``--capacities``; its default is that of the analysis layer."""
    parser.add_argument(
        "--capacities",
        metavar="LIST",
        help="comma list of sizes such as 640GiB,2TiB,5000blocks,2.5Mtokens, or pow2 for 1GiB, 2GiB, ... "
        "16TiB (default: 100GiB,200GiB,400GiB,800GiB,1TiB,2TiB,4TiB,6TiB,8TiB,12TiB,16TiB,24TiB,32TiB,"
        "64TiB; a power-of-two grid in blocks without bytes per token)",
    )


def add_max_capacity(parser: argparse.ArgumentParser) -> None:
    """Add ``--max-capacity``; :func:`replay_options` takes it."""
    parser.add_argument(
        "--max-capacity",
        metavar="SIZE",
        help="largest capacity of interest, such as 64TiB: bounds memory, exact up to it (default: all)",
    )

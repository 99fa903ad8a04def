"""How a trace is replayed, and what is simulated capacity by capacity."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields

from kvcap.cli.options.derived import add_fields, given
from kvcap.cli.options.model import given_bytes_per_token, given_model_bytes
from kvcap.engines import ENGINES, Rules
from kvcap.engines.hybrid_options import HybridOptions
from kvcap.engines.policies import RADIX_EVICTION_POLICIES
from kvcap.errors import UsageError
from kvcap.options import ReplayOptions


def add_replay_options(parser: argparse.ArgumentParser, *, without: Sequence[str] = ()) -> None:
    """Add what says how a trace is replayed, but for some; :func:`replay_options` collects them."""
    elsewhere = [part.name for options in (Rules, HybridOptions) for part in fields(options)]
    add_fields(parser.add_argument_group("replay"), ReplayOptions, without=[*elsewhere, *without])


def add_policy_options(parser: argparse.ArgumentParser) -> None:
    """Add what is simulated capacity by capacity, and by which rules; :func:`replay_options` collects it."""
    group = parser.add_argument_group("policies and engines")
    group.add_argument(
        "--engine",
        choices=list(ENGINES),
        help="predict this engine: sets policies, blocks and rules as it has them; what is given beside it "
        "wins",
    )
    add_fields(group, Rules)
    add_fields(group, HybridOptions)
    group.add_argument(
        "--radix-eviction-policy",
        choices=RADIX_EVICTION_POLICIES,
        help="with --engine sglang: which leaves of its radix tree go first (default: lru)",
    )
    group.add_argument(
        "--omit-underfilled",
        action="store_true",
        help="leave out capacities that the warm-up requests do not fill (default: mark them)",
    )


def add_capacities(parser: argparse.ArgumentParser) -> None:
    """Add ``--capacities`` alone."""
    add_fields(parser, Rules, only=["capacities"])


def replay_options(args: argparse.Namespace) -> ReplayOptions:
    """Return what :func:`add_replay_options` and :func:`add_policy_options` collected.

    Raises
    ------
    UsageError
        If options contradict each other.
    """
    values = given(args, ReplayOptions)
    values["kv_bytes_per_token"] = given_bytes_per_token(args)
    values["model_bytes"] = given_model_bytes(args)
    values["block_size"] = args.block_size
    radix_policy = getattr(args, "radix_eviction_policy", None)
    if radix_policy is not None:
        if args.engine != "sglang" or "policies" in values:
            raise UsageError(
                "--radix-eviction-policy is SGLang's: expected --engine sglang and no --policies"
            )
        values["policies"] = (f"sglang-{radix_policy}",)
    return ReplayOptions.of(getattr(args, "engine", None), **values)

"""How texts become token ids."""

from __future__ import annotations

import argparse

from kvcap.cli.options.derived import add_fields, given
from kvcap.tokenize.options import TokenizeOptions


def add_tokenizer_options(parser: argparse.ArgumentParser) -> None:
    """Add what turns request texts into token ids; :func:`tokenize_options` collects them."""
    add_fields(parser.add_argument_group("tokenizer", "for logs that hold texts"), TokenizeOptions)


def tokenize_options(args: argparse.Namespace) -> TokenizeOptions:
    """Return what :func:`add_tokenizer_options` collected, and ``--skip-bad``.

    Raises
    ------
    UsageError
        If the backend lacks what it needs, or is given what it cannot use.
    """
    values = given(args, TokenizeOptions)
    if "engine_url" in values:
        values.setdefault("backend", "engine")
    return TokenizeOptions(**values, skip_bad=args.skip_bad or 0)

"""``kvcap serve``: the live service."""

from __future__ import annotations

import argparse
from typing import Final

from kvcap.cli.options.derived import add_fields
from kvcap.online.server.options import ServeOptions
from kvcap.online.server.settings import SETTINGS, TOKENIZING, serve_options
from kvcap.tokenize.options import TokenizeOptions

HELP: Final = "Serve: the same numbers while traffic flows, fed live or by a mirror of the engine's traffic."

_EPILOG: Final = (
    "Every setting can also be given as KVCAP_<NAME> in the environment, such as KVCAP_PORT, or in a TOML or "
    "JSON file with --config; flags go before the environment, and that before the file. KVCAP_API_KEY, or "
    "api_key in the file, is the bearer token that clients have to show."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = _EPILOG
    parser.add_argument("--config", metavar="FILE", help="a TOML or JSON file with settings, or inline JSON")
    add_fields(parser, ServeOptions, without=["api_key"], as_text=True)
    add_fields(parser, TokenizeOptions, only=TOKENIZING, as_text=True)


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
    flags = {name: getattr(args, name) for name in SETTINGS if hasattr(args, name)}
    return serve(serve_options(flags, os.environ, args.config))

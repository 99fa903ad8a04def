"""Parse the command line, run one command, map errors to exit codes."""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from kvcap._version import __version__
from kvcap.errors import KvcapError

COMMANDS: Final = (
    "replay",
    "convert",
    "tokenize",
    "formats",
    "models",
    "sql",
    "plan",
    "diff",
    "check",
    "report",
    "route",
    "grow",
    "explain",
    "serve",
    "synth",
)
"""Commands in the order of ``--help``; each is a module of :mod:`kvcap.cli.commands`."""

_EXAMPLES: Final = """\
examples:
  kvcap replay trace.jsonl.gz --model glm-5.2 --out results
  kvcap explain requests.jsonl
  kvcap plan results

`kvcap COMMAND --help` tells more of each.
"""
_OBJECTS_BETWEEN_COLLECTIONS: Final = 200_000
_POOL_SIZES: Final = {"polars": "POLARS_MAX_THREADS", "pyarrow": "OMP_NUM_THREADS"}
"""The environment variables by which libraries size their pools of threads."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors look like all others."""

    def error(self, message: str) -> None:  # type: ignore[override]
        _complain(f"{message} (see {self.prog} --help)")
        self.exit(2)


def build_parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser with some commands, every one by default."""
    parser = _Parser(
        prog="kvcap",
        description="How much KV cache does your LLM traffic need? Exact hit rates at every\n"
        "capacity, and the capacity that each request needed, from request logs.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kvcap {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for name in names:
        module = importlib.import_module(f"kvcap.cli.commands.{name}")
        subparser = subparsers.add_parser(
            name,
            help=module.HELP,
            description=module.HELP,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run, error_code=getattr(module, "ERROR_CODE", 1))
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Errors of kvcap and of the operating system become one line on stderr; a closed pipe ends quietly.
    """
    argv = sys.argv[1:] if argv is None else argv
    asked = [name for name in argv[:1] if name in COMMANDS]
    if not argv:
        build_parser().print_help()
        return 0
    error_code = 1
    try:
        args = build_parser(asked or COMMANDS).parse_args(argv)
        error_code = args.error_code
        _limit_threads(getattr(args, "threads", None))
        code: int = args.run(args)
        sys.stdout.flush()
    except SystemExit as exit_request:
        return int(exit_request.code or 0)
    except BrokenPipeError:
        # What is still buffered has no reader; Python would complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("kvcap: interrupted", file=sys.stderr)
        return 130
    except KvcapError as error:
        _complain(str(error))
        return max(error.exit_code, error_code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _complain(f"{where}{error.strerror or error}")
        return error_code
    return code


def _complain(message: str) -> None:
    from kvcap.cli.writer import print_parts

    print_parts(f"kvcap: error: {message}".split("\n"), sys.stderr)


def _limit_threads(threads: int | None) -> None:
    """Bound the pools that libraries make when they are imported; others are bounded where they are used."""
    # Nothing here is linear algebra, and a thread on every core for it takes longer than a small replay.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for library, variable in _POOL_SIZES.items():
        if threads is not None and library not in sys.modules:
            os.environ[variable] = str(threads)


def _terminate(number: int, frame: object) -> None:
    """End as Ctrl-C does, so that what was begun is cleaned up."""
    sys.exit(128 + number)


def run_process() -> int:
    """Run the command line as a process of its own, and return its exit code.

    Most objects of a short run come from imports and live to its end. The cyclic garbage collector would
    walk them over and over, and once more at exit: a fifth of the time that a small replay takes.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    signal.signal(signal.SIGTERM, _terminate)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name that the terminal's encoding lacks is no reason to show nothing.
        sys.stdout.reconfigure(errors="backslashreplace")
    code = main()
    gc.freeze()
    return code

"""The generated parts of README.md: transcripts of commands, and tables of options.

A block stands between ``<!-- transcript: kvcap ... -->``, ``<!-- commands: all -->``,
``<!-- options: all -->`` or ``<!-- queries: all -->`` and ``<!-- end -->``. ``pytest tests/docs
--overwrite-docs`` writes them again.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
from pathlib import Path

from kvcap.cli import main
from kvcap.cli.main import build_parser
from kvcap.queries import list_queries

README = Path(__file__).resolve().parents[1] / "README.md"
_BLOCK = re.compile(
    r"<!-- (?P<kind>transcript|commands|options|queries): (?P<text>.+?) -->\n.*?<!-- end -->", re.DOTALL
)


def regenerated(text: str) -> str:
    """Return README text with every generated block made anew."""
    return _BLOCK.sub(_block, text)


def commands() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every command, in the order of ``--help``."""
    parser = build_parser()
    action = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return dict(action.choices)


def options(command: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the options of a command but ``--help``."""
    return [action for action in command._actions if action.option_strings and action.dest != "help"]


def _block(match: re.Match[str]) -> str:
    makers = {
        "transcript": _transcript,
        "commands": _command_table,
        "options": _option_tables,
        "queries": _query_table,
    }
    return f"<!-- {match['kind']}: {match['text']} -->\n{makers[match['kind']](match['text'])}<!-- end -->"


def _transcript(command: str) -> str:
    stdout = io.StringIO()
    before = Path.cwd()
    os.chdir(README.parent)
    try:
        with contextlib.redirect_stdout(stdout):
            code = main(shlex.split(command)[1:])
    finally:
        os.chdir(before)
    assert code == 0, command
    return f"```console\n$ {command}\n{stdout.getvalue()}```\n"


def _command_table(_which: str) -> str:
    rows = [f"| `kvcap {name}` | {command.description} |" for name, command in commands().items()]
    return "\n".join(["| command | what it does |", "|---|---|", *rows]) + "\n"


def _query_table(_which: str) -> str:
    rows = [f"| `{query.name}` | {query.purpose} |" for query in list_queries()]
    return "\n".join(["| query | answers |", "|---|---|", *rows]) + "\n"


def _option_tables(_which: str) -> str:
    return "\n".join(_option_table(name, command) for name, command in commands().items() if options(command))


def _option_table(name: str, command: argparse.ArgumentParser) -> str:
    lines = ["| option | meaning |", "|---|---|"]
    for action in options(command):
        value = f" {action.metavar or '|'.join(map(str, action.choices or []))}" if action.nargs != 0 else ""
        names = ", ".join(f"`{option}{value}`" for option in action.option_strings)
        meaning = (action.help or "") % {"default": action.default}
        lines.append(_escaped(f"| {names} | {meaning} |"))
    table = "\n".join(lines)
    return f"<details><summary><code>kvcap {name}</code></summary>\n\n{table}\n\n</details>\n"


def _escaped(row: str) -> str:
    """Escape bars inside code spans, which would end a cell."""
    return re.sub(r"`[^`]*`", lambda code: code[0].replace("|", "\\|"), row)

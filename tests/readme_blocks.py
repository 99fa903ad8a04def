"""The generated parts of README.md and of the pages beside the code.

A block stands between ``<!-- KIND: TEXT -->`` and ``<!-- end -->``: ``transcript: kvcap ...``,
``commands: all``, ``queries: all``, ``formats: all``, ``held logs: table``,
``start-up lines: table`` (or ``misses``).
``pytest tests/docs --overwrite-docs`` writes them again.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
from pathlib import Path

import held_logs
import start_up_lines

from kvcap.cli import main
from kvcap.cli.main import build_parser
from kvcap.formats.registry import DIALECTS
from kvcap.queries import list_queries

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted(ROOT.glob("kvcap/**/README.md")), *sorted(ROOT.glob("[ps]*/README.md"))]
_BLOCK = re.compile(
    r"<!-- (?P<kind>transcript|commands|queries|formats|held logs|start-up lines): (?P<text>.+?) -->\n"
    r".*?<!-- end -->",
    re.DOTALL,
)

_KINDS = {"token_ids": "token ids", "hash_ids": "ids of blocks", "request_json": "text"}


def regenerated(text: str) -> str:
    """Return a page with every generated block made anew."""
    return _BLOCK.sub(_block, text)


def commands() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every command, in the order of ``--help``."""
    parser = build_parser()
    action = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return dict(action.choices)


def _block(match: re.Match[str]) -> str:
    makers = {
        "transcript": _transcript,
        "commands": _command_table,
        "queries": _query_table,
        "start-up lines": start_up_lines.markdown,
        "formats": _format_table,
        "held logs": held_logs.markdown,
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


def _format_table(text: str) -> str:
    rows = ["| name | what | prompts are |", "|---|---|---|"]
    for dialect in DIALECTS:
        kind = _KINDS[dialect.kind] if dialect.refusal is None else f"not there: {dialect.refusal}"
        summary = dialect.summary.replace("|", "\\|")
        rows.append(f"| `{dialect.name}` | {summary} | {kind} |")
    return "\n".join(rows) + "\n"

"""The one writer: widths, what a terminal would obey, and what a spreadsheet would run."""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcap.cli.fitting import cell_width
from kvcap.cli.writer import (
    Column,
    Layout,
    Table,
    print_parts,
    table_lines,
    text_output,
    write,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
ROW = st.tuples(TEXTS, st.integers(0, 10**15), st.floats(0, 1), st.integers(0, 10**6), TEXTS)
COLUMNS = (
    Column("Name of it", itemgetter(0), is_text=True),
    Column("Blocks", itemgetter(1), "{:,}".format),
    Column("Block hit", itemgetter(2), "{:.2%}".format),
    Column("Next 100 GiB", itemgetter(3), "{:,} tokens".format),
    Column("Said of it", itemgetter(4), is_text=True),
)
LIST = Layout(
    lambda rows: [list(row) for row in rows],
    lambda rows: ["Rows:", Table(COLUMNS, rows)],
    lambda rows: ([column.header for column in COLUMNS], rows),
)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(parts: list[str | Table], columns: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    print_parts(parts, stream)
    return stream.getvalue().split("\n")[:-1]


@given(rows=st.lists(ROW, max_size=4), width=st.integers(24, 140))
def test_a_table_fits_and_cuts_no_number(rows: list[tuple[str, int, float, int, str]], width: int) -> None:
    lines = table_lines(Table(COLUMNS, rows), width)
    assert all(line.isprintable() for line in lines)
    shown = "\n".join(lines)
    for _, blocks, rate, tokens, _ in rows:
        for said in (f"{blocks:,}", f"{rate:.2%}", f"{tokens:,} tokens"):
            assert re.search(rf"(?<!\S){re.escape(said)}(?!\S)", shown)
    if all(text.isascii() for row in rows for text in (row[0], row[-1])):
        assert max(map(cell_width, lines), default=0) <= width


def test_a_narrow_table_becomes_several_and_then_blocks() -> None:
    rows = [("first one", 10**9, 0.5, 7, ""), ("second", 5, 1.0, 8, "")]
    table = Table(COLUMNS[:4], rows)
    assert table_lines(table, 80) == [
        "Name of it         Blocks  Block hit  Next 100 GiB",
        "first one   1,000,000,000     50.00%      7 tokens",
        "second                  5    100.00%      8 tokens",
    ]
    assert table_lines(table, 46)[:3] == [
        "Name of it         Blocks  Block hit      Next",
        "                                       100 GiB",
        "first one   1,000,000,000     50.00%  7 tokens",
    ]
    assert table_lines(table, 40) == [
        "Name of it         Blocks  Block hit",
        "first one   1,000,000,000     50.00%",
        "second                  5    100.00%",
        "",
        "Name of it  Next 100 GiB",
        "first one       7 tokens",
        "second          8 tokens",
    ]
    assert table_lines(table, 22) == [
        "Name of it: first one",
        "Blocks: 1,000,000,000",
        "Block hit: 50.00%",
        "Next 100 GiB: 7 tokens",
        "",
        "Name of it: second",
        "Blocks: 5",
        "Block hit: 100.00%",
        "Next 100 GiB: 8 tokens",
    ]


def test_two_texts_in_front_name_a_row_together() -> None:
    columns = (COLUMNS[4], *COLUMNS[:3])
    rows = [("round-robin", 7, 0.5, 0, "16 instances"), ("prefix", 8, 1.0, 0, "16 instances")]
    assert table_lines(Table(columns, rows), 36) == [
        "Said of it    Name of it   Blocks",
        "16 instances  round-robin       7",
        "16 instances  prefix            8",
        "",
        "Said of it    Name of it   Block hit",
        "16 instances  round-robin     50.00%",
        "16 instances  prefix         100.00%",
    ]


def test_lines_wrap_on_a_terminal_and_numbers_keep_their_units(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "  Capacity for a share:  50 % 168.99 GiB   90 % 505.29 GiB   95 % 643.66 GiB"
    for columns in range(20, 80):
        lines = on_terminal([line], columns, monkeypatch)
        assert max(map(len, lines)) <= columns
        assert all(part.startswith("  ") for part in lines)
        assert sum(part.count(" GiB") for part in lines) == 3
        assert sum(part.count(" %") for part in lines) == 3
    piped = io.StringIO()
    print_parts([line], piped)
    assert piped.getvalue() == f"{line}\n"


def test_what_a_terminal_would_obey_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "a\x1b]0;title\x07b\u202ec\nd\x9be"
    for form in ("table", "csv", "html", "json"):
        stream = Terminal()
        write(LIST, [(evil, 1, 0.5, 2, evil)], form, stream)
        monkeypatch.setenv("COLUMNS", "200")
        assert all(line.isprintable() for line in stream.getvalue().split("\n"))
        assert "title" in stream.getvalue()
    piped = io.StringIO()
    print_parts([evil], piped)
    assert piped.getvalue() == "a\\x1b]0;title\\x07b\\u202ec\\nd\\x9be\n"


# Before Python 3.11 the csv module does not read a NUL.
@given(
    text=TEXTS.filter(lambda text: "\0" not in text),
    lead=st.sampled_from(["=", "+", "-", "@", "\t", "\r", ""]),
)
def test_csv_holds_no_formula_unless_it_is_raw(text: str, lead: str) -> None:
    value = f"{lead}{text}"
    for raw in (False, True):
        stream = io.StringIO(newline="")
        write(LIST, [(value, -1, -0.5, 2, "")], "csv", stream, raw=raw)
        header, row = csv.reader(io.StringIO(stream.getvalue(), newline=""))
        assert header == [column.header for column in COLUMNS]
        assert row[0] == (f"'{value}" if not raw and value[:1] in tuple("=+-@\t\r") else value)
        assert row[1:4] == ["-1", "-0.5", "2"]


class Cells(HTMLParser):
    """Collects the cells of a page, and every tag."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.cells += [""] if tag == "td" else []

    def handle_data(self, data: str) -> None:
        if self.lasttag == "td" and data.strip():
            self.cells[-1] += data


def test_html_shows_the_same_cells_and_runs_nothing() -> None:
    stream = io.StringIO()
    write(LIST, [("<script>alert(1)</script>", 10**6, 0.5, 2, "&amp;")], "html", stream)
    page = Cells()
    page.feed(stream.getvalue())
    assert page.cells == ["<script>alert(1)</script>", "1,000,000", "50.00%", "2 tokens", "&amp;"]
    assert "script" not in page.tags


def test_a_device_is_written_to_and_not_replaced() -> None:
    for force in (False, True):
        with text_output("/dev/null", force=force) as stream:
            stream.write("gone")
    assert Path("/dev/null").is_char_device()


def test_names_that_the_encoding_lacks_are_escaped(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"hash_ids": [1], "input_length": 1, "tenant": "é"}\n', encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "kvcap", "replay", log, "--block-size", "1", "--pool", "tenant"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\\xe9" in done.stdout

"""``kvcap sql``: SQL, named queries, the shell, a database file."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from small_results import EXAMPLE

import kvcap
from kvcap.cli import main
from kvcap.cli.sql_shell import SqlShell, completion_words, history_path, line_editing


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results") / "run"
    kvcap.replay(EXAMPLE.table(), out=path).close()
    return path


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_a_named_query_and_sql_text_give_the_same(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["sql", str(directory), "--query", "hit_rate", "-p", "capacity_blocks=20", "--format", "json"])
        == 0
    )
    named = json.loads(capsys.readouterr().out)
    assert main(["sql", str(directory), "FROM hit_rate(20)", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == named
    assert named[0]["hit_blocks"] == 45


def test_the_list_names_every_query_and_one_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "--list"]) == 0
    listed = capsys.readouterr().out
    assert "tiers: what each tier of storage serves" in listed
    assert "    -p tiers=...  capacities of each pool" in listed
    assert main(["sql", "--list", "--query", "tiers"]) == 0
    full = capsys.readouterr().out
    assert "returns: pool VARCHAR" in full
    assert "FROM tiers('hbm=10, dram=160KiB')" in full


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "give one of SQL, --query NAME, --shell and --attach FILE"),
        (["FROM run", "--shell"], "give one of SQL, --query NAME, --shell and --attach FILE"),
        (["FROM run", "-p", "a=1"], "-p goes with --query"),
        (["--query", "hit_rate", "-p", "capacity_blocks"], "-p is 'capacity_blocks', expected NAME=VALUE"),
        (["--query", "teirs"], "there is no query 'teirs'"),
        (["--shell", "--format", "parquet"], "--shell prints rows as table, csv, json, not as parquet"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    directory: Path, capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    assert main(["sql", str(directory), *argv]) == 2
    assert f"kvcap: error: {message}" in capsys.readouterr().err


def test_a_database_file_is_written_once(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.duckdb"
    assert main(["sql", str(directory), "--attach", str(target)]) == 0
    assert target.is_file()
    assert main(["sql", str(directory), "--attach", str(target)]) == 2
    assert "give --force to overwrite it" in capsys.readouterr().err
    assert main(["sql", str(directory), "--attach", str(target), "--force"]) == 0


def test_a_piped_shell_runs_statement_by_statement(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, ".format csv\nSELECT 1 AS a;\n\nSELECT 'x;\n' AS\nb;\n.format json\nSELECT 2 AS c")
    assert main(["sql", str(directory), "--shell"]) == 0
    assert capsys.readouterr().out == 'a\n1\nb\n"x;\n"\n[\n  {\n    "c": 2\n  }\n]\n'


def test_a_piped_shell_stops_at_the_first_error(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, "SELECT nonsense;\nSELECT 1 AS a;\n")
    assert main(["sql", str(directory), "--shell"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "nonsense" in err


def answers(*lines: str) -> str:
    """What an interactive shell on the example prints; a line KeyboardInterrupt is Ctrl-C."""
    typing = iter(lines)
    prompts: list[str] = []

    def read_line(prompt: str) -> str:
        prompts.append(prompt)
        line = next(typing, None)
        if line is None:
            raise EOFError
        if line == "KeyboardInterrupt":
            raise KeyboardInterrupt
        return line

    stream = io.StringIO()
    with EXAMPLE.replayed() as results, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        SqlShell(results, "csv", read_line=read_line, interactive=True).run()
    assert set(prompts) <= {"kvcap> ", "  ...> "}
    return stream.getvalue()


def test_an_error_at_the_prompt_is_shown_and_the_next_statement_read() -> None:
    out = answers("SELECT nonsense;", ".colour red", "SELECT 1 AS a;")
    assert "error: Binder Error" in out
    assert "error: '.colour red' is no command, see .help" in out
    assert out.endswith("a\n1\n")


def test_an_interrupt_drops_what_was_typed_so_far() -> None:
    assert answers("SELECT 1 AS", "KeyboardInterrupt", "SELECT 2 AS b;").strip() == "b\n2"


def test_a_semicolon_in_a_string_or_a_comment_ends_nothing() -> None:
    assert answers("SELECT 'a;", "' -- it's not the end;", "AS b; -- this is").strip() == 'b\n"a;\n"'


def test_exit_ends_the_shell_before_later_lines() -> None:
    assert answers(".exit", "SELECT 1 AS a;") == ""


def test_commands_of_the_shell_explain_it() -> None:
    assert "Named queries are tables" in answers(".help")
    assert "by_hour: traffic" in answers(".queries")
    assert "returns: pool VARCHAR" in answers(".queries tiers")


def test_statements_without_rows_print_nothing() -> None:
    assert answers("CREATE TABLE t AS SELECT 7 AS x;", "FROM t;").endswith("x\n7\n")


def test_history_outlives_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readline = pytest.importorskip("readline")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = history_path()
    assert path == tmp_path / "kvcap" / "sql_history"
    with EXAMPLE.replayed() as results:
        readline.clear_history()
        with line_editing(results, path):
            readline.add_history("FROM totals;")
            complete = readline.get_completer()
            assert complete("cacheable", 0) == "cacheable_tokens"
            assert complete("cacheable", 1) is None
        readline.clear_history()
        with line_editing(results, path):
            assert readline.get_history_item(1) == "FROM totals;"
        assert {"requests", "run", "ttl_surface", "required_blocks"} <= set(completion_words(results))


def test_columns_of_one_name_are_numbered(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(directory), "SELECT 1 AS a, 2 AS a_1, 3 AS a", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"a": 1, "a_1": 2, "a_2": 3}]


@pytest.mark.parametrize("asked", [["--query", "policy_hit_rates"], ["FROM policy_hit_rates"]])
def test_a_query_over_a_table_that_a_run_lacks_says_how_to_get_it(
    directory: Path, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", str(directory), *asked]) in (1, 2)
    assert "no table policies: replay with --policies or --engine" in capsys.readouterr().err

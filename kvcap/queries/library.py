"""The queries of ``sql/``: one SELECT a file, with a header that says what it is for.

A header is comment lines in this order; a purpose or list may go on over further lines::

    -- NAME: purpose
    -- reads: tables
    -- parameters: $name (what it is, default VALUE), $other (what it is)
    -- returns: column TYPE, ...
    -- example:
    --     SQL text that asks it
    --     rows as the command line prints them

A parameter without a default must be given. Values are passed as text and cast by the query itself.

In SQL text every query is a table macro of its name, ``FROM tiers(tiers := '640GiB, 2TiB')``, and one
whose parameters all have defaults is a view as well, ``FROM by_hour``. So that a macro's parameters never
stand for columns, a query qualifies a column that is called like one of its parameters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from kvcap.errors import UsageError

_PACKAGE: Final = Path(__file__).resolve().parents[1]
_PARAMETER: Final = re.compile(r"\$(?P<name>\w+)\s*\((?P<text>[^)]*)\)")
_PLACEHOLDER: Final = re.compile(r"\$(\w+)")
_DEFAULT: Final = re.compile(r"(?P<what>.*?),?\s*default\s+(?P<default>.+)\Z", re.DOTALL)
_DEFINITION: Final = re.compile(
    r"^CREATE (?:MACRO (?P<macro>\w+\()|VIEW (?P<view>\w+)).*?;$", re.DOTALL | re.MULTILINE
)
_INDENT: Final = "    "
SETUP_NAME: Final = "_setup"
"""The file with the macros and views that every connection gets; not a query."""
ANSWER_NAME: Final = "_answer"
"""The query behind the answer of a replay, which is not listed."""


@dataclass(frozen=True)
class QueryParameter:
    """One parameter of a named query; ``default`` is None when a value must be given."""

    name: str
    meaning: str
    default: str | None


@dataclass(frozen=True)
class NamedQuery:
    """A query of ``sql/``, with what its header says.

    Attributes
    ----------
    header
        The whole header, without the comment marks.
    example
        SQL text that asks the query, and the lines that the command line prints for it.
    sql
        The SELECT, with ``$name`` for parameters.
    """

    name: str
    purpose: str
    reads: tuple[str, ...]
    parameters: tuple[QueryParameter, ...]
    returns: str
    header: str
    example: tuple[str, ...]
    sql: str

    @property
    def macro_sql(self) -> str:
        """The statement that makes it a table macro."""
        parameters = [
            parameter.name
            if parameter.default is None
            else f"{parameter.name} := {_quoted(parameter.default)}"
            for parameter in sorted(self.parameters, key=lambda parameter: parameter.default is not None)
        ]
        body = _PLACEHOLDER.sub(r"\1", self.sql)
        return f"CREATE MACRO {self.name}({', '.join(parameters)}) AS TABLE\n{body};\n"

    @property
    def view_sql(self) -> str:
        """The statement that makes it a view of the macro; empty where a parameter has no default."""
        if any(parameter.default is None for parameter in self.parameters):
            return ""
        return f"CREATE VIEW {self.name} AS FROM {self.name}();\n"

    def bind(self, values: dict[str, str]) -> dict[str, str]:
        """Return a value for every parameter.

        Raises
        ------
        UsageError
            If a value is missing, or is given for a parameter that the query does not have.
        """
        known = [parameter.name for parameter in self.parameters]
        unknown = sorted(set(values) - set(known))
        if unknown:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise UsageError(f"query {self.name} has no parameter {unknown[0]}; {has}")
        bound: dict[str, str] = {}
        for parameter in self.parameters:
            value = values.get(parameter.name, parameter.default)
            if value is None:
                raise UsageError(
                    f"query {self.name} needs {parameter.name} ({parameter.meaning}): "
                    f"-p {parameter.name}=VALUE"
                )
            bound[parameter.name] = value
        return bound


def sql_directory() -> Path:
    """Return the folder of the query files: packaged, or the checkout's own."""
    packaged = _PACKAGE / "sql"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "sql"


@cache
def query_names() -> tuple[str, ...]:
    """Return the names of all named queries, ascending."""
    stems = (path.stem for path in sql_directory().glob("*.sql"))
    return tuple(sorted(stem for stem in stems if not stem.startswith("_")))


def list_queries() -> tuple[NamedQuery, ...]:
    """Return every named query, by name."""
    return tuple(load_query(name) for name in query_names())


@cache
def load_query(name: str) -> NamedQuery:
    """Return a query by name.

    Raises
    ------
    UsageError
        If there is none of that name.
    """
    if name not in query_names() and name != ANSWER_NAME:
        raise UsageError(f"there is no query {name!r}, expected one of {', '.join(query_names())}")
    return _parse(name, (sql_directory() / f"{name}.sql").read_text(encoding="utf-8"))


@cache
def setup_sql() -> str:
    """Return the statements that make the macros and views that every connection gets."""
    return (sql_directory() / f"{SETUP_NAME}.sql").read_text(encoding="utf-8")


@cache
def _setup_statements() -> dict[str, str]:
    return {match["macro"] or match["view"]: match[0] for match in _DEFINITION.finditer(setup_sql())}


def defined_names() -> set[str]:
    """Return the names of all macros, with the ``(`` of their calls, and of all views."""
    return {*_setup_statements(), *query_names(), *(f"{name}(" for name in query_names())}


def definition(name: str) -> str:
    """Return the statement that makes a macro or a view."""
    if name in _setup_statements():
        return _setup_statements()[name]
    return load_query(name[:-1]).macro_sql if name.endswith("(") else load_query(name).view_sql


def _parse(name: str, text: str) -> NamedQuery:
    lines = text.splitlines()
    n_header = next((i for i, line in enumerate(lines) if not line.startswith("--")), len(lines))
    header = [line.removeprefix("--").removeprefix(" ") for line in lines[:n_header]]
    sections: dict[str, list[str]] = {}
    label = ""
    for line in header:
        match = re.match(rf"({re.escape(name)}|reads|parameters|returns|example):\s*", line)
        if match:
            label = match[1]
            line = line[match.end() :]
        sections.setdefault(label, []).append(line)
    joined = {key: " ".join(part.strip() for part in parts) for key, parts in sections.items()}
    return NamedQuery(
        name=name,
        purpose=joined[name],
        reads=tuple(joined["reads"].split(", ")),
        parameters=_parse_parameters(joined["parameters"]),
        returns=joined["returns"],
        header="\n".join(header),
        example=tuple(line.removeprefix(_INDENT) for line in sections.get("example", ()) if line),
        sql="\n".join(lines[n_header:]).strip(),
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _parse_parameters(text: str) -> tuple[QueryParameter, ...]:
    parameters = []
    for match in _PARAMETER.finditer(text):
        described = _DEFAULT.match(match["text"])
        if described:
            parameters.append(QueryParameter(match["name"], described["what"], described["default"].strip()))
        else:
            parameters.append(QueryParameter(match["name"], match["text"].strip(), None))
    return tuple(parameters)

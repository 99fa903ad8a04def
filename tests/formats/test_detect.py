"""Which dialect the first records show, and what is said where none does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reading import read_log, write_log

from kvcap.errors import EmptyTraceError, RecordError, UnknownFormatError, UsageError
from kvcap.formats.detect import MAX_RECORDS

HASHES = '{"hash_ids": [1], "input_length": 4}'
TOKENS = '{"token_ids": [1, 2]}'
OTHER = '{"level": "info"}'


def format_of(tmp_path: Path, *lines: str, **options: object) -> str:
    path = write_log(tmp_path / "log", *lines)
    _, report = read_log(path, block_size=4, skip_bad=10**6, **options)
    return report.format_name


def test_the_first_record_that_a_dialect_knows_decides(tmp_path: Path) -> None:
    assert format_of(tmp_path, HASHES, TOKENS) == "hash-ids"
    assert format_of(tmp_path, TOKENS, HASHES) == "token-ids"
    assert format_of(tmp_path, OTHER, "not json", "", TOKENS) == "token-ids"
    assert format_of(tmp_path, "\n", TOKENS) == "token-ids"


def test_as_many_records_are_looked_at_as_the_limit_says_and_blank_lines_are_none(tmp_path: Path) -> None:
    assert format_of(tmp_path, *[OTHER, ""] * (MAX_RECORDS - 1), TOKENS) == "token-ids"
    path = write_log(tmp_path / "late", *[OTHER] * MAX_RECORDS, TOKENS)
    with pytest.raises(UnknownFormatError, match="the first record is an object of level"):
        read_log(path)


def test_as_many_records_of_a_document_are_looked_at(tmp_path: Path) -> None:
    for before, known in ((MAX_RECORDS - 1, True), (MAX_RECORDS, False)):
        document = [json.loads(OTHER)] * before + [json.loads(TOKENS)]
        path = tmp_path / f"{before}.json"
        path.write_text(json.dumps(document, indent=1))
        if known:
            assert read_log(path, skip_bad=before)[1].format_name == "token-ids"
        else:
            with pytest.raises(UnknownFormatError, match="an object of level"):
                read_log(path)


def test_the_first_thing_that_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(EmptyTraceError, match="is empty, expected at least one request"):
        read_log(write_log(tmp_path / "blank", "", "  "))
    with pytest.raises(RecordError, match=r"log:2: "):
        read_log(write_log(tmp_path / "log", OTHER, "{", "["))
    with pytest.raises(UnknownFormatError, match="the first record is an object of nothing"):
        read_log(write_log(tmp_path / "log", "{}", OTHER))
    nine = json.dumps({f"k{i}": i for i in range(9)})
    with pytest.raises(UnknownFormatError, match=r"an object of k0, k1, k2, k3, k4, k5, k6, k7\b(?!, k8)"):
        read_log(write_log(tmp_path / "log", nine))
    with pytest.raises(UnknownFormatError, match="the first record is a JSON int"):
        read_log(write_log(tmp_path / "log", "7"))


def test_a_format_that_is_named_is_not_looked_for(tmp_path: Path) -> None:
    assert format_of(tmp_path, TOKENS, input_format="token-ids") == "token-ids"
    with pytest.raises(UsageError, match=r"--input-format is 'nosuch', expected one of .*token-ids"):
        format_of(tmp_path, TOKENS, input_format="nosuch")


def test_a_refusal_counts_only_where_no_other_record_can_be_read(tmp_path: Path) -> None:
    from kvcap.formats.registry import DIALECTS

    refused = next(dialect for dialect in DIALECTS if dialect.refusal is not None)
    with pytest.raises(UnknownFormatError, match=f"{refused.name}: "):
        format_of(tmp_path, TOKENS, input_format=refused.name)

"""Every public start-up line that names its model: explained to 1 %, or listed with its explanation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from shared_data import shared_path
from start_up_lines import GIB, LINES, TOLERANCE, pool_of, predicted

from kvcap.models.pools import SglangPool, VllmPool

NAMES = [f"{line['engine']}-{line['model']}-{line['tokens']}" for line in LINES]
WITHOUT_FACTS = {4194304, 384019, 9026017}
"""Tokens of the lines whose models have no published config here."""


@pytest.mark.parametrize("line", LINES, ids=NAMES)
def test_a_line_is_within_one_percent_or_explained(line: dict[str, Any]) -> None:
    found = predicted(line)
    assert (abs(found.off) <= TOLERANCE) == ("explanation" not in line), found


def test_lines_that_state_their_inputs_are_within_one_percent_19_times_of_20() -> None:
    stated = [line for line in LINES if not line.get("outside")]
    near = sum(abs(predicted(line).off) <= TOLERANCE for line in stated)
    assert near / len(stated) >= 0.95


CONCURRENCIES = [line for line in LINES if "concurrency" in line and "explanation" not in line]


@pytest.mark.parametrize("line", CONCURRENCIES, ids=[str(line["tokens"]) for line in CONCURRENCIES])
def test_the_concurrency_printed_is_that_of_the_blocks_that_print_the_tokens(line: dict[str, Any]) -> None:
    pool = pool_of(line)
    assert isinstance(pool, VllmPool)
    blocks = pool.blocks_from_printed(line["tokens"])
    assert line["concurrency"] in {round(pool.concurrency(count), 2) for count in blocks}


def test_states_get_the_slots_that_sglang_printed() -> None:
    (line,) = (line for line in LINES if "states" in line)
    pool = pool_of(line)
    assert isinstance(pool, SglangPool)
    memory = int(line["memory_gib"] * GIB) + (line["states"] + 1) * int(pool.state_bytes)
    assert pool.sizes(memory).state_slots == line["states"]


def test_every_report_of_the_facts_is_here() -> None:
    facts = json.loads(shared_path("facts/reality.json").read_text())
    assert {fact["kv_tokens"] for fact in facts} - {line["tokens"] for line in LINES} == WITHOUT_FACTS
    for line in LINES:
        (fact,) = (fact for fact in facts if fact["kv_tokens"] == line["tokens"])
        assert (fact["source"], fact["engine"], fact.get("kv_gib")) == (
            line["source"],
            line["engine"],
            line["memory_gib"],
        )

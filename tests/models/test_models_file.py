"""A user's own models, in the form of the catalog: validated, and first."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from kvcap.errors import ModelError
from kvcap.models import KINDS, catalog, known_models, model_bytes, resolve_model
from kvcap.models.catalog import CATALOG_PATH, load_models

ENTRY: dict[str, Any] = {
    "id": "house-7b",
    "name": "House 7B",
    "family": "House",
    "kind": "gqa",
    "max_context": 4096,
    "source": "https://example.com/config.json",
    "retrieved": "2026-01-01",
    "facts": {"layers": 4, "kv_heads": 2, "head_dim": 64},
}


@pytest.fixture
def models_file(tmp_path: Path) -> Any:
    def write(content: object) -> str:
        path = tmp_path / "models.json"
        path.write_text(json.dumps(content))
        return str(path)

    return write


def test_own_models_come_first_and_replace_an_id_of_ours(models_file: Any) -> None:
    own = models_file({"models": [ENTRY, {**ENTRY, "id": "glm-5.2"}]})
    assert model_bytes(resolve_model("house-7b", models_file=own)).bytes_per_token(1) == 4 * 2 * 2 * 64 * 2
    assert resolve_model("glm-5.2", models_file=own).family == "House"
    models = known_models(own)
    assert [model.id for model in models[:2]] == ["house-7b", "glm-5.2"]
    assert len(models) == len(catalog()) + 1


def test_a_bare_list_is_a_models_file_too(models_file: Any) -> None:
    assert resolve_model("House 7B", models_file=models_file([ENTRY])).id == "house-7b"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "rnn"}, r"\(house-7b\): kind is 'rnn', expected one of gqa, mla"),
        ({"facts": {"layers": 4, "kv_heads": 2}}, "found no head_dim, expected the facts of gqa: layers"),
        ({"facts": {**ENTRY["facts"], "window": 3}}, "found the unknown window, expected the facts of gqa"),
        ({"facts": {**ENTRY["facts"], "layers": 4.0}}, r"layers is 4\.0, expected a whole number from 1"),
        ({"facts": {**ENTRY["facts"], "layers": True}}, "layers is True"),
        ({"facts": {**ENTRY["facts"], "kv_heads": 0}}, "kv_heads is 0, expected a whole number from 1"),
        ({"facts": {**ENTRY["facts"], "draft_layers": -1}}, "draft_layers is -1"),
        ({"facts": None}, "facts is None, expected an object"),
        ({"id": ""}, "id is '', expected a text"),
        ({"max_context": "4k"}, "max_context is '4k'"),
        ({"colour": "red"}, "found the unknown colour"),
        ({"retrieved": None}, r"\(house-7b\): expected either retrieved, .*, or basis"),
        ({"basis": "a copy"}, r"\(house-7b\): expected either retrieved, .*, or basis"),
        ({"retrieved": 2026}, "retrieved is 2026, expected a text"),
        ({"retrieved": None, "basis": ""}, "basis is '', expected a text"),
        (
            {
                "kind": "dsa_mla",
                "facts": {
                    "layers": 4,
                    "kv_lora_rank": 512,
                    "qk_rope_head_dim": 64,
                    "index_head_dim": 128,
                    "indexer_layers": 5,
                },
            },
            "there are more indexers than layers",
        ),
        (
            {
                "kind": "compressed_mla",
                "facts": {"head_dim": 8, "window_tokens": 8, "index_head_dim": 8, "compress_ratios": 4},
            },
            "compress_ratios is 4, expected a list of whole numbers",
        ),
    ],
)
def test_an_entry_that_is_not_of_the_schema_is_refused(change: Any, reason: str, models_file: Any) -> None:
    with pytest.raises(ModelError, match=reason):
        known_models(models_file([{**ENTRY, **change}]))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"model": []}, "expected a list of models"),
        ("x", "expected a list of models"),
        ([1], "model 0: expected an object"),
        ([ENTRY, ENTRY], "found 'house-7b' twice"),
    ],
)
def test_a_file_that_is_no_catalog_is_refused(content: object, reason: str, models_file: Any) -> None:
    with pytest.raises(ModelError, match=reason):
        known_models(models_file(content))


def test_facts_that_were_not_read_say_so_wherever_their_model_is_shown(models_file: Any) -> None:
    unread = {**ENTRY, "retrieved": None, "basis": "a copy in a book", "notes": ["approximate"]}
    model = resolve_model("house-7b", models_file=models_file([unread]))
    assert model.provenance == "facts not read, to be checked against https://example.com/config.json"
    said = ("house-7b: its config.json was not read; its facts rest on a copy in a book", "approximate")
    assert model_bytes(model).notes[:2] == said


def test_the_catalog_is_valid_and_every_entry_was_read_on_a_day_or_says_that_it_was_not() -> None:
    models = load_models(CATALOG_PATH)
    for model in models:
        assert model.source.startswith("https://huggingface.co/"), model.id
        if model.retrieved is None:
            assert model.basis, model.id
            assert "was not read" in model_bytes(model).notes[0], model.id
        else:
            assert date.fromisoformat(model.retrieved), model.id
            assert model.basis is None, model.id
        assert model.attention.groups(include_draft=True), model.id
    assert {model.kind for model in models} == set(KINDS)

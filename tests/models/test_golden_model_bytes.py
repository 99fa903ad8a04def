"""Every public value of logical bytes, to the byte."""

from __future__ import annotations

import json
from fractions import Fraction

from shared_data import shared_path

from kvcap.models import ModelBytesOptions, catalog, model_bytes, resolve_model


def test_every_public_value_of_logical_bytes_is_met_to_the_byte() -> None:
    golden = json.loads(shared_path("golden/model_bytes.json").read_text())
    assert len({row[0] for row in golden["rows"]}) == 57
    wrong = []
    for name, tokens, kv_precision, indexer_precision, draft, bytes_per_token, total_bytes in golden["rows"]:
        options = ModelBytesOptions(
            kv_precision=kv_precision,
            indexer_precision=indexer_precision,
            include_draft_kv_cache=draft,
        )
        cost = model_bytes(resolve_model(name), options)
        # Totals are whole numbers, exact as floats; bytes per token are the float nearest to the quotient.
        found = cost.total_bytes(tokens), float(cost.bytes_per_token(tokens))
        if found != (Fraction(total_bytes), bytes_per_token):
            wrong.append((name, tokens, kv_precision, indexer_precision, draft, found))
    assert wrong == []


def test_the_catalog_has_every_model_of_the_facts_with_its_source() -> None:
    facts = json.loads(shared_path("facts/models.json").read_text())
    columns = ("id", "name", "family", "max_context", "config_url", "retrieved")
    expected = [tuple(model[column] for column in columns) for model in facts]
    found = [(m.id, m.name, m.family, m.max_context, m.source, m.retrieved) for m in catalog()]
    assert found[: len(expected)] == expected
    assert len(expected) == 62


def test_layer_counts_of_the_catalog_are_those_of_the_facts() -> None:
    facts = json.loads(shared_path("facts/models.json").read_text())
    for model in facts:
        config = model["config"]
        groups = resolve_model(model["id"]).attention.groups(include_draft=False)
        layers = sum(group.layers for group in groups if group.name[:5] != "index")
        stored = config.get("stored_layers", config["num_hidden_layers"])
        if model["attention"] == "inkling_hybrid":
            # Each layer has keys and values, and convolutions.
            assert layers == 2 * stored, model["id"]
        elif not model["attention"].startswith("deepseek_v4"):
            assert layers == stored, model["id"]

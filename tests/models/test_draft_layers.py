"""Layers that draft ahead, where they have the shape of the others."""

from __future__ import annotations

import pytest

from kvcap.errors import ModelError
from kvcap.models.groups import HeadGroup, IndexGroup, LatentGroup
from kvcap.models.kinds.uniform import Heads, Latent, SparseHeads, SparseLatent

HEADS = HeadGroup("keys and values", 30, 8, 128, 64)
LATENTS = LatentGroup("latents", 61, 512, 64)


def test_draft_layers_are_counted_only_where_that_is_asked_and_there_are_any() -> None:
    for attention in (Heads(30, 8, 128, 64), Latent(61, 512, 64)):
        assert len(attention.groups(include_draft=True)) == 1
        assert attention.groups(include_draft=True) == attention.groups(include_draft=False)
    assert Heads(30, 8, 128, 64, draft_layers=3).groups(include_draft=False) == (HEADS,)
    assert Latent(61, 512, 64, draft_layers=2).groups(include_draft=False) == (LATENTS,)


def test_draft_layers_have_the_shape_of_the_others() -> None:
    heads = Heads(30, 8, 128, 64, draft_layers=3).groups(include_draft=True)
    assert heads == (HEADS, HeadGroup("keys and values, draft layers", 3, 8, 128, 64))
    latents = Latent(61, 512, 64, draft_layers=2).groups(include_draft=True)
    assert latents == (LATENTS, LatentGroup("latents, draft layers", 2, 512, 64))


def test_values_are_as_long_as_keys_unless_told() -> None:
    (group,) = Heads(2, 1, 96).groups(include_draft=True)
    assert group == HeadGroup("keys and values", 2, 1, 96, 96)


def test_draft_layers_may_share_selections_too() -> None:
    attention = SparseLatent(78, 512, 64, 128, 21, draft_layers=3, draft_indexer_layers=1)
    main = (
        LatentGroup("latents", 78, 512, 64, sparse=True),
        IndexGroup("index keys", 21, 128, sharing_layers=57),
    )
    assert attention.groups(include_draft=False) == main
    assert attention.groups(include_draft=True) == (
        *main,
        LatentGroup("latents, draft layers", 3, 512, 64, sparse=True),
        IndexGroup("index keys, draft layers", 1, 128, sharing_layers=2),
    )
    assert SparseLatent(78, 512, 64, 128, 21).groups(include_draft=True) == main


def test_there_are_no_more_indexers_than_layers() -> None:
    SparseLatent(2, 8, 8, 8, 2, draft_layers=1, draft_indexer_layers=1)
    with pytest.raises(ModelError, match="more indexers than layers"):
        SparseLatent(2, 8, 8, 8, 3)
    with pytest.raises(ModelError, match="more indexers than layers"):
        SparseLatent(2, 8, 8, 8, 2, draft_layers=1, draft_indexer_layers=2)


def test_index_keys_of_sparse_heads_are_those_of_its_sparse_layers() -> None:
    assert SparseHeads(62, 8, 128, 64, 59).groups(include_draft=True) == (
        HeadGroup("keys and values", 62, 8, 128, 128),
        IndexGroup("index keys", 59, 64),
    )

"""What a replay kept apart inside one cache, in sentences that say how to undo it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from kvcap.formats.identity import parts_of

IDENTITY_COLUMNS: Final = ("namespace", "pool", "media_hashes", "media_offsets")

_NAMES: Final = {
    "model": ("model", "models"),
    "adapter": ("adapter", "adapters"),
    "cache_salt": ("cache salt", "cache salts"),
    "extra_key": ("extra key", "extra keys"),
}


def identity_notices(columns: pa.Table) -> list[str]:
    """Return what was kept apart, from the columns ``IDENTITY_COLUMNS`` of all requests."""
    notices = []
    namespaces = columns.column("namespace")
    if namespaces.null_count < len(namespaces):
        pairs = columns.select(["pool", "namespace"]).group_by(["pool", "namespace"]).aggregate([])
        pools = pairs.column("pool").to_pylist()
        # Where each cache has one namespace of its own there is nothing to tell.
        if len(set(pools)) < len(pools):
            notices.append(_apart(set(pairs.column("namespace").to_pylist())))
    media = columns.column("media_hashes")
    if media.null_count < len(media):
        import pyarrow.compute as pc

        unplaced = pc.and_(pc.is_valid(media), pc.is_null(columns.column("media_offsets")))
        count = pc.sum(
            pc.and_(unplaced, pc.fill_null(pc.greater(pc.list_value_length(media), 0), False))
        ).as_py()
        if count:
            notices.append(
                f"{count:,} requests have images or the like whose place in the prompt the log does not say: "
                "they share no block with requests of other ones, from the first block on"
            )
    return notices


def _apart(namespaces: Iterable[str | None]) -> str:
    """Return the sentence on namespaces that share caches."""
    parts = [{} if namespace is None else parts_of(namespace) for namespace in namespaces]
    values: dict[str, set[str | None]] = {}
    for name in {name for part in parts for name in part}:
        values[name] = {part.get(name) for part in parts}
    differing = [name for name in [*_NAMES, *sorted(values.keys() - _NAMES)] if len(values.get(name, ())) > 1]
    if not differing:
        return (
            f"{len(parts):,} namespaces in one cache of each capacity; nothing is shared between them; "
            "--namespace none makes them one"
        )
    what = _listed([_counted(name, values[name]) for name in differing])
    undo = "--namespace none makes them one"
    if "model" in differing:
        others = "" if len(differing) == 1 else "; --namespace model keeps models alone apart"
        undo = (
            f"--pool model gives each its own{others}; if these names are aliases of one model, "
            "--namespace none"
        )
    return f"{what} in one cache of each capacity; nothing is shared between them; {undo}"


def _counted(name: str, values: set[str | None]) -> str:
    count = len(values - {None})
    singular, plural = _NAMES.get(name, (f"value of {name}", f"values of {name}"))
    without = " and requests without one" if None in values else ""
    return f"{count:,} {singular if count == 1 else plural}{without}"


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"

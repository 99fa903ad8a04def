"""The catalog of models: loading, validation against each kind's facts, and finding a model by name."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kvcap.errors import ModelError
from kvcap.models.kinds import KINDS, Attention

CATALOG_PATH: Final = Path(__file__).with_name("catalog.json")
_NEAREST: Final = 4
_MAY_BE_ZERO: Final = frozenset(
    {"qk_rope_head_dim", "window_qk_rope_head_dim", "full_layers", "window_layers"}
)
"""Facts without a default that are 0 in some models: no rotary part, no layers of one sort."""


@dataclass(frozen=True)
class Model:
    """A model, as far as its cache is concerned.

    Parameters
    ----------
    id, name, family
        How to ask for it, what people call it, and whose it is.
    kind
        Its kind of attention, a key of :data:`kvcap.models.kinds.KINDS`.
    attention
        The facts of that kind.
    max_context
        Tokens that it was made for; None when unknown.
    source, retrieved
        Where the facts stand, and when they were read there (ISO date); None where no one of us did.
    basis
        What the facts rest on instead where their source was not read; None where it was.
    notes
        What the figures leave out.
    kv_precision
        The cache's format where the checkpoint says it, as engines take it by default; None otherwise.
    """

    id: str
    name: str
    family: str
    kind: str
    attention: Attention
    max_context: int | None
    source: str
    retrieved: str | None = None
    basis: str | None = None
    notes: tuple[str, ...] = ()
    kv_precision: str | None = None

    @property
    def provenance(self) -> str:
        """Where the facts are from, or where they are to be checked."""
        if self.basis is not None:
            return f"facts not read, to be checked against {self.source}"
        return f"facts from {self.source}{f', read {self.retrieved}' if self.retrieved else ''}"

    @property
    def caveats(self) -> tuple[str, ...]:
        """What to know wherever a figure of the model is shown: facts that were not read, then the notes."""
        if self.basis is None:
            return self.notes
        return (f"{self.id}: its config.json was not read; its facts rest on {self.basis}", *self.notes)


@functools.cache
def catalog() -> tuple[Model, ...]:
    """Return the models that kvcap knows, in the order of the catalog."""
    return load_models(CATALOG_PATH)


def load_models(path: Path) -> tuple[Model, ...]:
    """Return the models of a catalog file.

    Raises
    ------
    ModelError
        If it is not JSON of the catalog's shape, or an entry's facts are not those of its kind.
    OSError
        If it cannot be read.
    """
    entries = read_json(path)
    if isinstance(entries, dict):
        entries = entries.get("models")
    if not isinstance(entries, list):
        raise ModelError(f"{path}: expected a list of models, or an object with one under 'models'")
    models = tuple(_model(f"{path}: model {i}", entry) for i, entry in enumerate(entries))
    ids = [model.id for model in models]
    for model_id in ids:
        if ids.count(model_id) > 1:
            raise ModelError(f"{path}: found {model_id!r} twice, expected every id once")
    return models


def read_json(path: Path) -> Any:
    """Return a file's JSON.

    Raises
    ------
    ModelError
        If it is none.
    OSError
        If it cannot be read.
    """
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise ModelError(f"{path}: is not JSON ({error})") from error


def find(name: str, models: tuple[Model, ...]) -> Model:
    """Return the model of that id, name or Hugging Face repository, in any case.

    Raises
    ------
    ModelError
        If there is none; the message offers the nearest ids.
    """
    wanted = name.strip().lower()
    for model in models:
        if wanted in _names(model):
            return model
    base = wanted.rsplit("/", 1)[-1]
    for model in models:
        if base in _names(model):
            return model
    nearest = difflib.get_close_matches(base, [model.id for model in models], _NEAREST, cutoff=0.5)
    hint = f"did you mean {', '.join(nearest)}?" if nearest else "`kvcap models` lists them"
    raise ModelError(f"model {name!r} is not in the catalog, and no file of that name exists: {hint}")


def build_attention(kind: str, facts: dict[str, Any], where: str) -> Attention:
    """Return a kind of attention from its facts.

    Raises
    ------
    ModelError
        If the kind is unknown, or a fact is missing, unknown or of the wrong type; ``where`` says of what.
    """
    if kind not in KINDS:
        raise ModelError(f"{where}: kind is {kind!r}, expected one of {', '.join(KINDS)}")
    attention_type = KINDS[kind]
    hints = _type_hints(attention_type)
    fields = {field.name: field for field in dataclasses.fields(attention_type)}  # type: ignore[arg-type]
    missing = [
        name for name, field in fields.items() if name not in facts and field.default is dataclasses.MISSING
    ]
    unknown = [name for name in facts if name not in fields]
    if missing or unknown:
        found = ", ".join(f"no {name}" for name in missing) or f"the unknown {', '.join(unknown)}"
        raise ModelError(f"{where}: found {found}, expected the facts of {kind}: {', '.join(fields)}")
    checked = {
        name: _fact(where, name, value, hints[name], least=int(fields[name].default != 0))
        for name, value in facts.items()
    }
    try:
        return attention_type(**checked)
    except ModelError as error:
        raise ModelError(f"{where}: {error}") from error


@functools.cache
def _type_hints(attention_type: type[Attention]) -> dict[str, Any]:
    return typing.get_type_hints(attention_type)


def _names(model: Model) -> set[str]:
    repository = model.source.split("huggingface.co/", 1)[-1].split("/")[:2]
    return {model.id.lower(), model.name.lower(), "/".join(repository).lower(), repository[-1].lower()}


def _model(where: str, entry: Any) -> Model:
    if not isinstance(entry, dict):
        raise ModelError(f"{where}: expected an object")
    entry = dict(entry)
    facts = entry.pop("facts", None)
    texts = {name: entry.pop(name, None) for name in ("id", "name", "family", "kind", "source")}
    origin = {name: entry.pop(name, None) for name in ("retrieved", "basis")}
    for name, value in texts.items():
        if not isinstance(value, str) or not value:
            raise ModelError(f"{where}: {name} is {value!r}, expected a text")
    where = f"{where} ({texts['id']})"
    max_context = entry.pop("max_context", None)
    notes = entry.pop("notes", [])
    if not isinstance(notes, list) or not all(isinstance(note, str) and note for note in notes):
        raise ModelError(f"{where}: notes is {notes!r}, expected a list of texts")
    if entry:
        raise ModelError(f"{where}: found the unknown {', '.join(entry)}")
    if not isinstance(facts, dict):
        raise ModelError(f"{where}: facts is {facts!r}, expected an object")
    if max_context is not None:
        max_context = _fact(where, "max_context", max_context, int)
    _check_origin(where, **origin)
    attention = build_attention(texts["kind"], facts, where)
    return Model(attention=attention, max_context=max_context, notes=tuple(notes), **texts, **origin)


def _check_origin(where: str, retrieved: object, basis: object) -> None:
    """Every entry was read at its source on a day, or says what it rests on."""
    if (retrieved is None) == (basis is None):
        raise ModelError(
            f"{where}: expected either retrieved, the date when its source was read, or basis, what its "
            "facts rest on where it was not"
        )
    name, value = ("basis", basis) if retrieved is None else ("retrieved", retrieved)
    if not isinstance(value, str) or not value:
        raise ModelError(f"{where}: {name} is {value!r}, expected a text")


def _fact(where: str, name: str, value: Any, hint: Any, *, least: int = 1) -> Any:
    """Return a fact as the type that its dataclass declares: a whole number, or a list of them."""
    allowed = typing.get_args(hint) if typing.get_origin(hint) in {types.UnionType, typing.Union} else (hint,)
    if name in _MAY_BE_ZERO:
        least = 0
    if value is None and type(None) in allowed:
        return None
    if int in allowed and _is_count(value) and value >= least:
        return value
    if tuple[int, ...] in allowed and isinstance(value, list | tuple) and all(map(_is_count, value)):
        return tuple(value)
    expected = f"a whole number from {least}" if int in allowed else "a list of whole numbers from 0"
    raise ModelError(f"{where}: {name} is {value!r}, expected {expected}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0

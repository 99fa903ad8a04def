"""Bytes of a model's KV cache: from its name or ``config.json`` to bytes per token, term by term.

Examples
--------
>>> from kvcap.models import ModelBytesOptions, model_bytes, resolve_model
>>> deployment = ModelBytesOptions(kv_precision="fp8", layout="sglang")
>>> model_bytes(resolve_model("glm-5.2"), deployment).bytes_per_token(1)
Fraction(53940, 1)
"""

from __future__ import annotations

from pathlib import Path

from kvcap.errors import ModelError, UsageError
from kvcap.models.calibrate import Calibration, Measured, calibrate, calibrated, calibration
from kvcap.models.catalog import Model, catalog, find, load_models, read_json
from kvcap.models.deployment import SCOPES, ModelBytesOptions
from kvcap.models.huggingface import recognize
from kvcap.models.kinds import KINDS
from kvcap.models.layouts import LAYOUTS, SPARSE_BACKENDS
from kvcap.models.sizing import ModelBytes, model_bytes
from kvcap.models.start_up import StartUp, read_start_up
from kvcap.models.terms import Term

__all__ = [
    "KINDS",
    "LAYOUTS",
    "SCOPES",
    "SPARSE_BACKENDS",
    "Calibration",
    "Measured",
    "Model",
    "ModelBytes",
    "ModelBytesOptions",
    "StartUp",
    "Term",
    "calibrate",
    "calibrated",
    "calibration",
    "catalog",
    "known_models",
    "model_bytes",
    "read_start_up",
    "resolve_model",
]


def known_models(models_file: str | Path | None = None) -> tuple[Model, ...]:
    """Return the catalog, with a user's own models first; an id of theirs replaces ours.

    Raises
    ------
    ModelError
        If the file is not of the catalog's shape.
    OSError
        If it cannot be read.
    """
    if models_file is None:
        return catalog()
    own = load_models(Path(models_file))
    ids = {model.id for model in own}
    return own + tuple(model for model in catalog() if model.id not in ids)


def resolve_model(
    name_or_path: str, *, models_file: str | Path | None = None, assume: str | None = None
) -> Model:
    """Return a model from its name in the catalog, or from a ``config.json``.

    Parameters
    ----------
    name_or_path
        An id, a name or a Hugging Face repository of the catalog, in any case; or a ``config.json``, or a
        directory with one.
    models_file
        A file of more models, of the catalog's shape.
    assume
        A kind of attention to take for a ``config.json`` in spite of fields that we do not understand.

    Raises
    ------
    ModelError
        If the name is unknown (the nearest are offered), or a config cannot be accounted for.
    UsageError
        If ``assume`` is no kind, or is given for a model of the catalog.
    OSError
        If a file cannot be read.
    """
    path = Path(name_or_path)
    if path.is_dir():
        path = path / "config.json"
    if path.is_file():
        return recognize(read_json(path), path, assume)
    if path.suffix == ".json":
        raise ModelError(f"{name_or_path}: no such file")
    model = find(name_or_path, known_models(models_file))
    if assume is not None:
        raise UsageError(
            f"assumed kind is {assume!r} for {model.id} of the catalog, expected a config.json with it"
        )
    return model

"""Settings of the service from flags, environment and a file, each checked by its field.

A setting is found, in this order, among the flags, as ``KVCAP_<NAME>`` in the environment, in the file or
inline JSON of ``--config``, or it has its default. Names that nobody knows are refused, numbers are exact.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import Field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from kvcap.errors import MissingExtraError, UsageError
from kvcap.online.server.options import ServeOptions
from kvcap.option_fields import changed, name_of, spoken_fields, value_of
from kvcap.tokenize.options import TokenizeOptions

ENVIRONMENT_PREFIX: Final = "KVCAP_"
_SYNONYMS: Final = {"page_size": "block_size"}

TOKENIZING: Final[tuple[str, ...]] = ("tokenizer", "backend", "engine_url", "workers")
"""What mirrored texts need of :class:`TokenizeOptions`."""

SETTINGS: Final[dict[str, Field[Any]]] = {
    name_of(part): part
    for part in (
        *spoken_fields(ServeOptions),
        *(part for part in spoken_fields(TokenizeOptions) if part.name in TOKENIZING),
    )
}
"""Every setting, with the field that says what it means."""


def serve_options(
    flags: Mapping[str, Any], environment: Mapping[str, str], config: str | None
) -> ServeOptions:
    """Return the options that flags, environment and configuration come to.

    Parameters
    ----------
    flags
        Values by setting; None where a flag was not given.
    environment
        Environment variables.
    config
        A TOML or JSON file, or inline JSON (begins with ``{``).

    Raises
    ------
    UsageError
        If a setting is unknown, missing, or not what it should be.
    """
    given: dict[str, Any] = {}
    for name, value in ({} if config is None else read_config(config)).items():
        setting = _SYNONYMS.get(name, name)
        if setting not in SETTINGS:
            raise UsageError(f"the configuration holds {name}, expected only {', '.join(SETTINGS)}")
        if setting in given:
            raise UsageError(f"the configuration holds both {setting} and {name}, expected one of them")
        given[setting] = value
    for setting in SETTINGS:
        variable = ENVIRONMENT_PREFIX + setting.upper()
        if environment.get(variable):
            given[setting] = environment[variable]
    given.update((name, value) for name, value in flags.items() if value is not None)
    texts = {name: _text(value, name) for name, value in given.items()}
    return _options(
        {SETTINGS[name].name: value_of(SETTINGS[name], text, name) for name, text in texts.items()}
    )


def read_config(config: str) -> dict[str, Any]:
    """Return the settings of a TOML or JSON file, or of inline JSON; decimal numbers are exact.

    Raises
    ------
    UsageError
        If it does not parse.
    """
    inline = config.lstrip().startswith("{")
    text = config if inline else Path(config).read_text(encoding="utf-8")
    where = "--config" if inline else config
    try:
        as_json = inline or config.endswith(".json")
        found = json.loads(text, parse_float=Decimal) if as_json else _toml(text)
    except ValueError as error:
        raise UsageError(f"{where} does not parse ({error}), expected TOML or a JSON object") from error
    if not isinstance(found, dict):
        raise UsageError(f"{where} is no object, expected settings by name")
    return found


def _toml(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ModuleNotFoundError as error:
            raise MissingExtraError("--config with a TOML file", "serve") from error
    found: dict[str, Any] = tomllib.loads(text, parse_float=Decimal)
    return found


def _text(value: Any, name: str) -> str:
    """Return a setting as an option has it; a file may hold numbers, truths and lists."""
    if isinstance(value, list):
        # A number among sizes is bytes.
        return ",".join(f"{part}B" if isinstance(part, int) else _text(part, name) for part in value)
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, (str, int, Decimal)) or value == "":
        raise UsageError(f"{name} is {value!r}, expected text or a number")
    return str(value)


def _options(given: dict[str, Any]) -> ServeOptions:
    """Return the options of values by their fields."""
    if "kv_bytes_per_token" not in given:
        raise UsageError("the service needs --kv-bytes-per-token")
    tokenizing = {name: given.pop(name) for name in TOKENIZING if name in given}
    if "output_path" in given:
        given.setdefault("record", f"{given['output_path']}.log")
    if "tokenizer" in tokenizing:
        given.setdefault("served_model", tokenizing["tokenizer"])
    plain = ServeOptions(given.pop("kv_bytes_per_token"))
    return changed(plain, {**given, "tokenize": _tokenize_options(tokenizing)})


def _tokenize_options(given: dict[str, Any]) -> TokenizeOptions | None:
    if not given.keys() - {"workers"}:
        return None
    if "engine_url" in given:
        given.setdefault("backend", "engine")
    return TokenizeOptions(**given, multimodal="placeholder", engine_retries=0)

"""Settings of the service from flags, environment and a file, each checked by its own parser.

A setting is found, in this order, among the flags, as ``KVCAP_<NAME>`` in the environment, in the file or
inline JSON of ``--config``, or it has its default. Names that nobody knows are refused, numbers are exact.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from kvcap.blocks.options import DEFAULT_TOKEN_BLOCK_SIZE, BlockOptions
from kvcap.errors import MissingExtraError, UsageError
from kvcap.online.server.options import Limits, ServeOptions
from kvcap.queries.capacities import DEFAULT_CAPACITIES
from kvcap.tokenize import BACKENDS, TokenizeOptions
from kvcap.units import parse_capacity, parse_number, parse_size_bytes

ENVIRONMENT_PREFIX: Final = "KVCAP_"
_SYNONYMS: Final = {"page_size": "block_size"}

Parser = Callable[[Any, str], Any]


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name} is {value!r}, expected text")
    return value


def _number(value: Any, name: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (str, int, Decimal)):
        raise UsageError(f"{name} is {value!r}, expected a number above 0")
    return parse_number(str(value), name)


def _seconds(value: Any, name: str) -> float:
    return float(_number(value, name))


def _count(value: Any, name: str) -> int:
    number = _number(value, name)
    if number.denominator != 1:
        raise UsageError(f"{name} is {value!r}, expected a whole number above 0")
    return int(number)


def _port(value: Any, name: str) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal() or int(text) > 65535:
        raise UsageError(f"{name} is {value!r}, expected 0 (any free one) to 65535")
    return int(text)


def _size(value: Any, name: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return _count(value, name)
    return parse_size_bytes(_text(value, name), name)


def _share(value: Any, name: str) -> Fraction:
    share = _number(value, name)
    if share > 1:
        raise UsageError(f"{name} is {value!r}, expected above 0 to 1")
    return share


def _flag(value: Any, name: str) -> bool:
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    found = known.get(str(value).lower())
    if found is None:
        raise UsageError(f"{name} is {value!r}, expected true or false")
    return found


def _one_of(*choices: str) -> Parser:
    def parse(value: Any, name: str) -> str:
        if value not in choices:
            raise UsageError(f"{name} is {value!r}, expected {' or '.join(choices)}")
        return str(value)

    return parse


def _names(value: Any, name: str) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) and part.strip() for part in parts):
        raise UsageError(f"{name} is {value!r}, expected names such as kvcap.example.com,*.example.org")
    return tuple(part.strip() for part in parts)


def _capacities(value: Any, name: str) -> list[Any]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not parts:
        raise UsageError(f"{name} is {value!r}, expected sizes such as 640GiB,2TiB")
    return [part for part in parts if not isinstance(part, str) or part.strip()]


SETTINGS: Final[dict[str, Parser]] = {
    "kv_bytes_per_token": _number,
    "block_size": _count,
    "capacities": _capacities,
    "max_capacity": _size,
    "target_hit_rate_ratio": _share,
    "slide_window_size": _count,
    "slide_window_seconds": _seconds,
    "include_partial_page": _flag,
    "touch_order": _one_of("tail-first", "head-first"),
    "max_pools": _count,
    "output_path": _text,
    "record": _text,
    "record_seconds": _seconds,
    "durable": _flag,
    "state": _text,
    "state_seconds": _seconds,
    "tokenizer": _text,
    "tokenize_backend": _one_of(*BACKENDS),
    "engine_url": _text,
    "tokenize_workers": _count,
    "served_model": _text,
    "host": _text,
    "port": _port,
    "api_key": _text,
    "allowed_hosts": _names,
    "max_pending": _count,
    "max_body_size": _size,
    "max_ids_per_request": _count,
    "body_timeout_seconds": _seconds,
    "max_connections": _count,
}
"""Every setting, with what parses and checks its value."""


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
    return _options({name: SETTINGS[name](value, name) for name, value in given.items()})


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


def _options(given: dict[str, Any]) -> ServeOptions:
    if "kv_bytes_per_token" not in given:
        raise UsageError("the service needs --kv-bytes-per-token")
    capacities = _capacities_bytes(given)
    renamed = {
        "target_hit_rate_ratio": "target",
        "slide_window_size": "window_requests",
        "slide_window_seconds": "window_seconds",
    }
    limits = {
        "max_pending": "max_pending",
        "max_body_size": "max_body_bytes",
        "max_ids_per_request": "max_ids_per_request",
        "body_timeout_seconds": "body_timeout_s",
        "max_connections": "max_connections",
    }
    own = set(ServeOptions.__dataclass_fields__)
    values = {renamed.get(name, name): value for name, value in given.items()}
    values = {name: value for name, value in values.items() if name in own}
    blocks = BlockOptions(given.get("block_size", DEFAULT_TOKEN_BLOCK_SIZE))
    if "include_partial_page" in given:
        blocks = replace(blocks, partial_block="keep" if given["include_partial_page"] else "drop")
    if "output_path" in given:
        values.setdefault("record", f"{given['output_path']}.log")
    tokenize = _tokenize_options(given)
    if tokenize is not None and "served_model" not in given and tokenize.tokenizer is not None:
        values["served_model"] = tokenize.tokenizer
    return ServeOptions(
        **values,
        blocks=blocks,
        capacities_bytes=capacities,
        max_capacity_bytes=given.get("max_capacity", capacities[-1]),
        tokenize=tokenize,
        limits=Limits(**{limits[name]: value for name, value in given.items() if name in limits}),
    )


def _capacities_bytes(given: dict[str, Any]) -> tuple[int, ...]:
    """Return the capacities in bytes, ascending."""
    found = set()
    for part in given.get("capacities") or DEFAULT_CAPACITIES.split(","):
        if not isinstance(part, str):
            found.add(_count(part, "capacities"))
            continue
        capacity = parse_capacity(part.strip(), "capacities")
        per_unit = {
            "bytes": Fraction(1),
            "tokens": given["kv_bytes_per_token"],
            "blocks": Fraction(
                -(-given["kv_bytes_per_token"] * given.get("block_size", DEFAULT_TOKEN_BLOCK_SIZE) // 1)
            ),
        }[capacity.unit]
        found.add(int(capacity.amount * per_unit))
    return tuple(sorted(found))


def _tokenize_options(given: dict[str, Any]) -> TokenizeOptions | None:
    if not {"tokenizer", "engine_url", "tokenize_backend"} & given.keys():
        return None
    return TokenizeOptions(
        tokenizer=given.get("tokenizer"),
        backend=given.get("tokenize_backend", "engine" if "engine_url" in given else "huggingface"),
        engine_url=given.get("engine_url"),
        workers=given.get("tokenize_workers", 4),
        multimodal="placeholder",
        engine_retries=0,
    )

"""The fields of a ``config.json``: typed reading that remembers what was read.

Whatever is neither read by a builder nor benign is a field that we do not understand.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from kvcap.errors import ModelError

_BENIGN_LINES: Final = Path(__file__).with_name("benign_fields.txt").read_text(encoding="utf-8").splitlines()
_BENIGN_NAMES: Final = frozenset(
    name for line in _BENIGN_LINES if not line.startswith("#") for name in line.split()
)
_BENIGN_PATTERNS: Final = re.compile(
    "|".join(
        (
            r".*token_ids?|.*token_index|.*_token",
            r".*_eps|.*epsilon|.*dropout.*|.*_pdrop|initializer.*|.*_init(ializer)?_range",
            r"rope_.*|.*_?rope_theta|.*rope_interleave|rotary_.*|partial_rotary_.*|mrope_.*|.*rope_parameters",
            r"rope_local_base_freq|use_yarn|yarn_.*",
            r".*(expert|moe|router|routed).*",
            r"hc_.*|mhc|mhc_.*|engram_.*|dspark_.*|candidate_.*",
            r".*softcap(ping)?|logit.*|logits.*|.*_multipliers?|layernorm_.*|.*_(alpha|beta)_factor",
            r".*_bias",
            r"(.*_)?(vision|audio|image|video|visual|multimodal)(_.*)?|(mm|projector)_.*",
        )
    )
)
_BENIGN_WHEN_FALSE: Final = frozenset({"add_cross_attention", "is_encoder_decoder"})
_NESTED_TEXT: Final = ("thinker_config", "text_config", "llm_config", "language_config")
_DEFAULTS: Final[dict[str, dict[str, Any]]] = json.loads(
    Path(__file__).with_name("defaults.json").read_text(encoding="utf-8")
)
"""Fields that configs of an architecture may leave out, by model type, with its published defaults."""

_SHAPE: Final = re.compile(
    r".*(mamba|ssm|conv_|_conv|linear_|lightning|hybrid|window|sliding|chunk|recurrent|rwkv|retention|retnet"
    r"|kv_|_kv|key_value|groups?_num|attention_groups|layer_types|layers_block_type|attn_layer|attention_layer|attn_every"
    r"|attn_type|kv_lora|index_head|share|cross_attention|latent|encoder_decoder).*"
)
"""Fields whose names show that layers keep something else than keys and values of every head."""

_MISSING: Final = object()


def is_benign(name: str, value: object) -> bool:
    """Return whether a field has no part in the cache's size."""
    if name in _BENIGN_WHEN_FALSE:
        return value is False
    return name in _BENIGN_NAMES or _BENIGN_PATTERNS.fullmatch(name) is not None


def language_fields(config: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the language model: the nested ones, then those around them."""
    for nested in _NESTED_TEXT:
        if isinstance(config.get(nested), dict):
            around = {name: value for name, value in config.items() if name != nested}
            return {**around, **language_fields(config[nested])}
    return config


class Fields:
    """The fields of an object, each marked as understood once it is read.

    Parameters
    ----------
    values
        The object; fields that are null count as absent.
    where
        What opens an error's message.
    prefix
        What stands before names in messages, for nested objects.
    """

    def __init__(self, values: dict[str, Any], where: str, prefix: str = "") -> None:
        defaults = {} if prefix else _DEFAULTS.get(str(values.get("model_type")), {})
        self._defaults = {name: value for name, value in defaults.items() if name not in values}
        self._values = {name: value for name, value in values.items() if value is not None}
        self._where = where
        self._prefix = prefix
        self._read: set[str] = set()
        self._nested: list[Fields] = []
        self.notes: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._values or name in self._defaults

    def any(self, name: str) -> Any:
        """Return a field of any type, None when absent; an architecture's default is noted."""
        self._read.add(name)
        if name in self._defaults:
            value = self._defaults[name]
            note = f"{name} is left out and taken as the architecture's default, {value}"
            self.notes += [] if note in self.notes else [note]
            return value
        return self._values.get(name)

    def ignore(self, *names: str) -> None:
        """Mark fields as understood that say nothing more about the cache."""
        self._read.update(names)

    def count(self, name: str, *fallbacks: str, default: Any = _MISSING) -> int:
        """Return a whole number, from the first of several names that is present.

        Raises
        ------
        ModelError
            If it is no whole number from 0, or absent without a default.
        """
        for candidate in (name, *fallbacks):
            value = self.any(candidate)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise self.error(f"{candidate} is {value!r}, expected a whole number from 0")
            return value
        if default is _MISSING:
            raise self.error(f"found no {' or '.join((name, *fallbacks))}, expected a whole number")
        return int(default)

    def flag(self, name: str, default: bool) -> bool:
        """Return a truth value.

        Raises
        ------
        ModelError
            If it is none.
        """
        value = self.any(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(f"{name} is {value!r}, expected true or false")
        return value

    def items(self, name: str) -> list[Any]:
        """Return a list.

        Raises
        ------
        ModelError
            If it is none, or absent.
        """
        value = self.any(name)
        if not isinstance(value, list):
            raise self.error(f"{name} is {value!r}, expected a list")
        return value

    def counts(self, name: str) -> list[int]:
        """Return a list of whole numbers.

        Raises
        ------
        ModelError
            If it is none, or absent.
        """
        values = self.items(name)
        if not all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values):
            raise self.error(f"{name} is not a list of whole numbers from 0")
        return values

    def object(self, name: str) -> Fields:
        """Return a nested object, whose unread fields count too.

        Raises
        ------
        ModelError
            If it is none, or absent.
        """
        value = self.any(name)
        if not isinstance(value, dict):
            raise self.error(f"{name} is {value!r}, expected an object")
        nested = Fields(value, self._where, f"{self._prefix}{name}.")
        self._nested.append(nested)
        return nested

    def unread(self) -> list[str]:
        """Return the fields that were not read and do have a part in the cache, as far as we can tell."""
        own = [
            f"{self._prefix}{name}"
            for name, value in self._values.items()
            if name not in self._read and value not in ({}, []) and not is_benign(name, value)
        ]
        return own + [name for nested in self._nested for name in nested.unread()]

    def structural(self) -> list[str]:
        """Return those of the fields not understood that show another architecture than the one read."""
        return [name for name in self.unread() if _SHAPE.fullmatch(name) is not None]

    def error(self, reason: str) -> ModelError:
        """Return an error about this object."""
        prefix = f"{self._prefix.rstrip('.')}: " if self._prefix else ""
        return ModelError(f"{self._where}: {prefix}{reason}")

"""Prompts as text of one line: hash ids and token ids.

A session's prompt mostly repeats what it sent before, so a :class:`Context` keeps the text of its ids and
adds only to the end. Writing a request is then a copy, and only new blocks or tokens cost a conversion of
numbers.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from kvcap.synth.draws import Draws

if TYPE_CHECKING:
    from kvcap.synth.options import SynthOptions

Role = Literal["system", "user", "assistant", "call", "tool"]
"""Who speaks; ``call`` is an assistant's tool call and ``tool`` its result."""

_THREE_DIGITS: Final = tuple(b"%03d" % number for number in range(1000))
_PLAIN_DIGITS: Final = tuple(b"%d" % number for number in range(1000))
_ROOT: Final = 0


@dataclass(frozen=True)
class Segment:
    """A text that many prompts contain: a system prompt, a user's notes, a document.

    Parameters
    ----------
    name
        Unique; its content follows from it and the seed.
    tokens
        Its length.
    """

    name: str
    tokens: int


class Context(ABC):
    """A prompt that grows message by message.

    Attributes
    ----------
    tokens
        Its length so far.
    text
        Its ids or messages so far, separated by commas.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self.text = bytearray()
        self._mark = (0, 0)

    @abstractmethod
    def add(self, role: Role, own_tokens: int, shared: tuple[Segment, ...] = ()) -> None:
        """Append one message: shared texts, then ``own_tokens`` that occur nowhere else."""

    @abstractmethod
    def fields(self) -> tuple[bytes, bytes, bytes]:
        """Return the fields of a request that hold its prompt, as their opening, body and ending.

        To be called once a request: an incomplete last block gets a new id each time.
        """

    def mark(self) -> None:
        """Remember this place."""
        self._mark = (self.tokens, len(self.text))

    def rewind(self) -> None:
        """Forget what came after the last mark."""
        self.tokens, size = self._mark
        del self.text[size:]

    def _append(self, text: bytes) -> None:
        if self.text:
            self.text += b","
        self.text += text


class Encoder(ABC):
    """Starts contexts of one kind and keeps what they have in common."""

    @abstractmethod
    def start(self) -> Context:
        """Return an empty prompt."""


class HashIds(Encoder):
    """Prompts as ids of their blocks, ``ceil(tokens / block_size)`` of them.

    New blocks get the next ids, from 0; the end of a session may leave some unused. Two blocks have one id
    exactly if they and all before them hold the same tokens. An incomplete last block has an id of its own:
    once complete it is another one.
    """

    def __init__(self, options: SynthOptions) -> None:
        self.block_size = options.block_size
        self._next_id = 0
        self._places: dict[tuple[int, str], tuple[int, int]] = {}

    def start(self) -> Context:
        """Return an empty prompt."""
        return _HashIdContext(self)

    def fresh(self, blocks: int) -> int:
        """Return the first of ``blocks`` new ids."""
        first = self._next_id
        self._next_id += blocks
        return first

    def shared(self, place: int, segment: Segment, blocks: int) -> tuple[int, int]:
        """Return where the prefix tree gets to from ``place`` by a segment, and the first id on the way."""
        key = (place, segment.name)
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = (len(self._places) + 1, self.fresh(blocks))
        return found


class _HashIdContext(Context):
    def __init__(self, encoder: HashIds) -> None:
        super().__init__()
        self._encoder = encoder
        self._place: int | None = _ROOT
        self._marked_place: int | None = _ROOT

    def add(self, role: Role, own_tokens: int, shared: tuple[Segment, ...] = ()) -> None:
        for segment in shared:
            blocks = self._lengthen(segment.tokens)
            if self._place is None:
                self._append_run(self._encoder.fresh(blocks), blocks)
            else:
                self._place, first = self._encoder.shared(self._place, segment, blocks)
                self._append_run(first, blocks)
        if own_tokens:
            blocks = self._lengthen(own_tokens)
            self._append_run(self._encoder.fresh(blocks), blocks)
            self._place = None

    def mark(self) -> None:
        super().mark()
        self._marked_place = self._place

    def rewind(self) -> None:
        super().rewind()
        self._place = self._marked_place

    def fields(self) -> tuple[bytes, bytes, bytes]:
        block_size = self._encoder.block_size
        body = bytes(self.text)
        if self.tokens % block_size:
            last = b"%d" % self._encoder.fresh(1)
            body = body + b"," + last if body else last
        return b'"block_size":%d,"input_length":%d,"hash_ids":[' % (block_size, self.tokens), body, b"]"

    def _lengthen(self, tokens: int) -> int:
        """Return how many blocks become complete."""
        before = self.tokens // self._encoder.block_size
        self.tokens += tokens
        return self.tokens // self._encoder.block_size - before

    def _append_run(self, first: int, blocks: int) -> None:
        if blocks:
            self._append(number_run(first, first + blocks))


class TokenIds(Encoder):
    """Prompts as token ids below 65,536, distributed by Zipf's law."""

    def __init__(self, options: SynthOptions) -> None:
        self._seed = options.seed
        self._texts = 0
        self._vocabulary = tuple(b"%d" % _zipf_token(number) for number in range(1 << 16))
        self.shared = lru_cache(maxsize=4096)(self._shared)

    def start(self) -> Context:
        """Return an empty prompt."""
        return _TokenIdContext(self)

    def fresh(self, tokens: int) -> bytes:
        """Return the ids of a text that occurs nowhere else."""
        self._texts += 1
        return self._ids(str(self._texts), tokens)

    def _shared(self, segment: Segment) -> bytes:
        return self._ids(segment.name, segment.tokens)

    def _ids(self, name: str, tokens: int) -> bytes:
        content = Draws(self._seed, "tokens", name).content(2 * tokens)
        numbers = struct.unpack(f"<{tokens}H", content)
        return b",".join(map(self._vocabulary.__getitem__, numbers))


class _TokenIdContext(Context):
    def __init__(self, encoder: TokenIds) -> None:
        super().__init__()
        self._encoder = encoder

    def add(self, role: Role, own_tokens: int, shared: tuple[Segment, ...] = ()) -> None:
        for segment in shared:
            self._append(self._encoder.shared(segment))
            self.tokens += segment.tokens
        if own_tokens:
            self._append(self._encoder.fresh(own_tokens))
            self.tokens += own_tokens

    def fields(self) -> tuple[bytes, bytes, bytes]:
        return b'"token_ids":[', bytes(self.text), b"]"


def number_run(first: int, stop: int) -> bytes:
    """Return ``first,first + 1,..,stop - 1`` as text.

    Joining the last three digits with the leading ones as separator takes a fraction of the time of a
    conversion per number.
    """
    parts = []
    while first < stop:
        thousands, low = divmod(first, 1000)
        high = min(1000, low + stop - first)
        lead = b"%d" % thousands if thousands else b""
        digits = _THREE_DIGITS if thousands else _PLAIN_DIGITS
        parts.append(lead + (b"," + lead).join(digits[low:high]))
        first += high - low
    return b",".join(parts)


def _zipf_token(number: int) -> int:
    """Map a 16-bit number to a token id: each octave of ids is equally likely, as under Zipf's law."""
    octave, position = divmod(number, 1 << 12)
    return (1 << octave) + (position << octave >> 12)

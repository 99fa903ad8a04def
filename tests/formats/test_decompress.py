"""Gzip streams in pieces."""

from __future__ import annotations

import gzip
import io
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isal import isal_zlib

from kvcap.formats.decompress import Prefixed, decompressed

CONTENTS = st.one_of(
    st.binary(max_size=3000),
    st.builds(lambda unit, times: unit * times, st.binary(min_size=1, max_size=40), st.integers(1, 20_000)),
)


class Dribble(io.BytesIO):
    """Gives a few bytes at a time, as a pipe does."""

    def __init__(self, data: bytes, most: int) -> None:
        super().__init__(data)
        self._most = most

    def read(self, size: int | None = -1) -> bytes:
        return super().read(self._most if size is None or size < 0 else min(size, self._most))


def read_all(data: bytes, most: int, size: int) -> bytes:
    stream = decompressed(Prefixed(b"", Dribble(data, most)), data[:6])
    return b"".join(iter(lambda: stream.read(size), b""))


@settings(max_examples=300)
@given(
    st.lists(st.tuples(CONTENTS, st.integers(0, 9)), min_size=1, max_size=4),
    st.integers(0, 20),
    st.sampled_from([1, 7, 4096, 1 << 18]),
    st.sampled_from([1, 100, 1 << 16, 4 << 20]),
)
def test_gzip_members_are_read_whole_in_pieces_of_any_size(
    members: list[tuple[bytes, int]], padding: int, most: int, size: int
) -> None:
    if size == 1:
        members = [(content[:500], level) for content, level in members]
    data = b"".join(gzip.compress(content, level) for content, level in members) + b"\0" * padding
    assert read_all(data, most, size) == b"".join(content for content, _ in members)


@given(CONTENTS, st.data())
def test_gzip_that_ends_early_is_never_taken_for_whole(content: bytes, data: st.DataObject) -> None:
    packed = gzip.compress(content)
    cut = packed[: data.draw(st.integers(2, len(packed) - 1))]
    with pytest.raises(EOFError):
        read_all(cut, 4096, 1 << 16)


@given(CONTENTS.filter(len), st.data())
def test_damaged_gzip_is_an_error_and_no_endless_loop(content: bytes, data: st.DataObject) -> None:
    packed = bytearray(gzip.compress(content))
    packed[data.draw(st.integers(len(packed) - 8, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises((EOFError, isal_zlib.IsalError)):
        read_all(bytes(packed), 4096, 1 << 16)


@settings(max_examples=500)
@given(st.binary(max_size=300))
def test_noise_after_a_gzip_header_ends(noise: bytes) -> None:
    with suppress(EOFError, isal_zlib.IsalError):
        read_all(gzip.compress(b"")[:10] + noise, 4096, 1 << 16)

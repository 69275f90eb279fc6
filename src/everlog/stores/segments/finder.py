"""What is asked of a part by name: where a stream stands, how far it got, who made a claim.

It is most of an index file, and who only reads through a log never asks: so a part has it only once somebody did.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from everlog.core.event import Position
from everlog.stores.contract import CLAIM_BYTES, Claim
from everlog.stores.segments.inside import Inside

if TYPE_CHECKING:
    from everlog.stores.segments.packed_index import Columns

_NONE: Sequence[int] = ()


class Finder:
    def __init__(self, columns: Columns) -> None:
        self._keys = numbers("Q", columns.stream_keys)
        self._seconds = numbers("Q", columns.stream_seconds)
        self._lasts = numbers("I", columns.stream_lasts)
        self._starts = numbers("I", columns.stream_starts)
        self._blocks = numbers("H", columns.stream_blocks)
        self.claim_names = columns.claim_names
        self._claim_keys = numbers("Q", _every_other_word(columns.claim_names), swap=True)
        self._claim_firsts = numbers("Q", columns.claim_firsts)
        self._claim_counts = numbers("I", columns.claim_counts)
        self.inside: Mapping[int, Inside] = dict(columns.inside)

    def stream_blocks(self, stream: str) -> Sequence[int]:
        place = self._stream(stream)
        return _NONE if place < 0 else self._blocks[self._starts[place] : self._starts[place + 1]]

    def last_sequence(self, stream: str) -> int:
        place = self._stream(stream)
        return 0 if place < 0 else self._lasts[place]

    def claim(self, name: bytes) -> Claim | None:
        key = int.from_bytes(name[:8], "big")
        place = bisect_left(self._claim_keys, key)
        while place < len(self._claim_keys) and self._claim_keys[place] == key:
            if self.claim_names[place * CLAIM_BYTES : (place + 1) * CLAIM_BYTES] == name:
                return Claim(Position(self._claim_firsts[place]), self._claim_counts[place])
            place += 1
        return None

    def claims(self) -> Iterator[tuple[bytes, Claim]]:
        for place in range(len(self._claim_keys)):
            name = self.claim_names[place * CLAIM_BYTES : (place + 1) * CLAIM_BYTES]
            yield name, Claim(Position(self._claim_firsts[place]), self._claim_counts[place])

    def _stream(self, stream: str) -> int:
        first, second = stream_key(stream)
        place = bisect_left(self._keys, first)
        while place < len(self._keys) and self._keys[place] == first:
            if self._seconds[place] == second:
                return place
            place += 1
        return -1


def stream_key(stream: str) -> tuple[int, int]:
    """128 bits that stand for a stream's name: nobody finds two names with the same ones."""
    digest = hashlib.blake2b(stream.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")


def numbers(kind: str, data: bytes, *, swap: bool = False) -> array[int]:
    """An array of the little-endian bytes of a file; with `swap`, of big-endian ones."""
    made: array[int] = array(kind)
    made.frombytes(data)
    if swap != (sys.byteorder == "big"):
        made.byteswap()
    return made


def _every_other_word(names: bytes) -> bytes:
    """The first eight bytes of every sixteen."""
    words = array("Q")
    words.frombytes(names)
    return words[::2].tobytes()

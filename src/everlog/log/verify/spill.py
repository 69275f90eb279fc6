"""Sorting more than fits into memory: what is added is sorted in pieces, which wait in a temporary file.

For `verify`, which compares every id and every stream of a log with all others, and must not grow with the log.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from typing import IO

PIECE = 50_000
READ_BYTES_MAX = 64 * 1024
"""How much of a piece is read at a time. Of many pieces it is less, so that they need no more memory together."""

_READ_BYTES_MIN = 4 * 1024
_READ_BYTES_ALL = 4 * 1024 * 1024


class Spill:
    """Bytes of less than 64 KiB each, given back in order."""

    def __init__(self) -> None:
        self._piece: list[bytes] = []
        self._pieces: list[tuple[int, int]] = []  # where each lies in the file
        self._file: IO[bytes] | None = None

    def add(self, item: bytes) -> None:
        self._piece.append(item)
        if len(self._piece) >= PIECE:
            self._put_down()

    def __iter__(self) -> Iterator[bytes]:
        self._piece.sort()
        return heapq.merge(self._piece, *[self._read(start, end) for start, end in self._pieces])

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """Neighbours in order."""
        return pairwise(self)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _put_down(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="everlog-verify-")  # noqa: SIM115 - `close` closes it
        self._piece.sort()
        start = self._file.seek(0, 2)
        self._file.write(b"".join([len(item).to_bytes(2, "big") + item for item in self._piece]))
        self._pieces.append((start, self._file.tell()))
        self._piece = []

    def _read(self, at: int, end: int) -> Iterator[bytes]:
        assert self._file is not None
        rest = b""
        size = min(READ_BYTES_MAX, max(_READ_BYTES_MIN, _READ_BYTES_ALL // len(self._pieces)))
        while at < end or rest:
            self._file.seek(at)
            data = rest + self._file.read(min(size, end - at))
            at = min(end, at + size)
            place = 0
            while place + 2 <= len(data):
                size = int.from_bytes(data[place : place + 2], "big")
                if place + 2 + size > len(data):
                    break
                yield data[place + 2 : place + 2 + size]
                place += 2 + size
            rest = data[place:]

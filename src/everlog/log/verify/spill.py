"""Bytes in order and ids compared with each other, for a log of any size: what is too much for the memory waits in a
temporary file."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import IO

import msgspec

from everlog.core.event import Position

PIECE = 50_000
"""So many ids or streams are sorted in memory at a time."""

READ_BYTES_MAX = 64 * 1024
"""How much of a piece is read at a time. Of many pieces it is less, so that they need no more memory together."""

_READ_BYTES_MIN = 4 * 1024
_READ_BYTES_ALL = 4 * 1024 * 1024

_PLACE = struct.Struct(">Q")
_encode_runs = msgspec.msgpack.Encoder().encode
_decode_runs = msgspec.msgpack.Decoder(list[tuple[int, list[str]]]).decode


def _temporary_file() -> IO[bytes]:
    import tempfile  # it loads compressors, and few logs need a file

    return tempfile.TemporaryFile(prefix="everlog-verify-")


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
            self._file = _temporary_file()
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
                after = place + 2 + int.from_bytes(data[place : place + 2], "big")
                if after > len(data):
                    break
                yield data[place + 2 : after]
                place = after
            rest = data[place:]


class UniqueIds:
    """The ids of a log, of which each must be there once.

    The ids of one log mostly grow with their positions. As long as they do, none is there twice, and they only wait
    in runs. With the first one that does not, all of them are sorted.
    """

    def __init__(self) -> None:
        self._growing = True
        self._greatest = ""
        self._runs: list[tuple[int, list[str]]] = []
        self._count = 0  # of ids in these runs
        self._written: list[int] = []  # the sizes of what is in the file
        self._file: IO[bytes] | None = None
        self._sorted = Spill()

    def add(self, position: Position, ids: list[str]) -> None:
        """Add the ids of events at consecutive positions."""
        if self._growing:
            if ids[0] > self._greatest and (len(ids) == 1 or ids == sorted(set(ids))):
                self._greatest = ids[-1]
                self._runs.append((position, ids))
                self._count += len(ids)
                if self._count >= PIECE:
                    self._put_down()
                return
            self._growing = False
            self._sort_what_waits()
        self._sort(position, ids)

    def twice(self) -> Iterator[tuple[Position, str]]:
        """Return every id that an earlier position has too, with its position."""
        for one, other in () if self._growing else self._sorted.pairs():
            if one[: -_PLACE.size] == other[: -_PLACE.size]:
                (position,) = _PLACE.unpack(other[-_PLACE.size :])
                yield Position(position), other[: -_PLACE.size].decode()

    def close(self) -> None:
        self._sorted.close()
        if self._file is not None:
            self._file.close()

    def _sort(self, position: int, ids: list[str]) -> None:
        for place, event_id in enumerate(ids, position):
            self._sorted.add(event_id.encode() + _PLACE.pack(place))

    def _put_down(self) -> None:
        if self._file is None:
            self._file = _temporary_file()
        self._written.append(self._file.write(_encode_runs(self._runs)))
        self._runs, self._count = [], 0

    def _sort_what_waits(self) -> None:
        if self._file is not None:
            self._file.seek(0)
            for size in self._written:
                for position, ids in _decode_runs(self._file.read(size)):
                    self._sort(position, ids)
        for position, ids in self._runs:
            self._sort(position, ids)
        self._runs = []

"""The bytes of one segment, from its plain file or from the members of an archive.

An archive is a plain gzip file of many members (`zcat` reads it), each with a piece of the segment. A field in the
head of every member (RFC 1952, "extra") has the length of the member, so that a reader can skip members without
unpacking them.

    1f 8b 08 04 mtime(4) 00 ff | 0c 00 'E' 'L' 08 00 packed(4) plain(4) | deflated | crc32(4) plain(4)
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from pathlib import Path
from typing import Protocol

from everlog.files import Files

_HEAD = struct.Struct("<4sIBB HccHII")  # little-endian, as gzip is
_TAIL = struct.Struct("<II")
_GZIP = b"\x1f\x8b\x08\x04"
_EXTRA_BYTES = 12
PIECE_BYTES = 256 * 1024


class Source(Protocol):
    damage: str  # what is wrong with the file, or empty

    @property
    def size(self) -> int: ...

    def read(self, at: int, size: int) -> bytes:
        """Return the bytes from `at` on, fewer than `size` only at the end."""
        ...

    def flush(self) -> None:
        """Flush, so that the bytes that were read survive a power cut."""
        ...

    def close(self) -> None: ...


class PlainSource:
    damage = ""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._handle = files.open(path)

    @property
    def size(self) -> int:
        return self._files.size(self._handle)

    def read(self, at: int, size: int) -> bytes:
        return self._files.read(self._handle, size, at=at)

    def flush(self) -> None:
        self._files.flush(self._handle)

    def close(self) -> None:
        self._files.close(self._handle)


class ArchiveSource:
    """A packed segment. It unpacks one member at a time and keeps the last one."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self._handle = files.open(path)
        self._starts: list[int] = []  # where each member's piece begins in the segment
        self._members: list[tuple[int, int]] = []  # where each member lies, and how long it is
        self._kept: tuple[int, bytes] = (-1, b"")
        self.damage = ""
        try:
            self.size = self._find_members()
        except BaseException:
            files.close(self._handle)
            raise

    def read(self, at: int, size: int) -> bytes:
        end = min(at + size, self.size)
        pieces = []
        while at < end:
            number = bisect_right(self._starts, at) - 1
            piece = self._unpacked(number)
            part = piece[at - self._starts[number] : end - self._starts[number]]
            if not part:
                break
            pieces.append(part)
            at += len(part)
        return b"".join(pieces)

    def flush(self) -> None:
        self._files.flush(self._handle)

    def close(self) -> None:
        self._files.close(self._handle)

    def _find_members(self) -> int:
        """Find the members up to the first invalid one. Bytes after that cannot be located."""
        at, start, end = 0, 0, self._files.size(self._handle)
        while at < end:
            head = self._files.read(self._handle, _HEAD.size, at=at)
            why = "the archive ends in the middle of a member"
            if len(head) == _HEAD.size:
                magic, _, _, _, extra, one, two, length, packed, plain = _HEAD.unpack(head)
                if magic != _GZIP or (extra, one, two, length) != (_EXTRA_BYTES, b"E", b"L", 8):
                    why = "no member of an archive of everlog begins there"
                elif packed < _HEAD.size + _TAIL.size or not 0 < plain <= PIECE_BYTES:
                    why = f"no member has {packed} bytes, or {plain} unpacked"
                elif at + packed <= end:
                    self._starts.append(start)
                    self._members.append((at, packed))
                    at, start = at + packed, start + plain
                    continue
            self.damage = f"{self._path.name} is damaged at byte {at}: {why}"
            break
        return start

    def _unpacked(self, number: int) -> bytes:
        if self._kept[0] == number:
            return self._kept[1]
        at, packed = self._members[number]
        size = self._plain_size(number)
        data = self._files.read(self._handle, packed, at=at)
        piece = _inflated(data[_HEAD.size : -_TAIL.size], size)
        if (
            len(data) != packed
            or _TAIL.unpack(data[-_TAIL.size :]) != (zlib.crc32(piece), size)
            or len(piece) != size
        ):
            # Zeros are not frames, so the reader of frames reports which positions are missing.
            piece = bytes(size)
        self._kept = (number, piece)
        return piece

    def _plain_size(self, number: int) -> int:
        ends = [*self._starts[1:], self.size]
        return ends[number] - self._starts[number]


def _inflated(data: bytes, size: int) -> bytes:
    """Unpack a piece. Return nothing if it is longer than `size`: a damaged member must not fill the memory."""
    unpacker = zlib.decompressobj(-15)
    try:
        piece = unpacker.decompress(data, size)
        whole = len(piece) == size and not unpacker.decompress(unpacker.unconsumed_tail, 1) and unpacker.eof
    except zlib.error:
        whole = False
    return piece if whole else b""


def member(piece: bytes) -> bytes:
    """Return a piece of a segment as one member of an archive."""
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    deflated = packer.compress(piece) + packer.flush()
    size = _HEAD.size + len(deflated) + _TAIL.size
    head = _HEAD.pack(_GZIP, 0, 0, 255, _EXTRA_BYTES, b"E", b"L", 8, size, len(piece))
    return head + deflated + _TAIL.pack(zlib.crc32(piece), len(piece))

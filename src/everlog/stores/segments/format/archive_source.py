"""The bytes of one segment from the members of an archive.

An archive is a plain Zstandard file (`zstdcat` reads it): a frame of Zstandard (RFC 8878) for each piece of the
segment, and before each one a skippable frame with its length and that of the piece, so that a reader can skip
members without unpacking them. All numbers are little-endian, as there.

    50 2a 4d 18 | 08 00 00 00 | packed(4) plain(4) | frame of Zstandard, with its checksum
"""

from __future__ import annotations

import struct
import sys
from bisect import bisect_right
from pathlib import Path

from everlog.files import Files

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["PIECE_BYTES", "ArchiveSource", "member", "zstd"]

_HEAD = struct.Struct("<IIII")
_SKIPPABLE = 0x184D2A50
_SIZES_BYTES = 8
PIECE_BYTES = 256 * 1024
_PACKING: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 3,
    zstd.CompressionParameter.checksum_flag: 1,
}
_UNPACKING: dict[int, int] = {
    zstd.DecompressionParameter.window_log_max: (PIECE_BYTES - 1).bit_length()
}  # no more memory than that


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
                magic, length, packed, plain = _HEAD.unpack(head)
                if (magic, length) != (_SKIPPABLE, _SIZES_BYTES):
                    why = "no member of an archive of everlog begins there"
                elif not packed or not 0 < plain <= PIECE_BYTES:
                    why = f"no member has {packed} bytes, or {plain} unpacked"
                elif at + _HEAD.size + packed <= end:
                    self._starts.append(start)
                    self._members.append((at + _HEAD.size, packed))
                    at, start = at + _HEAD.size + packed, start + plain
                    continue
            self.damage = f"{self._path.name} is damaged at byte {at}: {why}"
            break
        return start

    def _unpacked(self, number: int) -> bytes:
        if self._kept[0] == number:
            return self._kept[1]
        at, packed = self._members[number]
        size = self._plain_size(number)
        piece = _unpack(self._files.read(self._handle, packed, at=at), size)
        if len(piece) != size:
            # Zeros are not frames, so the reader of frames reports which positions are missing.
            piece = bytes(size)
        self._kept = (number, piece)
        return piece

    def _plain_size(self, number: int) -> int:
        ends = [*self._starts[1:], self.size]
        return ends[number] - self._starts[number]


def _unpack(data: bytes, size: int) -> bytes:
    """Unpack a piece. Return nothing if it is longer than `size`: a damaged member must not fill the memory."""
    unpacker = zstd.ZstdDecompressor(options=_UNPACKING)
    try:
        piece = unpacker.decompress(data, max_length=size)
        if not unpacker.eof and unpacker.decompress(b"", max_length=1):  # the checksum may be left to read
            return b""
    except zstd.ZstdError:
        return b""
    return piece if unpacker.eof and not unpacker.unused_data else b""


def member(piece: bytes) -> bytes:
    """Return a piece of a segment as one member of an archive."""
    packed = zstd.compress(piece, options=_PACKING)
    return _HEAD.pack(_SKIPPABLE, _SIZES_BYTES, len(packed), len(piece)) + packed

"""Lines that carry their own checksum: the last member of the JSON object is the CRC-32 of the bytes before it."""

from __future__ import annotations

import zlib

_WHOLE = b',"whole":"%08x"}'
_WHOLE_BYTES = len(_WHOLE % 0)


def ended(data: bytes) -> bytes:
    """Return the object with its last member and the newline."""
    before = data[:-1]
    return before + _WHOLE % zlib.crc32(before) + b"\n"


def is_whole(line: bytes) -> bool:
    """Return whether the checksum of a line, given without its newline, matches."""
    return line[-_WHOLE_BYTES:] == _WHOLE % zlib.crc32(line[:-_WHOLE_BYTES])

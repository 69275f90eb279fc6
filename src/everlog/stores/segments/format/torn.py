"""Tell a torn write from damage, by the bytes after the last whole frame."""

from __future__ import annotations

import hashlib

from everlog.stores.segments.format.frame import AROUND_BYTES, HASH_BYTES, LENGTH, SECTOR_BYTES

_sha256 = hashlib.sha256


def is_torn(data: bytes, offset: int) -> bool:
    """Return whether the bytes after the last whole frame can only be an unfinished write, which was not
    acknowledged.

    Space is zeros before it is written, and a disk writes whole sectors: an unfinished write has a part that is still
    zeros, or the file ends in it. Bytes that are all there and yet have the wrong hash were changed afterwards. Of a
    write of several frames, the first one that is not there is looked at.
    """
    room = SECTOR_BYTES - offset % SECTOR_BYTES  # what its first sector holds of it
    end = len(data.rstrip(b"\0"))
    whole = _size_but_for_its_length(data, end)
    if whole:
        return _lacks_only_its_first_sector(data, whole, room)
    if len(data) < LENGTH.size:
        return True
    (length,) = LENGTH.unpack_from(data)
    size = length + AROUND_BYTES
    if not length or size > len(data):
        return True
    begins_late = room < LENGTH.size  # a part of its length is all that its first sector holds
    if end > size and _is_alone(data):
        return begins_late and not any(data[:room])
    if _is_one_bit_off(data, size):
        return False
    if data[size - 1] == 0 or data[LENGTH.size] == 0:  # the first byte after its length has several bits, too
        return True
    start = LENGTH.size  # a recovery that was interrupted leaves the length
    while start < size:
        stop = min(size, ((offset + start) // SECTOR_BYTES + 1) * SECTOR_BYTES - offset)
        if not any(data[start:stop]):
            return True
        start = stop
    return False


_INTEGER_BYTES = {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9}  # with the byte that says how long it is; others have one


def _is_alone(data: bytes) -> bool:
    """Return whether the frame says that its write has no more frames: then nothing is written after it before it is
    on the disk. If what it says is not there, it may have some."""
    place = LENGTH.size + 1  # after the byte for "array": mark, at, fence, clock, batch
    for _ in range(4):
        place += _INTEGER_BYTES.get(data[place], 1) if place < len(data) else 1
    if data[place : place + 1] == b"\x92":  # a pair: the bytes before it, and how many frames follow
        place += 1
        place += _INTEGER_BYTES.get(data[place], 1) if place < len(data) else 1
        return data[place : place + 1] == b"\0"
    return data[place : place + 1] == b"\xc0"


def _size_but_for_its_length(data: bytes, end: int) -> int:
    """Return the size of the frame if body and hash are right apart from its length, or 0."""
    # The hash itself may end in zeros, which look like space that was never written.
    for size in range(end, min(end + 4, len(data)) + 1):
        body = memoryview(data)[LENGTH.size : size - HASH_BYTES]
        if size > AROUND_BYTES and _sha256(body).digest() == data[size - HASH_BYTES : size]:
            return size
    return 0


def _lacks_only_its_first_sector(data: bytes, size: int, room: int) -> bool:
    """Return whether more than one bit of the length is missing, and exactly the part in a separate sector."""
    written = LENGTH.pack(size - AROUND_BYTES)
    missing = int.from_bytes(written[:room], "big")
    return room <= LENGTH.size and data[: LENGTH.size] == bytes(room) + written[room:] and missing.bit_count() > 1


def _is_one_bit_off(data: bytes, size: int) -> bool:
    """True when the body is right and its hash is, but for one bit: no frame is written that a tear leaves so."""
    digest = _sha256(memoryview(data)[LENGTH.size : size - HASH_BYTES]).digest()
    return (int.from_bytes(digest, "big") ^ int.from_bytes(data[size - HASH_BYTES : size], "big")).bit_count() == 1

"""A frame: everything that one write committed, under one hash.

    0        4                4 + length   36 + length
    | length | MessagePack    | SHA-256    |

The MessagePack is an array whose first two elements show where the frame belongs: the mark of its log and segment,
and its own offset. So a frame that was moved, repeated or taken from another file is damage although its hash is
right.

    mark, at, fence, clock, records, rest (left out when there is nothing else)

A record is `[position, sequence, received_us, event]`, and an event is the array of `everlog.core.codec.to_msgpack`:
one call decodes a whole frame into the structs that a reader gets. The bytes that are hashed and signed are encoded
from them when needed; where encoding would not give the same bytes, they are stored in `raw`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import msgspec

from everlog.core.event import Position, Purge, Purged, Recorded
from everlog.errors import EventTooLarge

LENGTH = struct.Struct(">I")
HASH_BYTES = 32
AROUND_BYTES = LENGTH.size + HASH_BYTES
BODY_BYTES_MAX = 2**32 - 1
SECTOR_BYTES = 512
_LONG_NONCE = 2**16

COMMIT, CLOSED, PURGING, SWEPT = 0, 1, 2, 3
"""What a frame is: a write, a clean close, a write whose purged bytes are still stored, the note that they are
removed."""

_sha256 = hashlib.sha256


class Rest(msgspec.Struct, frozen=True, array_like=True):
    """The parts of a frame that most writes do not have."""

    kind: int = COMMIT
    before: Position = Position(0)  # the head before and after, which records alone may not show
    head: Position = Position(0)
    claim_names: bytes = b""  # 16 bytes each
    claim_places: tuple[int, ...] = ()  # two each: first position, less the head before; count
    notes: dict[str, tuple[str | None, int | None]] = {}
    purges: tuple[Purge, ...] = ()
    purged: tuple[Purged, ...] = ()
    raw: dict[int, tuple[bytes, bytes]] = {}  # position: header and payload as they were given
    nonce: int = 0  # any number, so that a torn write and a flipped bit differ (`encode_frame`)


NOTHING_ELSE = Rest()


class Frame(msgspec.Struct, frozen=True, array_like=True):
    mark: int
    at: int
    fence: int
    clock: int
    records: list[Recorded]
    rest: Rest = NOTHING_ELSE

    @property
    def before(self) -> Position:
        """The head before this frame."""
        return Position(self.records[0].position - 1) if self.rest is NOTHING_ELSE else self.rest.before

    @property
    def head(self) -> Position:
        """The head after it."""
        return self.records[-1].position if self.rest is NOTHING_ELSE else self.rest.head


_encode = msgspec.msgpack.Encoder(order="sorted").encode
_encode_with_raw = msgspec.msgpack.Encoder().encode  # only names can be sorted, and `raw` has positions
_decode = msgspec.msgpack.Decoder(Frame).decode


class _Undecoded(msgspec.Struct, frozen=True, array_like=True):
    """A frame whose records are still bytes: skipping a thousand costs less than decoding ten."""

    mark: int
    at: int
    fence: int
    clock: int
    records: list[msgspec.Raw]
    rest: Rest = NOTHING_ELSE


_decode_around = msgspec.msgpack.Decoder(_Undecoded).decode
_decode_record = msgspec.msgpack.Decoder(Recorded).decode


def mark_of(log_id: str, number: int) -> int:
    """Return the mark of a log's segment: 32 bits, the highest set, so that it always takes five bytes."""
    digest = _sha256(f"{log_id} {number}".encode()).digest()
    return int.from_bytes(digest[:4], "big") | 0x8000_0000


def enclose(body: bytes) -> bytes:
    """Length, body and hash."""
    if len(body) > BODY_BYTES_MAX:
        raise EventTooLarge(
            f"one write has {len(body):,} bytes",
            why="a write is one frame, and a frame's length has four bytes",
            hint="append it in several batches",
        )
    return b"".join((LENGTH.pack(len(body)), body, _sha256(body).digest()))


def encode_frame(
    mark: int, at: int, fence: int, clock: int, records: Sequence[Recorded], rest: Rest | None = None
) -> bytes:
    """Return the bytes of a frame, such that a flipped bit never looks like a torn write, or the other way round.

    Its last byte is neither zero, which would look like space that was not written, nor one that a single flipped bit
    makes zero. And the next frame's length does not begin in the last four bytes of a sector: there the first bytes
    of a length, usually zeros, would be alone in a sector, which looks the same written and unwritten.
    """
    fields = (mark, at, fence, clock, records)
    encode = _encode_with_raw if rest is not None and rest.raw else _encode
    data = enclose(encode(fields if rest is None else (*fields, rest)))
    ends_late = (at + len(data)) % SECTOR_BYTES >= SECTOR_BYTES - LENGTH.size
    if ends_late or data[-1].bit_count() < 2:
        if rest is None:
            rest = Rest(COMMIT, Position(records[0].position - 1), records[-1].position, nonce=1)
        else:
            # Other numbers give other hashes; a number of four bytes also moves the end, by four bytes.
            rest = msgspec.structs.replace(rest, nonce=(_LONG_NONCE if ends_late else rest.nonce) + 1)
        return encode_frame(mark, at, fence, clock, records, rest)
    return data


def closing_frame(mark: int, at: int, fence: int, clock: int, head: Position) -> bytes:
    """Return the mark of a clean end: the last frame of a closed log, which holds no events."""
    return encode_frame(mark, at, fence, clock, [], Rest(CLOSED, head, head))


def open_body(data: memoryview, at: int = 0) -> memoryview | None:
    """Return the body that is enclosed at this offset of the data, or None if it is incomplete or its hash is
    wrong."""
    start = at + LENGTH.size
    if start > len(data):
        return None
    (length,) = LENGTH.unpack_from(data, at)
    end = start + length
    if not length or end + HASH_BYTES > len(data):
        return None
    body = data[start:end]
    return body if _sha256(body).digest() == data[end : end + HASH_BYTES] else None


def decode_frame(
    data: memoryview, at: int, *, mark: int, offset: int, holding: Sequence[bytes] = ()
) -> tuple[Frame, int] | None:
    """Return the frame at this place of the data, which is `offset` in its segment, and its size; None if there is
    none.

    With `holding`, records that hold none of these texts may be left out, but for the first and the last.
    """
    body = open_body(data, at)
    if body is None:
        return None
    try:
        frame = _decode_some(body, holding) if holding else _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if frame.mark != mark or frame.at != offset:
        return None
    return frame, len(body) + AROUND_BYTES


def _decode_some(body: memoryview, holding: Sequence[bytes]) -> Frame:
    around = _decode_around(body)
    last = len(around.records) - 1
    records = []
    for number, raw in enumerate(around.records):
        data = bytes(raw)
        if number in (0, last) or any(text in data for text in holding):
            records.append(_decode_record(data))
    return Frame(around.mark, around.at, around.fence, around.clock, records, around.rest)


def record_bytes(frame: Frame, body: memoryview) -> tuple[int, list[msgspec.Raw]]:
    """Return where the records begin in the body of a frame, and the bytes of each. They are contiguous."""
    raws = _decode_around(body).records
    before = len(_encode((frame.mark, frame.at, frame.fence, frame.clock)))
    # A list of up to 15 has its length in its first byte; then two or four bytes follow that one.
    return before + (1 if len(raws) < 16 else 3 if len(raws) < 2**16 else 5), raws


def find_frame(data: memoryview, start: int, *, mark: int, offset: int) -> tuple[Frame, int, int] | None:
    """Return the next frame after bytes that are not frames, with its place and size. `offset` is that of the
    data."""
    content = bytes(data)
    sign = b"\xce" + mark.to_bytes(4, "big")
    place = content.find(sign, start)
    while place >= 0:
        at = place - 1 - LENGTH.size  # before the mark: the length and the byte for "array"
        if at >= start:
            found = decode_frame(data, at, mark=mark, offset=offset + at)
            if found is not None:
                return found[0], at, found[1]
        place = content.find(sign, place + 1)
    return None


def is_torn(data: bytes, offset: int) -> bool:
    """Return whether the bytes after the last whole frame can only be an unfinished write, which was not
    acknowledged.

    Space is zeros before it is written, and a disk writes whole sectors: an unfinished write has a part that is still
    zeros, or the file ends in it. Bytes that are all there and yet have the wrong hash were changed afterwards.
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
    if end > size:
        return begins_late and not any(data[:room])
    if _is_one_bit_off(data, size):
        return False
    if data[size - 1] == 0:
        return True
    start = room if begins_late else 0
    while start < size:
        stop = min(size, ((offset + start) // SECTOR_BYTES + 1) * SECTOR_BYTES - offset)
        if not any(data[start:stop]):
            return True
        start = stop
    return False


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

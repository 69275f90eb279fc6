"""What is inside a large frame, so that a reader of one stream need not read all of it.

A frame is under one hash, and a batch of a thousand events is one frame. The index therefore knows, for each frame of
many records, which stream each record is of (two bytes of a hash of its name) and where its records are, in groups
that have a hash of their own. All of it was made from the frame when that was whole: a group whose hash is right is
what was written, and one whose hash is not sends the reader to the frame, which says what is wrong.

    frame    | length | mark, at, fence, clock, [ record record … record | record … ] | SHA-256 |
    groups                                        bounds[0]              bounds[1]
"""

from __future__ import annotations

import hashlib
import struct
import sys
import zlib
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise

import msgspec

from everlog.core.event import Recorded
from everlog.stores.segments.frame import LENGTH, Frame, record_bytes
from everlog.stores.segments.source import Source

LARGE = 128
"""Records from which on a frame is looked into: to read a smaller one whole takes less than it would save."""

GROUP = 16
"""Records under one hash: a few kilobytes, as much as is worth reading at once."""

SUM_BYTES = 16
_SPAN = 8  # with more groups than this, the stretch that holds them all is read at once

_PRINT = struct.Struct("<H")
_decode_list = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_record = msgspec.msgpack.Decoder(Recorded).decode
_sha256 = hashlib.sha256


class Inside(msgspec.Struct, frozen=True, array_like=True, gc=False):
    group: int  # records in each group but the last
    prints: bytes  # two for each record
    bounds: bytes  # four for each group and for the end: how far from the beginning of the frame it begins
    sums: bytes  # sixteen for each group

    def groups_of(self, stream: str) -> dict[int, list[int]]:
        """The groups that may hold records of a stream, each with the places in it that may be such records."""
        wanted, found = _print_of(stream), dict[int, list[int]]()
        place = self.prints.find(wanted)
        while place >= 0:
            if not place % 2:
                group, number = divmod(place // 2, self.group)
                found.setdefault(group, []).append(number)
            place = self.prints.find(wanted, place + 1)
        return found

    def read(self, source: Source, start: int, stream: str) -> list[Recorded] | None:
        """Records of the frame that begins there, every one of the stream among them; None if a group is damaged."""
        groups = self.groups_of(stream)
        bounds = _numbers(self.bounds)
        records: list[Recorded] = []
        base, whole = 0, b""
        if len(groups) > _SPAN:
            base = bounds[min(groups)]
            whole = source.read(start + base, bounds[max(groups) + 1] - base)
        for group, places in groups.items():
            low, high = bounds[group], bounds[group + 1]
            data = whole[low - base : high - base] if whole else source.read(start + low, high - low)
            if _sha256(data).digest()[:SUM_BYTES] != self.sums[group * SUM_BYTES : (group + 1) * SUM_BYTES]:
                return None
            size = min(self.group, len(self.prints) // 2 - group * self.group)
            raws = _decode_list(b"\xdd" + size.to_bytes(4, "big") + data)
            records += [_decode_record(raws[number]) for number in places]
        return records


def look_inside(frame: Frame, body: memoryview) -> Inside | None:
    """What is inside a frame with this body; None if it is not worth it."""
    if len(frame.records) < LARGE:
        return None
    start, raws = record_bytes(frame, body)
    starts = list(accumulate(map(len, raws), initial=start))
    bounds = [*starts[:-1:GROUP], starts[-1]]
    known: dict[str, bytes] = {}
    prints = []
    for record in frame.records:
        stream = record.event.stream
        found = known.get(stream)
        if found is None:
            found = known[stream] = _print_of(stream)
        prints.append(found)
    sums = [_sha256(body[low:high]).digest()[:SUM_BYTES] for low, high in pairwise(bounds)]
    from_frame = array("I", [bound + LENGTH.size for bound in bounds])
    if sys.byteorder == "big":
        from_frame.byteswap()
    return Inside(GROUP, b"".join(prints), from_frame.tobytes(), b"".join(sums))


def _print_of(stream: str) -> bytes:
    return _PRINT.pack(zlib.crc32(stream.encode()) & 0xFFFF)


def _numbers(data: bytes) -> Sequence[int]:
    numbers = array("I")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers

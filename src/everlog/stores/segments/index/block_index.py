"""The index of a large frame, so that a reader of one stream need not read all of it.

A frame has one hash, and a batch of a thousand events is one frame. For each frame with many records the index
therefore stores the stream of each record (two bytes of a hash of its name) and the offsets of its records, in groups
that each have a hash. All of it is computed from the frame when that is complete: a group whose hash is right is as
written; if the hash is wrong, the reader reads the frame, which shows what is wrong.

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
from everlog.stores.segments.format.frame import LENGTH, Frame, record_bytes
from everlog.stores.segments.format.source import Source

LARGE = 128
"""Frames with fewer records get no index: reading one completely costs less than the index would save."""

GROUP = 16
"""Records per hash: a few kilobytes, which are worth one read."""

SUM_BYTES = 16
_SPAN = 8  # more groups than this are read with one read that covers them all

_PRINT = struct.Struct("<H")
_decode_list = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_record = msgspec.msgpack.Decoder(Recorded).decode
_sha256 = hashlib.sha256


class BlockIndex(msgspec.Struct, frozen=True, array_like=True, gc=False):
    group: int  # records in each group but the last
    prints: bytes  # two bytes per record
    bounds: bytes  # four bytes per group and for the end: its offset in the frame
    sums: bytes  # sixteen bytes per group

    def groups_of(self, stream: str) -> dict[int, list[int]]:
        """Return the groups that may hold records of a stream, each with the numbers of such records in it."""
        wanted, found = _print_of(stream), dict[int, list[int]]()
        place = self.prints.find(wanted)
        while place >= 0:
            if not place % 2:
                group, number = divmod(place // 2, self.group)
                found.setdefault(group, []).append(number)
            place = self.prints.find(wanted, place + 1)
        return found

    def read(self, source: Source, start: int, stream: str) -> list[Recorded] | None:
        """Return records of the frame at `start`, among them all of the stream; None if a group is damaged."""
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


def block_index_of(frame: Frame, body: memoryview) -> BlockIndex | None:
    """Return the index of a frame with this body, or None if the frame is small."""
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
    return BlockIndex(GROUP, b"".join(prints), from_frame.tobytes(), b"".join(sums))


def _print_of(stream: str) -> bytes:
    return _PRINT.pack(zlib.crc32(stream.encode()) & 0xFFFF)


def _numbers(data: bytes) -> Sequence[int]:
    numbers = array("I")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers

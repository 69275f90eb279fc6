"""Negentropy, protocol version 1: two nodes find the differences of their sets in a few messages.

An item is the lamport and the hash of an event. Items are sorted, and both sides compare fingerprints of ranges. A
range that differs is split into 16, and a range of fewer than 32 items is sent as its list of hashes.

    message      0x61 range*                        each range begins where the one before it ended
    range        bound mode payload                 mode 0: skip, 1: fingerprint (16 bytes), 2: list of hashes
    bound        lamport length prefix              exclusive; the lamport as 1 + its distance, 0: no end
    fingerprint  SHA-256(sum of the hashes mod 2^256, little endian + count), its first 16 bytes

Nothing is maintained for this when an event is recorded: `Items` sums the hashes of a set once, in blocks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from hashlib import sha256
from itertools import accumulate
from typing import NamedTuple

from everlog.errors import RejectedMessage

PROTOCOL = 0x61
HASH_BYTES = 32
FINGERPRINT_BYTES = 16
FRAME_BYTES_MAX = 1_000_000
"""A message ends here, and the next one continues where it stopped."""

_SKIP, _FINGERPRINT, _HASHES = 0, 1, 2
_BUCKETS = 16
_BLOCK = 256
_SUM_BITS = 8 * HASH_BYTES
_SUM_MAX = (1 << _SUM_BITS) - 1
_LAMPORT_BYTES = 8
_NO_END = (1 << 64) - 1
_FRAME_BYTES_MIN = 4096
_FRAME_MARGIN = 200  # room for the bound and the fingerprint that end a message early


def item(lamport: int, hash: bytes) -> bytes:
    """Return the key of an item: keys sort as items do."""
    return lamport.to_bytes(_LAMPORT_BYTES, "big") + hash


class Items:
    """A set of items in order, with the sums of its blocks."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self.keys = sorted(keys)
        hashes = [key[_LAMPORT_BYTES:] for key in self.keys]
        sums = [_sum(hashes[start : start + _BLOCK]) for start in range(0, len(hashes), _BLOCK)]
        self._sums = list(accumulate(sums, initial=0))  # of the first n blocks

    def __len__(self) -> int:
        return len(self.keys)

    def fingerprint(self, lower: int, upper: int) -> bytes:
        """Return the fingerprint of the items from `lower` up to `upper`."""
        if upper - lower <= _BLOCK:
            total = _sum(self.hashes(lower, upper)) & _SUM_MAX
        else:
            total = (self._sum_before(upper) - self._sum_before(lower)) & _SUM_MAX
        return sha256(total.to_bytes(HASH_BYTES, "little") + varint(upper - lower)).digest()[:FINGERPRINT_BYTES]

    def _sum_before(self, end: int) -> int:
        block = end // _BLOCK
        return self._sums[block] + _sum(self.hashes(block * _BLOCK, end))

    def hashes(self, lower: int, upper: int) -> list[bytes]:
        return [key[_LAMPORT_BYTES:] for key in self.keys[lower:upper]]


def _sum(hashes: Sequence[bytes]) -> int:
    """Return the sum of hashes as numbers, little endian."""
    if not hashes:
        return 0
    # All of them as one number with 64 bits of room between two, folded in the middle until one is left: adding them
    # one by one would take three times as long.
    fields = len(hashes)
    total = int.from_bytes(b"\0\0\0\0\0\0\0\0".join(hashes), "little")
    while fields > 1:
        half = (fields + 1) // 2
        bits = half * (_SUM_BITS + 64)
        total = (total & ((1 << bits) - 1)) + (total >> bits)
        fields = half
    return total


class Found(NamedTuple):
    """What one side has and the other lacks, by hash, and the next message; None when all is known."""

    message: bytes | None
    have: list[bytes]
    need: list[bytes]


class _Bound(NamedTuple):
    lamport: int
    prefix: bytes

    @property
    def key(self) -> bytes:
        return self.lamport.to_bytes(_LAMPORT_BYTES, "big") + self.prefix


_END = _Bound(_NO_END, b"")


def first_message(items: Items) -> bytes:
    """Return the message that begins a comparison."""
    out = _Out()
    _split(items, 0, len(items), _END, out)
    return bytes(out.data)


def answer(items: Items, message: bytes, *, frame_max: int = FRAME_BYTES_MAX) -> bytes:
    """Return the answer of the node that was asked. It keeps no state between two messages."""
    if message[:1] and 0x60 <= message[0] <= 0x6F and message[0] != PROTOCOL:
        return bytes((PROTOCOL,))  # the highest version that is spoken here
    return _reconcile(items, message, None, frame_max)


def next_message(items: Items, message: bytes, *, frame_max: int = FRAME_BYTES_MAX) -> Found:
    """Return the next message of the node that began, and what it has learned."""
    found = Found(None, [], [])
    reply = _reconcile(items, message, found, frame_max)
    return found if len(reply) == 1 else found._replace(message=reply)


def _reconcile(items: Items, message: bytes, found: Found | None, frame_max: int) -> bytes:
    """Read a message and write the next one. `found` collects what the node that began learns."""
    if frame_max < _FRAME_BYTES_MIN:
        raise ValueError(f"a frame has at least {_FRAME_BYTES_MIN} bytes")
    room = frame_max - _FRAME_MARGIN
    read, out = _In(message), _Out()
    lower, before, skipping = 0, _Bound(0, b""), False

    def end_skip() -> None:
        nonlocal skipping
        if skipping:
            out.range(before, _SKIP)
            skipping = False

    while read.more():
        bound = read.bound(before)
        upper = bisect_left(items.keys, bound.key, lo=lower)
        mode = read.varint()
        if mode == _SKIP:
            skipping = True
        elif mode == _FINGERPRINT:
            if read.take(FINGERPRINT_BYTES) == items.fingerprint(lower, upper):
                skipping = True
            else:
                end_skip()
                _split(items, lower, upper, bound, out)
        elif mode == _HASHES:
            theirs = read.hashes()
            ours = items.hashes(lower, upper)
            if found is not None:
                skipping = True
                known = set(ours)
                found.have.extend([hash for hash in ours if hash not in theirs])
                found.need.extend([hash for hash in theirs if hash not in known])
            else:
                end_skip()
                count = min(len(ours), max(0, (room - len(out.data)) // HASH_BYTES + 1))
                if count < len(ours):  # the next message continues with the first that has no room here
                    upper, bound = lower + count, _bound_of(items.keys[lower + count])
                out.range(bound, _HASHES, varint(count) + b"".join(ours[:count]))
        else:
            raise _refused(f"there is no mode {mode}")
        if len(out.data) > room:
            if bound.lamport != _NO_END:
                out.range(_END, _FINGERPRINT, items.fingerprint(upper, len(items)))
            break
        lower, before = upper, bound
    return bytes(out.data)


def _split(items: Items, lower: int, upper: int, bound: _Bound, out: _Out) -> None:
    """Write a range of our items: their hashes, or the fingerprints of 16 parts."""
    count = upper - lower
    if count < 2 * _BUCKETS:
        out.range(bound, _HASHES, varint(count) + b"".join(items.hashes(lower, upper)))
        return
    size, larger = divmod(count, _BUCKETS)
    start = lower
    for bucket in range(_BUCKETS):
        end = start + size + (bucket < larger)
        until = bound if end == upper else _between(items.keys[end - 1], items.keys[end])
        out.range(until, _FINGERPRINT, items.fingerprint(start, end))
        start = end


def _between(last: bytes, first: bytes) -> _Bound:
    """Return the shortest bound that has one item before it and the other behind it."""
    lamport = first[:_LAMPORT_BYTES]
    if lamport != last[:_LAMPORT_BYTES]:
        return _Bound(int.from_bytes(lamport, "big"), b"")
    length = next(place for place in range(_LAMPORT_BYTES, len(first)) if first[place] != last[place]) + 1
    return _Bound(int.from_bytes(lamport, "big"), first[_LAMPORT_BYTES:length])


def _bound_of(key: bytes) -> _Bound:
    return _Bound(int.from_bytes(key[:_LAMPORT_BYTES], "big"), key[_LAMPORT_BYTES:])


# ---- bytes


def varint(number: int) -> bytes:
    """Return a number in digits of 7 bits, the greatest first; each byte but the last has its high bit set."""
    digits = [number & 0x7F]
    while number := number >> 7:
        digits.append(number & 0x7F | 0x80)
    return bytes(reversed(digits))


class _Out:
    """A message that is written."""

    __slots__ = ("_lamport", "data")

    def __init__(self) -> None:
        self.data = bytearray((PROTOCOL,))
        self._lamport = 0

    def range(self, bound: _Bound, mode: int, payload: bytes = b"") -> None:
        if bound.lamport == _NO_END:
            self.data += b"\0"
        else:
            self.data += varint(1 + bound.lamport - self._lamport)
        self._lamport = bound.lamport
        self.data += varint(len(bound.prefix)) + bound.prefix + varint(mode) + payload


class _In:
    """A message that is read. Every length is compared with what is there before anything is made of it."""

    __slots__ = ("_data", "_lamport", "_place")

    def __init__(self, data: bytes) -> None:
        self._data, self._place, self._lamport = data, 0, 0
        if self.take(1)[0] != PROTOCOL:
            raise _refused(f"it is of version {data[0]:#x}, and {PROTOCOL:#x} is spoken here")

    def more(self) -> bool:
        return self._place < len(self._data)

    def take(self, count: int) -> bytes:
        end = self._place + count
        if end > len(self._data):
            raise _refused("it ends too early")
        found, self._place = self._data[self._place : end], end
        return found

    def varint(self) -> int:
        number = 0
        for _ in range(10):  # as many as 64 bits can have
            digit = self.take(1)[0]
            number = number << 7 | digit & 0x7F
            if not digit & 0x80:
                if number > _NO_END:
                    break
                return number
        raise _refused("a number in it is longer than 64 bits")

    def bound(self, before: _Bound) -> _Bound:
        step = self.varint()
        self._lamport = min(self._lamport + step - 1, _NO_END) if step else _NO_END
        length = self.varint()
        if length > HASH_BYTES:
            raise _refused(f"a bound has {length} bytes of a hash, which has {HASH_BYTES}")
        found = _Bound(self._lamport, self.take(length))
        if found.key < before.key:
            raise _refused("its ranges are not in order")
        return found

    def hashes(self) -> dict[bytes, None]:
        """Return a list of hashes, in their order and each once."""
        count = self.varint()
        if count * HASH_BYTES > len(self._data) - self._place:
            raise _refused("it ends too early")
        data = self.take(count * HASH_BYTES)
        return dict.fromkeys([data[start : start + HASH_BYTES] for start in range(0, len(data), HASH_BYTES)])


def _refused(why: str) -> RejectedMessage:
    return RejectedMessage(
        "a peer sent a comparison of ranges that cannot be read", why=why, hint="everlog peers list"
    )

"""A torn write and a flipped bit at the end of a segment are told apart, wherever the frame stands."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product

import pytest

from everlog.core.event import Position, Recorded
from everlog.core.group import GroupFacts
from everlog.stores.segments.format import frame
from everlog.stores.segments.format.frame import LENGTH, SECTOR_BYTES, Rest, encode_frame
from everlog.stores.segments.format.torn import is_torn
from everlog.testing.builders import Chain

MARK = frame.mark_of("log", 1)
SPACE = bytes(2 * SECTOR_BYTES)
LATE = range(SECTOR_BYTES - LENGTH.size, SECTOR_BYTES)


def made(at: int, *, size: int = 0) -> bytes:
    event = Chain().next(payload={"text": "x" * size}).event
    facts = GroupFacts(1, event.origin, 1, 1, b"", b"h" * 32)
    return encode_frame(MARK, at, 1, 1, facts, [Recorded(Position(1), 1, 1, event)])


def places() -> Iterator[tuple[int, bytes]]:
    """Frames whose beginning or end is near the end of a sector, and some others."""
    for at, size in product((1024, 1300, *range(1528, 1540)), (0, 300, 700)):
        yield at, made(at, size=size)
    for wanted in range(-3, 6):
        data = made(2000)
        at = 2048 + 512 + wanted - len(data)
        yield at, made(at)


def test_no_flipped_bit_is_taken_for_a_tear() -> None:
    for at, data in places():
        for place in range(len(data)):
            for bit in range(8) if place < 8 or place > len(data) - 4 else (place % 8,):
                hit = bytearray(data)
                hit[place] ^= 1 << bit
                assert not is_torn(bytes(hit) + SPACE, at), (at, len(data), place, bit)


def test_every_tear_is_taken_for_one() -> None:
    """Cut at any byte, or any sectors missing, the rest of the space zeros or not there."""
    for at, data in places():
        if at % SECTOR_BYTES in LATE:
            continue  # no frame begins there but after a head of that size
        for cut in range(1, len(data)):
            torn = data[:cut]
            assert is_torn(torn, at), (at, len(data), cut)
            assert is_torn(torn + bytes(len(data) - cut) + SPACE, at), (at, len(data), cut)
        edges = [0, *range(SECTOR_BYTES - at % SECTOR_BYTES, len(data), SECTOR_BYTES), len(data)]
        parts = [data[start:stop] for start, stop in pairwise(edges)]
        for landed in product((True, False), repeat=len(parts)):
            if any(landed) and not all(landed):
                torn = b"".join(
                    part if there else bytes(len(part)) for part, there in zip(parts, landed, strict=True)
                )
                assert is_torn(torn + SPACE, at), (at, len(data), landed)


def test_a_frame_that_lacks_only_its_length_in_a_sector_of_its_own_is_torn() -> None:
    at = 1024 - LENGTH.size
    data = next(data for size in range(10) if (data := made(at, size=size))[3].bit_count() > 1)
    assert is_torn(bytes(LENGTH.size) + data[LENGTH.size :], at)


def test_no_frame_ends_so_that_the_next_one_begins_at_the_end_of_a_sector_nor_in_a_byte_of_one_bit() -> None:
    for at in range(1024, 1024 + 1200):
        for data in (made(at), encode_frame(MARK, at, 1, 1, None, [], Rest(frame.CLOSED, Position(1), Position(1)))):
            assert (at + len(data)) % SECTOR_BYTES not in LATE
            assert data[-1].bit_count() > 1
            assert frame.decode_frame(memoryview(data), 0, mark=MARK, offset=at) is not None


@pytest.mark.parametrize("bit", range(8))
def test_a_last_byte_that_a_flip_made_zero_is_damage_also_in_a_frame_of_an_older_version(bit: int) -> None:
    number = 0
    while True:  # frames as they were written before: any hash will do
        data = frame.enclose(frame._encode((MARK, 1024, 1, number, None, None, [])))
        if data[-1] == 1 << bit:
            break
        number += 1
    assert not is_torn(data[:-1] + b"\0" + SPACE, 1024)

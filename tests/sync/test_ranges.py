"""Negentropy, protocol version 1. The vectors are those of the tests of its reference implementations."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlog.errors import RejectedMessage
from everlog.sync import ranges
from everlog.sync.ranges import Items, answer, first_message, item, next_message, varint

HASHES = (
    "eb6b05c2e3b008592ac666594d78ed83e7b9ab30f825b9b08878128f7500008c",
    "39b916432333e069a4386917609215cc688eb99f06fed01aadc29b1b4b92d6f0",
    "abc81d58ebe3b9a87100d47f58bf15e9b1cbf62d38623f11d0f0d17179f5f3ba",
)
FINGERPRINTS = (
    "6d74e1212fcafc8a81d090f0ffbde8b0",
    "96b26d110825d4b1805fc56988a3e65d",
    "c15ce60f185fd24ae341076caa93daa5",
)


def three() -> Items:
    return Items([item(1678011277 + number, bytes.fromhex(hash)) for number, hash in enumerate(HASHES)])


def compared(
    ours: Items, theirs: Items, *, frame_max: int = ranges.FRAME_BYTES_MAX
) -> tuple[set[bytes], set[bytes], int, int]:
    """Compare two sets; return what each lacks, the round trips and the bytes."""
    message: bytes | None = first_message(ours)
    have: set[bytes] = set()
    need: set[bytes] = set()
    trips = size = 0
    while message is not None:
        reply = answer(theirs, message, frame_max=frame_max)
        assert len(reply) <= frame_max
        size += len(message) + len(reply)
        trips += 1
        found = next_message(ours, reply, frame_max=frame_max)
        have.update(found.have)
        need.update(found.need)
        message = found.message
        assert trips < 10_000
    return have, need, trips, size


@pytest.mark.parametrize("count", [1, 2, 3])
def test_fingerprints_are_those_of_the_reference(count: int) -> None:
    assert three().fingerprint(0, count).hex() == FINGERPRINTS[count - 1]


def test_the_first_message_is_that_of_the_reference() -> None:
    assert first_message(three()).hex() == "6100000203" + "".join(HASHES)


def test_equal_sets_are_known_after_one_message() -> None:
    assert compared(three(), three()) == (set(), set(), 1, 2 * (5 + 3 * 32))


def test_another_version_is_answered_with_ours() -> None:
    assert answer(three(), bytes.fromhex("62aabbccddeeff")) == b"\x61"


@pytest.mark.parametrize(
    ("number", "digits"),
    [(0, "00"), (127, "7f"), (128, "8100"), (300, "822c"), (2**64 - 1, "81ffffffffffffffff7f")],
)
def test_numbers_have_the_greatest_digit_first(number: int, digits: str) -> None:
    assert varint(number).hex() == digits


def test_a_small_difference_is_found_as_the_reference_finds_it() -> None:
    ours = Items([item(0, b"\xaa" * 32), item(1, b"\xbb" * 32)])
    theirs = Items(
        [
            item(0, b"\xaa" * 32),
            *(item(at, bytes((byte,)) * 32) for at, byte in ((2, 0xCC), (3, 0x11), (5, 0x22), (10, 0x33))),
        ]
    )
    have, need, trips, _ = compared(ours, theirs)
    assert have == {b"\xbb" * 32}
    assert need == {bytes((byte,)) * 32 for byte in (0x11, 0x22, 0x33, 0xCC)}
    assert trips == 1


_items = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 300).map(lambda n: (n * 7919 % 65536).to_bytes(2, "big") * 16)),
    max_size=150,
)


@given(_items, _items, _items, st.sampled_from([4096, ranges.FRAME_BYTES_MAX]))
def test_every_difference_is_found(
    both: list[tuple[int, bytes]], ours: list[tuple[int, bytes]], theirs: list[tuple[int, bytes]], frame_max: int
) -> None:
    one, other = {item(*each) for each in both + ours}, {item(*each) for each in both + theirs}
    # An event has one lamport, so no hash is in two items.
    one = {key for key in one if key not in other} | (one & other)
    have, need, _, _ = compared(Items(list(one)), Items(list(other)), frame_max=frame_max)
    assert have == {key[8:] for key in one - other if key[8:] not in {each[8:] for each in other}} | (
        have & {key[8:] for key in one - other}
    )
    assert {key[8:] for key in other - one} - {key[8:] for key in one} <= need


def _scattered(count: int) -> tuple[Items, Items, set[bytes], set[bytes]]:
    chance = random.Random(7)
    both = [item(number // 3, chance.randbytes(32)) for number in range(count)]
    more = [item(chance.randrange(count // 3), chance.randbytes(32)) for _ in range(100)]
    ours, theirs = Items(both + more[:50]), Items(both + more[50:])
    return ours, theirs, {key[8:] for key in more[:50]}, {key[8:] for key in more[50:]}


def test_scattered_differences_take_few_round_trips() -> None:
    ours, theirs, have, need = _scattered(100_000)
    found_have, found_need, trips, size = compared(ours, theirs)
    assert (found_have, found_need) == (have, need)
    assert trips <= 4
    assert size < 200_000


@pytest.mark.slow
def test_a_million_events_take_four_round_trips_and_little_of_a_full_transfer() -> None:
    ours, theirs, have, need = _scattered(1_000_000)
    found_have, found_need, trips, size = compared(ours, theirs)
    assert (found_have, found_need) == (have, need)
    assert trips <= 4
    assert size < 0.0006 * 1_000_000 * 400  # an event has at least 400 bytes


def test_a_set_that_needs_many_frames_is_compared_in_the_end() -> None:
    chance = random.Random(3)
    theirs = Items([item(number, chance.randbytes(32)) for number in range(3_000)])
    have, need, trips, _ = compared(Items([]), theirs, frame_max=4096)
    assert not have
    assert len(need) == 3_000
    assert trips > 10


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("", "ends too early"),
        ("50", "version"),
        ("61" + "00", "ends too early"),
        ("61" + "0000" + "05", "no mode 5"),
        ("61" + "0000" + "01" + "aa", "ends too early"),
        ("61" + "0000" + "02" + "8fffffff7f", "ends too early"),
        ("61" + "ffffffffffffffffffff7f", "64 bits"),
        ("61" + "0021" + "aa" * 33 + "00", "bytes of a hash"),
        ("61" + "0201ff00" + "0101aa00", "not in order"),
    ],
)
def test_a_message_that_cannot_be_read_is_refused(message: str, why: str) -> None:
    with pytest.raises(RejectedMessage, match=why):
        answer(three(), bytes.fromhex(message))


@given(st.binary(max_size=200))
def test_no_bytes_end_in_another_error(noise: bytes) -> None:
    try:
        answer(three(), b"\x61" + noise)
    except RejectedMessage:
        return

"""Event ids: one value, two spellings, an order that only grows."""

from __future__ import annotations

import hashlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ulid import ULID

from everlog.core.ids import (
    AHEAD_MS_MAX,
    EventId,
    IdSource,
    OriginIds,
    id_matches,
    id_text,
    id_time_ms,
    id_uuid,
    id_value,
    parse_id,
    refuse_future_id,
)
from everlog.errors import IdFromTheFuture, InvalidField

NOW_MS = 1_800_000_000_000
VALUES = st.integers(min_value=0, max_value=2**128 - 1)


def source(*, now_ms: int = NOW_MS) -> IdSource:
    return IdSource(now_ms=lambda: now_ms)


@given(VALUES)
def test_the_text_is_the_one_that_other_ulid_programs_write(value: int) -> None:
    assert id_text(value) == str(ULID.from_bytes(value.to_bytes(16, "big")))
    assert id_value(id_text(value)) == value


@given(VALUES)
def test_both_spellings_name_the_same_id(value: int) -> None:
    text = id_text(value)
    as_uuid = id_uuid(text)
    assert as_uuid.int == value
    for spelling in (text, text.lower(), str(as_uuid), str(as_uuid).upper(), as_uuid.hex):
        assert parse_id(spelling) == text


@given(VALUES, VALUES)
def test_the_order_of_texts_is_the_order_of_values(one: int, other: int) -> None:
    assert (id_text(one) < id_text(other)) == (one < other)


def test_letters_that_look_like_digits_are_read_as_digits() -> None:
    assert parse_id("OIL" + "0" * 23) == "011" + "0" * 23
    assert parse_id("oil" + "0" * 23) == "011" + "0" * 23


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0" * 25,
        "0" * 27,
        "8" + "0" * 25,  # beyond 128 bits
        "U" + "0" * 25,
        "0" * 25 + "U",
        "0" * 25 + " ",
        "0" * 25 + "\n",
        "0" * 25 + "\u00df",  # becomes two letters in upper case
        "0" * 25 + "\u017f",  # becomes a plain S in upper case
        "0" * 25 + "\u0131",  # becomes a plain I in upper case
        "0" * 25 + "\u0663",
        "1_" + "0" * 30,
        "{" + "0" * 30 + "}",
        "urn:" + "0" * 32,
        "0" * 31 + "g",
        "00000000-0000-0000-0000-0000000000000",
        "0000000-00000-0000-0000-000000000000",
        "\u0660" * 32,
    ],
)
def test_what_only_looks_like_an_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidField) as refusal:
        parse_id(text)
    assert "ULID" in refusal.value.why


def test_an_id_that_is_no_text_is_refused_not_crashed_on() -> None:
    with pytest.raises(InvalidField):
        parse_id(7)  # type: ignore[arg-type]


def test_new_ids_are_valid_version_7_uuids_that_other_programs_can_read() -> None:
    for event_id in source().take(500):
        as_uuid = id_uuid(event_id)
        assert as_uuid.version == 7
        assert as_uuid.variant == uuid.RFC_4122
        assert id_time_ms(event_id) == NOW_MS
        assert int(ULID.from_str(event_id).timestamp * 1000) == NOW_MS


@given(st.lists(st.tuples(st.integers(-(10**9), 10**9), st.integers(1, 5)), min_size=1, max_size=30))
def test_ids_only_grow_however_the_wall_clock_jumps(steps: list[tuple[int, int]]) -> None:
    """F25: also when it steps back or stands still."""
    now = NOW_MS * 2
    ids: list[EventId] = []
    made = IdSource(now_ms=lambda: now)
    for step, count in steps:
        now += step
        ids += made.take(count)
    assert ids == sorted(set(ids))


def test_many_ids_of_one_millisecond_grow_across_the_seam_of_their_low_bits() -> None:
    """The rendering is cached for the first 20 characters; the seam is where the cache must be dropped."""
    near_the_seam = (1 << 30) - 3
    made = IdSource(now_ms=lambda: NOW_MS, random_bits=lambda bits: near_the_seam if bits > 12 else 0)
    ids = made.take(6)
    values = [id_value(event_id) for event_id in ids]
    assert [value - values[0] for value in values] == [0, 1, 2, 3, 4, 5]


def test_a_counter_that_runs_out_borrows_the_next_millisecond() -> None:
    # Only the first millisecond is seeded to its end; the random bits of the next ones are small.
    made = IdSource(now_ms=lambda: NOW_MS, random_bits=lambda bits: 5)
    made.take(1)
    made._counter = (1 << 62) - 3
    ids = made.take(5)
    assert ids == sorted(set(ids))
    assert [id_time_ms(event_id) - NOW_MS for event_id in ids] == [0, 0, 1, 1, 1]
    assert {id_uuid(event_id).version for event_id in ids} == {7}


def test_two_sources_do_not_make_the_same_ids() -> None:
    assert not set(source().take(1000)) & set(source().take(1000))


def test_an_id_may_be_a_day_ahead_and_not_a_millisecond_more() -> None:
    refuse_future_id(id_text((NOW_MS + AHEAD_MS_MAX) << 80), now_ms=NOW_MS)
    with pytest.raises(IdFromTheFuture) as refusal:
        refuse_future_id(id_text((NOW_MS + AHEAD_MS_MAX + 1) << 80), now_ms=NOW_MS)
    assert refusal.value.details["ahead_ms"] == AHEAD_MS_MAX + 1
    assert AHEAD_MS_MAX == 24 * 3600 * 1000


def test_an_id_from_beyond_the_calendar_is_refused_with_a_message() -> None:
    """An author could otherwise buy every tie with an id from the year 10889."""
    with pytest.raises(IdFromTheFuture, match="beyond the year 9999"):
        refuse_future_id("7ZZZZZZZZZZZZZZZZZZZZZZZZZ", now_ms=NOW_MS)


ORIGIN = "z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"


def test_an_id_of_a_signed_log_has_the_first_52_bits_of_the_hash_of_its_origin() -> None:
    (made,) = OriginIds().take(1, ORIGIN, 40, NOW_MS)
    bits = bin(int.from_bytes(hashlib.sha256(ORIGIN.encode()).digest(), "big"))[2:].zfill(256)
    text = bin(id_value(made))[2:].zfill(128)
    assert int(text[:48], 2) == NOW_MS
    assert text[48:52] == "0111"
    assert text[52:64] == bits[:12]
    assert text[64:66] == "10"
    assert text[66:106] == bits[12:52]
    assert int(text[106:], 2) == 41
    assert uuid.UUID(int=id_value(made)).version == 7


def test_an_id_matches_its_own_origin_and_number_and_no_other() -> None:
    other = ORIGIN[:-1] + "L"
    for number, made in enumerate(OriginIds().take(300, ORIGIN, 2**22 - 150, NOW_MS), 2**22 - 149):
        assert id_matches(made, ORIGIN, number)
        assert not id_matches(made, other, number)
        assert not id_matches(made, ORIGIN, number + 1)
        value = id_value(made)
        for bit in range(80):  # everything but the time
            assert not id_matches(id_text(value ^ (1 << bit)), ORIGIN, number), bit
    assert not id_matches(source().take(1)[0], ORIGIN, 1)


def test_ids_of_a_signed_log_grow_when_the_clock_stands_still_and_the_counter_is_exhausted() -> None:
    ids = OriginIds()
    made = [
        *ids.take(2, ORIGIN, 2**22 - 3, NOW_MS),
        *ids.take(3, ORIGIN, 2**22 - 1, NOW_MS),
        *ids.take(1, ORIGIN, 2**22 + 2, NOW_MS),
    ]
    made += ids.take(1, ORIGIN[:-1] + "L", 0, NOW_MS)  # the log took another key
    made += ids.take(2, ORIGIN[:-1] + "L", 0, NOW_MS)  # the write before was undone
    assert made == sorted(set(made))
    assert [id_time_ms(each) - NOW_MS for each in made] == [0, 0, 1, 1, 1, 1, 2, 3, 3]


def test_ids_of_two_processes_in_one_millisecond_differ_because_their_numbers_do() -> None:
    one, other = OriginIds(), OriginIds()
    made = [*one.take(3, ORIGIN, 0, NOW_MS), *other.take(3, ORIGIN, 3, NOW_MS), *one.take(3, ORIGIN, 6, NOW_MS)]
    assert len(set(made)) == 9

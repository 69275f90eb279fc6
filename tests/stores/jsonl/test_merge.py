"""Uniting two states of a day file: the result depends on the set of lines and on nothing else, to the byte."""

from __future__ import annotations

import json
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlog.core.ids import EventId
from everlog.errors import BadFile, IdConflict
from everlog.stores.contract import Encoded, encode_event
from everlog.stores.jsonl.day_files import scan, torn_at
from everlog.stores.jsonl.lines import (
    PurgedLine,
    PurgeLine,
    SignedGroup,
    event_line,
    purge_line,
    purged_line,
    read_marked_line,
)
from everlog.stores.jsonl.merge import merge_day_files
from everlog.testing.builders import NOON, Chain

NAME = "events/2026-11-15.jsonl"
GROUPS = (SignedGroup(4, 1, b"s" * 64), SignedGroup(1, 4, b"t" * 64))
PURGE_IDS = ("01HN3R5K8D000000000000000A", "01HN3R5K8D000000000000000B")


def merge(ours: bytes, theirs: bytes) -> bytes:
    return merge_day_files(NAME, ours, theirs)


def purged(sealed: Encoded, purge: str = PURGE_IDS[0]) -> PurgedLine:
    event = sealed.event
    return PurgedLine(
        hash=sealed.hash,
        id=event.id,
        origin=event.origin,
        origin_seq=event.origin_seq,
        previous=event.previous,
        purge=purge,
        stream=event.stream,
        lamport=event.lamport,
    )


def a_purge(number: int = 0, lamport: int = 3) -> PurgeLine:
    return PurgeLine(
        actor="user:ada",
        id=PURGE_IDS[number],
        origin=f"01TESTORGN000000000000000{number}",
        purged_at=NOON,
        reason="asked to",
        scopes=("",),
        stream="note/1",
        lamport=lamport,
    )


# ---- any states, in any order and grouping


def every_form() -> list[list[bytes]]:
    """Events of three origins, and every form in which a clone may have the line of each."""
    forms: list[list[bytes]] = []
    for number in range(3):
        chain = Chain(f"01TESTORGN000000000000000{number}")
        for count in range(4):
            made = chain.next(stream=f"note/{count % 2}", id=f"01HN3R5K8D00000000000{number}{count}000")
            erased = encode_event(msgspec.structs.replace(made.event, payload={}, salt=b""))
            erased_by = encode_event(msgspec.structs.replace(erased.event, erased_by=PURGE_IDS[0]))
            forms.append(
                [
                    event_line(made, NOON),
                    event_line(made, NOON, batch=(2, 3)),
                    event_line(made, NOON + timedelta(days=1), via="01TESTORGN0000000000000009", batch=(1, 2)),
                    event_line(made, NOON, claims={"bmFtZQ==": 1}),
                    event_line(made, NOON, claims={"bmFtZQ==": 1}, group=GROUPS[0]),
                    event_line(erased, NOON),
                    event_line(erased_by, NOON, batch=(1, 2), group=GROUPS[1]),
                    purged_line(purged(made)),
                    purged_line(msgspec.structs.replace(purged(made), group=GROUPS[0]), batch=(2, 2)),
                    purged_line(purged(made, PURGE_IDS[1]), batch=(1, 4)),
                ]
            )
    forms += [[purge_line(a_purge(number)), purge_line(a_purge(number), batch=(1, 2))] for number in range(2)]
    return forms


FORMS = every_form()
# Some lines, in any order, each in any of its forms; one may stand there twice.
STATES = st.lists(
    st.integers(0, len(FORMS) - 1).flatmap(lambda index: st.sampled_from(FORMS[index])), max_size=12
).map(b"".join)


@given(STATES, STATES)
def test_it_does_not_matter_who_merges_whom(one: bytes, other: bytes) -> None:
    assert merge(one, other) == merge(other, one)


@given(STATES, STATES, STATES)
def test_it_does_not_matter_who_is_merged_first(one: bytes, two: bytes, three: bytes) -> None:
    assert merge(merge(one, two), three) == merge(one, merge(two, three)) == merge(merge(one, three), two)


@given(STATES, STATES)
def test_merging_again_changes_nothing(one: bytes, other: bytes) -> None:
    united = merge(one, other)
    assert merge(united, one) == merge(other, united) == merge(united, united) == merge(united, b"") == united


@given(STATES, STATES)
def test_every_id_of_both_sides_is_there_once(one: bytes, other: bytes) -> None:
    def ids(data: bytes) -> list[str]:
        return [found.line.id for found in scan(data) if found.line is not None]

    assert sorted(ids(merge(one, other))) == sorted({*ids(one), *ids(other)})


@given(STATES, STATES)
def test_nothing_of_what_is_united_looks_torn(one: bytes, other: bytes) -> None:
    """Whoever opens the log cuts half a batch at the end, if it is its own."""
    united = merge(one, other)
    for number in range(3):
        assert torn_at(united, 0, list(scan(united)), own=f"01TESTORGN000000000000000{number}") is None


@given(STATES, STATES)
def test_no_signature_of_a_group_is_lost(one: bytes, other: bytes) -> None:
    def signed(data: bytes) -> set[str]:
        lines = [found.line for found in scan(data) if found.line is not None]
        return {line.id for line in lines if getattr(line, "group", None) is not None}

    assert signed(merge(one, other)) == signed(one) | signed(other)


@given(STATES, STATES)
def test_what_one_side_erased_or_purged_does_not_come_back(one: bytes, other: bytes) -> None:
    def gone(data: bytes) -> set[str]:
        """What names a purge, or the event that allowed its erasure."""
        lines = [found.line for found in scan(data) if found.line is not None]
        return {line.id for line in lines if getattr(line, "erased_by", "") or isinstance(line, PurgedLine)}

    assert gone(merge(one, other)) == gone(one) | gone(other)


def test_a_line_without_its_payload_that_names_no_record_loses_against_the_event() -> None:
    made = Chain().next(payload={"text": "hello"})
    bare = event_line(encode_event(msgspec.structs.replace(made.event, payload={}, salt=b"")), NOON)
    whole = event_line(made, NOON)
    assert merge(whole, bare) == merge(bare, whole) == whole
    with pytest.raises(BadFile):  # and what was purged without naming a purge is no line at all
        merge(whole, purged_line(purged(made, "")))


# ---- what comes where


def test_lines_stand_in_causal_order_and_keep_their_bytes() -> None:
    ada, bob = Chain("01TESTORGN000000000000000A"), Chain("01TESTORGN000000000000000B")
    first = event_line(ada.next(), NOON)
    ours = [event_line(ada.next(), NOON), event_line(ada.next(), NOON)]
    theirs = [event_line(bob.next(lamport=2), NOON), event_line(bob.next(lamport=4), NOON)]

    united = merge(first + b"".join(ours), first + b"".join(theirs))

    assert united.splitlines(keepends=True) == [first, ours[0], theirs[0], ours[1], theirs[1]]


def test_a_line_of_a_batch_becomes_the_line_that_it_would_be_alone() -> None:
    made = Chain().next(payload={"text": '"batch":[1,2],', "n": 1.5, "u": "\u2028"}, actor="user:ada")
    assert merge(event_line(made, NOON, batch=(1, 2)), b"") == event_line(made, NOON)
    assert merge(b"", purge_line(a_purge(), batch=(1, 2))) == purge_line(a_purge())


def test_a_purge_stands_behind_what_it_knew_and_before_what_came_after_it() -> None:
    chain = Chain()
    events = [chain.next() for _ in range(4)]
    lines = [event_line(each, NOON) for each in events]
    with_purge = b"".join(
        [*(purged_line(purged(each)) for each in events[:3]), purge_line(a_purge(lamport=3)), lines[3]]
    )

    assert merge(b"".join(lines), with_purge) == with_purge


def test_of_two_purges_of_one_event_the_lesser_stays_named_and_both_stay_on_record() -> None:
    made = Chain().next()
    ours = purged_line(purged(made, PURGE_IDS[1])) + purge_line(a_purge(1))
    theirs = purged_line(purged(made, PURGE_IDS[0])) + purge_line(a_purge(0))
    united = merge(ours, theirs)
    assert united == purged_line(purged(made, PURGE_IDS[0])) + purge_line(a_purge(0)) + purge_line(a_purge(1))


def test_a_last_line_without_its_end_gets_one() -> None:
    chain = Chain()
    one, two = event_line(chain.next(), NOON), event_line(chain.next(), NOON)
    assert merge(one[:-1], two) == one + two


def test_lines_of_the_seeds_own_shape_keep_their_bytes() -> None:
    seed = {
        "event_id": "01HN3R5K8D1234567890ABCDEF",
        "event_type": "WPStatusChanged",
        "event_version": 1,
        "lamport_clock": 42,
        "entity_id": "WP03",
        "entity_type": "WorkPackage",
        "timestamp": "2026-01-27T10:30:00Z",
        "actor": "builder-one",
        "payload": {"new_status": "for_review"},
    }
    line = json.dumps(seed).encode() + b"\n"
    ours = event_line(Chain().next(), NOON)
    assert merge(line, ours) == ours + line


# ---- what is refused


def test_the_same_id_with_another_content_is_refused_and_both_lines_are_named() -> None:
    chain, other = Chain(), Chain("01TESTORGN000000000000000B")
    before = event_line(chain.next(), NOON)
    same = "01HN3R5K8D1234567890ABCDEF"
    ours = event_line(chain.next(id=same, payload={"text": "one"}), NOON)
    theirs = event_line(other.next(id=same, payload={"text": "two"}, actor="user:bob"), NOON)

    with pytest.raises(IdConflict) as refused:
        merge(before + ours, before + theirs)

    assert f"{NAME} (ours):2 and {NAME} (theirs):2" in str(refused.value)
    assert "user:ada" in refused.value.why
    assert "user:bob" in refused.value.why


def test_a_payload_that_does_not_fit_its_header_does_not_win_by_its_bytes() -> None:
    made = Chain().next(payload={"text": "hello"})
    forged = msgspec.structs.replace(made.event, payload={"text": "aaaaa"})
    with pytest.raises(IdConflict):
        merge(event_line(made, NOON), event_line(encode_event(forged), NOON))


def test_what_stays_of_another_event_does_not_purge_this_one() -> None:
    made = Chain().next()
    other = msgspec.structs.replace(purged(made), hash=b"x" * 32)
    with pytest.raises(IdConflict):
        merge(event_line(made, NOON), purged_line(other))


def test_the_id_of_an_event_is_not_that_of_a_purge() -> None:
    made = Chain().next(id=PURGE_IDS[0])
    with pytest.raises(IdConflict):
        merge(event_line(made, NOON), purge_line(a_purge(0)))


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"<<<<<<< HEAD\n", "conflict marker"),
        (b"=======\n", "conflict marker"),
        (b"\n", "empty"),
        (b'{"colour":"blue"}\n', "colour"),
        (b'{"actor":"user:ada","commit', "truncated"),
    ],
)
@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_a_line_that_cannot_be_read_is_refused_with_its_place(bad: bytes, why: str, side: str) -> None:
    good = event_line(Chain().next(), NOON)
    states = {"ours": good, "theirs": good, side: good + bad}
    with pytest.raises(BadFile) as refused:
        merge(states["ours"], states["theirs"])
    assert f"{NAME} ({side}):2: " in refused.value.why
    assert why in refused.value.why


def test_a_changed_byte_is_refused() -> None:
    line = event_line(Chain().next(), NOON).replace(b"user:ada", b"user:eve")
    with pytest.raises(BadFile, match=r"1 line is wrong: .*checksum"):
        merge(line, b"")


def test_a_merged_line_reads_as_before() -> None:
    made = Chain().next(id=str(EventId("01HN3R5K8D1234567890ABCDEF")))
    united = merge(event_line(made, NOON, batch=(1, 2)), b"")
    line, batch = read_marked_line(united[:-1])
    assert batch is None
    assert line.id == made.event.id

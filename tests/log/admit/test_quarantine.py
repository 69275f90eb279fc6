"""What waits beside the log: its rows, its room, and what makes room for others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from everlog.log.admit import quarantine as module
from everlog.log.admit.erased import bare
from everlog.log.admit.quarantine import ORIGIN_BYTES_MAX, ORIGIN_EVENTS_MAX, Quarantine, held_events, held_rows
from everlog.stores.contract import Encoded
from everlog.stores.memory import MemoryStore
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import read_note
from everlog.testing.builders import Chain, put_note

A, B, C = (f"01{letter}{24 * '0'}" for letter in "ABC")


@pytest.fixture
def write() -> Iterator[OpenWrite]:
    with MemoryStore().open_write() as write:
        yield write


def some(origin: str, count: int) -> list[Encoded]:
    chain = Chain(origin)
    return [chain.next() for _ in range(count)]


def fill(waiting: Quarantine, events: list[Encoded], code: str = "out_of_order", *, stranger: bool = False) -> None:
    for one in events:
        assert waiting.add(one, code, stranger=stranger)


def totals(waiting: Quarantine) -> dict[str, tuple[int, int]]:
    return {origin: total for origin, total in waiting._totals().items() if any(total)}


def counted(waiting: Quarantine, *origins: str) -> dict[str, tuple[int, int]]:
    return {origin: (len(waiting.of(origin)), sum(row.size for row in waiting.of(origin))) for origin in origins}


def test_what_is_kept_is_counted_and_read_again_by_the_next_write() -> None:
    store, events = MemoryStore(), [*some(A, 3), *some(B, 1)]
    with store.open_write() as write:
        waiting = Quarantine(write)
        fill(waiting, events)
        waiting.remove(A, events[1].hash)
        waiting.remove(A, b"no event has this hash")
        assert totals(waiting) == counted(waiting, A, B)
        assert waiting.origins() == {A, B}
        waiting.save()
    with store.open_write() as write:
        again = Quarantine(write)
        assert totals(again) == counted(again, A, B)
        assert [row.id for row in again.of(A)] == [events[0].event.id, events[2].event.id]
        assert [again.event(A, row) for row in again.of(A)] == [events[0], events[2]]
        assert {one.hash for one in held_events(write)} == {events[0].hash, events[2].hash, events[3].hash}
        again.remove(B, events[3].hash)
        assert again.origins() == {A}
        again.save()
        assert [origin for origin, _ in held_rows(write)] == [A]


def test_an_event_is_kept_once_with_the_last_reason(write: OpenWrite) -> None:
    waiting, (one, other) = Quarantine(write), some(A, 2)
    fill(waiting, [one, other], "unknown_author")
    waiting.save()
    fill(waiting, [one], "out_of_order")
    waiting.save()
    assert [row.code for row in Quarantine(write).of(A)] == ["out_of_order", "unknown_author"]
    assert totals(waiting) == counted(waiting, A)


def test_an_event_with_its_payload_takes_the_place_of_one_without(write: OpenWrite) -> None:
    waiting, (one, other) = Quarantine(write), some(A, 2)
    without = bare(one, "01BY")
    fill(waiting, [without, other])
    assert waiting.some_are_bare()
    assert waiting.whole(A, one.hash) is None
    fill(waiting, [one])
    assert not waiting.some_are_bare()
    assert waiting.whole(A, one.hash) == one
    fill(waiting, [without])
    assert not waiting.some_are_bare()
    assert len(waiting.of(A)) == 2
    assert totals(waiting) == counted(waiting, A)


def test_what_is_forgotten_waits_without_its_payload_and_the_others_with_theirs(write: OpenWrite) -> None:
    waiting, (one, other) = Quarantine(write), some(A, 2)
    fill(waiting, [other, one])
    assert waiting.event(A, waiting.of(A)[1]) == one
    waiting.forget(A, one.hash, "01BY")
    waiting.save()
    found = {row.id: waiting.event(A, row) for row in waiting.of(A)}
    assert found[other.event.id] == other
    kept = found[one.event.id]
    assert kept is not None
    assert (kept.event.payload, kept.event.salt, kept.event.erased_by) == ({}, b"", "01BY")
    assert totals(waiting) == totals(Quarantine(write)) == counted(waiting, A)


def test_an_origin_has_room_for_so_many_events_and_bytes(write: OpenWrite, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, events = Quarantine(write), some(A, 3)
    assert not waiting.is_crowded(A, ORIGIN_BYTES_MAX)
    assert waiting.is_crowded(A, ORIGIN_BYTES_MAX + 1)
    fill(waiting, events[:2])
    size = sum(row.size for row in waiting.of(A))
    assert not waiting.is_crowded(A, ORIGIN_BYTES_MAX - size)
    assert waiting.is_crowded(A, ORIGIN_BYTES_MAX - size + 1)
    monkeypatch.setattr(module, "ORIGIN_EVENTS_MAX", 3)
    assert not waiting.is_crowded(A, 0)
    fill(waiting, events[2:])
    assert waiting.is_crowded(A, 0)
    assert not waiting.is_crowded(B, 0)
    assert ORIGIN_EVENTS_MAX == module.EVENTS_MAX / 10


def test_the_bytes_of_an_origin_and_of_all_are_bounded(write: OpenWrite, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, events, others = Quarantine(write), some(A, 3), some(B, 1)
    fill(waiting, [*events, *others])
    sizes = [row.size for row in waiting.of(A)]
    for last in (events[2], others[0]):
        waiting.remove(last.event.origin, last.hash)
    monkeypatch.setattr(module, "ORIGIN_BYTES_MAX", sum(sizes) - 1)
    assert not waiting.add(events[2], "out_of_order", stranger=False)
    monkeypatch.setattr(module, "ORIGIN_BYTES_MAX", sum(sizes))
    monkeypatch.setattr(module, "BYTES_MAX", sum(sizes) - 1)
    assert not waiting.add(events[2], "out_of_order", stranger=False)
    monkeypatch.setattr(module, "BYTES_MAX", sum(sizes))
    fill(waiting, events[2:])
    assert not waiting.add(others[0], "out_of_order", stranger=False)


def test_the_unknown_origin_that_has_the_most_makes_room(write: OpenWrite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVENTS_MAX", 6)
    waiting = Quarantine(write)
    fill(waiting, some(A, 1), "unknown_author", stranger=True)
    fill(waiting, some(B, 2), "unknown_author", stranger=True)
    known = some(C, 3)
    fill(waiting, [*known, *known])  # the second time they have their room
    more = Chain("01D" + 24 * "0")
    assert not waiting.add(more.next(), "unknown_author", stranger=True)
    assert waiting.add(more.next(), "out_of_order", stranger=False)
    assert totals(waiting).keys() == {A, C, more.origin}
    assert totals(waiting) == counted(waiting, A, C, more.origin)


def test_no_origin_makes_room_for_itself_and_none_that_is_known(
    write: OpenWrite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EVENTS_MAX", 3)
    waiting, own = Quarantine(write), some(A, 3)
    fill(waiting, own[:2], "unknown_author")
    known = some(B, 2)
    fill(waiting, known[:1])
    assert not waiting.add(own[2], "out_of_order", stranger=False)
    waiting.remove(A, own[0].hash)
    fill(waiting, known[1:], "unknown_author")  # only one of its two is of an unknown author
    assert waiting.add(some(C, 1)[0], "out_of_order", stranger=False)
    assert totals(waiting).keys() == {B, C}


def test_what_cannot_be_read_any_more_is_dropped(write: OpenWrite) -> None:
    waiting, events = Quarantine(write), some(A, 2)
    fill(waiting, events)
    waiting.save()
    put_note(write, f"held-event/{A}/{events[0].hash.hex()}", "no event")
    again = Quarantine(write)
    first, second = again.of(A)
    assert again.event(A, first) is None
    assert again.event(A, second) == events[1]
    assert again.of(A) == [second]
    assert totals(again) == counted(again, A)
    put_note(write, f"held-event/{A}/{events[1].hash.hex()}", _stored(write, some(B, 1)[0]))
    assert Quarantine(write).event(A, second) is None, "it is another event"
    put_note(write, f"held/{A}", "no rows")
    assert Quarantine(write).of(A) == []


def _stored(write: OpenWrite, one: Encoded) -> str:
    """Return the text in which an event waits."""
    fill(Quarantine(write), [one])
    return read_note(write, f"held-event/{one.event.origin}/{one.hash.hex()}") or ""

"""Which request made which events: kept for its time, found wherever it lies, forgotten after."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlog.core.event import Position
from everlog.stores.sqlite import tail
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.builders import seal_any, stamped


def test_a_claim_is_kept_for_its_time_and_forgotten_within_twice_that(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounded: a table that only grows would make every append slower for ever."""
    monkeypatch.setattr(tail, "TAIL_MAX", 2)
    hour = 3_600_000_000
    now = [1_000 * hour]
    store = SqliteStore(path, now_us=lambda: now[0])
    kept: dict[bytes, int] = {}
    for number in range(200):
        name = number.to_bytes(16, "big")
        with store.write() as writer:
            writer.append([stamped(writer, store.identity.origin)], fresh=True)
            writer.claim(name, Position(number + 1), 1)
        kept[name] = now[0]
        now[0] += hour
        if number == 100:
            store.close()
            store = SqliteStore(path, now_us=lambda: now[0])
    for name, since in kept.items():
        if now[0] - since <= 24 * hour:
            assert store.claimed(name) is not None
        elif now[0] - since > 54 * hour:
            assert store.claimed(name) is None
    store.close()


def test_names_that_are_remembered_are_forgotten_when_another_process_claims(path: Path) -> None:
    """F82: a store that wrote alone for long answers from memory; then it must not miss what somebody else claims."""
    one, other = SqliteStore(path), SqliteStore(path)
    for number in range(50):
        with one.write() as writer:
            assert writer.claimed(bytes(16)) is None
            writer.append([stamped(writer, one.identity.origin)], fresh=True)
            writer.claim((number + 1).to_bytes(16, "big"), Position(number + 1), 1)
    with other.write() as writer:
        writer.append([stamped(writer, one.identity.origin)], fresh=True)
        writer.claim(bytes(16), Position(51), 1)
    with one.write() as writer:
        assert writer.claimed(bytes(16)) is not None
    one.close()
    other.close()


def test_every_claim_is_found_wherever_it_lies_by_now(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F82: in the tail, in a table, among the names that are remembered: a claim that is missed is a second event."""
    monkeypatch.setattr(tail, "TAIL_MAX", 50)
    store = SqliteStore(path)
    for number in range(200):
        if number == 110:  # what was remembered is fetched anew, with events in the tail
            store.close()
            store = SqliteStore(path)
        names = [other.to_bytes(16, "big") for other in range(number)]
        with store.write() as writer:
            assert writer.claimed_among([*names, bytes([255]) * 16]) == set(names)
            assert all(writer.claimed(name) for name in names[:: 1 + number // 20])
            assert writer.claimed(bytes([255]) * 16) is None
            writer.append([stamped(writer, store.identity.origin)], fresh=True)
            writer.claim(number.to_bytes(16, "big"), Position(number + 1), 1)
    assert store.claimed_among(names) == set(names)
    store.close()


def test_a_writer_learns_that_another_let_the_claim_tables_change_their_turn(path: Path) -> None:
    """F82: with a turn remembered from before, it would empty the table that holds the newest claims."""
    hour = 3_600_000_000
    now = [1_000 * hour]
    one, other = (SqliteStore(path, now_us=lambda: now[0]) for _ in range(2))

    def write(store: SqliteStore, events: int, name: bytes = b"") -> None:
        with store.write() as writer:
            made = writer.append([seal_any() for _ in range(events)])
            if name:
                writer.claim(name, made[0].position, events)

    write(one, 1, b"o" * 16)
    write(one, tail.TAIL_MAX + 1)
    now[0] += 24 * hour
    write(one, 1, b"k" * 16)
    write(other, tail.TAIL_MAX + 1)  # it is the other table's turn
    write(one, tail.TAIL_MAX + 1)
    assert one.claimed(b"k" * 16) is not None
    one.close()
    other.close()

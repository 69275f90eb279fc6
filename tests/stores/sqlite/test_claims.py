"""Which request made which events: kept for its time, found wherever it lies, forgotten after."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from everlog.core.event import Position
from everlog.stores.contract import Claim
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import CLAIMS, claim_of, read_claim
from everlog.stores.sqlite import claims, tail
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.builders import Boom, claimed_among, put_claim, seal_any, stamped


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
        with store.open_write() as writer:
            writer.append([stamped(writer, store.identity.origin)], fresh=True)
            put_claim(writer, name, Position(number + 1), 1)
        kept[name] = now[0]
        now[0] += hour
        if number == 100:
            store.close()
            store = SqliteStore(path, now_us=lambda: now[0])
    for name, since in kept.items():
        if now[0] - since <= 24 * hour:
            assert read_claim(store.small_state, name) is not None
        elif now[0] - since > 54 * hour:
            assert read_claim(store.small_state, name) is None
    store.close()


def test_names_that_are_remembered_are_forgotten_when_another_process_claims(path: Path) -> None:
    """F82: a store that wrote alone for long answers from memory; then it must not miss what somebody else claims."""
    one, other = SqliteStore(path), SqliteStore(path)
    for number in range(50):
        with one.open_write() as writer:
            assert read_claim(writer, hashed(99)) is None
            writer.append([stamped(writer, one.identity.origin)], fresh=True)
            put_claim(writer, hashed(number), Position(number + 1), 1)
    assert one._claims._traces is not None
    claim_one(other, hashed(99))
    with one.open_write() as writer:
        assert read_claim(writer, hashed(99)) is not None
    for number in range(100, 100 + tail.TAIL_MAX):  # what the other claimed leaves the tail
        claim_one(one, hashed(number))
    with one.open_write() as writer:
        assert read_claim(writer, hashed(99)) is not None
    one.close()
    other.close()


def test_claims_that_another_process_moves_out_of_the_tail_are_still_known(path: Path) -> None:
    """F82: they were neither in a table when this one made its traces, nor are they news of the other."""
    one, other = SqliteStore(path), SqliteStore(path)
    made = {}
    for number in range(50):
        made[hashed(number)] = claim_one(one, hashed(number))
        with one.open_write() as writer:
            assert read_claim(writer, hashed(1_000 + number)) is None
    made[hashed(99)] = claim_one(other, hashed(99))
    with other.open_write() as writer:
        writer.append([stamped(writer, one.identity.origin) for _ in range(tail.TAIL_MAX)], fresh=True)
    with one.open_write() as writer:
        assert claimed_among(writer, list(made)) == made.keys()
        assert {name: read_claim(writer, name) for name in made} == made
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
        with store.open_write() as writer:
            assert claimed_among(writer, [*names, bytes([255]) * 16]) == set(names)
            assert all(read_claim(writer, name) for name in names[:: 1 + number // 20])
            assert read_claim(writer, bytes([255]) * 16) is None
            writer.append([stamped(writer, store.identity.origin)], fresh=True)
            put_claim(writer, number.to_bytes(16, "big"), Position(number + 1), 1)
    assert claimed_among(store.small_state, names) == set(names)
    store.close()


def test_a_writer_learns_that_another_let_the_claim_tables_change_their_turn(path: Path) -> None:
    """F82: with a turn remembered from before, it would empty the table that holds the newest claims."""
    hour = 3_600_000_000
    now = [1_000 * hour]
    one, other = (SqliteStore(path, now_us=lambda: now[0]) for _ in range(2))

    def write(store: SqliteStore, events: int, name: bytes = b"") -> None:
        with store.open_write() as writer:
            made = writer.append([seal_any() for _ in range(events)])
            if name:
                put_claim(writer, name, made[0].position, events)

    write(one, 1, b"o" * 16)
    write(one, tail.TAIL_MAX + 1)
    now[0] += 24 * hour
    write(one, 1, b"k" * 16)
    write(other, tail.TAIL_MAX + 1)  # it is the other table's turn
    write(one, tail.TAIL_MAX + 1)
    assert read_claim(one.small_state, b"k" * 16) is not None
    one.close()
    other.close()


def small_drawers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few claims are enough for runs to be sorted into drawers."""
    monkeypatch.setattr(tail, "TAIL_MAX", 3)
    monkeypatch.setattr(claims, "_RUNS_MAX", 4)
    monkeypatch.setattr(claims, "_RUN_CLAIMS_MIN", 10)
    monkeypatch.setattr(claims, "_ROWS_AT_ONCE", 2)


def hashed(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()[:16]


def claim_one(store: SqliteStore, name: bytes) -> Claim:
    with store.open_write() as writer:
        (made,) = writer.append([stamped(writer, store.identity.origin)], fresh=True)
        put_claim(writer, name, made.position, 1)
    return Claim(made.position, 1)


def places(store: SqliteStore) -> set[int]:
    """The drawers in which something lies, and 256 for runs."""
    rows = store._fetch("SELECT place FROM claims_even UNION ALL SELECT place FROM claims_odd", ())
    return {place >> 32 for (place,) in rows}


def test_claims_are_found_in_the_tail_in_runs_and_in_drawers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F82: by the writer, by another that was just opened, by a reader, and in a copy."""
    small_drawers(monkeypatch)
    store = SqliteStore(path)
    made: dict[bytes, Claim] = {}
    for number in range(150):
        made[hashed(number)] = claim_one(store, hashed(number))
        unknown = hashed(number + 1_000)
        with store.open_write() as writer:
            assert claimed_among(writer, [*made, unknown]) == made.keys()
            assert {name: read_claim(writer, name) for name in made} == made
            assert read_claim(writer, unknown) is None
    assert 256 in places(store)
    assert len(places(store)) > 50
    other = SqliteStore(path)
    assert {name: read_claim(other.small_state, name) for name in made} == made
    assert read_claim(other.small_state, hashed(1_000)) is None
    with other.open_write() as writer:
        assert claimed_among(writer, [*made, hashed(1_000)]) == made.keys()
    kept = [row for row in other.small_state.every_row() if row.space == CLAIMS]
    assert sorted((bytes.fromhex(found.key), claim_of(found.value).first) for found in kept) == sorted(
        (name, claim.first) for name, claim in made.items()
    )
    store.close()
    other.close()


def test_a_name_that_is_claimed_again_leads_to_the_newer_wherever_the_older_lies(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_drawers(monkeypatch)
    store = SqliteStore(path)
    newest: dict[bytes, Claim] = {}
    for number in range(122):
        newest[hashed(number % 40)] = claim_one(store, hashed(number % 40))
        reader = SqliteStore(path)
        assert {name: read_claim(reader.small_state, name) for name in newest} == newest
        reader.close()
    kept = {
        bytes.fromhex(row.key): claim_of(row.value) for row in store.small_state.every_row() if row.space == CLAIMS
    }
    assert kept == newest
    store.close()


def test_bytes_that_only_run_across_two_fields_are_no_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim is 28 bytes beside another, and any 16 of them in a row could be somebody's name."""
    small_drawers(monkeypatch)
    monkeypatch.setattr(claims, "_WRITES_ALONE_MIN", 1_000)  # nothing is ruled out by its trace
    store = SqliteStore(path)
    for number in range(40):
        claim_one(store, hashed(number))
    stored = [
        packed for (packed,) in store._fetch("SELECT claims FROM claims_even UNION SELECT claims FROM claims_odd", ())
    ]
    across = {packed[at : at + 16] for packed in stored for at in range(len(packed) - 15) if at % 28}
    assert len(across) > 500
    with store.open_write() as writer:
        assert all(read_claim(writer, name) is None for name in across)
    assert all(read_claim(store.small_state, name) is None for name in list(across)[:100])
    store.close()


def test_names_that_leave_the_same_traces_are_told_apart(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_drawers(monkeypatch)
    store = SqliteStore(path)
    names = [bytes(15) + bytes([number]) for number in range(60)]
    for name in names[:50]:
        claim_one(store, name)
    with store.open_write() as writer:
        assert claimed_among(writer, names) == set(names[:50])
        assert [read_claim(writer, name) is not None for name in names] == [True] * 50 + [False] * 10
    store.close()


def test_few_claims_are_not_spread_over_drawers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a copy, whose every write brings some: a row for each of them would be what runs are there to avoid."""
    monkeypatch.setattr(tail, "TAIL_MAX", 0)
    store = SqliteStore(path)
    made = {hashed(number): claim_one(store, hashed(number)) for number in range(200)}
    assert places(store) == {256}
    ((rows,),) = store._fetch("SELECT count(*) FROM claims_even", ())
    ((others,),) = store._fetch("SELECT count(*) FROM claims_odd", ())
    assert rows + others < 32
    assert {name: read_claim(store.small_state, name) for name in made} == made
    store.close()


def test_a_write_that_failed_leaves_no_claim_whatever_was_sorted_in_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_drawers(monkeypatch)
    store = SqliteStore(path)
    made: dict[bytes, Claim] = {}
    failing = [False]
    committed = SqliteStore._commit

    def commit(self: SqliteStore, staged: OpenWrite) -> None:
        if failing[0]:
            assert self._writer is not None
            self._inserter.insert(self._writer, staged)
            raise Boom
        committed(self, staged)

    monkeypatch.setattr(SqliteStore, "_commit", commit)
    for number in range(100):
        failing[0] = True
        with pytest.raises(Boom):
            claim_one(store, hashed(number))
        assert read_claim(store.small_state, hashed(number)) is None
        failing[0] = False
        with store.open_write() as writer:
            assert claimed_among(writer, [hashed(number), *made]) == made.keys()
        made[hashed(number)] = claim_one(store, hashed(number))
    assert {name: read_claim(store.small_state, name) for name in made} == made
    store.close()

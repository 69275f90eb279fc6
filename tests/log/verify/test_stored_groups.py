"""Groups verified as they are stored: what was changed is found, and what purges left is taken in its place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from everlog.core.canonical import canonical
from everlog.core.event import START, Position, Purge, Purged, Recorded, microseconds
from everlog.core.group import Group, StoredEvent
from everlog.log.verify.audit import Verifier
from everlog.log.verify.stored_groups import take_groups
from everlog.stores.contract import Encoded, encode_event
from everlog.stores.staged_group import payload_text, staged_groups
from everlog.testing.builders import NOON, Chain

OWN = "01TESTORGN0000000000000000"
Records = list[tuple[Recorded, Encoded]]

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(list[Recorded]).decode


def staged(count: int, *, first: int = 1, chain: Chain | None = None, **fields: Any) -> Records:
    chain = chain or Chain(OWN)
    made = [chain.next(payload={"number": number}, **fields) for number in range(count)]
    return [
        (Recorded(Position(first + place), first + place, microseconds(NOON), encoded.event), encoded)
        for place, encoded in enumerate(made)
    ]


def stub(record: tuple[Recorded, Encoded], reserved: int) -> Purged:
    recorded, encoded = record
    event = encoded.event
    place = (recorded.position, recorded.sequence, event.id, event.origin, event.origin_seq)
    return Purged(*place, encoded.hash, event.previous, event.lamport, Position(reserved))


def stored_groups(records: Records, *, gone: Iterable[Purged] = (), rows: Any = None) -> list[Group]:
    """The groups as a store would read them, without purged events, and with rows that `rows` has changed."""
    hashes = {stub.origin_seq: stub.hash for stub in gone}
    removed = {stub.position for stub in gone}
    found = []
    for group in staged_groups(records, {}):
        kept = [row for row in group.rows(payload_text, own=OWN) if row[0] not in removed]
        data = _encode(rows(kept) if rows else kept)

        def load(data: bytes = data) -> list[StoredEvent]:
            return [
                StoredEvent(recorded, canonical(recorded.event.payload) if recorded.event.salt else b"")
                for recorded in _decode(data)
            ]

        found.append(Group(group.facts, load, partial(lambda known, origin, number: known.get(number), hashes)))
    return found


def problems(items: Sequence[Group | Purged], head: int, *, purges: Sequence[Purge] = ()) -> list[tuple[Any, ...]]:
    audit = Verifier(OWN, purges)
    for _ in take_groups(audit, items, upto=Position(head)):
        pass
    audit.end(Position(head))
    audit.close()
    return [(problem.code, problem.position, problem.upto) for problem in audit.problems]


def purge(reserved: int, count: int) -> Purge:
    return Purge(Position(reserved), "note/1", ("",), "user:ada", "why", microseconds(NOON), 9, count)


def test_sound_groups_have_no_problem_and_the_digest_of_their_headers() -> None:
    records = staged(300)
    audit = Verifier(OWN, [])
    assert list(take_groups(audit, stored_groups(records), upto=Position(300))) == [1, 129, 257]
    audit.end(Position(300))
    by_header = Verifier(OWN, [])
    for _, encoded in records:
        by_header.saw(encoded.hash)
    assert audit.problems == []
    assert audit.events == 300
    assert audit.digest.hexdigest() == by_header.digest.hexdigest()


@pytest.mark.parametrize("field", [1, 3, 4, 8, 17, 18], ids=["type", "stream", "lamport", "actor", "payload", "salt"])
def test_one_changed_value_is_reported_once_with_the_positions_of_its_group(field: int) -> None:
    other = {1: "note.other", 3: "note/2", 4: 77, 8: "user:eve", 17: {"number": 77}, 18: "AAAAAAAAAAAAAAAAAAAAAA=="}

    def changed(rows: list[tuple[Any, ...]]) -> list[Any]:
        if rows[0][0] != 1:
            return rows
        position, sequence, received, row = rows[2]
        return [*rows[:2], (position, sequence, received, (*row[:field], other[field], *row[field + 1 :])), *rows[3:]]

    chain = Chain(OWN)
    records = staged(5, chain=chain) + staged(3, first=6, chain=chain)
    records[5:] = [
        (replace(recorded, received_us=recorded.received_us + 1), encoded) for recorded, encoded in records[5:]
    ]
    found = [problem for problem in problems(stored_groups(records, rows=changed), 8) if problem[0] != "sequence_gap"]
    assert found == [("group_changed", 1, 5)]


def test_a_missing_group_and_a_missing_end_are_reported() -> None:
    first, second, third = stored_groups(staged(300))
    missing = [("position_missing", 129, 256), ("sequence_gap", 257, START), ("chain_broken", 257, START)]
    assert problems([first, third], 300) == missing
    assert problems([first, second], 300) == [("position_missing", 257, 300)]
    assert problems([first, second, third], 200) == []  # the rest came while it was verified


@pytest.mark.parametrize("first", [True, False], ids=["stubs first", "stubs last"])
def test_what_purges_left_is_taken_in_its_place(first: bool) -> None:
    records = staged(5)
    gone = [stub(records[1], 6), stub(records[4], 6)]
    (group,) = stored_groups(records, gone=gone)
    items: list[Group | Purged] = [*gone, group] if first else [group, *gone]
    assert problems(items, 6, purges=[purge(6, 2)]) == []
    assert ("purge_disagrees", 6, START) in problems([group, gone[1]], 6, purges=[purge(6, 2)])


def test_a_stub_with_another_hash_breaks_the_chain() -> None:
    records = staged(3)
    false = replace(stub(records[1], 4), hash=b"x" * 32)
    (group,) = stored_groups(records, gone=[false])
    assert [code for code, _, _ in problems([false, group], 4, purges=[purge(4, 1)])] == ["group_changed"]


def test_an_own_payload_may_only_be_missing_with_the_event_that_allowed_it() -> None:
    for erased_by, code in (("01K00000000000000000000002", []), ("", ["payload_missing"])):
        chain = Chain(OWN)
        event = replace(chain.next().event, payload={}, salt=b"", erased_by=erased_by)
        records = [(Recorded(Position(1), 1, microseconds(NOON), event), encode_event(event))]
        assert [found for found, _, _ in problems(stored_groups(records), 1)] == code


def test_a_payload_that_its_stored_commitment_does_not_fit_is_reported() -> None:
    event = replace(Chain(OWN).next().event, commitment=b"c" * 32)
    records = [(Recorded(Position(1), 1, microseconds(NOON), event), encode_event(event))]
    assert problems(stored_groups_of_a_peer(records), 1) == [("payload_changed", 1, START)]


def stored_groups_of_a_peer(records: Records) -> list[Group]:
    """Groups whose commitments were not trusted when they were stored."""
    (group,) = staged_groups(records, {})
    data = _encode(group.rows(payload_text))
    load = lambda: [StoredEvent(one, canonical(one.event.payload)) for one in _decode(data)]  # noqa: E731
    return [Group(group.facts, load, lambda origin, number: None)]

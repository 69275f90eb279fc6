"""A stored group: its events have every field, although the group does not store them."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from everlog.core.canonical import canonical
from everlog.core.codec import Packed, header_hash, pack, proof, split_proof, unpack
from everlog.core.event import EVENT_FIELDS, Event, Position, Recorded, microseconds, values_of, whole
from everlog.core.group import GROUP_MAX, Group, StoredEvent
from everlog.core.merkle import root, root_of_path
from everlog.errors import Damaged
from everlog.stores.contract import Encoded, encode_event
from everlog.stores.staged_group import Signatures, StagedGroup, payload_text, payload_value, staged_groups
from everlog.testing.builders import NOON, Chain

RECEIVED_US = microseconds(NOON)
OWN = "01TESTORGN0000000000000000"

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(list[Recorded]).decode
Records = list[tuple[Recorded, Encoded]]


def staged(count: int, *, first: int = 1, received_us: int = RECEIVED_US, chain: Chain | None = None) -> Records:
    chain = chain or Chain(OWN)
    found = []
    for number in range(count):
        encoded = chain.next(stream=f"note/{number % 3}", payload={"number": number, "text": "é"}, occurred_at=NOON)
        found.append((Recorded(Position(first + number), 1, received_us, encoded.event), encoded))
    return found


def read_back(
    group: StagedGroup, gone: dict[int, bytes] | None = None, *, without: tuple[int, ...] = (), own: str = OWN
) -> list[Recorded]:
    """Store a group as JSON and read it again, without the events that were purged."""
    rows = [row for row in group.rows(payload_text, own=own) if row[0] not in without]
    data = _encode(rows)

    def load() -> list[StoredEvent]:
        return [StoredEvent(recorded, canonical(recorded.event.payload)) for recorded in _decode(data)]

    made = Group(group.facts, load, lambda origin, number: (gone or {}).get(number))
    found = _decode(data)
    for recorded in found:
        msgspec.structs.force_setattr(recorded.event, "group", made)
    return found


def test_every_field_comes_back() -> None:
    records = staged(5)
    (group,) = staged_groups(records, {})
    for (recorded, encoded), found in zip(records, read_back(group), strict=True):
        assert found == recorded
        assert {name: getattr(found.event, name) for name in EVENT_FIELDS} == {
            name: getattr(encoded.event, name) for name in EVENT_FIELDS
        }
        assert found.received_us == RECEIVED_US
        assert pack(found).header == encoded.header
        assert header_hash(pack(found).header) == encoded.hash


def test_what_follows_from_the_group_is_not_stored() -> None:
    (group,) = staged_groups(staged(3), {})
    for row in group.rows(payload_value, own=OWN):
        stored = dict(zip(EVENT_FIELDS, row[3], strict=False))
        assert row[2] == 0
        assert [stored[name] for name in ("origin", "occurred_at", "commitment", "previous")] == [
            "",
            None,
            None,
            None,
        ]
        assert "signature" not in stored


def test_what_does_not_follow_is_stored() -> None:
    chain = Chain(OWN)
    earlier = chain.next(occurred_at=NOON - timedelta(hours=1))
    wrong = encode_event(replace(chain.next().event, commitment=b"c" * 32))
    erased = encode_event(replace(chain.next().event, payload={}, salt=b"", erased_by="01K00000000000000000000002"))
    for encoded in (earlier, wrong, erased):
        (group,) = staged_groups([(Recorded(Position(1), 1, RECEIVED_US, encoded.event), encoded)], {})
        (found,) = read_back(group, own="")
        assert found.event == encoded.event
        assert pack(found).header == encoded.header


@pytest.mark.parametrize(
    "change",
    [
        lambda records: records,
        lambda records: [*records[:2], *moved(records[2:], position=10)],
        lambda records: [*records[:2], *moved(records[2:], received_us=RECEIVED_US + 1)],
        lambda records: [*records[:2], *staged(2, first=3, chain=Chain("01TESTORGN0000000000000009"))],
        lambda records: [*records[:2], *moved(records[3:], position=-1)],
    ],
    ids=["whole", "another position", "another time", "another origin", "a hole in the chain"],
)
def test_a_group_is_a_run_of_one_chain_received_at_once(change: Any) -> None:
    records = change(staged(4))
    groups = staged_groups(records, {})
    assert len(groups) == (1 if len(records) == 4 and records[-1][0].position == 4 and one_origin(records) else 2)
    assert [record for group in groups for record in group.records] == records
    for group in groups:
        assert [found.event for found in read_back(group)] == [encoded.event for _, encoded in group.records]


def one_origin(records: Records) -> bool:
    return len({(encoded.event.origin, recorded.received_us) for recorded, encoded in records}) == 1


def moved(records: Records, *, position: int = 0, received_us: int = 0) -> Records:
    return [
        (
            replace(
                recorded,
                position=Position(recorded.position + position),
                received_us=received_us or recorded.received_us,
            ),
            encoded,
        )
        for recorded, encoded in records
    ]


def test_a_large_write_is_several_groups() -> None:
    groups = staged_groups(staged(2 * GROUP_MAX + 1), {})
    assert [group.facts.count for group in groups] == [GROUP_MAX, GROUP_MAX, 1]
    assert [(group.first, group.last) for group in groups] == [(1, 128), (129, 256), (257, 257)]
    assert groups[1].facts.previous == groups[0].facts.hash


def test_after_a_purge_the_hash_before_an_event_is_that_of_the_stub() -> None:
    records = staged(4)
    (group,) = staged_groups(records, {})
    gone = {2: records[1][1].hash, 3: records[2][1].hash}
    found = read_back(group, gone, without=(2, 3))
    assert [recorded.event for recorded in found] == [records[0][1].event, records[3][1].event]
    lost = read_back(group, {}, without=(2, 3))
    with pytest.raises(Damaged, match="hash of event 3"):
        _ = lost[1].event.previous


def signed(records: Records, first_seq: int, count: int) -> Signatures:
    return {(records[0][1].event.origin, first_seq): (count, b"s" * 64)}


def test_a_signature_is_stored_once_and_every_event_proves_itself() -> None:
    records = staged(6)
    groups = staged_groups(records, signed(records, 2, 3))
    assert [(group.facts.first_seq, group.facts.count, bool(group.facts.signature)) for group in groups] == [
        (1, 1, False),
        (2, 3, True),
        (5, 2, False),
    ]
    top = root(groups[1].hashes)
    for number, found in enumerate(read_back(groups[1])):
        assert found.event.signature == proof(b"s" * 64, (2, 3))
        assert split_proof(found.event.signature) == (b"s" * 64, 2, 3)
        assert root_of_path(groups[1].hashes[number], number, 3, found.event.path) == top
    assert read_back(groups[0])[0].event.signature == b""
    assert read_back(groups[0])[0].event.path == ()


def test_what_was_signed_together_stays_together_after_a_purge() -> None:
    records = staged(5)
    left = [records[0], records[2], records[4]]
    groups = staged_groups(left, signed(records, 1, 4))
    assert [(group.first, group.last, len(group.records)) for group in groups] == [(1, 4, 2), (5, 5, 1)]
    gone = {2: records[1][1].hash, 4: records[3][1].hash}
    first, third = read_back(groups[0], gone)
    hashes = [encoded.hash for _, encoded in records[:4]]
    assert root_of_path(hashes[2], 2, 4, third.event.path) == root(hashes)
    assert third.event == replace(records[2][1].event, signature=proof(b"s" * 64, (1, 4)), path=third.event.path)
    assert first.event.previous == b""


def test_packed_events_of_a_signed_group_name_the_group() -> None:
    records = staged(2)
    (group,) = staged_groups(records, signed(records, 1, 2))
    made = read_back(group)[0].event.group
    assert made is not None
    packed = list(made.packed())
    hashes = group.hashes
    assert [(slot.signature, slot.path, slot.signed_with) for slot in packed] == [
        (b"s" * 64, (hashes[1],), (1, 2)),
        (b"s" * 64, (hashes[0],), (1, 2)),
    ]
    assert [slot.header for slot in packed] == [encoded.header for _, encoded in records]
    assert isinstance(packed[0], Packed)
    assert unpack(packed[0]).event.payload == records[0][1].event.payload
    assert [unpack(slot).event.signature for slot in packed] == [proof(b"s" * 64, (1, 2))] * 2


def test_an_event_of_a_group_can_be_replaced_pickled_and_made_whole() -> None:
    records = staged(3)
    (group,) = staged_groups(records, {})
    found = read_back(group)[1].event
    assert replace(found, payload={"other": 1}).commitment == found.commitment == records[1][1].event.commitment
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert again.group is None
    assert values_of(whole(found)) == values_of(records[1][1].event)
    assert found != records[0][1].event
    assert isinstance(found, Event)


def test_a_header_from_outside_must_have_all_that_a_group_would_have() -> None:
    slot = pack(staged(1)[0][0])
    fields = msgspec.json.decode(slot.header)
    for place in (7, 15, 16):
        changed = [None if number == place else value for number, value in enumerate(fields)]
        with pytest.raises(Damaged):
            unpack(replace(slot, header=msgspec.json.encode(changed)))


def test_an_event_that_was_read_from_a_group_is_encoded_without_it() -> None:
    """It is stored with another time of arrival, perhaps, and must not take its own time from there."""
    records = staged(3)
    (group,) = staged_groups(records, {})
    found = read_back(group)[1].event
    encoded = encode_event(found)
    assert encoded.event.group is None
    assert (encoded.header, encoded.hash) == (records[1][1].header, records[1][1].hash)
    later = Recorded(Position(9), 1, RECEIVED_US + 1_000_000, encoded.event)
    (again,) = read_back(staged_groups([(later, encoded)], {})[0], own="")
    assert again.event == records[1][1].event
    assert pack(again).header == encoded.header

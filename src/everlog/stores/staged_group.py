"""The events of a write, divided into the groups that a store keeps: see `everlog.core.group`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple, force_setattr

from everlog.core.codec import HEADER_FIELDS, commitment
from everlog.core.event import Position, Purged, Recorded, moment
from everlog.core.group import GROUP_MAX, GroupFacts, SignedGroup
from everlog.stores.contract import Encoded

_HEADER_LENGTH = len(HEADER_FIELDS)
_OCCURRED_AT = HEADER_FIELDS.index("occurred_at")
_ORIGIN = HEADER_FIELDS.index("origin")

Record = tuple[Recorded, Encoded]
Signatures = Mapping[tuple[str, int], tuple[int, bytes]]
"""Of groups, by origin and first number: how many events the group has, and its signature."""


class StagedGroup:
    """One group of an open write: positions `first` to `last`. It has no records if all of them were purged."""

    __slots__ = ("_records", "facts", "first", "last")

    def __init__(self, facts: GroupFacts, first: Position, last: Position, records: Sequence[Record]) -> None:
        self.facts = facts
        self.first = first
        self.last = last
        self._records = records

    @property
    def records(self) -> Sequence[Record]:
        return self._records

    @property
    def hashes(self) -> list[bytes]:
        return [encoded.hash for _, encoded in self.records]

    def give(self, signed: SignedGroup) -> None:
        """Give its events the group with its signature."""
        for recorded, _ in self.records:
            force_setattr(recorded.event, "group", signed)

    def rows(self, payload_of: Callable[[Encoded], Any], *, own: str = "") -> Sequence[tuple[Any, ...]]:
        """Return the records as they are stored, for an encoder of msgspec: without what follows from the group.

        The commitments of events of the `own` origin are known to be right: this log has computed them.
        """
        return list(self._rows_of_records(payload_of, own))

    def _rows_of_records(self, payload_of: Callable[[Encoded], Any], own: str) -> Iterator[tuple[Any, ...]]:
        facts = self.facts
        received_at = moment(facts.received_us)
        trusted = facts.origin == own
        following, before, of_group = facts.first_seq, facts.previous, facts.proof
        for recorded, encoded in self.records:
            event = encoded.event
            values = astuple(event)
            *_, occurred_at, given, previous, _, salt, signature, path, erased_by, _ = (
                *values[_OCCURRED_AT : _OCCURRED_AT + 1],
                *values[_HEADER_LENGTH - 2 :],
            )
            if signature and signature == of_group:
                signature, path = b"", ()  # the group has it, and the path follows
            derived = salt and (trusted or commitment(salt, encoded.payload) == given)
            kept = (
                *values[:_ORIGIN],
                "",
                event.origin_seq,
                None if occurred_at == received_at else occurred_at,
                *values[_OCCURRED_AT + 1 : _HEADER_LENGTH - 2],
                None if derived else given,
                None if event.origin_seq == following and previous == before else previous,
                payload_of(encoded),
                salt,
            )
            if signature or erased_by:
                kept = (*kept, signature, path, erased_by)
            yield (recorded.position, recorded.sequence, 0, kept)
            following, before = event.origin_seq + 1, encoded.hash


def payload_text(encoded: Encoded) -> Any:
    """Return a payload as its exact text, for a store of JSON."""
    return msgspec.Raw(encoded.payload or b"{}")


def payload_value(encoded: Encoded) -> Any:
    """Return a payload as its values, for a store of MessagePack."""
    return encoded.event.payload


def staged_groups(
    records: Sequence[Record], signatures: Signatures, purged: Sequence[Purged] = ()
) -> list[StagedGroup]:
    """Divide records, in order of position, into groups: runs of one chain that were received at once.

    What was signed together stays together, also if a purge has removed some of it, or all.
    """
    signed_by = {
        (origin, number): first
        for (origin, first), (count, _) in signatures.items()
        for number in range(first, first + count)
    }
    groups: list[StagedGroup] = []
    some: list[Record] = []
    origin, following, position, received_us, last_hash, signed, room = "", 0, 0, 0, b"", 0, 0
    for record in records:
        recorded, encoded = record
        event = encoded.event
        number, of = event.origin_seq, event.origin
        together = signed_by.get((of, number), 0) if signed_by else 0
        if signed or together:
            follows = of == origin and together == signed
        else:
            follows = (
                room > 0
                and number == following
                and recorded.position == position + 1
                and of == origin
                and recorded.received_us == received_us
                and event.previous == last_hash
            )
        if not follows:
            if some:
                groups.append(_group(some, signed, signatures))
            some, origin, received_us, signed, room = [], of, recorded.received_us, together, GROUP_MAX
        some.append(record)
        room -= 1
        position, following, last_hash = recorded.position, number + 1, encoded.hash
    if some:
        groups.append(_group(some, signed, signatures))
    if purged and signatures:
        groups += _purged_groups(
            purged, signatures, {(group.facts.origin, group.facts.first_seq) for group in groups}
        )
        groups.sort(key=lambda group: group.first)
    return groups


def _group(records: list[Record], signed: int, signatures: Signatures) -> StagedGroup:
    (recorded, encoded), (_, end) = records[0], records[-1]
    event, first = encoded.event, recorded.position
    first_seq, count, signature = event.origin_seq, len(records), b""
    if signed:
        count, signature = signatures[event.origin, signed]
        first, first_seq = Position(first - (event.origin_seq - signed)), signed
    # The hash of the last event is not known here if a purge has removed that one; its stub has it.
    hash = end.hash if end.event.origin_seq == first_seq + count - 1 else b""
    facts = GroupFacts(recorded.received_us, event.origin, first_seq, count, event.previous, hash, signature)
    return StagedGroup(facts, first, Position(first + count - 1), records)


def _purged_groups(
    purged: Sequence[Purged], signatures: Signatures, there: set[tuple[str, int]]
) -> Iterator[StagedGroup]:
    """Return the signed groups of which purges have left nothing but stubs."""
    for (origin, first_seq), (count, signature) in signatures.items():
        stubs = [stub for stub in purged if stub.origin == origin and stub.signed_with == (first_seq, count)]
        if stubs and (origin, first_seq) not in there:
            facts = GroupFacts(0, origin, first_seq, count, stubs[0].previous, stubs[-1].hash, signature)
            yield StagedGroup(facts, stubs[0].position, stubs[-1].position, ())

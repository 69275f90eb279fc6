"""A commit group as it is stored: what its events share is there once, and what can be computed is not there.

A stored group is a run of events of one write and of one origin, with consecutive positions and numbers, each linked
to the one before it, and at most `GROUP_MAX` of them. It has the time of arrival, the origin, the hash before its
first event, the hash of its last event, and perhaps one signature over all of them. A record in it is

    [position, sequence, 0, [id, type, version, stream, lamport, "", origin_seq, null, actor, scope, request_id,
     causation_id, correlation_id, idempotency_key, tags, null, null, payload, salt]]

Where a record has 0, "" or null, the value follows from the group: the time of arrival, the origin, the time of the
event (the same as that of its arrival), the commitment (from salt and payload), and the hash before it. A value that
does not follow is stored: the time of an event that happened earlier, or the commitment to an erased payload. After
the salt a record may have what few events have: its own signature, the path to the root that it covers, and the id
of the event that allowed an erasure.

A purge removes records from a group. The hash before the record after such a hole is that of the last purged event,
which its stub has. The rest of the group, and its signature, stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple

import msgspec

from everlog.core.codec import HEADER_FIELDS, Packed, encode_header, proof
from everlog.core.event import Event, Position, Recorded, moment
from everlog.core.merkle import path, paths
from everlog.errors import Damaged

GROUP_MAX = 128
"""How many events a stored group has at the most. A larger write is several groups."""

_HEADER_LENGTH = len(HEADER_FIELDS)
_SALT = _HEADER_LENGTH + 1
_ORIGIN, _ORIGIN_SEQ, _OCCURRED_AT, _COMMITMENT, _PREVIOUS = map(
    HEADER_FIELDS.index, ("origin", "origin_seq", "occurred_at", "commitment", "previous")
)


class EventLink(NamedTuple):
    """What of an event follows from its group."""

    commitment: bytes
    previous: bytes
    hash: bytes
    stored: bool = False  # the event has one of the first two itself


class StoredEvent(NamedTuple):
    """A record of a group, as it is stored, and the exact text of its payload."""

    recorded: Recorded
    payload: bytes


class GroupFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is stored once for the events of a group."""

    received_us: int
    origin: str
    first_seq: int
    count: int  # of the events that it had before any purge
    previous: bytes
    hash: bytes  # of its last event
    signature: bytes = b""

    @property
    def proof(self) -> bytes:
        """What each of its events carries as its signature."""
        return proof(self.signature, (self.first_seq, self.count)) if self.signature else b""


class Group:
    """The group of an event that was read. It computes what its events leave out, all of it when first asked."""

    __slots__ = ("_gone", "_links", "_load", "facts")

    def __init__(
        self,
        facts: GroupFacts,
        load: Callable[[], Sequence[StoredEvent]],
        gone: Callable[[str, int], bytes | None],
    ) -> None:
        """`load` decodes the group again: a group that held its events would be a cycle, which is never freed.

        `gone` returns the hash of a purged event, by its origin and number.
        """
        self.facts = facts
        self._load = load
        self._gone = gone
        self._links: dict[int, EventLink] | None = None

    @property
    def origin(self) -> str:
        return self.facts.origin

    @property
    def received_us(self) -> int:
        return self.facts.received_us

    @property
    def received_at(self) -> datetime:
        return moment(self.facts.received_us)

    @property
    def signature(self) -> bytes:
        return self.facts.signature

    @property
    def proof(self) -> bytes:
        return self.facts.proof

    def link(self, event: Event) -> EventLink:
        """Return what the event leaves out."""
        return self._every_link()[event.origin_seq]

    def _every_link(self) -> dict[int, EventLink]:
        if self._links is None:
            self._links = {stored.recorded.event.origin_seq: link for stored, _, link in self.linked()}
        return self._links

    def path(self, event: Event) -> tuple[bytes, ...]:
        """Return the hashes that lead from the event to the root of the group, which its signature covers."""
        return path(self.hashes(), event.origin_seq - self.facts.first_seq)

    def hashes(self) -> list[bytes]:
        """Return the hashes of the events that the group had before any purge."""
        first = self.facts.first_seq
        return [self._hash(number) for number in range(first, first + self.facts.count)]

    def linked(self) -> Iterator[tuple[StoredEvent, bytes, EventLink]]:
        """Return every event of the group with its header bytes and its hashes, computed from what is stored."""
        facts = self.facts
        received_at = self.received_at
        number, before = facts.first_seq - 1, facts.previous
        origin, astuple = facts.origin, msgspec.structs.astuple
        for stored in self._load():
            recorded, payload = stored
            values = astuple(recorded.event)
            origin_seq, given = values[_ORIGIN_SEQ], values[_COMMITMENT]
            if values[_PREVIOUS] is not None:
                before = values[_PREVIOUS]
            elif origin_seq != number + 1:
                before = self._purged_hash(origin_seq - 1, recorded.position)
            # As `commitment` and `header_hash`, without a call: every event of a replay by `verify` comes here.
            committed = sha256(values[_SALT] + payload).digest() if given is None else given
            header = encode_header(
                (
                    *values[:_ORIGIN],
                    values[_ORIGIN] or origin,  # one that was put in is hashed, and found
                    origin_seq,
                    values[_OCCURRED_AT] or received_at,
                    *values[_OCCURRED_AT + 1 : _COMMITMENT],
                    committed,
                    before,
                )
            )
            digest = sha256(b"\0" + header).digest()
            link = EventLink(committed, before, digest, bool(given or values[_PREVIOUS]))
            yield stored, header, link
            number, before = origin_seq, digest

    def packed(self) -> Iterator[Packed]:
        """Return the records of the group as the bytes that are hashed, signed and committed to."""
        facts = self.facts
        found = paths(self.hashes()) if facts.signature else []
        for (recorded, payload), header, _ in self.linked():
            event = msgspec.structs.astuple(recorded.event)
            signature, path, erased_by = event[_HEADER_LENGTH + 2 : _HEADER_LENGTH + 5]
            signed_with = (0, 0)
            if facts.signature and not signature:
                signature, signed_with = facts.signature, (facts.first_seq, facts.count)
                path = found[recorded.event.origin_seq - facts.first_seq]
            yield Packed(
                recorded.position,
                recorded.sequence,
                facts.received_us,
                header,
                payload,
                recorded.event.salt,
                signature,
                path,
                erased_by,
                signed_with,
            )

    def _hash(self, number: int) -> bytes:
        found = self._every_link().get(number)
        return self._purged_hash(number, Position(0)) if found is None else found.hash

    def _purged_hash(self, number: int, position: Position) -> bytes:
        found = self._gone(self.facts.origin, number)
        if found is None:
            raise Damaged(
                f"the hash of event {number} of {self.facts.origin} is not known",
                why="the event was purged, and what the purge left of it is missing",
                hint="everlog verify",
                position=position,
                after=position,
            )
        return found


class SignedGroup(Group):
    """The group of events that were just recorded and signed. They leave nothing else out."""

    __slots__ = ("_hashes",)

    def __init__(self, facts: GroupFacts, hashes: Sequence[bytes]) -> None:
        super().__init__(facts, load=tuple, gone=lambda origin, number: None)
        self._hashes = hashes

    def path(self, event: Event) -> tuple[bytes, ...]:
        return path(self._hashes, event.origin_seq - self.facts.first_seq)

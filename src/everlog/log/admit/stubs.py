"""Stubs of purged events that other nodes sent: recorded where the events would be, as a purge of this log.

A stub is taken if a signed record lists it, whose origin has standing. The record may be here already, or come in the
same batch: the record of a purge is often later in the very chain that the stub is missing from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from everlog.core.event import Event, Link, Position, Purge, Purged
from everlog.core.query import Query
from everlog.log.records import PURGED, events_listed
from everlog.stores.open_write import OpenWrite
from everlog.trust.keys import is_key
from everlog.trust.stubs import Stub, keep_proof


class Proven(NamedTuple):
    """A stub, and the record that lists it."""

    stub: Stub
    record: Event


class Stubs:
    """The stubs of one batch that a record allows, by origin and number."""

    def __init__(
        self, write: OpenWrite, stubs: Iterable[Stub], records: Iterable[Event], counts: Callable[[Event], bool]
    ) -> None:
        self._write = write
        self._of: dict[str, dict[int, list[Proven]]] = {}
        wanted = {(stub.origin, stub.origin_seq, stub.hash): stub for stub in stubs}
        if wanted:
            here = (recorded.event for recorded in write.read(Query(types=frozenset((PURGED,)))))
            for record in (*records, *here):
                if record.type == PURGED and is_key(record.origin) and counts(record):
                    for listed in events_listed(record):
                        stub = wanted.pop(listed, None)
                        if stub is not None:
                            of_origin = self._of.setdefault(stub.origin, {})
                            of_origin.setdefault(stub.origin_seq, []).append(Proven(stub, record))

    def origins(self) -> list[str]:
        return list(self._of)

    def of(self, origin: str) -> list[Proven]:
        """Return the stubs of an origin, in order of their numbers."""
        numbers = self._of.get(origin, {})
        return [one for number in sorted(numbers) for one in numbers[number]]

    def after(self, origin: str, end: Link, *, lamport_max: int) -> Proven | None:
        """Return the stub that follows the end of a chain."""
        for one in self._of.get(origin, {}).get(end.origin_seq + 1, ()):
            if one.stub.previous == end.hash and self.may_take(one, lamport_max=lamport_max):
                return one
        return None

    def may_take(self, one: Proven, *, lamport_max: int) -> bool:
        stub = one.stub
        # Who recorded the purge had the event: a greater clock was added on the way.
        if stub.lamport > min(lamport_max, one.record.lamport - 1) or self._write.known((stub.id,)):  # type: ignore[arg-type]
            return False
        return stub.holds(self._write.identity.log_id)


def place_stubs(write: OpenWrite, stubs: Sequence[Stub], record: Event) -> None:
    """Record stubs at the next positions, and the purge that the record states after them."""
    stream = str(record.payload["stream"])
    reserved, sequence = Position(write.position + len(stubs) + 1), write.sequence(stream)
    places = [
        Purged(
            position=Position(write.position + number),
            sequence=sequence + number,
            id=stub.id,  # type: ignore[arg-type]
            origin=stub.origin,
            origin_seq=stub.origin_seq,
            hash=stub.hash,
            previous=stub.previous,
            lamport=stub.lamport,
            reserved=reserved,
        )
        for number, stub in enumerate(stubs, 1)
    ]
    reason = str(record.payload.get("reason", ""))
    purge = Purge(reserved, stream, (), record.actor, reason, write.now_us, sequence + len(stubs), len(stubs))
    write.copy_in([*places, purge])
    for stub in stubs:
        keep_proof(write, stub.origin, stub.origin_seq, stub.leaf)

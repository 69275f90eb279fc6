"""Stubs of purged events that other nodes sent: recorded where the events would be, as a purge of this log.

A stub is taken if a signed record allows it (`everlog.log.admit.removals`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from everlog.core.event import Event, Link, Position, Purge, Purged
from everlog.log.admit.removals import Place, Removals
from everlog.log.records import PURGED, purged_in
from everlog.stores.open_write import OpenWrite
from everlog.trust.stubs import Stub, keep_proof


class Proven(NamedTuple):
    """A stub, and the record that lists it."""

    stub: Stub
    record: Event


class Stubs:
    """The stubs of one batch that a record lists, by origin and number."""

    def __init__(self, write: OpenWrite, stubs: Iterable[Stub], removals: Removals) -> None:
        self._write = write
        self._removals = removals
        self._of: dict[str, dict[int, dict[bytes, Stub]]] = {}
        for stub in stubs:
            if removals.lists(PURGED, _place(stub)):
                self._of.setdefault(stub.origin, {}).setdefault(stub.origin_seq, {})[stub.hash] = stub

    def origins(self) -> list[str]:
        return list(self._of)

    def of(self, origin: str) -> list[Proven]:
        """Return the stubs of an origin that a record allows, in order of their numbers."""
        numbers = self._of.get(origin, {})
        found = (self._proven(stub) for number in sorted(numbers) for stub in numbers[number].values())
        return [one for one in found if one is not None]

    def after(self, origin: str, end: Link, *, lamport_max: int) -> Proven | None:
        """Return the stub that follows the end of a chain."""
        for stub in self._of.get(origin, {}).get(end.origin_seq + 1, {}).values():
            one = self._proven(stub) if stub.previous == end.hash else None
            if one is not None and self.may_take(one, lamport_max=lamport_max):
                return one
        return None

    def _proven(self, stub: Stub) -> Proven | None:
        record = self._removals.allows(PURGED, _place(stub))
        return None if record is None else Proven(stub, record)

    def may_take(self, one: Proven, *, lamport_max: int) -> bool:
        stub = one.stub
        # Who recorded the purge had the event: a greater clock was added on the way.
        if stub.lamport > min(lamport_max, one.record.lamport - 1) or self._write.known((stub.id,)):  # type: ignore[arg-type]
            return False
        return stub.holds(self._write.identity.log_id)


def _place(stub: Stub) -> Place:
    return stub.origin, stub.origin_seq, stub.hash


def place_stubs(write: OpenWrite, stubs: Sequence[Stub], record: Event) -> None:
    """Record stubs at the next positions, and the purge that the record states after them."""
    stream, reason = purged_in(record).stream, purged_in(record).reason
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
    purge = Purge(reserved, stream, (), record.actor, reason, write.now_us, sequence + len(stubs), len(stubs))
    write.copy_in([*places, purge])
    for stub in stubs:
        keep_proof(write, stub.origin, stub.origin_seq, stub.leaf)

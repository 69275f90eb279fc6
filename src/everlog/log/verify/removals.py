"""Whether everything that was removed was removed with a record: payloads that were erased, events that were purged.

A payload that is gone without a record that lists its event is damage in a chain that was made here. In any other it
is a fault of its origin: a peer may have sent it like that. The own events of a signed log are purged with a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from everlog.core.event import Position, Purged
from everlog.core.ids import is_key
from everlog.core.query import Query
from everlog.errors import Damaged
from everlog.log.records import FORGOTTEN, PURGED, events_listed
from everlog.stores.contract import Problem, Stored
from everlog.stores.past_damage import PastDamage

_NO_ERASURE = "its payload was erased, and no record of this log allows it"
_NO_PURGE = "it was purged, and no record that this log has signed lists it"


class Erased(NamedTuple):
    """An event whose payload was erased."""

    position: Position
    origin: str
    number: int
    hash: bytes
    by: str


class Removals:
    """Gathers what was removed, while a log is verified."""

    def __init__(self, made_here: set[str]) -> None:
        self._made_here = made_here
        self.erased: list[Erased] = []
        self._stubs: list[Purged] = []

    def add_stub(self, stub: Purged) -> None:
        if stub.origin in self._made_here and is_key(stub.origin):
            self._stubs.append(stub)

    def without_record(self, store: Stored, upto: Position) -> Iterator[tuple[str, Problem]]:
        """Return what is wrong, with the origin of each event."""
        if not self.erased and not self._stubs:
            return
        erased: set[tuple[str, str, int, bytes]] = set()  # the id of a record, and an event that it lists
        purged: set[tuple[str, int, bytes]] = set()
        own: set[str] = set()
        for recorded in PastDamage(store, _pass_over).read(Query(types=frozenset((PURGED, FORGOTTEN))), upto=upto):
            record = recorded.event
            if record.origin in self._made_here:
                own.add(record.id)
            if record.type == FORGOTTEN:
                erased.update((record.id, *one) for one in events_listed(record))
            elif record.id in own:
                purged.update(events_listed(record))
        for one in self.erased:
            allowed = one.by in own or one.origin not in self._made_here
            if not allowed or (one.by, one.origin, one.number, one.hash) not in erased:
                yield one.origin, Problem(one.position, "erasure_unrecorded", _NO_ERASURE)
        for stub in self._stubs:
            if (stub.origin, stub.origin_seq, stub.hash) not in purged:
                yield stub.origin, Problem(stub.position, "purge_unrecorded", _NO_PURGE)


def _pass_over(damage: Damaged) -> None:
    """Damage is reported where it is; a record that is lost is missed."""

"""Events of origins that are no keys: recorded as they come, because anybody can write under such a name.

They are refused only if they would take the id of a key that is known here, or fork a chain of this log. What waits
of a key decides nothing: others may not have it, and would take what this node refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from everlog.core.event import Event
from everlog.core.ids import signed_part, signed_part_of
from everlog.log.admit.erased import bare
from everlog.log.admit.outcomes import (
    Outcome,
    if_known,
    outcome_of,
    recorded,
    refuse_clock,
    without_payload,
)
from everlog.log.admit.removals import Removals, place_of
from everlog.log.admit.stubs import Proven, Stubs, place_stubs
from everlog.log.records import FORGOTTEN
from everlog.stores.contract import Encoded, Known
from everlog.stores.open_write import OpenWrite
from everlog.trust.keys import is_key
from everlog.trust.stubs import Stub

Placed = tuple[int, Encoded]
"""An event, and its place in the batch."""


class PlainEvents:
    """Those of one batch. `named` are the keys of which the history speaks."""

    def __init__(
        self,
        write: OpenWrite,
        outcomes: dict[int, Outcome],
        append: Callable[[list[Encoded]], None],
        named: Callable[[], Collection[str]],
        jump_max: int,
    ) -> None:
        self._write = write
        self._outcomes = outcomes
        self._append = append
        self._named = named
        self._jump_max = jump_max

    def admit(self, events: Collection[Placed]) -> None:
        """Record events, those with the lowest clock first where one needs another."""
        if not events:
            return
        staged: dict[str, bytes] = {}
        ready: dict[int, Encoded] = {}
        clock, parts = self._write.clock, self._parts_of_keys()
        for place, encoded in sorted(events, key=lambda item: item[1].event.lamport):
            event = encoded.event
            if event.id in staged:
                self._outcomes[place] = if_known(encoded, Known(staged[event.id], False)) or recorded(event)
                continue
            outcome = self._refuse(event, parts) or refuse_clock(event, clock, self._jump_max)
            if outcome is not None:
                self._outcomes[place] = outcome
            else:
                clock = max(clock, event.lamport)
                staged[event.id] = encoded.hash
                ready[place] = encoded
        if ready:
            self._append([ready[place] for place in sorted(ready)])
            self._outcomes.update({place: recorded(encoded.event) for place, encoded in ready.items()})

    def admit_bare(self, events: Collection[Placed], removals: Removals) -> None:
        """Record events without their payloads that a record allows. Others are refused: they can be sent again."""
        allowed = []
        known = self._write.known({encoded.event.id for _, encoded in events})  # the batch may have it twice
        for place, encoded in events:
            record = removals.allows(FORGOTTEN, place_of(encoded))
            outcome = if_known(encoded, known.get(encoded.event.id))
            if outcome is not None:
                self._outcomes[place] = outcome
            elif encoded.event.erased_by:  # it was forgotten here
                allowed.append((place, encoded))
            elif record is None:
                self._outcomes[place] = without_payload(encoded.event)
            else:
                allowed.append((place, bare(encoded, record.id)))
        self.admit(allowed)

    def place(self, stubs: Iterable[Stub], removals: Removals) -> bool:
        """Record the stubs that a record allows; return whether there was one."""
        found, parts = Stubs(self._write, (one for one in stubs if not is_key(one.origin)), removals), None
        for origin in found.origins():
            if self._write.identity.made(origin):
                continue
            parts = self._parts_of_keys() if parts is None else parts
            for stub, record in found.of(origin):
                free = not self._write.chain(origin).has(stub.origin_seq)
                upto = self._write.clock + self._jump_max
                if not free or not found.may_take(Proven(stub, record), lamport_max=upto):
                    continue
                if signed_part(stub.id) not in parts:  # it is as the sender claims
                    place_stubs(self._write, [stub], record)
        return bool(self._write.placed_purged)

    def _parts_of_keys(self) -> set[int]:
        """Return the parts of ids that keys make which have a chain here or are named."""
        known = {*self._write.stored.chains(), *self._write.chains, *self._named(), self._write.own_origin()}
        return {signed_part_of(origin) for origin in known if is_key(origin)}

    def _refuse(self, event: Event, parts: Collection[int]) -> Outcome | None:
        if signed_part(event.id) in parts:
            return outcome_of(event, "refused", "id_conflict", "its id is one that another origin makes, which signs")
        return self._refuse_own(event)

    def _refuse_own(self, event: Event) -> Outcome | None:
        """Refuse what would fork a chain of this log. Lost events of a former origin may come back."""
        if not self._write.identity.made(event.origin):
            return None
        chain = self._write.chain(event.origin)
        end = chain.end
        if event.origin == self._write.own_origin():
            return outcome_of(event, "refused", "fork", "it claims to be of this log, which never recorded it")
        broken = event.origin_seq == end.origin_seq + 1 and event.previous != end.hash
        if broken or chain.has(event.origin_seq):
            return outcome_of(event, "refused", "fork", f"this log made another event {event.origin_seq}")
        return None

"""The lines of one staged write, in the order of their positions."""

from __future__ import annotations

from base64 import b64encode
from datetime import datetime
from typing import Any

from everlog.core.event import Purge, Purged, Recorded
from everlog.core.ids import IdSource
from everlog.stores.contract import Claim, Encoded
from everlog.stores.jsonl.lines import (
    Batch,
    EventLine,
    Line,
    PurgedLine,
    PurgeLine,
    SignedGroup,
    checksum_of,
    event_line,
    purge_line,
    purged_line,
)
from everlog.stores.open_write import OpenWrite


class LinesOfWrite:
    """`lines` has the bytes and content of each line, and the hash of its event. `claims_apart` belong to no line."""

    def __init__(self, staged: OpenWrite, epoch: str, origin: str, ids: IdSource) -> None:
        self._epoch, self._origin, self._ids = epoch, origin, ids
        self.lines: list[tuple[bytes, Line, bytes]] = []
        self.purges: list[tuple[PurgeLine, list[Purged]]] = []
        self.claims_apart: dict[bytes, Claim] = {}
        self._claims: dict[int, dict[str, int]] = {}
        self._moment: tuple[int, datetime] | None = None
        self._lamport = staged.clock_before  # the greatest so far, for lines without an event
        self._count = len(staged.records) + len(staged.staged_purges) + len(staged.placed_purged)
        self._sort_claims(staged)
        self._groups: dict[tuple[str, int], SignedGroup] = {}  # by the last event, whose line has the signature
        self._signed: set[tuple[str, int]] = set()
        for (signed, first), (count, signature) in staged.signatures.items():
            self._groups[signed, first + count - 1] = SignedGroup(count, first, signature)
            self._signed.update((signed, number) for number in range(first, first + count))
        if staged.staged_purges or staged.placed_purged:
            places: list[tuple[int, Any, Any]] = [(each[0].position, *each) for each in staged.records]
            places += [(purge.reserved, purge, removed) for purge, removed in staged.staged_purges]
            places += [(gone.position, gone, None) for gone in staged.placed_purged]
            for _, place, content in sorted(places, key=lambda each: each[0]):
                match place:
                    case Recorded():
                        self._add_event(place, content)
                    case Purge():
                        self._add_purge(place, content)
                    case Purged():
                        self._add_purged(place)
        else:
            for recorded, encoded in staged.records:
                self._add_event(recorded, encoded)

    @property
    def first_id(self) -> str:
        return self.lines[0][1].id if self.lines else ""

    def _sort_claims(self, staged: OpenWrite) -> None:
        here = {recorded.position for recorded, _ in staged.records} if staged.staged_claims else ()
        for name, claim in staged.staged_claims.items():
            if claim.first in here:
                self._claims.setdefault(claim.first, {})[b64encode(name).decode()] = claim.count
            else:
                self.claims_apart[name] = claim

    def _batch(self) -> Batch | None:
        return (len(self.lines) + 1, self._count) if self._count > 1 else None

    def _received_at(self, recorded: Recorded) -> datetime:
        if self._moment is None or self._moment[0] != recorded.received_us:
            self._moment = (recorded.received_us, recorded.received_at)
        return self._moment[1]

    def _add_event(self, recorded: Recorded, encoded: Encoded) -> None:
        claims = self._claims.get(recorded.position, {})
        moment = self._received_at(recorded)
        event = encoded.event
        origin = event.origin
        if event.lamport > self._lamport:
            self._lamport = event.lamport
        group, signed = None, False
        if self._signed:
            number = (origin, event.origin_seq)
            group, signed = self._groups.get(number), number in self._signed
        data = event_line(
            encoded,
            moment,
            via=self._origin,
            batch=self._batch(),
            claims=claims,
            group=group,
            signed=signed,
            own=self._origin,
        )
        line = EventLine(  # the members that the index needs
            id=event.id,
            type=event.type,
            stream=event.stream,
            lamport=event.lamport,
            origin=origin,
            origin_seq=event.origin_seq,
            occurred_at=event.occurred_at,
            actor=event.actor,
            scope=event.scope,
            previous=event.previous,
            received_at=moment,
            via="" if origin == self._origin else self._origin,
            claims=claims,
            group=group,
            xsum=checksum_of(data),
        )
        self.lines.append((data, line, encoded.hash))

    def _add_purge(self, purge: Purge, removed: list[Purged]) -> None:
        # A purge of another store has no id; its purged lines name it by its position, which is the same in both.
        purge_id = str(self._ids.take(1)[0]) if removed else self._placed(purge.reserved)
        line = PurgeLine(
            actor=purge.actor,
            id=purge_id,
            origin=self._origin,
            purged_at=purge.purged_at,
            reason=purge.reason,
            scopes=purge.scopes,
            stream=purge.stream,
            sequence=0 if removed else purge.sequence,
            lamport=self._lamport,
        )
        if removed:
            self.purges.append((line, removed))
        self.lines.append((purge_line(line, batch=self._batch()), line, b""))

    def _add_purged(self, gone: Purged) -> None:
        line = PurgedLine(
            hash=gone.hash,
            id=gone.id,
            origin=gone.origin,
            origin_seq=gone.origin_seq,
            previous=gone.previous,
            purge=self._placed(gone.reserved),
            sequence=gone.sequence,
            via=self._origin,
            lamport=gone.lamport,
            hash_format=gone.hash_format,
            group=self._groups.get((gone.origin, gone.origin_seq)),
        )
        self._lamport = max(self._lamport, gone.lamport)
        self.lines.append((purged_line(line, batch=self._batch()), line, b""))

    def _placed(self, reserved: int) -> str:
        return f"{self._epoch}.{reserved}"

"""New events of this log inside an open write: stamped as columns, made into objects only when looked at.

An event that is appended is hashed and stored, and most callers never look at what they get back. So the rows that a
store keeps are made directly, and an `Event` only when a receipt, a view or another store asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import msgspec
from msgspec.structs import force_setattr

from everlog.core.event import Event, Recorded, moment
from everlog.core.group import GroupFacts, SignedGroup
from everlog.stores.contract import Encoded
from everlog.stores.staged_group import Record, Signatures, StagedGroup, payload_text

_ORIGIN, _ORIGIN_SEQ, _OCCURRED_AT, _COMMITMENT, _PAYLOAD = 5, 6, 7, 15, 17


class OwnEvents:
    """Events that follow each other in the chain of this log, at consecutive positions."""

    __slots__ = (
        "_records",
        "_signed",
        "bodies",
        "commitments",
        "hashes",
        "headers",
        "link_hash",
        "origin",
        "received_us",
        "rows",
    )

    def __init__(self, origin: str, received_us: int, previous: bytes) -> None:
        self.origin = origin
        self.received_us = received_us
        self.link_hash = previous  # of the event before the first one
        self.rows: list[tuple[Any, ...]] = []  # as they are stored: see `everlog.core.group`
        self.headers: list[bytes] = []
        self.hashes: list[bytes] = []
        self.bodies: list[bytes] = []
        self.commitments: list[bytes] = []
        self._records: list[Record] | None = None
        self._signed: list[tuple[int, int, SignedGroup]] = []  # of these records, once they are made

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def records(self) -> list[Record]:
        """The events as objects, with the bytes of each. They are made once, so that all who ask get the same."""
        if self._records is None:
            now, made = moment(self.received_us), []
            for index in range(len(self.rows)):
                made.append(self._record(index, now))  # noqa: PERF401 - a comprehension would be a call
            self._records = made
            for start, end, signed in self._signed:
                self._give(self._records[start:end], signed)
        return self._records

    def give(self, start: int, end: int, signed: SignedGroup) -> None:
        """Give some of the events their group with its signature, now or when they are made."""
        self._signed.append((start, end, signed))
        if self._records is not None:
            self._give(self._records[start:end], signed)

    def _give(self, records: Sequence[Record], signed: SignedGroup) -> None:
        for recorded, _ in records:
            force_setattr(recorded.event, "group", signed)

    def _record(self, index: int, now: Any) -> Record:
        position, sequence, _, row = self.rows[index]
        event = Event(*self._header(index, row, now), *row[_PAYLOAD:])
        encoded = Encoded(event, self.headers[index], self.bodies[index], self.hashes[index])
        return Recorded(position, sequence, self.received_us, event), encoded

    def _header(self, index: int, row: tuple[Any, ...], now: Any) -> tuple[Any, ...]:
        return (
            *row[:_ORIGIN],
            self.origin,
            row[_ORIGIN_SEQ],
            row[_OCCURRED_AT] or now,
            *row[_OCCURRED_AT + 1 : _COMMITMENT],
            self.commitments[index],
            self.hashes[index - 1] if index else self.link_hash,
        )

    def values(self, start: int, end: int) -> list[tuple[Any, ...]] | None:
        """Return of each record its position, its sequence, when it was received, and the values of `EVENT_FIELDS`,
        with the payload as its text if that is ASCII. None if signatures belong to them, too."""
        if self._signed:
            return None
        now, found = moment(self.received_us), []
        for index, (position, sequence, _, row) in enumerate(self.rows[start:end], start=start):
            found.append(
                (
                    position,
                    sequence,
                    now,
                    *self._header(index, row, now),
                    # Beyond ASCII, a store sorts names by UTF-16, and the encoder of an answer by code point.
                    msgspec.Raw(body) if (body := self.bodies[index]).isascii() else msgspec.json.decode(body),
                    *row[_PAYLOAD + 1 :],
                )
            )
        return found

    def groups(self, size: int, signatures: Signatures) -> list[StagedGroup]:
        """Return the events in groups of this size."""
        origin, previous = self.origin, self.link_hash
        groups: list[StagedGroup] = []
        for start in range(0, len(self.rows), size):
            rows = self.rows[start : start + size]
            first_seq, last_hash = rows[0][3][_ORIGIN_SEQ], self.hashes[start + len(rows) - 1]
            signature = signatures[origin, first_seq][1] if (origin, first_seq) in signatures else b""
            facts = GroupFacts(self.received_us, origin, first_seq, len(rows), previous, last_hash, signature)
            groups.append(OwnGroup(facts, self, start, rows))
            previous = last_hash
        return groups


class OwnGroup(StagedGroup):
    """A group of new events of this log."""

    __slots__ = ("_events", "_rows", "_start")

    def __init__(self, facts: GroupFacts, events: OwnEvents, start: int, rows: list[tuple[Any, ...]]) -> None:
        self.facts = facts
        self.first = rows[0][0]
        self.last = rows[-1][0]
        self._events = events
        self._start = start
        self._rows = rows

    @property
    def records(self) -> Sequence[Record]:
        return self._events.records[self._start : self._start + len(self._rows)]

    @property
    def hashes(self) -> list[bytes]:
        return self._events.hashes[self._start : self._start + len(self._rows)]

    def give(self, signed: SignedGroup) -> None:
        self._events.give(self._start, self._start + len(self._rows), signed)

    def rows(self, payload_of: Callable[[Encoded], Any], *, own: str = "") -> Sequence[tuple[Any, ...]]:
        if payload_of is not payload_text:
            return self._rows
        bodies = self._events.bodies[self._start : self._start + len(self._rows)]
        return [
            (position, sequence, 0, (*row[:-2], msgspec.Raw(body), row[-1]))
            for (position, sequence, _, row), body in zip(self._rows, bodies, strict=True)
        ]


class OwnRecords(Sequence[Recorded]):
    """The records of one request, made when they are looked at."""

    __slots__ = ("_end", "_events", "_read", "_start")

    def __init__(
        self, events: OwnEvents, start: int, end: int, read: Callable[[Recorded], Recorded] | None = None
    ) -> None:
        """`read` makes of a record what a reader gets, if that is not the record itself."""
        self._events = events
        self._start = start
        self._end = end
        self._read = read

    def __len__(self) -> int:
        return self._end - self._start

    @overload
    def __getitem__(self, index: int) -> Recorded: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Recorded]: ...

    def __getitem__(self, index: int | slice) -> Recorded | Sequence[Recorded]:
        if self._read is None and isinstance(index, int):
            return self._events.records[range(self._start, self._end)[index]][0]
        return self._made()[index]

    def __iter__(self) -> Iterator[Recorded]:
        return iter(self._made())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._made() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._made())

    def values(self) -> list[tuple[Any, ...]] | None:
        """Return what `OwnEvents.values` returns, None if readers get something else."""
        return None if self._read is not None else self._events.values(self._start, self._end)

    def _made(self) -> list[Recorded]:
        found = [recorded for recorded, _ in self._events.records[self._start : self._end]]
        return found if self._read is None else [*map(self._read, found)]

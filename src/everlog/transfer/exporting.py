"""Export a log as text: one canonical line per event, or CloudEvents. The last line has the count.

    {"everlog_export":{"epoch":…,"format":1,"head":…,"log_id":…,"origin":…}}
    {"actor":…,"commitment":…,…}                                               one event per line, RFC 8785
    {"everlog_end":{"count":…,"digest":…}}

Events are written as they are stored, not upcast, so that an import of them verifies. Purged events are not part of
it. A damaged log is not exported, unless the caller asks for what is left: then the last line lists the lost
positions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any

import msgspec

from everlog.core.canonical import canonical
from everlog.core.codec import commitment, header_bytes, header_hash, payload_bytes, recorded_object
from everlog.core.event import START, Position, Purged, Recorded
from everlog.core.group import Group
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged
from everlog.log.verify.stored_groups import group_changed
from everlog.stores.contract import HidesEvents, Identity, Stored
from everlog.stores.lost import first_gap, lost
from everlog.transfer import cloudevents

FORMAT = 1
HEAD, END = "everlog_export", "everlog_end"


class Format(StrEnum):
    EVERLOG = "everlog"
    CLOUDEVENTS = "cloudevents"
    CLOUDEVENTS_BATCH = "cloudevents-batch"


class Export:
    """The text of a log, piece by piece. `count` and `digest` are known after the last piece."""

    def __init__(
        self,
        store: Stored,
        format: Format,
        query: Query = EVERYTHING,
        *,
        after: Position = START,
        upto: Position | None = None,
        past_damage: bool = False,
        progress: Callable[[int], None] = lambda position: None,
    ) -> None:
        self.count = 0
        self.lost: list[tuple[Position, Position]] = []
        """With `past_damage`, the positions that could not be read: from, to."""
        self._past_damage = past_damage
        self._purged: set[int] | None = None  # read when a position is empty
        self._group: Group | None = None  # of the event that was read last
        self._changed = False
        self._hash = hashlib.sha256()
        self._store, self._query, self._progress, self._format = store, query, progress, format
        # Later events are not part of it: so the export of a log in use ends.
        self.head = store.head()
        self._after = after
        self._upto = self.head if upto is None else min(upto, self.head)

    @property
    def digest(self) -> str:
        """SHA-256 over the header hashes in order: of a whole log without purges, the digest that `verify` prints."""
        return self._hash.hexdigest()

    def pieces(self) -> Iterator[bytes]:
        match self._format:
            case Format.EVERLOG:
                yield head_line(self._store.identity, self.head)
                yield from (line_of(recorded) for recorded in self._records())
                ended: dict[str, Any] = {"count": self.count, "digest": self.digest}
                if self.lost:
                    ended["lost"] = [list(stretch) for stretch in self.lost]
                yield canonical({END: ended}) + b"\n"
            case Format.CLOUDEVENTS:
                yield from (data + b"\n" for data in self._cloudevents())
            case Format.CLOUDEVENTS_BATCH:
                yield b"["
                for number, data in enumerate(self._cloudevents()):
                    yield (b",\n" if number else b"\n") + data
                yield b"\n]\n"

    def _cloudevents(self) -> Iterator[bytes]:
        for recorded in self._records():
            yield _object_bytes(cloudevents.cloudevent_of(recorded), "data", recorded)
        yield canonical(cloudevents.ended(self.count, self.digest))

    def _records(self) -> Iterator[Recorded]:
        for recorded in self._readable() if self._past_damage else self._read(self._after):
            self.count += 1
            self._hash.update(header_hash(header_bytes(recorded.event)))
            if self.count % 1000 == 0:
                self._progress(recorded.position)
            yield recorded

    def _read(self, after: Position) -> Iterator[Recorded]:
        """Yield what the store reads, after checking it: a store does not detect a falsified or a missing event
        itself."""
        # Between the events of a tenant are those of others, so a gap there means nothing.
        hides = isinstance(self._store, HidesEvents) and self._store.hides_events
        whole = self._query == EVERYTHING and not hides
        following = after + 1
        for recorded in self._store.read(self._query, after=after, upto=self._upto):
            if whole:
                self._refuse_hole(following, recorded.position)
            _refuse_changed(recorded, changed=self._is_changed(recorded.event.group))
            following = recorded.position + 1
            yield recorded
        if whole:
            self._refuse_hole(following, self._upto + 1)

    def _is_changed(self, group: Group | None) -> bool:
        """Return whether the events of a stored group are not those that were recorded."""
        if group is not self._group:
            linked = [] if group is None else [(stored, link) for stored, _, link in group.linked()]
            self._group, self._changed = group, group is not None and group_changed(group.facts, linked) is not None
        return self._changed

    def _refuse_hole(self, first: int, end: int) -> None:
        """Raise Damaged unless every position in a range is empty because of a purge."""
        if first >= end:
            return
        if self._purged is None:
            gone = [place.position for place in self._store.slots() if isinstance(place, Purged)]
            self._purged = {*gone, *(purge.reserved for purge in self._store.purges())}
        gap = first_gap(self._purged, first - 1, end - 1)
        if gap is not None:
            raise lost(*gap)

    def _readable(self) -> Iterator[Recorded]:
        """Yield what can be read before and after damage; the damaged positions are collected."""
        after = self._after
        while after < self._upto:
            try:
                for recorded in self._read(after):
                    after = recorded.position
                    yield recorded
                return
            except Damaged as damage:
                first = damage.details.get("position", 0)
                if not after < first <= self._upto:
                    raise  # Its position is not known, or it does not concern an event: it cannot be skipped.
                after = Position(max(first, damage.details.get("after", first)))
                self.lost.append((Position(first), min(after, self._upto)))


def _refuse_changed(recorded: Recorded, *, changed: bool) -> None:
    event = recorded.event
    why = ""
    if changed:
        why = "it, or an event that was recorded with it, was changed"
    elif event.salt and commitment(event.salt, payload_bytes(event.payload)) != event.commitment:
        why = "its payload does not match the commitment in its header"
    if why:
        raise Damaged(
            f"the event at position {recorded.position} is not what was recorded",
            why=why,
            hint="everlog verify; everlog export --past-damage writes what can be read",
            position=recorded.position,
            after=recorded.position,
        )


def head_line(identity: Identity, head: Position) -> bytes:
    named = {"format": FORMAT, "head": head, **msgspec.to_builtins(identity)}
    return canonical({HEAD: named}) + b"\n"


def line_of(recorded: Recorded) -> bytes:
    return _object_bytes(recorded_object(recorded), "payload", recorded) + b"\n"


def chunks(pieces: Iterable[bytes], size: int = 256 * 1024) -> Iterator[bytes]:
    """Join the pieces to blocks that are large enough for one write."""
    held, length = [], 0
    for piece in pieces:
        held.append(piece)
        length += len(piece)
        if length >= size:
            yield b"".join(held)
            held, length = [], 0
    if held:
        yield b"".join(held)


def _object_bytes(found: dict[str, Any], name: str, recorded: Recorded) -> bytes:
    """Return the canonical object with its payload inserted as text: together they may exceed the depth of one
    value."""
    parts = [
        canonical(key) + b":" + (payload_bytes(recorded.event.payload) if key == name else canonical(value))
        for key, value in sorted(found.items())
    ]
    return b"{" + b",".join(parts) + b"}"

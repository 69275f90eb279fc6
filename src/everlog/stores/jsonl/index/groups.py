"""What the lines of events leave out: commitments, and the signatures of groups with their paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import force_setattr

from everlog.core.codec import HEADER_FIELDS, encode_header, header_hash
from everlog.core.event import Event
from everlog.core.group import EventLink, Group, GroupFacts
from everlog.core.merkle import paths
from everlog.core.query import EVERYTHING
from everlog.stores.jsonl.index.query import Row, wanted_rows
from everlog.stores.jsonl.index.schema import END, Index
from everlog.stores.jsonl.many_lines import Values, scan_lines

_UNSIGNED = GroupFacts(0, "", 0, 0, b"", b"")
_HEADER_LENGTH = len(HEADER_FIELDS)
_ID, _ORIGIN, _ORIGIN_SEQ, _COMMITMENT, _PREVIOUS = map(
    HEADER_FIELDS.index, ("id", "origin", "origin_seq", "commitment", "previous")
)


class LineGroup(Group):
    """Computes what events leave out from their lines: a reader may have changed a payload to the present form of its
    type, and the lines may be gone by now."""

    __slots__ = ("_commitments", "_lines", "_paths")

    def __init__(
        self, lines: list[bytes], facts: GroupFacts = _UNSIGNED, paths: Sequence[tuple[bytes, ...]] = ()
    ) -> None:
        super().__init__(facts, load=tuple, gone=lambda origin, number: None)
        self._lines = lines
        self._paths = paths
        self._commitments: dict[str, bytes] = {}

    def link(self, event: Event) -> EventLink:
        """Return the commitment of an event; its line has the hash before it."""
        if not self._commitments:
            self._commitments = {values[_ID]: values[_COMMITMENT] for values in scan_lines(self._lines)}
        return EventLink(self._commitments[event.id], event.previous, b"")

    def path(self, event: Event) -> tuple[bytes, ...]:
        return self._paths[event.origin_seq - self.facts.first_seq] if self._paths else ()


class SignedGroups:
    """The signed groups of a log, each found once for neighbours."""

    def __init__(self, index: Index, values: Callable[[list[Row]], list[Values]]) -> None:
        """`values` returns the events of rows as their lines have them."""
        self._index = index
        self._values = values
        self._last: GroupFacts | None = None
        self._paths: list[tuple[bytes, ...]] = []

    def of(self, origin: str, number: int) -> GroupFacts | None:
        """Return the signed group that an event was in."""
        last = self._last
        if last is None or last.origin != origin or not 0 <= number - last.first_seq < last.count:
            last = self._index.group_of(origin, number)
            if last is not None:
                self._last, self._paths = last, []
        return last

    def of_stub(self, origin: str, number: int, hash: bytes) -> GroupFacts | None:
        """Return the signed group that a purged event was in: if the chain forked, not one of another branch."""
        facts = self.of(origin, number)
        asked = "SELECT 1 FROM chains WHERE origin = ? AND chain IS NOT NULL"
        if facts is None or not self._index.fetch(asked, (origin,)):
            return facts
        hashes, place = self._linked_hashes(facts), facts.first_seq + facts.count - 1 - number
        return facts if place >= len(hashes) or hashes[place] == hash else None

    def given(self, events: list[Event], lines: list[bytes]) -> list[Event]:
        """Give each event of a signed group its group."""
        group: LineGroup | None = None
        for event in events:
            facts = self.of(event.origin, event.origin_seq)
            if facts is not None:
                if group is None or group.facts is not facts:
                    group = LineGroup(lines, facts, self._paths_of(facts))
                force_setattr(event, "group", group)
        return events

    def path(self, facts: GroupFacts, number: int) -> tuple[bytes, ...]:
        """Return the path of an event of the group that was found last."""
        found = self._paths_of(facts)
        return found[number - facts.first_seq] if found else ()

    def _paths_of(self, facts: GroupFacts) -> list[tuple[bytes, ...]]:
        """Return the paths of all events of the group that was found last; none if one of its lines is lost."""
        if not self._paths:
            hashes = self._linked_hashes(facts)
            self._paths = paths(hashes[::-1]) if len(hashes) == facts.count else []
        return self._paths

    def _linked_hashes(self, facts: GroupFacts) -> list[bytes]:
        """Return the hashes of a group from its last event on, as far as each is linked to the one before it.

        The line of the last event has the signature. Where the group was recorded, the others come just before it;
        where a merge brought it, lines of other origins may stand between them, and a fork may have the same numbers.
        """
        index, last = self._index, facts.first_seq + facts.count - 1
        asked = "SELECT position FROM groups WHERE origin = ? AND first_seq = ?"
        place = next((position for (position,) in index.fetch(asked, (facts.origin, facts.first_seq))), 0)
        known: dict[tuple[int, bytes], bytes] = {}  # the hash before an event, by its number and hash
        ends: list[bytes] = []
        for number, digest, previous, position in index.fetch(
            "SELECT origin_seq, hash, previous, position FROM purged WHERE origin = ? AND origin_seq BETWEEN ? AND ?",
            (facts.origin, facts.first_seq, last),
        ):
            known[number, digest] = previous
            ends += [digest] if position == place else []
        found: list[bytes] = []
        for rows in _around(index, place, 2 * facts.count):
            for row, values in zip(rows, self._values(rows), strict=True):
                number = values[_ORIGIN_SEQ]
                if values[_ORIGIN] == facts.origin and facts.first_seq <= number <= last:
                    digest = hash_of(values)
                    known[number, digest] = values[_PREVIOUS]
                    ends += [digest] if row[0] == place else []
            found = []
            digest = ends[0] if ends else b""
            while (last - len(found), digest) in known and len(found) < facts.count:
                found.append(digest)
                digest = known[last - len(found) + 1, digest]
            if len(found) == facts.count:
                break
        return found


def _around(index: Index, place: int, size: int) -> Iterator[list[Row]]:
    """Return the rows of all events in pages: those up to a position, from there back, then the others."""
    high = place
    while rows := wanted_rows(index, EVERYTHING, 0, high, size, newest_first=True):
        yield rows[::-1]
        high = rows[-1][0] - 1
    low = place
    while rows := wanted_rows(index, EVERYTHING, low, END, size, newest_first=False):
        yield rows
        low = rows[-1][0]
    yield []  # of which all may be purged


def hash_of(values: Values) -> bytes:
    """Return the hash of an event."""
    return header_hash(encode_header(values[:_HEADER_LENGTH]))

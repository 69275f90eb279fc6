"""Read records by query: choose the index, and filter the rows. The statements are in read.sql.

A stream is read along its sequence; types and scopes each along their own index, merged by position; everything else
is a scan. The order is always that of positions, so a filter never changes it (G6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from everlog.core.codec import Packed, assemble, proof
from everlog.core.event import Position, Purged, Recorded, microseconds
from everlog.core.ids import id_text
from everlog.core.merkle import paths
from everlog.core.query import Query
from everlog.stores.contract import Block, Claim
from everlog.stores.lost import first_gap, lost
from everlog.stores.postgres.statements import statements
from everlog.stores.small_state import Row, claim_row, note_row

PAGE_ROWS = 1000
SLAB_ROWS = 5000
END = 2**62

Fetch = Callable[[str, dict[str, Any]], list[tuple[Any, ...]]]
"""Run one statement to its end on some connection, so that no read holds a connection while its caller works."""


class Proof(NamedTuple):
    """A signature, the path to the root that it covers, and if it is that of a group its first number and count."""

    signature: bytes
    path: tuple[bytes, ...]
    signed_with: tuple[int, int] = (0, 0)

    @property
    def carried(self) -> bytes:
        """What the event carries as its signature."""
        return proof(self.signature, self.signed_with) if self.signed_with[0] else self.signature


class Reading:
    """The statements for reading, on the table itself or on a tenant's view of it."""

    def __init__(self, *, tenant: bool) -> None:
        self._named = statements("read")
        tables = ("events", "purged", "purges")
        self._tables = {name: f"scoped_{name}" if tenant else name for name in tables}
        self._everything = "by_own_scopes" if tenant else "by_position"
        self._made: dict[tuple[str, str, bool], str] = {}

    def sql(self, name: str, where: str = "", *, newest_first: bool = False) -> str:
        key = (name, where, newest_first)
        found = self._made.get(key)
        if found is None:
            order = "DESC" if newest_first else "ASC"
            found = self._made[key] = self._named[name].format(
                columns=self._named["columns"], **self._tables, where=where, order=order
            )
        return found

    def records(
        self,
        fetch: Fetch,
        query: Query,
        *,
        after: Position,
        upto: Position | None,
        limit: int | None,
        newest_first: bool,
    ) -> Iterator[Recorded]:
        left = END if limit is None else limit
        for rows in self._pages(fetch, query, after, upto, left, newest_first=newest_first):
            yield from self.recorded(fetch, rows)

    def blocks(self, fetch: Fetch, query: Query, *, after: Position, upto: Position | None) -> Iterator[Block]:
        """Return what `records` returns, as columns of stored bytes."""
        for rows in self._pages(fetch, query, after, upto, END, size_max=SLAB_ROWS):
            columns = list(zip(*rows, strict=True))
            signed = self._signed(fetch, rows)
            proofs = [_proof(row, signed) for row in rows] if signed or any(columns[6]) else []
            signatures = [each.carried for each in proofs]
            paths = [b"".join(each.path) for each in proofs]
            positions, sequences, received_us, headers, payloads, salts, *_ = columns
            yield Block(positions, sequences, received_us, headers, (), payloads, salts, signatures, paths)

    def recorded(self, fetch: Fetch, rows: list[tuple[Any, ...]]) -> Iterator[Recorded]:
        """Return the records of rows."""
        position = Position(0)
        signed = self._signed(fetch, rows)
        try:
            for row in rows:
                position, sequence, received_us, header, payload, salt, signature, _, erased_by, _ = row
                if signed or signature or erased_by:
                    proven = _proof(row, signed)
                    event = assemble(header, payload, salt, proven.carried, proven.path, erased_by)
                else:
                    event = assemble(header, payload, salt)
                yield Recorded(position, sequence, received_us, event)
        except msgspec.DecodeError as error:
            raise lost(position, position, why=f"the event cannot be read: {error}") from error

    def _signed(self, fetch: Fetch, rows: list[tuple[Any, ...]]) -> dict[int, Proof]:
        """Return what the groups of these rows prove; nothing if no group is signed, as their last column says."""
        return self.signed(fetch, [row[0] for row in rows]) if rows and rows[0][-1] else {}

    def signed(self, fetch: Fetch, positions: Sequence[int]) -> dict[int, Proof]:
        """Return what the signed groups prove that these positions were in, by position."""
        found: dict[int, Proof] = {}
        for first, first_seq, count, signature, hashes in fetch(
            self.sql("signed_groups"), {"places": list(positions)}
        ):
            whole = paths(hashes) if len(hashes) == count else [()] * count  # a row is lost: verify reports it
            for position, path in enumerate(whole, first):
                found[position] = Proof(signature, path, (first_seq, count))
        return found

    def _pages(
        self,
        fetch: Fetch,
        query: Query,
        after: Position,
        upto: Position | None,
        left: int,
        *,
        newest_first: bool = False,
        size_max: int = PAGE_ROWS,
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Return the matching rows, page by page."""
        if left <= 0:
            return
        lead, where, values = self._plan(query)
        statement = self.sql(lead, where, newest_first=newest_first)
        values.update(after=after, upto=END if upto is None else upto)
        if lead == "by_stream":
            values.update(low=0, high=END)
        while left > 0:
            values["limit"] = size = min(size_max, left)
            rows = fetch(statement, values)
            gap = None
            if not where and lead == "by_position":
                low, high = values["after"], values["upto"]
                if len(rows) == size:  # there may be more: the page covers positions up to its last row
                    low, high = (rows[-1][0] - 1, high) if newest_first else (low, rows[-1][0])
                gap = self._missing(fetch, rows, low, high, newest_first=newest_first)
            elif not where and lead == "by_stream" and not _follow(rows, values["high" if newest_first else "low"]):
                gap = self._missing_between(fetch, rows)
            if gap is not None:
                rows = [row for row in rows if (row[0] > gap[1] if newest_first else row[0] < gap[0])]
            if rows:
                yield rows
            if gap is not None:
                raise lost(*gap)
            left -= len(rows)
            if len(rows) < size:
                return
            position, sequence = rows[-1][:2]
            if lead == "by_stream":
                values.update(high=sequence) if newest_first else values.update(low=sequence)
            elif newest_first:
                values["upto"] = position - 1
            else:
                values["after"] = position

    def _missing(
        self, fetch: Fetch, rows: list[tuple[Any, ...]], low: int, high: int, *, newest_first: bool
    ) -> tuple[int, int] | None:
        """Return the positions that nothing accounts for, where `rows` are all events above `low` up to `high`.
        Only for a role that sees every row."""
        if len(rows) == high - low:
            return None
        last = max((row[0] for row in rows), default=low)
        if high > last:
            # Read after the rows: events that were added since are found, and only lost ones are missing.
            ((head,),) = fetch(self.sql("head"), {})
            high = max(last, min(high, head))
            if high > last and self._accounted(fetch, last, high):
                high = last
        if len(rows) == high - low or high <= low:
            return None
        there = [row[0] for row in rows]
        there += [place for (place,) in fetch(self.sql("gone_places"), {"after": low, "upto": high})]
        return first_gap(there, low, high, newest_first=newest_first)

    def _missing_between(self, fetch: Fetch, rows: list[tuple[Any, ...]]) -> tuple[int, int] | None:
        """Return the positions between the rows of a stream that nothing accounts for: one of them was in the
        stream."""
        low, high = sorted((rows[0][0], rows[-1][0]))
        if self._accounted(fetch, low, high):
            return None
        there = [place for (place,) in fetch(self.sql("every_place"), {"after": low, "upto": high})]
        return first_gap(there, low, high, newest_first=rows[0][0] > rows[-1][0])

    def _accounted(self, fetch: Fetch, low: int, high: int) -> bool:
        ((count,),) = fetch(self.sql("accounted"), {"after": low, "upto": high})
        return bool(count == high - low)

    def _plan(self, query: Query) -> tuple[str, str, dict[str, Any]]:
        """Return the statement for the chosen index, the conditions for the rest, and the values of both."""
        conditions: list[str] = []
        values: dict[str, Any] = {}
        lead = self._everything
        if query.scope:
            lead = "by_scope"
            values.update(scope=query.scope, scope_from=query.scope + "/", scope_to=query.scope + "0")
        if query.types:
            if query.scope:
                conditions.append("and_scope")
            lead = "by_type"
            values["types"] = sorted(query.types)
        if query.stream:
            conditions = [name for name, given in (("and_scope", query.scope), ("and_types", query.types)) if given]
            lead = "by_stream"
            values["stream"] = query.stream
        for name, given, bound in (
            ("and_kind", query.kind, {"kind_from": query.kind + "/", "kind_to": query.kind + "0"}),
            ("and_actor", query.actor, {"actor": query.actor}),
            ("and_correlation", query.correlation_id, {"correlation": query.correlation_id}),
        ):
            if given:
                conditions.append(name)
                values.update(bound)
        if query.since is not None:
            conditions.append("and_since")
            values["since"] = microseconds(query.since)
        if query.until is not None:
            conditions.append("and_until")
            values["until"] = microseconds(query.until)
        return lead, " ".join(self._named[name] for name in conditions), values

    def places(self, fetch: Fetch, after: Position) -> Iterator[Packed | Purged]:
        """Return every slot after a position as stored bytes, including purged ones."""
        while True:
            rows = fetch(self.sql(self._everything), {"after": after, "upto": END, "limit": PAGE_ROWS})
            last = Position(rows[-1][0] if len(rows) == PAGE_ROWS else END)
            gone = fetch(self.sql("purged_places"), {"after": after, "upto": last})
            signed = self._signed(fetch, rows) | self._signed(fetch, gone)
            found: list[Packed | Purged] = [_packed(row, signed) for row in rows]
            found += [with_signature(Purged(row[0], row[1], id_text(row[2].int), *row[3:-1]), signed) for row in gone]
            found.sort(key=lambda place: place.position)
            yield from found
            if len(rows) < PAGE_ROWS:
                return
            after = last

    def kept(self, fetch: Fetch, *, now_us: int) -> Iterator[Row]:
        """Return every claim and every note, page by page."""
        name = UUID(int=0)  # no hash is all zeros
        while rows := fetch(self.sql("every_claim"), {"after": name, "limit": PAGE_ROWS}):
            yield from (claim_row(found.bytes, Claim(Position(first), count)) for found, first, count in rows)
            name = rows[-1][0]
        key = ""
        while rows := fetch(self.sql("every_note"), {"after": key, "now": now_us, "limit": PAGE_ROWS}):
            yield from (note_row(key, value.decode(), expires_us) for key, value, expires_us in rows)
            key = rows[-1][0]


def _follow(rows: list[tuple[Any, ...]], seen: int) -> bool:
    """Return whether the sequences of a stream's rows have no gap, in either direction, and continue those before."""
    if not rows:
        return True
    first, last = rows[0][1], rows[-1][1]
    return abs(last - first) == len(rows) - 1 and (seen in (0, END) or abs(first - seen) == 1)


def _packed(row: tuple[Any, ...], signed: Mapping[int, Proof]) -> Packed:
    position, sequence, received_us, header, payload, salt, _, _, erased_by, _ = row
    proven = _proof(row, signed)
    slot = (position, sequence, received_us, header.encode(), payload.encode(), salt)
    return Packed(*slot, proven.signature, proven.path, erased_by, proven.signed_with)


def _proof(row: tuple[Any, ...], signed: Mapping[int, Proof]) -> Proof:
    """Return what proves an event: its own signature, or that of its group."""
    own = Proof(row[6], split_path(row[7]))
    return own if own.signature else signed.get(row[0], own)


def with_signature(purged: Purged, signed: Mapping[int, Proof]) -> Purged:
    """Return what is left of a purged event, with the signature of the group that it was in."""
    proven = signed.get(purged.position)
    if proven is None:
        return purged
    return replace(purged, signature=proven.signature, signed_with=proven.signed_with)


def split_path(path: bytes) -> tuple[bytes, ...]:
    """Return the hashes of a path, which are stored contiguously."""
    return tuple(path[start : start + 32] for start in range(0, len(path), 32))

"""Insert the rows of one staged write: the hot path of every append.

Many rows are sent by COPY, in its binary form, which is made here by hand:

    "PGCOPY\\n\\377\\r\\n\\0" | flags 0 | extension 0 | row … row | -1
    row:  number of columns (int16), then for each its length (int32) and its bytes

Few rows are sent as arrays, in one statement with everything else that a write changes: a COPY waits for an answer of
the server before its rows may be sent.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Collection, Sequence

from msgspec.structs import astuple

from everlog.core.event import EVENT_FIELDS, Purge, Purged, Recorded
from everlog.core.ids import id_value
from everlog.errors import Damaged
from everlog.stores.contract import CLAIMS_KEPT_US_MIN, Encoded
from everlog.stores.open_write import OpenWrite
from everlog.stores.postgres.connection import Connection
from everlog.stores.postgres.small_state import write_changes
from everlog.stores.postgres.statements import statements
from everlog.stores.postgres.wire import BYTEA, INT4, INT8, TEXT, UUID, Statement, Wire, array, number, small_number
from everlog.stores.staged_group import StagedGroup

_COPY_ROWS_MIN = 48
_ROWS_A_PIECE = 128
_NAMES_REMEMBERED_MAX = 100_000
# Expired notes and claims are removed once per this many.
_BETWEEN_PRUNES = 5_000

_SIGNATURE = b"PGCOPY\n\xff\r\n\x00" + struct.pack(">II", 0, 0)
_END = struct.pack(">h", -1)
_COLUMNS = 13
_PLACE = struct.Struct(">h iq iq iq i16s").pack
_LENGTH = struct.Struct(">i").pack
_EMPTY = _LENGTH(0)
_SIGNATURE_AT = EVENT_FIELDS.index("signature")


class Inserter:
    """Sends what a write has staged. It caches the encoded form of names, which repeat."""

    def __init__(self, claims_kept_us: int) -> None:
        self._sql = {name: text.encode() for name, text in statements("write").items()}
        self._claims_kept_us = max(claims_kept_us, CLAIMS_KEPT_US_MIN)
        self._names: dict[str, bytes] = {}
        self._commit = Statement(b"everlog_commit", self._sql["commit"])
        self._claims_since_prune = _BETWEEN_PRUNES  # the first of a process prunes
        self._notes_since_prune = _BETWEEN_PRUNES

    def insert(self, connection: Connection, wire: Wire, staged: OpenWrite) -> None:
        """Send everything of a write, and its commit last."""
        if staged.may_be_lost:
            connection.execute(b"SET LOCAL synchronous_commit TO off")
        groups = [group for group in staged.groups() if group.facts.signature] if staged.signatures else []
        signed = {recorded.position for group in groups for recorded, _ in group.records}
        whole = [group for group in groups if len(group.records) == group.facts.count]
        if len(whole) < len(groups):
            self._place_groups(connection, groups)
            whole = []
        rows = staged.records
        purges = [(purge, removed) for purge, removed in staged.staged_purges if removed]
        if staged.placed_purged or len(purges) < len(staged.staged_purges):
            self._place(connection, staged)
        for purge, removed in purges:
            # Positions are assigned in order, so events appended before a purge are sent before it.
            before = [row for row in rows if row[0].position < purge.reserved]
            rows = rows[len(before) :]
            self._copy(connection, before, signed)
            self._purge(connection, purge, removed)
        if len(rows) >= _COPY_ROWS_MIN:
            self._copy(connection, rows, signed)
            rows = []
        if staged.erasures:
            self._erase(connection, staged)
        if purges or staged.erasures or staged.scrubs:
            # Expired notes are not returned, but may hold bytes of purged events.
            connection.execute(self._sql["forget_notes"], {"now": staged.now_us})
        if staged.staged_notes:
            self._write_notes(connection, staged)
        self._forget_claims(connection, staged)
        if staged.state_changes:
            write_changes(connection, staged.state_changes)
        last = self._last(rows, staged, signed, whole)
        if (staged.staged_purges or staged.placed_purged) and not purges:
            wire.run(*last)
            connection.execute(self._sql["set_head"], {"head": staged.position})
            self._place_chains(connection, staged)
            wire.run(self._commit)
        else:
            wire.run(*last, self._commit)

    def _last(
        self,
        rows: Sequence[tuple[Recorded, Encoded]],
        staged: OpenWrite,
        signed: Collection[int],
        groups: Sequence[StagedGroup],
    ) -> list[Statement]:
        """Return the rest of a write, to be sent at once: events, signatures, claims, and the clock if no event
        carries it."""
        found = []
        if rows:
            found.append(Statement(b"everlog_insert_events", self._sql["insert_events"], self._columns(rows, signed)))
        if groups:
            found.append(Statement(b"everlog_sign_groups", self._sql["sign_groups"], _signatures(groups)))
        if staged.staged_claims:
            found.append(Statement(b"everlog_claim", self._sql["claim"], self._claims(staged)))
        carried = max((encoded.event.lamport for _, encoded in staged.records), default=0)
        if staged.clock > max(carried, staged.clock_before):
            found.append(Statement(b"everlog_move_clock", self._sql["move_clock"], [number(staged.clock)]))
        return found

    def _copy(
        self, connection: Connection, rows: Sequence[tuple[Recorded, Encoded]], signed: Collection[int]
    ) -> None:
        if not rows:
            return
        with connection.cursor() as cursor, cursor.copy(self._sql["copy_events"]) as copy:
            copy.write(_SIGNATURE)
            # In pieces, so that the server stores the first rows while the next are encoded.
            for start in range(0, len(rows), _ROWS_A_PIECE):
                copy.write(self._copy_bytes(rows[start : start + _ROWS_A_PIECE], signed))
            copy.write(_END)

    def _columns(self, rows: Sequence[tuple[Recorded, Encoded]], signed: Collection[int]) -> list[bytes]:
        """Return the values of `insert_events`, in the order of its parameters."""
        events = [encoded.event for _, encoded in rows]
        proofs = [_proof(recorded, encoded, signed) for recorded, encoded in rows]
        return [
            array(INT8, [number(recorded.position) for recorded, _ in rows]),
            array(INT8, [number(recorded.sequence) for recorded, _ in rows]),
            array(INT8, [number(recorded.received_us) for recorded, _ in rows]),
            array(UUID, [id_value(event.id).to_bytes(16, "big") for event in events]),
            array(TEXT, [event.stream.encode() for event in events]),
            array(TEXT, [event.type.encode() for event in events]),
            array(TEXT, [event.scope.encode() for event in events]),
            array(TEXT, [encoded.header for _, encoded in rows]),
            array(TEXT, [encoded.payload for _, encoded in rows]),
            array(BYTEA, [event.salt for event in events]),
            array(BYTEA, [signature for signature, _ in proofs]),
            array(BYTEA, [path for _, path in proofs]),
            array(TEXT, [event.erased_by.encode() for event in events]),
        ]

    def _erase(self, connection: Connection, staged: OpenWrite) -> None:
        erasures = staged.erasures.values()
        values = {
            "ids": [uuid.UUID(int=id_value(erasure.id)) for erasure in erasures],
            "allowed_by": [erasure.by for erasure in erasures],
        }
        done = connection.execute(self._sql["erase"], values).fetchone()
        if done != (len(erasures),):
            raise Damaged(
                "the erasure was undone",
                why=f"{len(erasures)} payloads were to be erased, and the database erased {done}",
                hint="everlog verify",
            )

    def _claims(self, staged: OpenWrite) -> list[bytes]:
        claims = staged.staged_claims
        return [
            array(UUID, list(claims)),
            array(INT8, [number(claim.first) for claim in claims.values()]),
            array(INT4, [small_number(claim.count) for claim in claims.values()]),
            number(staged.now_us),
        ]

    def _purge(self, connection: Connection, purge: Purge, removed: Sequence[Purged]) -> None:
        values = {"stream": purge.stream, "actor": purge.actor, "reason": purge.reason, "now": purge.purged_us}
        values |= {"ids": [uuid.UUID(int=id_value(gone.id)) for gone in removed]}
        done = connection.execute(self._sql["purge"], values).fetchone()
        if done != (purge.reserved, purge.sequence, purge.count):
            # The database counts the purged events itself; if the count differs, nothing is kept.
            raise Damaged(
                f"the purge of {purge.stream} was undone",
                why=f"{purge.count} events up to sequence {purge.sequence} were expected, the database found {done}",
                hint="everlog verify",
            )

    def _place(self, connection: Connection, staged: OpenWrite) -> None:
        """Send the purged slots of a copied log before its events, which need them. Only the owner can do this."""
        with connection.cursor() as cursor:
            purged = [
                (*astuple(gone)[:2], uuid.UUID(int=id_value(gone.id)), *astuple(gone)[3:10])
                for gone in staged.placed_purged
            ]
            cursor.executemany(self._sql["place_purged"], purged)
            purges = [purge for purge, removed in staged.staged_purges if not removed]
            rows = [(*astuple(purge)[:2], list(purge.scopes), *astuple(purge)[3:]) for purge in purges]
            cursor.executemany(self._sql["place_purges"], rows)

    def _place_groups(self, connection: Connection, groups: Sequence[StagedGroup]) -> None:
        """Send the signatures of a copied log, of whose groups a purge has left only some events or none."""
        rows = [
            (group.first, facts.origin, facts.first_seq, facts.count, facts.signature)
            for group in groups
            for facts in (group.facts,)
        ]
        with connection.cursor() as cursor:
            cursor.executemany(self._sql["place_groups"], rows)

    def _place_chains(self, connection: Connection, staged: OpenWrite) -> None:
        """Send the chains of a copied log, in which purged events are links, too."""
        chains = staged.chains.items()
        with connection.cursor() as cursor:
            cursor.execute(self._sql["forget_chains"], {"origins": list(staged.chains)})
            runs = [(origin, *astuple(run)) for origin, chain in chains for run in chain.runs]
            cursor.executemany(self._sql["place_chains"], runs)
            forks = [(origin, *astuple(fork)) for origin, chain in chains for fork in chain.forks]
            cursor.executemany(self._sql["place_forks"], forks)

    def _copy_bytes(self, rows: Sequence[tuple[Recorded, Encoded]], signed: Collection[int]) -> bytes:
        names, named = self._names, self._named
        parts: list[bytes] = []
        add = parts.extend
        for recorded, encoded in rows:
            event, header, payload = encoded.event, encoded.header, encoded.payload
            place = _PLACE(
                _COLUMNS,
                8,
                recorded.position,
                8,
                recorded.sequence,
                8,
                recorded.received_us,
                16,
                id_value(event.id).to_bytes(16, "big"),
            )
            add(
                (
                    place,
                    names.get(event.stream) or named(event.stream),
                    names.get(event.type) or named(event.type),
                    names.get(event.scope) or named(event.scope),
                    _LENGTH(len(header)),
                    header,
                    _LENGTH(len(payload)),
                    payload,
                    _LENGTH(len(event.salt)),
                    event.salt,
                )
            )
            signature, path = _proof(recorded, encoded, signed)
            erased_by = event.erased_by.encode()
            for value in (signature, path, erased_by):
                add((_LENGTH(len(value)), value) if value else (_EMPTY,))
        return b"".join(parts)

    def _named(self, name: str) -> bytes:
        if len(self._names) >= _NAMES_REMEMBERED_MAX:
            self._names.clear()
        data = name.encode()
        encoded = self._names[name] = _LENGTH(len(data)) + data
        return encoded

    def _forget_claims(self, connection: Connection, staged: OpenWrite) -> None:
        self._claims_since_prune += len(staged.staged_claims)
        if staged.staged_claims and self._claims_since_prune >= _BETWEEN_PRUNES:
            before = staged.now_us - self._claims_kept_us
            connection.execute(self._sql["forget_claims"], {"limit": 2 * self._claims_since_prune, "before": before})
            self._claims_since_prune = 0

    def _write_notes(self, connection: Connection, staged: OpenWrite) -> None:
        kept = [
            (key, None if value is None else value.encode(), end) for key, (value, end) in staged.staged_notes.items()
        ]
        keys, values, ends = (list(column) for column in zip(*kept, strict=True))
        connection.execute(self._sql["keep_notes"], {"keys": keys, "values": values, "ends": ends})
        self._notes_since_prune += len(kept)
        if self._notes_since_prune >= _BETWEEN_PRUNES:
            self._notes_since_prune = 0
            connection.execute(self._sql["forget_notes"], {"now": staged.now_us})


def _signatures(groups: Sequence[StagedGroup]) -> list[bytes]:
    """Return the values of `sign_groups`."""
    return [
        array(INT8, [number(group.first) for group in groups]),
        array(INT4, [small_number(group.facts.count) for group in groups]),
        array(BYTEA, [group.facts.signature for group in groups]),
    ]


def _proof(recorded: Recorded, encoded: Encoded, signed: Collection[int]) -> tuple[bytes, bytes]:
    """Return the signature and the path that an event has by itself. Those of a signed group follow from it."""
    if recorded.position in signed:
        return b"", b""
    signature, path = astuple(encoded.event)[_SIGNATURE_AT : _SIGNATURE_AT + 2]
    return signature, b"".join(path)

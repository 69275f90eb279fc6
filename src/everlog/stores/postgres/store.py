"""The PostgreSQL store: one row per event, many processes and machines, one writer at a time.

A write locks the one row of `state` before it assigns a position, and holds the lock until it commits. So positions
are in the order of commits, without gaps, and a reader waits for no transaction (F20 to F24). A write stages in
memory and sends everything at its end. The state that a write starts from is kept between writes: if another process
has moved the head, the new events are fetched, or the state is dropped and read again.

Reads borrow a connection for one page at a time, so that a slow reader blocks nobody.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg

from everlog.core.chain import Chain, Fork, Run
from everlog.core.codec import Packed, assemble, header_hash
from everlog.core.event import START, Position, Purge, Purged, Recorded
from everlog.core.ids import EventId, id_value
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged, LogClosed, Unavailable
from everlog.stores.contract import CLAIMS_KEPT_US_MIN, Block, Claim, Ends, Identity, Known, Problem, Removable
from everlog.stores.identity import Origins, new_identity
from everlog.stores.inherited import WHY_ABANDONED, abandon_in_forks
from everlog.stores.open_write import OpenWrite
from everlog.stores.postgres import check
from everlog.stores.postgres.address import address_of
from everlog.stores.postgres.claims import ClaimNames
from everlog.stores.postgres.connection import READERS_MAX, Connection, Pool, connect, keep_for_ever, lost, own_errors
from everlog.stores.postgres.insert import Inserter
from everlog.stores.postgres.listener import Listener
from everlog.stores.postgres.migrate import identity_of, open_log
from everlog.stores.postgres.queries import END, Reading, with_signature
from everlog.stores.postgres.small_state import DerivedTable
from everlog.stores.postgres.statements import statements
from everlog.stores.postgres.wire import Statement, Wire
from everlog.stores.small_state import Beside, MemoryState, Row, SmallState, StoreState

_STREAMS_REMEMBERED_MAX = 200_000
# So many events of others are looked through to keep what is remembered; more, and it is forgotten.
_CATCH_UP_MAX = 2_000
_KNOWN_WHOLE_MAX = 20_000
_RESOLVE_S = 10


class PostgresStore:
    def __init__(
        self,
        url: str,
        *,
        create: bool = True,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        claims_kept_us: int = CLAIMS_KEPT_US_MIN,
        identity: Identity | None = None,
    ) -> None:
        self._address = address_of(url)
        self._now_us = now_us
        self._mutex = threading.Lock()
        self._pool = Pool(self._address)
        self._writer: Connection | None = None
        self._writing_thread = 0
        self._listener: Listener | None = None
        self._closed = False
        self._why_closed = "open it again"
        self._write_sql = {name: text.encode() for name, text in statements("write").items()}
        self._opening = tuple(
            Statement(b"everlog_" + name.encode(), self._write_sql[name]) for name in ("begin", "take_lock")
        )
        self._inserter = Inserter(claims_kept_us)
        self._claims = ClaimNames()
        self._head = START
        self._clock = 0
        self._known_head: Position | None = None  # where the head was when what follows was right
        self._chains: dict[str, Chain] = {}
        self._sequences: dict[str, int] = {}
        self._every_stream_known = False
        self._table = b""  # the table of the state: a log that was restored from a dump has another one
        self._settled = False  # whether it is known that the log was not put back
        self.origins = Origins()
        self._identity_before: Identity | None = None  # if this write may change it
        try:
            with own_errors(self._address, "opening"), self._pool.borrow() as connection:
                self._identity = open_log(
                    connection,
                    self._address,
                    create=create,
                    identity=identity or new_identity(now_us()),
                    stays=identity is None,
                )
                row = connection.execute("SELECT has_table_privilege('events', 'SELECT')", prepare=False).fetchone()
        except BaseException:
            self._pool.close()
            raise
        self._tenant = row == (False,)
        beside = Beside(self._find_claims, self._find_note, self._find_notes, self._every_row)
        self.small_state = StoreState(beside, self._open_derived)
        self._reading = Reading(tenant=self._tenant)
        abandon_in_forks(self)

    @property
    def identity(self) -> Identity:
        return self._identity

    @property
    def hides_events(self) -> bool:
        """Return whether this is the role of a tenant, which does not see the events of other tenants."""
        return self._tenant

    # ---- reading

    def read(
        self,
        query: Query = EVERYTHING,
        *,
        after: Position = START,
        upto: Position | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Recorded]:
        return self._reading.records(
            self._fetch, query, after=after, upto=upto, limit=limit, newest_first=newest_first
        )

    def blocks(
        self, query: Query = EVERYTHING, *, after: Position = START, upto: Position | None = None
    ) -> Iterator[Block]:
        return self._reading.blocks(self._fetch, query, after=after, upto=upto)

    def get(self, event_id: EventId) -> Recorded | None:
        rows = self._fetch(self._reading.sql("by_id"), {"id": UUID(int=id_value(event_id))})
        return next(self._reading.recorded(self._fetch, rows), None)

    def head(self) -> Position:
        if self._in_write():
            return self._head
        ((head,),) = self._fetch(self._reading.sql("head"), {})
        return Position(head)

    def purges(self, *, after: Position = START) -> list[Purge]:
        rows = self._fetch(self._reading.sql("purges"), {"after": after})
        return [Purge(row[0], row[1], tuple(row[2]), *row[3:]) for row in rows]

    def slots(self, *, after: Position = START) -> Iterator[Packed | Purged]:
        with self._snapshot("reading") as fetch:
            yield from self._reading.places(fetch, after)

    def check(self) -> Iterator[Problem]:
        with self._snapshot("checking") as fetch:
            yield from check.problems(fetch, tenant=self._tenant)

    # ---- writing

    @contextmanager
    def open_write(self) -> Iterator[OpenWrite]:
        with self._mutex:
            self._require_open()
            try:
                with own_errors(self._address, "opening a write in"):
                    self._begin()
                self._writing_thread = threading.get_ident()
                staged = OpenWrite(
                    self,
                    now_us=self._now_us(),
                    head=self._head,
                    clock=self._clock,
                    settle=None if self._settled else self._settle_origin,
                    continue_as=self._continue_as,
                )
                yield staged
                self._commit(staged)
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._writing_thread = 0

    def watch(self, callback: Callable[[], None]) -> None:
        """Have a callback called when any process has recorded something: a hint, which may come late or never."""
        with self._mutex:
            self._require_open()
            if self._listener is None:
                self._listener = Listener(self._address)
            self._listener.call(callback)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            self._pool.close()
            if self._listener is not None:
                self._listener.close()
                self._listener = None
            self._drop_writer()

    # ---- what a write starts from

    def ends(
        self,
        *,
        streams: Collection[str] = (),
        origins: Collection[str] = (),
        ids: Collection[EventId] = (),
        purging: str = "",
    ) -> Ends:
        if streams:
            self._meet(streams)
        return Ends(
            self._last_clock(),
            {stream: self._sequences.get(stream, 0) for stream in streams},
            {origin: self._chain(origin) for origin in origins},
            {event_id: known for event_id in ids if (known := self._find_known(event_id)) is not None},
            self._removable(purging) if purging else None,
        )

    def chains(self) -> dict[str, Chain]:
        rows = self._fetch(self._reading.sql("every_chain"), {})
        return _chains_of(rows, {row[0] for row in rows})

    def _last_clock(self) -> int:
        if self._in_write():
            return self._clock
        ((clock,),) = self._fetch(self._reading.sql("clock"), {})
        return int(clock)

    def _chain(self, origin: str) -> Chain:
        found = self._chains.get(origin)
        if found is None:
            rows = self._fetch_in_write("chains", {"origins": [origin]})
            found = self._chains[origin] = _chains_of(rows, [origin])[origin]
        return found

    def _meet(self, streams: Collection[str]) -> None:
        new = [] if self._every_stream_known else [stream for stream in streams if stream not in self._sequences]
        if new:
            if len(self._sequences) >= _STREAMS_REMEMBERED_MAX:
                self._sequences.clear()
            self._sequences.update(self._fetch_in_write("last_sequences", {"streams": new}))

    def _find_known(self, event_id: EventId) -> Known | None:
        values = {"id": UUID(int=id_value(event_id))}
        rows = self._fetch(self._reading.sql("by_id"), values)
        if rows:
            return Known(header_hash(rows[0][3].encode()), False)
        rows = self._fetch(self._reading.sql("purged_by_id"), values)
        return Known(rows[0][0], True) if rows else None

    def _removable(self, stream: str) -> Removable:
        removed, scopes = [], set()
        rows = self._fetch_in_write("purgeable", {"stream": stream})
        signed = self._reading.signed(self._fetch, [row[0] for row in rows])
        for position, sequence, header in rows:
            event = assemble(header, b"", b"")  # the payload may be the very thing that cannot be read any more
            slot = (position, sequence, event.id, event.origin, event.origin_seq)
            found = Purged(*slot, header_hash(header.encode()), event.previous, event.lamport)
            removed.append(with_signature(found, signed))
            scopes.add(event.scope)
        return Removable(removed, tuple(sorted(scopes)))

    # ---- claims and notes, which are not for tenants

    def _find_claims(self, names: Collection[bytes]) -> dict[bytes, Claim]:
        if self._in_write():
            names = self._claims.maybe_claimed(self._fetch, names)
        if self._tenant or not names:
            return {}
        rows = self._fetch(self._reading.sql("claims"), {"names": [UUID(bytes=name) for name in names]})
        return {name.bytes: Claim(first, count) for name, first, count in rows}

    def _find_note(self, key: str) -> str | None:
        if self._tenant:
            return None
        rows = self._fetch(self._reading.sql("noted"), {"key": key})
        if not rows or (rows[0][1] is not None and rows[0][1] <= self._now_us()):
            return None
        value: bytes = rows[0][0]
        return value.decode()

    def _find_notes(self, prefix: str, limit: int | None, newest_first: bool) -> dict[str, str]:
        if self._tenant:
            return {}
        rows = self._fetch(
            self._reading.sql("notes", newest_first=newest_first),
            {
                "prefix": prefix,
                "prefix_end": prefix + "\U0010ffff",
                "now": self._now_us(),
                "limit": END if limit is None else limit,
            },
        )
        return {key: value.decode() for key, value in rows}

    def _every_row(self) -> Iterator[Row]:
        if self._tenant:
            return
        with self._snapshot("reading") as fetch:
            yield from self._reading.kept(fetch, now_us=self._now_us())

    def _open_derived(self) -> SmallState:
        """Open what views derive: in this schema, or in memory for a role that may not write it there."""
        table = DerivedTable(self._fetch, self.open_write)
        return table if table.may_write() else MemoryState()

    # ---- inside: reading

    def _in_write(self) -> bool:
        return self._writing_thread == threading.get_ident()

    def _fetch(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        with own_errors(self._address, "reading"):
            if self._in_write():
                # Inside a write the writer's own connection answers: it has the lock.
                assert self._writer is not None
                return _run(self._writer, statement, values)
            tries_left = READERS_MAX + 1
            while True:
                self._require_open()
                with self._pool.borrow() as connection:
                    try:
                        return _run(connection, statement, values)
                    except psycopg.OperationalError as error:
                        # The server went away while this connection was idle, and so may the other idle ones. A
                        # read can simply be asked again; when no new connection can be made, that error says so.
                        tries_left -= 1
                        if not (tries_left and lost(error) and connection.closed):
                            raise

    def _fetch_in_write(self, name: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        with own_errors(self._address, "reading"):
            assert self._writer is not None
            return _run(self._writer, self._write_sql[name], values)

    @contextmanager
    def _snapshot(self, doing: str) -> Iterator[Callable[[str, dict[str, Any]], list[tuple[Any, ...]]]]:
        """Many statements as of one moment: the log may be written meanwhile."""
        self._require_open()
        with own_errors(self._address, doing), self._pool.borrow() as connection:
            connection.execute(statements("check")["snapshot"].encode(), prepare=False)
            try:
                yield lambda statement, values: _run(connection, statement, values)
            finally:
                if not connection.closed:
                    connection.execute("ROLLBACK", prepare=False)

    # ---- inside: writing

    def _require_open(self) -> None:
        if self._closed:
            raise LogClosed(f"{self._address} is closed", hint=self._why_closed)

    def _begin(self) -> None:
        """Take the lock and learn what is committed; a connection that broke while it was idle is replaced."""
        for last_try in (self._writer is None, True):
            if self._writer is None:
                self._writer = connect(self._address)
                self._wire = Wire(self._writer)
                self._forget_committed()
            try:
                _, locked = self._wire.run(*self._opening)
                break
            except psycopg.OperationalError as error:
                if last_try or not lost(error):
                    raise
                self._drop_writer()
        head, clock = locked.get_value(0, 0), locked.get_value(0, 1)
        if head is None or clock is None:
            raise Damaged(
                f"{self._address} takes no writes", why="the state of the log is gone", hint="everlog verify"
            )
        self._head, self._clock = Position(int.from_bytes(head, "big")), int.from_bytes(clock, "big")
        if (table := locked.get_value(0, 2)) != self._table:
            self._table, self._settled, self._known_head = table or b"", False, None
        if self._known_head != self._head:
            self._catch_up()
        self._known_head = None  # until this write has ended well

    def _settle_origin(self) -> None:
        """Make sure that own events continue the chain: another process may have changed the origin, and a log that
        was put back takes a new one, with this write."""
        if self._fetch_in_write("settle", {"origin": ""}) == [(True,)]:
            made = self.origins.new(self._now_us(), before=self._identity.origin)
            self._fetch_in_write("settle", {"origin": made})
        self._identity_before = self._identity
        self._identity = identity_of(self._fetch_in_write("identity", {}), self._address)
        self._settled = True

    def _continue_as(self, origin: str) -> None:
        self._identity_before = self._identity_before or self._identity
        self._fetch_in_write("continue_as", {"origin": origin})
        self._identity = identity_of(self._fetch_in_write("identity", {}), self._address)

    def _unsettle(self) -> None:
        """Take back what settling the origin may have changed: the write was undone."""
        if self._identity_before is not None:
            self._identity, self._identity_before = self._identity_before, None
            self._settled = False

    def _catch_up(self) -> None:
        """Somebody else has written, or this is the first write on this connection."""
        writer, after = self._writer, self._known_head
        assert writer is not None
        if after is None or not 0 < self._head - after <= _CATCH_UP_MAX:
            first = after is None
            self._forget_committed()
            if first:
                self._refuse_cut_log(writer)
            if self._head <= _KNOWN_WHOLE_MAX:
                # A young log meets new streams all the time: with all of them known, a new one costs no question.
                self._sequences = dict(self._fetch_in_write("every_sequence", {}))
                self._every_stream_known = True
            return
        with writer.pipeline():
            streams = writer.execute(self._write_sql["sequences_since"], {"after": after})
            chains = writer.execute(self._write_sql["chains"], {"origins": list(self._chains)}, binary=True)
            names = writer.execute(self._write_sql["claims_since"], {"after": after}, binary=True)
        self._sequences.update(streams.fetchall())
        self._chains = _chains_of(chains.fetchall(), list(self._chains))
        self._claims.others_claimed(names.fetchall())

    def _commit(self, staged: OpenWrite) -> None:
        writer = self._writer
        assert writer is not None
        if not staged.dirty:
            self._known_head = self._head
            with own_errors(self._address, "ending a write in"):
                self._wire.roll_back()
            self._unsettle()
            return
        try:
            with own_errors(self._address, "writing to"):
                self._inserter.insert(writer, self._wire, staged)
        except Unavailable as error:
            if not lost(error.__cause__):
                raise
            self._drop_writer()
            if not self._was_recorded(staged, error):
                raise Unavailable(
                    f"writing to {self._address} failed",
                    why="the connection was lost before the commit; nothing of this write was kept",
                    hint="try again",
                ) from error
        self._identity_before = None
        self._known_head = self._head = staged.position
        self._clock = staged.clock
        self._chains.update(staged.chains)
        self._claims.committed(staged)
        for record, _ in staged.records:
            self._sequences[record.event.stream] = record.sequence
        for purge, _ in staged.staged_purges:
            self._sequences[purge.stream] = max(purge.sequence, self._sequences.get(purge.stream, 0))
        if len(self._sequences) > _STREAMS_REMEMBERED_MAX:
            self._sequences.clear()
            self._every_stream_known = False

    def _was_recorded(self, staged: OpenWrite, error: Unavailable) -> bool:
        """After a connection was lost in a commit: whether it happened. Who cannot find out must not say either."""
        deadline = time.monotonic() + _RESOLVE_S
        while staged.records:
            try:
                with connect(self._address) as connection:
                    # The lost session may still be about to commit. With the lock taken it has ended.
                    connection.execute("BEGIN")
                    connection.execute(self._write_sql["take_lock"])
                    first, _ = staged.records[0]
                    rows = _run(connection, self._write_sql["is_recorded"], {"position": first.position})
                    connection.execute("ROLLBACK")
                return [row[0].int for row in rows] == [id_value(first.event.id)]
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.1)
        raise Unavailable(
            f"whether the write to {self._address} was kept is unknown",
            why="the connection was lost during the commit, and the server cannot be asked",
            hint="when the server is back, repeat the request: with an idempotency key it is recorded once",
        ) from error

    def _roll_back(self) -> None:
        """Undo an open transaction, and forget what was remembered on the strength of it."""
        self._writing_thread = 0
        self._forget_committed()
        self._unsettle()
        if self._writer is None:
            return
        try:
            if self._writer.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                self._wire.roll_back()
        except psycopg.Error:
            self._drop_writer()  # the server undoes what is left of a session that ended

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._settled = False
        self._forget_committed()

    def _forget_committed(self) -> None:
        self._known_head = None
        self._chains = {}
        self._sequences = {}
        self._every_stream_known = False
        self._claims.forget()

    def _refuse_cut_log(self, writer: Connection) -> None:
        """Refuse to write onto a log whose last event is not the one that is remembered (G10, F60)."""
        problem = next(check.state_problems(lambda statement, values: _run(writer, statement, values)), None)
        if problem is not None:
            raise Damaged(
                f"{self._address} is damaged and takes no writes",
                why=problem.reason,
                hint="everlog verify, then restore a backup or export what is readable",
            )

    def abandon_after_fork(self) -> None:
        """In a child: leave the parent's connections alone, and refuse to be used."""
        for inherited in (*self._pool.abandon(), self._writer):
            keep_for_ever(inherited)
        if self._listener is not None:
            self._listener.abandon()
            self._listener = None
        self._writer = None
        self._mutex = threading.Lock()
        self._closed = True
        self._why_closed = WHY_ABANDONED


def _chains_of(rows: list[tuple[Any, ...]], origins: Collection[str]) -> dict[str, Chain]:
    """Return the chains of these origins: a row without a first number is a fork."""
    runs: dict[str, list[Run]] = {origin: [] for origin in origins}
    forks: dict[str, list[Fork]] = {origin: [] for origin in origins}
    for origin, first, previous, *end in rows:
        if first:
            runs[origin].append(Run(first, previous, *end))
        else:
            forks[origin].append(Fork(*end))
    return {origin: Chain(tuple(runs[origin]), tuple(forks[origin])) for origin in origins}


def _run(connection: Connection, statement: str | bytes, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    text = statement if isinstance(statement, bytes) else statement.encode()
    return connection.execute(text, values, binary=True).fetchall()

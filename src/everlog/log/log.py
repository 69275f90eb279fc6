"""The log: the one object that appends, reads, follows, purges and verifies.

The write path, one list for every writer:

    validate    shape, types, limits, secrets                          prepare
    guard       the rules of the program that owns the type            guard
    ------- the write opens (committer): nobody else writes; each request can be undone alone -------
    replay      key already used, id already here                      idempotency
    expect      expectations; what the guard read is unchanged         expect, guard
    stamp       what arrived of others; id, clock, chain, header, hash requests, knows
    ------- once for the whole commit group (stages) -------
    refusals    refusals that wait                                     refusals
    standing    what counts, if the write decides on it                admission
    derive      views that are kept with the events                    views
    seal        signatures of the new groups                           seal
    ------- commit: flush; from here on nothing can refuse -------
    publish     followers, live views                                  follow
"""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.catalog.models import Payload
from everlog.core.clock import JUMP_MAX
from everlog.core.event import START, Event, Position, Purge, Recorded, TypedRecord
from everlog.core.ids import parse_id
from everlog.core.query import (
    EVERYTHING,
    Cursor,
    Page,
    Query,
    Reset,
    require_limit,
    require_position,
    require_query,
)
from everlog.errors import Damaged, LogClosed
from everlog.log.admit.events import refuse_unacceptable
from everlog.log.admit.outcomes import Outcome
from everlog.log.derived import ViewName, ViewOfLog, ViewsOfLog
from everlog.log.read import follow, pages
from everlog.log.read.accounting import accounted
from everlog.log.read.upcast import upcast, upcast_all, with_typed_payloads
from everlog.log.records import TYPES as RECORDED
from everlog.log.records import types_of_records
from everlog.log.verify.verify import Report, upgraded_head, verify
from everlog.log.write.draft import Draft, Limits, typed_payload
from everlog.log.write.expect import Expect, Expectation
from everlog.log.write.guard import Guards, Judge
from everlog.log.write.purge import follow_purge, purge_stream
from everlog.log.write.refusal_rows import Refusal
from everlog.log.write.requests import Recorder
from everlog.log.write.seal import Seal
from everlog.log.write.writer import Writer
from everlog.stores.contract import CLAIMS_KEPT_US_MIN, Identity, Store, Stored, encode_event
from everlog.stores.identity import no_key
from everlog.stores.past_damage import PastDamage
from everlog.trust.keys import PrivateKey, is_key
from everlog.trust.sealing import Sealing
from everlog.trust.signer import Signer

if TYPE_CHECKING:
    from everlog.trust.forks import ForkProof
    from everlog.trust.group_signature import GroupSignature
    from everlog.trust.standing import Standing
    from everlog.trust.stubs import Stub
    from everlog.trust.tiles import Tree
    from everlog.trust.verdicts import Verdicts

T = TypeVar("T")


class Log:
    """An open log: append, read, follow, purge, verify. Any number of threads may share it."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        *,
        actor: str = "system",
        limits: Limits | None = None,
        keys_kept_us: int = CLAIMS_KEPT_US_MIN,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        make_views: Callable[[Log], ViewsOfLog] | None = None,
        guards: Guards | None = None,
        sealing: Sealing | None = None,
        signer: Signer | None = None,
        make_standing: Callable[[], Standing] | None = None,
    ) -> None:
        """`sealing` has the keys of personal fields, and opens them for everyone who reads with this catalog."""
        self._store = store
        self.catalog = catalog
        catalog.include_later(RECORDED, types_of_records)
        self.sealing = sealing
        if sealing is not None:
            catalog.open_sealed = sealing.open_value
        self.actor = actor
        self._now_us = now_us
        self._waiters = follow.Waiters()
        recorder = Recorder(
            catalog,
            actor=actor,
            limits=limits or Limits(),
            keys_kept_us=max(keys_kept_us, CLAIMS_KEPT_US_MIN),
            now_us=now_us,
            judge=None if guards is None else Judge(guards, self.read, self.head, lambda: store.identity.epoch),
            sealing=sealing,
            signer=signer,
            origin=lambda: store.identity.origin,
        )
        self.writer = Writer(store, recorder, self._waiters, actor=actor, now_us=now_us, make_standing=make_standing)
        self._signer = signer
        if signer is not None:
            store.origins = signer
            self.writer.add_stage(Seal(signer))
        self._make_views = make_views
        self._views: ViewsOfLog | None = None
        self._tree: Tree | None = None

    @property
    def stored(self) -> Stored:
        """The log as its store has it, for reading: stored bytes, events that are not upcast, purges, damage."""
        return self._store

    @property
    def identity(self) -> Identity:
        """The log's id, origin and epoch."""
        return self._store.identity

    # ---- appending

    def append(
        self,
        type: str | Payload,
        *,
        stream: str,
        payload: Any = None,
        actor: str = "",
        scope: str = "",
        expect: Expectation = Expect.ANY,
        key: str = "",
        operation: str = "",
        id: str = "",
        occurred_at: datetime | None = None,
        request_id: str = "",
        causation_id: str = "",
        correlation_id: str = "",
        tags: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> Recorded:
        """Record one event. When this returns, it is on the disk.

        `type` is the name of an event type with its `payload`, or a typed payload: `append(Submitted(…), stream=…)`.
        `expect` is a condition on the stream; `key` makes a retry safe: the same request returns the same record.
        """
        if not isinstance(type, str):
            type, payload = typed_payload(self.catalog, type, payload)
        draft = Draft(  # by place: by name it would cost a microsecond
            type,
            stream,
            {} if payload is None else payload,
            actor,
            scope,
            expect,
            id,
            occurred_at,
            request_id,
            causation_id,
            correlation_id,
            tags or {},
        )
        return self.writer.commit((draft,), key=key, operation=operation or type, dry_run=dry_run).records[0]

    def append_batch(
        self, drafts: Sequence[Draft], *, key: str = "", operation: str = "batch", dry_run: bool = False
    ) -> Sequence[Recorded]:
        """Record all of them or none, on one stream or many. The records are made when they are looked at."""
        return self.writer.commit(drafts, key=key, operation=operation, dry_run=dry_run).records

    def admit(self, events: Sequence[Event], *, jump_max: int = JUMP_MAX) -> list[Recorded]:
        """Record events from elsewhere as they are. Events that the log has are left out of the result.

        Unknown types are accepted: otherwise old nodes would diverge from new ones. `jump_max` is how far ahead of
        our clock the events may be.
        """
        from everlog.log.admit.intake import refuse_unsigned  # loaded when something arrives

        now_ms = self._now_us() // 1000
        for event in events:
            refuse_unacceptable(event, now_ms=now_ms)
        encoded = [encode_event(event) for event in events]
        refuse_unsigned(self.identity.log_id, encoded)
        return self.writer.admit_encoded(encoded, jump_max=jump_max)

    def admit_each(
        self,
        events: Sequence[Event],
        groups: Sequence[GroupSignature] = (),
        forks: Sequence[ForkProof] = (),
        stubs: Sequence[Stub] = (),
        *,
        sender: str = "",
        sent_for: str = "",
    ) -> list[Outcome]:
        """Record what another node sent, and return one outcome per event, in the order given.

        No event causes another one to be refused. `groups` are the signatures of groups that came whole; an event
        of a key whose group is not here carries its own proof. `forks` are proofs of forks, no matter who found them,
        and `stubs` what purges left of events that this log may lack; a record of the purge is here or comes along.
        `sender` is whose refusals are counted, and `sent_for` the id of the log that the sender means.
        """
        return self.writer.admit_each(events, groups, forks, stubs, sender=sender, sent_for=sent_for)

    def follow_purge(self, record: Event) -> Purge | None:
        """Remove what a record of another node lists (`stream.purged`), if it is here; return the purge."""
        return follow_purge(self.writer, None if self._make_views is None else lambda: self.views, record)

    # ---- reading

    def page_after(
        self,
        cursor: Cursor | int | str = START,
        query: Query = EVERYTHING,
        *,
        limit: int = pages.PAGE_LIMIT,
        looking: bool = False,
        earlier: Sequence[Cursor | str] = (),
    ) -> Page:
        """Return the events after a cursor, in order and upcast, or a reset if history has changed.

        A caller that is only `looking` holds no state of earlier events: it gets no reset, and sees purged positions
        as holes. After a restore, a reset leads to the start of the log, or after the greatest of the `earlier`
        cursors (for which the caller has kept its state) that this log shares.

        A page ends before an event that no upcaster can convert; the page that would begin with it raises
        SchemaBroken with its position, and a reader may continue after that. In the same way it ends before a
        position that is neither an event nor purged: the next page raises Damaged, whose details name the position to
        continue after.
        """
        require_query(query)
        require_limit(limit)
        start = Cursor.of(cursor)
        held = [Cursor.of(one) for one in earlier]
        return pages.upcast_page(self._store, self.catalog, start, query, limit=limit, looking=looking, earlier=held)

    @overload
    def read(
        self,
        query: Query = EVERYTHING,
        *,
        stream: str = "",
        after: int = START,
        upto: int | None = None,
        limit: int | None = None,
        newest_first: bool = False,
        past_damage: Callable[[Damaged], None] | None = None,
    ) -> Iterator[Recorded]: ...

    @overload
    def read(
        self,
        query: builtins.type[T],
        *,
        stream: str = "",
        after: int = START,
        upto: int | None = None,
        limit: int | None = None,
        newest_first: bool = False,
        past_damage: Callable[[Damaged], None] | None = None,
    ) -> Iterator[TypedRecord[T]]: ...

    def read(
        self,
        query: Query | builtins.type[T] = EVERYTHING,
        *,
        stream: str = "",
        after: int = START,
        upto: int | None = None,
        limit: int | None = None,
        newest_first: bool = False,
        past_damage: Callable[[Damaged], None] | None = None,
    ) -> Iterator[Recorded] | Iterator[TypedRecord[T]]:
        """Return events in order, upcast. For one stream, `stream=` is enough.

        With the model of an event type in place of a query, return the events of that type, with typed payloads.
        At a position that nothing accounts for it raises Damaged; its details have that position, and the one to
        continue after. With `past_damage` the read continues by itself and passes each error to that function.
        """
        if isinstance(query, builtins.type):
            events = Query(types=frozenset((self.catalog.type_of_model(query),)), stream=stream)
            return with_typed_payloads(
                self.catalog,
                self.read(
                    events, after=after, upto=upto, limit=limit, newest_first=newest_first, past_damage=past_damage
                ),
            )
        require_query(query)
        require_position("after", after)
        if upto is not None:
            require_position("upto", upto)
        if limit is not None:
            require_limit(limit)
        if stream != "":
            query = msgspec.structs.replace(query, stream=stream)
        store = self._store if past_damage is None else PastDamage(self._store, past_damage)
        found = store.read(
            query,
            after=Position(after),
            upto=None if upto is None else Position(upto),
            limit=limit,
            newest_first=newest_first,
        )
        if query == EVERYTHING and not newest_first and past_damage is None:
            found = accounted(self._store, found, Position(after))
        return upcast_all(self.catalog, found)

    def get(self, event: str | int) -> Recorded | None:
        """Return the event with this id, in either spelling, or at this position."""
        if isinstance(event, str):
            found = self._store.get(parse_id(event))
            return None if found is None else upcast(self.catalog, found)
        require_position("the position", event)
        return next(self.read(after=event - 1, upto=event, limit=1), None) if event > 0 else None

    def head(self) -> Position:
        """Return the position of the newest event or purge."""
        return self._store.head()

    def subscribe(
        self,
        after: Cursor | int | str = START,
        query: Query = EVERYTHING,
        *,
        to_end: bool = False,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Recorded | Reset]:
        """Return everything after the cursor and then everything new, until `stop()` returns True."""
        require_query(query)
        waiters = self._waiters if to_end else self.writer.waiters
        return follow.follow(self.page_after, self.head, waiters, Cursor.of(after), query, to_end=to_end, stop=stop)

    # ---- views

    @property
    def views(self) -> ViewsOfLog:
        """What is derived from this log: see docs/how-to/state/views.md."""
        if self._views is None:
            if self._make_views is None:
                raise LogClosed("this log was opened without views", hint="open it with everlog.open")
            self._views = self._make_views(self)
        return self._views

    def view(self, view: ViewName) -> ViewOfLog:
        """A view of this log, to be asked: `log.view(Board).get("workpackage/WP03").state`."""
        return self.views.of(view)

    def wait_for(self, view: ViewName, position: int | Recorded, timeout_s: float = 5.0) -> Position:
        """Wait until a view has applied what was appended. Raise ViewBehind when the time is over."""
        return self.view(view).wait_for(position, timeout_s)

    # ---- the rest

    def signing_key(self) -> PrivateKey | None:
        """Return the key that signs for this log, None if the log is not signed. Raise NoKey if it is not here."""
        origin = self.identity.origin
        if not is_key(origin):
            return None
        from everlog.trust.succession import successions_in

        if origin in successions_in(self._store.small_state):  # another process had it end its chain
            origin = self.writer.write(lambda write: write.own_origin())
        if self._signer is None:
            raise no_key(origin)
        return self._signer.key(origin)

    def rotate_key(self, *, to: str = "", actor: str = "") -> Recorded:
        """End the chain of the log's key with `origin.succeeded`, and continue under a new key.

        `to` names a key that is among the keys of this log already. Return the last event of the old chain.
        """
        from everlog.log.write.rotate import rotate_key  # few logs ever do

        return rotate_key(self.writer, self._signer, lambda: self.identity, to=to, actor=actor or self.actor)

    @property
    def tree(self) -> Tree:
        """The Merkle tree over all positions, of which checkpoints are made: see docs/how-to/nodes/trust.md."""
        if self._tree is None:
            from everlog.trust.tiles import Tree  # most logs are written without

            self._tree = Tree(self._store)
        return self._tree

    @overload
    def purge(
        self,
        stream: str,
        *,
        actor: str = "",
        reason: str,
        key: str = "",
        request: Any = None,
        key_scope: str | None = None,
    ) -> Purge: ...

    @overload
    def purge(
        self,
        stream: str,
        *,
        actor: str = "",
        reason: str,
        record: Sequence[Draft],
        key: str = "",
        operation: str = "purge",
        request: Any = None,
        key_scope: str | None = None,
    ) -> tuple[Purge, tuple[Recorded, ...]]: ...

    def purge(
        self,
        stream: str,
        *,
        actor: str = "",
        reason: str,
        record: Sequence[Draft] | None = None,
        key: str = "",
        operation: str = "purge",
        request: Any = None,
        key_scope: str | None = None,
    ) -> Purge | tuple[Purge, tuple[Recorded, ...]]:
        """Remove a stream's events for good. Their positions, hashes and the record of the purge stay.

        `record` are drafts of what must stay known of it, on other streams: both happen, or neither. Then their
        records are returned, too. With `key`, a retry gets the same outcome.
        """
        done = purge_stream(
            self.writer,
            None if self._make_views is None else lambda: self.views,
            stream,
            actor=actor or self.actor,
            reason=reason,
            record=tuple(record or ()),
            key=key,
            operation=operation,
            request=request,
            key_scope=key_scope,
        )
        return done[0] if record is None else done

    def forks(self) -> list[ForkProof]:
        """Return the proofs that an origin signed two events with one number: the lowest fork of each."""
        from everlog.trust.verdicts import forks_in, refuse_lost_verdicts  # needed by few logs

        refuse_lost_verdicts(self._store.small_state)
        return [fork for _, fork in sorted(forks_in(self._store.small_state).items())]

    def verdicts(self) -> Verdicts:
        """Return the chains of which not every recorded event counts, and up to where they do."""
        from everlog.trust.verdicts import refuse_lost_verdicts, verdicts_in

        refuse_lost_verdicts(self._store.small_state)
        return verdicts_in(self._store.small_state)

    def counted(self, records: Iterable[Recorded]) -> Iterator[Recorded]:
        """Return the records without those whose origin lost its standing before them: see `verdicts`."""
        return self.verdicts().counted(records)

    def refusals(
        self,
        *,
        limit: int | None = 50,
        code: str = "",
        stream: str = "",
        actor: str = "",
        operation: str = "",
        within: str = "",
    ) -> list[Refusal]:
        """Return recorded refusals, the newest first; with `within`, those of callers in that scope."""
        found = self.writer.refusals.newest(
            limit=limit, code=code, stream=stream, actor=actor, operation=operation, within=within
        )
        return list(found)

    def verify(self, *, progress: Callable[[int], None] = lambda position: None) -> Report:
        """Check every event, the chains, the signatures and the indexes, from the stored bytes."""
        from everlog.log.verify.decisions import decision_problems

        report = verify(self._store, upgraded=upgraded_head(self._store), records=True, progress=progress)
        found = tuple(decision_problems(self._store.small_state))
        return msgspec.structs.replace(report, problems=(*report.problems, *found)) if found else report

    def close(self) -> None:
        """Commit what was submitted, end views and followers, close the store."""
        if self._views is not None:
            self._views.close()
        self.writer.close()
        self._waiters.close()
        self._store.close()
        if self._signer is not None:
            self._signer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

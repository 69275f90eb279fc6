"""The log: the one object that appends, reads, follows, purges and verifies.

The write path, one list for every writer:

    validate    shape, types, limits, secrets                          prepare
    guard       the rules of the program that owns the type            guard
    ------- the write opens (committer): nobody else writes; each request can be undone alone -------
    replay      key already used, id already here                      idempotency, requests
    expect      expectations; nothing new in what the guard read       expect, guard
    stamp       id, clock, chain, header, hash                         stamp
    ------- once for the whole commit group (stages) -------
    refusals    refusals that wait                                     refusals
    derive      views that are kept with the events                    views
    seal        signature and path
    ------- commit: flush; from here on nothing can refuse -------
    publish     followers, live views                                  follow
"""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Self, TypeVar, overload

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.catalog.models import Payload, is_payload
from everlog.core.clock import JUMP_MAX
from everlog.core.event import START, Event, Position, Purge, Recorded, TypedRecord
from everlog.core.fields import require_shape, require_text
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
from everlog.errors import Damaged, EverlogError, InvalidField, LogClosed, SchemaBroken, Unavailable
from everlog.log.derived import ViewName, ViewOfLog, ViewsOfLog
from everlog.log.read import follow, pages
from everlog.log.read.accounting import accounted
from everlog.log.read.upcast import count_readable, upcast, upcast_all, with_typed_payloads
from everlog.log.secrets.secrets import refuse_secrets
from everlog.log.verify.verify import Report, verify
from everlog.log.write.admit import admit, refuse_unacceptable
from everlog.log.write.committer import Committer, Waker
from everlog.log.write.draft import Draft, Limits, Receipt
from everlog.log.write.expect import Expect, Expectation
from everlog.log.write.guard import (
    ATTEMPTS,
    Guards,
    Judge,
    Overtaken,
)
from everlog.log.write.purge import forget_derived, purge
from everlog.log.write.refusals import Counted, Refusal, Refusals
from everlog.log.write.requests import DryRun, Recorder, Request
from everlog.log.write.stages import Stage, Stages
from everlog.stores.contract import CLAIMS_KEPT_US_MIN, Encoded, Identity, Store, Stored, encode_event
from everlog.stores.open_write import OpenWrite
from everlog.stores.past_damage import PastDamage
from everlog.stores.small_state import StoreState

T = TypeVar("T")


class Log:
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
    ) -> None:
        self._store = store
        self.catalog = catalog
        self.actor = actor
        self._now_us = now_us
        self._recorder = Recorder(
            catalog,
            # Asked at every write: a clone of a log in git is given its own before the first one.
            origin=lambda: store.identity.origin,
            actor=actor,
            limits=limits or Limits(),
            keys_kept_us=max(keys_kept_us, CLAIMS_KEPT_US_MIN),
            now_us=now_us,
            judge=None if guards is None else Judge(guards, self.read, self.head),
        )
        self._waiters = follow.Waiters()
        self._stages = Stages()
        self._committer = Committer(store, self._stages, committed=self._waiters.wake)
        self._watching = False
        self._refusals = Refusals(store.small_state, self._committer, self._stages, now_us=now_us)
        self._make_views = make_views
        self._views: ViewsOfLog | None = None

    @property
    def stored(self) -> Stored:
        """The log as its store has it, for reading: stored bytes, events that are not upcast, damage."""
        return self._store

    @property
    def small_state(self) -> StoreState:
        """Rows beside the events, by space and key: what views and consumers keep."""
        return self._store.small_state

    @property
    def identity(self) -> Identity:
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
            type, payload = self.typed_payload(type, payload)
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
        return self.commit((draft,), key=key, operation=operation or type, dry_run=dry_run).records[0]

    def typed_payload(self, given: Any, payload: Any = None) -> tuple[str, Any]:
        """Return the event type of a typed payload, with the payload; refuse a second payload.

        Anything else is returned as it is, and refused where every event type is checked.
        """
        if not is_payload(given):
            return given, payload
        if payload is not None:
            raise InvalidField(
                f"there are two payloads, a {given.__class__.__name__} and another",
                why="a typed payload stands in place of the event type and of payload=",
                hint="append(Submitted(…), stream=…), or append(type, payload={…}, stream=…)",
                field="payload",
            )
        return self.catalog.type_of_model(given.__class__), given

    def append_batch(
        self, drafts: Sequence[Draft], *, key: str = "", operation: str = "batch", dry_run: bool = False
    ) -> list[Recorded]:
        """Record all of them or none, on one stream or many."""
        return list(self.commit(drafts, key=key, operation=operation, dry_run=dry_run).records)

    def commit(
        self,
        drafts: Sequence[Draft],
        *,
        key: str = "",
        operation: str = "batch",
        request: Any = None,
        response: Any = None,
        dry_run: bool = False,
        key_scope: str | None = None,
        retried: tuple[type[EverlogError], ...] = (),
        decided: bool = False,
    ) -> Receipt:
        """Record drafts; `append` and `append_batch` are short forms of this.

        `request` identifies the request better than its drafts, which have new ids and times at every attempt: it
        decides whether two requests are the same. `response` is stored, and a replay returns it. `key_scope` is where
        a key names one request, such as an organisation; without it, the scope of the first draft.
        `retried` names errors that the caller handles by trying again: they are not recorded as refusals.
        `decided` is for a caller that has applied the rules of the program already: no guard judges the drafts.
        """
        recorder, attempts = self._recorder, 1
        while True:
            try:
                made = Request(
                    recorder, tuple(drafts), key or "", operation, request, response, dry_run, key_scope, decided
                )
                if not (self._committer.busy and recorder.leave_to_others(made)):
                    recorder.prepare([made])
                    if made.error is not None:
                        raise made.error
                receipt: Receipt = self._committer.commit(made)
                return receipt
            except DryRun as answer:
                return answer.receipt
            except EverlogError as error:
                if isinstance(error, Overtaken) and attempts < ATTEMPTS:
                    attempts += 1
                    continue
                if not dry_run and not isinstance(error, retried):
                    self._refusals.record(error, operation=operation, **_facts(drafts, self.actor))
                raise

    def earlier_outcome(
        self,
        operation: str,
        key: str,
        request: Any,
        *,
        actor: str = "",
        scope: str = "",
        in_write: bool = False,
    ) -> Receipt | None:
        """Return what an earlier `commit` of this request recorded, or None if the key is free.

        For a caller that decides what to record: a retry gets its outcome before the decision is made again. Another
        request under the same key is refused. With `in_write` nobody with the same key can be about to record
        something: if a request was refused after its key was found free, an equal request may have been faster, and
        its outcome is the outcome of both.
        """
        asked: Any = {"scope": scope, "actor": actor, "operation": operation, "key": key, "request": request}
        if in_write:
            with suppress(Unavailable):  # a log that cannot be written to, or not now, can still be read
                return self._committer.write(lambda write: self._recorder.earlier_outcome(write, write, **asked))
        return self._recorder.earlier_outcome(self._store, self._store.small_state, **asked)

    def record_unchanged(
        self, operation: str, key: str, request: Any, *, actor: str = "", scope: str = ""
    ) -> Receipt | None:
        """Remember that a request was decided and changed nothing, so that a retry gets the same outcome.

        If an equal request under this key was faster, its outcome is returned, and nothing is changed.
        """
        return self._committer.write(
            lambda write: self._recorder.record_unchanged(
                write, scope=scope, actor=actor, operation=operation, key=key, request=request
            )
        )

    def request(
        self, drafts: Sequence[Draft], key: str, operation: str, request: Any = None, response: Any = None
    ) -> Request:
        """Return the request that `commit` would make, for `prepare` and `submit`."""
        return Request(self._recorder, tuple(drafts), key or "", operation, request, response)

    def prepare(self, requests: Sequence[Request]) -> None:
        """Prepare requests, all at once. One that is refused gets an `error`; the others are ready for `submit`."""
        self._recorder.prepare(requests)

    def submit(self, requests: Sequence[Request], waker: Waker) -> None:
        """Commit requests in another thread, and call the waker when they are done: see `everlog.aio`."""
        self._committer.submit(requests, waker)

    def record_refusal(self, error: EverlogError, drafts: Sequence[Draft], operation: str) -> None:
        """Record a refusal that `submit` led to. It is written with the next commit, or at the end."""
        self._refusals.record(error, operation=operation, **_facts(drafts, self.actor))

    def admit(self, events: Sequence[Event], *, jump_max: int = JUMP_MAX) -> list[Recorded]:
        """Record events from elsewhere as they are. Events that the log has are left out of the result.

        Unknown types are accepted: otherwise old nodes would diverge from new ones. `jump_max` is how far ahead of
        our clock the events may be.
        """
        now_ms = self._now_us() // 1000
        for event in events:
            refuse_unacceptable(event, now_ms=now_ms)
        return self.admit_encoded([encode_event(event) for event in events], jump_max=jump_max)

    def admit_encoded(self, encoded: Sequence[Encoded], *, jump_max: int = JUMP_MAX) -> list[Recorded]:
        """Record events as `admit` does, if the caller has checked and encoded them."""
        events = [item.event for item in encoded]
        return self._committer.write(
            lambda write: admit(write, events, encoded, origin=self.identity.origin, jump_max=jump_max)
        )

    # ---- reading

    def page_after(
        self, cursor: Cursor | int | str = START, query: Query = EVERYTHING, *, limit: int = pages.PAGE_LIMIT
    ) -> Page:
        """Return the events after a cursor, in order and upcast, or a reset if history has changed.

        A page ends before an event that no upcaster can convert; the page that would begin with it raises
        SchemaBroken with its position, and a reader may continue after that. In the same way it ends before a
        position that is neither an event nor purged: the next page raises Damaged, whose details name the position to
        continue after.
        """
        require_query(query)
        require_limit(limit)
        start = Cursor.of(cursor)
        page = pages.page_after(self._store, start, query, limit=limit)
        events: list[Recorded] = []
        try:
            events.extend(upcast_all(self.catalog, page.events))
        except SchemaBroken:
            # The events before it are still good: a shorter page has them, and the next one begins with the reason.
            readable = count_readable(self.catalog, page.events)
            if not readable:
                raise
            return self.page_after(start, query, limit=readable)
        return msgspec.structs.replace(page, events=tuple(events))

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
        At a position that nothing accounts for it raises Damaged; its details say where and after which position to
        go on. With `past_damage` it goes on itself, and calls that with each error.
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

    def get(self, event_id: str) -> Recorded | None:
        """The event with this id, in either spelling."""
        found = self._store.get(parse_id(event_id))
        return None if found is None else upcast(self.catalog, found)

    def at(self, position: int) -> Recorded | None:
        """The event at a position."""
        require_position("the position", position)
        return next(self.read(after=position - 1, upto=position, limit=1), None) if position > 0 else None

    def head(self) -> Position:
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
        if not to_end:
            self._watch_store()
        return follow.follow(
            self.page_after, self.head, self._waiters, Cursor.of(after), query, to_end=to_end, stop=stop
        )

    @property
    def waiters(self) -> follow.Waiters:
        """What waits for this log to grow, for code that follows it in another way than `subscribe`."""
        self._watch_store()
        return self._waiters

    # ---- views

    @property
    def views(self) -> ViewsOfLog:
        """What is derived from this log: see docs/views.md."""
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

    def add_stage(self, stage: Stage) -> None:
        """Have a stage take part in every write, at its end and in its transaction: see `log/write/stages.py`."""
        self._stages.add(stage)

    # ---- the rest

    def write(self, work: Callable[[OpenWrite], T]) -> T:
        """Run a function inside a write, for small state beside the events. When this returns, it is on the disk.

        It may share the write with others, must be quick, and an exception undoes it alone.
        """
        return self._committer.write(work)

    @overload
    def purge(self, stream: str, *, actor: str = "", reason: str) -> Purge: ...

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
    ) -> Purge | tuple[Purge, tuple[Recorded, ...]]:
        """Remove a stream's events for good. Their positions, hashes and the record of the purge stay.

        `record` are drafts of what must stay known of it, on other streams: both happen, or neither. Then their
        records are returned, too. With `key`, `earlier_outcome` finds them, as after a `commit`.
        """
        drafts = tuple(record or ())
        by = actor or self.actor
        require_shape("stream", stream)
        require_shape("actor", by)
        require_text("reason", reason)
        refuse_secrets("the purge's reason", {"reason": reason})
        left = Request(self._recorder, drafts, key, operation, request, decided=True)
        if drafts:
            self._recorder.prepare([left])
            if left.error is not None:
                raise left.error
        if self._make_views is not None:
            # Before anything is removed: it may load code of the user, and that may end the program.
            with suppress(Exception):  # raised again when the views are needed
                _ = self.views
        self._refusals.forget(stream)
        done = self._committer.write(
            lambda write: purge(write, stream, left if drafts else None, actor=by, reason=reason), exclusive=True
        )
        if self._make_views is not None:
            forget_derived(lambda: self.views, stream)
        return done[0] if record is None else done

    def purges(self) -> list[Purge]:
        return self._store.purges()

    def refusals(
        self, *, limit: int | None = 50, code: str = "", stream: str = "", actor: str = "", operation: str = ""
    ) -> list[Refusal]:
        """Return recorded refusals, the newest first."""
        return list(self._refusals.newest(limit=limit, code=code, stream=stream, actor=actor, operation=operation))

    def refusals_left_out(self) -> list[Counted]:
        """Return the minutes in which an actor had more refusals than are recorded, the newest first."""
        return self._refusals.left_out()

    def refusal_counts(self) -> list[tuple[str, str, int]]:
        """Return (code, type, count), the most common first."""
        return [(code, type_, count) for (code, type_), count in self._refusals.counts().most_common()]

    def verify(self, *, progress: Callable[[int], None] = lambda position: None) -> Report:
        return verify(self._store, progress=progress)

    def close(self) -> None:
        """Commit what was submitted, end views and followers, close the store."""
        if self._views is not None:
            self._views.close()
        self._refusals.write()
        self._committer.close()
        self._waiters.close()
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ---- inside

    def _watch_store(self) -> None:
        """Once somebody follows the log: be notified, where the store can, of commits of other processes."""
        if not self._watching and not self._waiters.closed:
            self._watching = True
            self._store.watch(self._waiters.wake)


def _facts(drafts: Sequence[Draft], actor: str) -> dict[str, str]:
    """Return what a refusal records of the request. The fields may be what was wrong, and of any type."""
    first = drafts[0] if drafts else None
    if not isinstance(first, Draft):
        return {"stream": "", "type": "", "actor": actor}
    return {"stream": str(first.stream), "type": str(first.type), "actor": str(first.actor or actor)}

"""The log: the one object that appends, reads, follows, purges and proves.

The append path, top to bottom: drafts are prepared (checked and encoded), in the caller's thread or together with
those of others who wait; the committer opens one write for everybody who waits; inside it the request is checked
against the log, stamped and staged; after the commit the followers are woken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.core.clock import JUMP_MAX
from everlog.core.event import START, Event, Position, Purge, Recorded
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
from everlog.errors import Damaged, EverlogError, LogClosed, SchemaBroken, Unavailable
from everlog.log import pages, subscribers
from everlog.log.accounting import accounted
from everlog.log.admission import admit, refuse_unacceptable
from everlog.log.committer import Committer, Waker
from everlog.log.drafts import Draft, Limits
from everlog.log.expect import Expect, Expectation
from everlog.log.idempotency import upcast
from everlog.log.purge import forget_derived, purge
from everlog.log.refusals import Counted, Refusal, Refusals
from everlog.log.requests import DryRun, Receipt, Recorder, Request
from everlog.log.secrets import refuse_secrets
from everlog.log.verify import Report, verify
from everlog.stores.contract import CLAIMS_KEPT_US_MIN, Identity, Sealed, Store, TellsOfCommits, Writer, seal
from everlog.stores.past_damage import PastDamage

if TYPE_CHECKING:
    from everlog.views.view import View
    from everlog.views.views import Handle, Views

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
        make_views: Callable[[Log], Views] | None = None,
    ) -> None:
        self.store = store
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
        )
        self._waiters = subscribers.Waiters()
        self._committer = Committer(store, committed=self._waiters.wake)
        self._hears = False
        self._refusals = Refusals(store, self._committer, now_us=now_us)
        self._make_views = make_views
        self._views: Views | None = None

    @property
    def identity(self) -> Identity:
        return self.store.identity

    # ---- appending

    def append(
        self,
        type: str,
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

        `expect` is a demand on the stream; `key` makes a retry safe: the same request again returns the same record.
        """
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
    ) -> Receipt:
        """The full door behind `append` and `append_batch`.

        `request` is what was asked, if that says better than the drafts whether two requests are the same: drafts
        hold ids and times that are new at every attempt. `response` is what a replay should be answered with.
        `key_scope` is where a key names one request, such as an organisation; without it, the first draft's scope.
        `retried` names errors that the caller handles by trying again: they are not recorded as refusals.
        """
        try:
            made = Request(self._recorder, tuple(drafts), key or "", operation, request, response, dry_run, key_scope)
            if not (self._committer.busy and self._recorder.leave_to_others(made)):
                self._recorder.make_ready([made])
                if made.error is not None:
                    raise made.error
            receipt: Receipt = self._committer.submit_item(made)
            return receipt
        except DryRun as answer:
            return answer.receipt
        except EverlogError as error:
            if not dry_run and not isinstance(error, retried):
                self._refusals.record(error, operation=operation, **_facts(drafts, self.actor))
            raise

    def answered(self, operation: str, key: str, request: Any, *, actor: str = "", scope: str = "") -> Receipt | None:
        """What an earlier `commit` of this request recorded, for who must decide what to record: a retry is answered
        before its decision is made again. None when the key is free; another request under it is refused."""
        return self._recorder.answered(
            self.store, scope=scope, actor=actor, operation=operation, key=key, request=request
        )

    def answered_by_now(
        self, operation: str, key: str, request: Any, *, actor: str = "", scope: str = ""
    ) -> Receipt | None:
        """`answered`, asked inside a write: nobody with the same key can be about to record something meanwhile.

        For a request that was refused after `answered` had found its key free. The refusal may come from what an
        equal request recorded in between, and then that request's answer is the answer to both.
        """
        asked: Any = {"scope": scope, "actor": actor, "operation": operation, "key": key, "request": request}
        try:
            return self._committer.submit(lambda writer: self._recorder.answered(writer, **asked))
        except Unavailable:  # a log that cannot be written to, or not now; what it holds can still be read
            return self._recorder.answered(self.store, **asked)

    def answer_nothing(
        self, operation: str, key: str, request: Any, *, actor: str = "", scope: str = ""
    ) -> Receipt | None:
        """Have a request that was decided and led to nothing be answered so again, whatever becomes of the log.

        If an equal request under this key was faster, its answer is returned, and nothing is changed.
        """
        return self._committer.submit(
            lambda writer: self._recorder.answer_nothing(
                writer, scope=scope, actor=actor, operation=operation, key=key, request=request
            )
        )

    def request(
        self, drafts: Sequence[Draft], key: str, operation: str, request: Any = None, response: Any = None
    ) -> Request:
        """What `commit` would do, for `make_ready` and `commit_later`."""
        return Request(self._recorder, tuple(drafts), key or "", operation, request, response)

    def make_ready(self, requests: Sequence[Request]) -> None:
        """Prepare requests, all at once; who is refused has an `error`. Then they are ready for `commit_later`."""
        self._recorder.make_ready(requests)

    def commit_later(self, requests: Sequence[Request], waker: Waker) -> None:
        """Requests whose `ticket` says whom to tell, for those who cannot wait in a thread: see `everlog.aio`."""
        self._committer.submit_later(requests, waker)

    def remember_refusal(self, error: EverlogError, drafts: Sequence[Draft], operation: str) -> None:
        """Record a refusal that `commit_later` led to. It is written with the next commit, or at the end."""
        self._refusals.record(error, operation=operation, **_facts(drafts, self.actor))

    def admit(self, events: Sequence[Event], *, jump_max: int = JUMP_MAX) -> list[Recorded]:
        """Record events that were made elsewhere, as they are; those that are here already are left out.

        Unknown types are kept: refusing them would let old nodes fall apart from new ones. `jump_max` is how far
        ahead of our clock they may be.
        """
        now_ms = self._now_us() // 1000
        for event in events:
            refuse_unacceptable(event, now_ms=now_ms)
        sealed = [seal(event) for event in events]

        return self._committer.submit(
            lambda writer: admit(writer, events, sealed, origin=self.identity.origin, jump_max=jump_max)
        )

    def admit_sealed(self, sealed: Sequence[Sealed], *, jump_max: int = JUMP_MAX) -> list[Recorded]:
        """Record events as `admit` does, which the caller has sealed and has found acceptable."""
        events = [item.event for item in sealed]
        return self._committer.submit(
            lambda writer: admit(writer, events, sealed, origin=self.identity.origin, jump_max=jump_max)
        )

    # ---- reading

    def page_after(
        self, cursor: Cursor | int | str = START, query: Query = EVERYTHING, *, limit: int = pages.PAGE_LIMIT
    ) -> Page:
        """Some events after a cursor, in order, upcast; or the news that the cursor must be reset.

        A page ends before an event that no upcaster can bring up to date; the page that would begin with it raises
        SchemaBroken with its position, and whoever reads may go on after that. In the same way it ends before a
        position that nothing accounts for: the next page raises Damaged, whose details say after which position to
        go on.
        """
        require_query(query)
        require_limit(limit)
        start = Cursor.of(cursor)
        page = pages.page_after(self.store, start, query, limit=limit)
        events: list[Recorded] = []
        try:
            events.extend(self._upcast_all(page.events))
        except SchemaBroken:
            # The events before it are still good: a shorter page has them, and the next one begins with the reason.
            readable = self._readable(page.events)
            if not readable:
                raise
            return self.page_after(start, query, limit=readable)
        return msgspec.structs.replace(page, events=tuple(events))

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
    ) -> Iterator[Recorded]:
        """Events in order, upcast. For one stream, `stream=` is enough.

        At a position that nothing accounts for it raises Damaged; its details say where and after which position to
        go on. With `past_damage` it goes on itself, and calls that with each error.
        """
        require_query(query)
        require_position("after", after)
        if upto is not None:
            require_position("upto", upto)
        if limit is not None:
            require_limit(limit)
        if stream != "":
            query = msgspec.structs.replace(query, stream=stream)
        store = self.store if past_damage is None else PastDamage(self.store, past_damage)
        found = store.read(
            query,
            after=Position(after),
            upto=None if upto is None else Position(upto),
            limit=limit,
            newest_first=newest_first,
        )
        if query == EVERYTHING and not newest_first and past_damage is None:
            found = accounted(self.store, found, Position(after))
        return self._upcast_all(found)

    def get(self, event_id: str) -> Recorded | None:
        """The event with this id, in either spelling."""
        found = self.store.get(parse_id(event_id))
        return None if found is None else upcast(self.catalog, found)

    def at(self, position: int) -> Recorded | None:
        """The event at a position."""
        require_position("the position", position)
        return next(self.read(after=position - 1, upto=position, limit=1), None) if position > 0 else None

    def head(self) -> Position:
        return self.store.head()

    def subscribe(
        self,
        after: Cursor | int | str = START,
        query: Query = EVERYTHING,
        *,
        to_end: bool = False,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Recorded | Reset]:
        """Everything after the cursor and then everything new, for ever or until `stop()` says so."""
        require_query(query)
        if not to_end:
            self._hear_of_others()
        return subscribers.follow(
            self.page_after, self.head, self._waiters, Cursor.of(after), query, to_end=to_end, stop=stop
        )

    @property
    def waiters(self) -> subscribers.Waiters:
        """Who waits for this log to grow; for those who follow it in their own way."""
        self._hear_of_others()
        return self._waiters

    # ---- views

    @property
    def views(self) -> Views:
        """What is derived from this log: see docs/views.md."""
        if self._views is None:
            if self._make_views is None:
                raise LogClosed("this log was opened without views", hint="open it with everlog.open")
            self._views = self._make_views(self)
        return self._views

    def view(self, view: View | type[View] | str) -> Handle:
        """A view of this log, to be asked: `log.view(Board).get("workpackage/WP03").state`."""
        return self.views.of(view)

    def wait_for(self, view: View | type[View] | str, position: int | Recorded, timeout_s: float = 5.0) -> Position:
        """Until a view has seen what was appended: so that who wrote reads it. ViewBehind when the time is over."""
        return self.view(view).wait_for(position, timeout_s)

    def in_every_write(
        self, take_part: Callable[[Writer], None], *, done: Callable[[], None], undone: Callable[[], None]
    ) -> None:
        """Have a function take part in every write, at its end and in its transaction. Before the next one begins
        `done` is called, or `undone` if that write failed after all. None of them may raise."""
        self._committer.before_commit = take_part
        self._committer.when_done = done
        self._committer.when_undone = undone

    # ---- the rest

    def in_one_write(self, work: Callable[[Writer], T]) -> T:
        """Run a function inside a write, for small state beside the events; what it returns is on the disk then.

        It may share the write with others, must be quick, and an exception undoes it alone.
        """
        return self._committer.submit(work)

    def purge(self, stream: str, *, actor: str = "", reason: str) -> Purge:
        """Remove a stream's events for good. Their places, hashes and the record of the purge stay."""
        return self.purge_leaving(stream, (), actor=actor, reason=reason)[0]

    def purge_leaving(
        self,
        stream: str,
        drafts: Sequence[Draft],
        *,
        actor: str = "",
        reason: str,
        key: str = "",
        operation: str = "purge",
        request: Any = None,
    ) -> tuple[Purge, tuple[Recorded, ...]]:
        """Purge a stream, and record on others what must stay known of it: both at once, or neither.

        With `key`, what it left is found again by `answered`, as after a `commit`.
        """
        by = actor or self.actor
        require_shape("stream", stream)
        require_shape("actor", by)
        require_text("reason", reason)
        refuse_secrets("the purge's reason", {"reason": reason})
        left = Request(self._recorder, tuple(drafts), key, operation, request)
        if drafts:
            self._recorder.make_ready([left])
            if left.error is not None:
                raise left.error

        if self._make_views is not None:
            # Before anything is gone: it may load somebody else's code, and that may end the program.
            with suppress(Exception):  # told of when it is needed
                _ = self.views
        self._refusals.forget(stream)
        done = self._committer.submit(
            lambda writer: purge(writer, stream, left if drafts else None, actor=by, reason=reason), alone=True
        )
        if self._make_views is not None:
            forget_derived(lambda: self.views, stream)
        return done

    def purges(self) -> list[Purge]:
        return self.store.purges()

    def refusals(
        self, *, limit: int | None = 50, code: str = "", stream: str = "", actor: str = "", operation: str = ""
    ) -> list[Refusal]:
        """Recorded noes, the newest first."""
        return list(self._refusals.newest(limit=limit, code=code, stream=stream, actor=actor, operation=operation))

    def refusals_left_out(self) -> list[Counted]:
        """The minutes in which an actor was refused more often than is recorded, the newest first."""
        return self._refusals.left_out()

    def refusal_counts(self) -> list[tuple[str, str, int]]:
        """(code, type, how often), the most common first."""
        return [(code, type_, count) for (code, type_), count in self._refusals.counts().most_common()]

    def verify(self, *, progress: Callable[[int], None] = lambda position: None) -> Report:
        return verify(self.store, progress=progress)

    def close(self) -> None:
        """Finish what was submitted, let views and followers go, close the store."""
        if self._views is not None:
            self._views.close()
        self._refusals.write()
        self._committer.close()
        self._waiters.close()
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ---- inside

    def _hear_of_others(self) -> None:
        """Once somebody follows: have the store say, where it can, that another process has recorded something."""
        if not self._hears and isinstance(self.store, TellsOfCommits) and not self._waiters.closed:
            self._hears = True
            self.store.call_on_commit(self._waiters.wake)

    def _upcast_all(self, records: Iterable[Recorded]) -> Iterator[Recorded]:
        # `upcast`, spelled out: this runs for every event that anybody reads, and most are as they should be.
        upcast_event = self.catalog.upcast
        for recorded in records:
            try:
                event = upcast_event(recorded.event)
            except SchemaBroken as error:
                error.details["position"] = recorded.position  # whoever reads may go on after it
                raise
            yield recorded if event is recorded.event else msgspec.structs.replace(recorded, event=event)

    def _readable(self, records: Sequence[Recorded]) -> int:
        """How many of the first records can be brought up to date."""
        count = 0
        with suppress(SchemaBroken):
            for _ in self._upcast_all(records):
                count += 1
        return count


def _facts(drafts: Sequence[Draft], actor: str) -> dict[str, str]:
    """What a refusal remembers of the request. The fields may be the very thing that was wrong, of any type."""
    first = drafts[0] if drafts else None
    if not isinstance(first, Draft):
        return {"stream": "", "type": "", "actor": actor}
    return {"stream": str(first.stream), "type": str(first.type), "actor": str(first.actor or actor)}

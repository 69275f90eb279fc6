"""The log: the one object that appends, reads, follows, purges and proves.

The append path, top to bottom: drafts are prepared (checked and encoded) in the caller's thread; the committer opens
one write for everybody who waits; inside it the request is checked against the log, stamped and staged; after the
commit the followers are woken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Self

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.core.canonical import canonical
from everlog.core.clock import refuse_clock_jump
from everlog.core.event import START, Event, Position, Purge, Recorded
from everlog.core.fields import require_shape, require_text
from everlog.core.ids import IdSource, parse_id, refuse_future_id
from everlog.core.query import EVERYTHING, Cursor, Page, Query, Reset
from everlog.errors import AlreadyPurged, EverlogError, IdConflict, InvalidField
from everlog.log import idempotency, pages, subscribers
from everlog.log.admission import refuse_unacceptable
from everlog.log.committer import Committer, Waker, Work
from everlog.log.demands import has_demands, require_demands
from everlog.log.drafts import Draft, Limits, Prepared, prepare
from everlog.log.expect import Expect, Expectation
from everlog.log.refusals import Refusal, Refusals
from everlog.log.stamp import stamp
from everlog.log.verify import Report, verify
from everlog.stores.contract import Identity, Store, Writer, seal


class Receipt(msgspec.Struct, frozen=True):
    """What became of a request. `replayed` means that an earlier, equal request had made these records."""

    records: tuple[Recorded, ...]
    replayed: bool = False
    response: Any = None
    dry_run: bool = False


class _DryRun(Exception):
    """Carries the answer out of a write that must leave nothing behind."""

    def __init__(self, receipt: Receipt) -> None:
        self.receipt = receipt


class Log:
    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        *,
        actor: str = "system",
        limits: Limits | None = None,
        keys_kept_us: int = idempotency.KEPT_US_MIN,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self.store = store
        self.catalog = catalog
        self.actor = actor
        self._limits = limits or Limits()
        self._keys_kept_us = max(keys_kept_us, idempotency.KEPT_US_MIN)
        self._now_us = now_us
        self._ids = IdSource(now_ms=lambda: now_us() // 1000)
        self._waiters = subscribers.Waiters()
        self._committer = Committer(store, committed=self._waiters.wake)
        self._refusals = Refusals(store, self._committer, now_us=now_us)

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
        draft = Draft(
            type=type,
            stream=stream,
            payload={} if payload is None else payload,
            actor=actor,
            scope=scope,
            expect=expect,
            id=id,
            occurred_at=occurred_at,
            request_id=request_id,
            causation_id=causation_id,
            correlation_id=correlation_id,
            tags=tags or {},
        )
        return self.commit([draft], key=key, operation=operation or type, dry_run=dry_run).records[0]

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
    ) -> Receipt:
        """The full door behind `append` and `append_batch`.

        `request` is anything else that makes two requests differ, `response` what a replay should be answered with.
        """
        try:
            work = self.request_of(
                drafts, key=key, operation=operation, request=request, response=response, dry_run=dry_run
            )
            return self._committer.submit(work)
        except _DryRun as answer:
            return answer.receipt
        except EverlogError as error:
            if not dry_run:
                self._refusals.record(error, operation=operation, **_facts(drafts, self.actor))
            raise

    def commit_later(self, requests: Iterable[tuple[Work[Receipt], Any]], waker: Waker) -> None:
        """Requests of `request_of` with a ticket each, for those who cannot wait in a thread: see `everlog.aio`."""
        self._committer.submit_later(requests, waker)

    def remember_refusal(self, error: EverlogError, drafts: Sequence[Draft], operation: str) -> None:
        """Record a refusal that `commit_later` led to. It may wait for a flush."""
        self._refusals.record(error, operation=operation, **_facts(drafts, self.actor))

    def admit(self, events: Sequence[Event]) -> list[Recorded]:
        """Record events that were made elsewhere, as they are; those that are here already are left out.

        Unknown types are kept: refusing them would let old nodes fall apart from new ones.
        """
        now_ms = self._now_us() // 1000
        for event in events:
            refuse_unacceptable(event, now_ms=now_ms)
        sealed = [seal(event) for event in events]

        def work(writer: Writer) -> list[Recorded]:
            clock = writer.tick() if events else 0
            for event in events:
                refuse_clock_jump(clock, event.lamport)
                clock = writer.tick(seen=event.lamport)
            return writer.append(sealed)

        return self._committer.submit(work)

    # ---- reading

    def page_after(
        self, cursor: Cursor | int | str = START, query: Query = EVERYTHING, *, limit: int = pages.PAGE_LIMIT
    ) -> Page:
        """Some events after a cursor, in order, upcast; or the news that the cursor must be reset."""
        if limit < 1:
            raise InvalidField(
                f"the limit is {limit}",
                why="a page holds at least one event",
                hint="ask for 1 or more",
                field="limit",
            )
        page = pages.page_after(self.store, Cursor.of(cursor), query, limit=limit)
        upcast = self._upcast
        return msgspec.structs.replace(page, events=tuple([upcast(recorded) for recorded in page.events]))

    def read(
        self,
        query: Query = EVERYTHING,
        *,
        stream: str = "",
        after: int = START,
        upto: int | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Recorded]:
        """Events in order, upcast. For one stream, `stream=` is enough."""
        if stream:
            query = msgspec.structs.replace(query, stream=stream)
        found = self.store.read(
            query,
            after=Position(after),
            upto=None if upto is None else Position(upto),
            limit=limit,
            newest_first=newest_first,
        )
        return map(self._upcast, found)

    def get(self, event_id: str) -> Recorded | None:
        """The event with this id, in either spelling."""
        found = self.store.get(parse_id(event_id))
        return None if found is None else self._upcast(found)

    def at(self, position: int) -> Recorded | None:
        """The event at a position."""
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
        return subscribers.follow(
            self.page_after, self.head, self._waiters, Cursor.of(after), query, to_end=to_end, stop=stop
        )

    @property
    def waiters(self) -> subscribers.Waiters:
        """Who waits for this log to grow; for those who follow it in their own way."""
        return self._waiters

    # ---- the rest

    def purge(self, stream: str, *, actor: str = "", reason: str) -> Purge:
        """Remove a stream's events for good. Their places, hashes and the record of the purge stay."""
        by = actor or self.actor
        require_shape("stream", stream)
        require_shape("actor", by)
        require_text("reason", reason)
        return self._committer.submit(lambda writer: writer.purge(stream, actor=by, reason=reason), alone=True)

    def purges(self) -> list[Purge]:
        return self.store.purges()

    def refusals(self, *, limit: int | None = 50, code: str = "", stream: str = "", actor: str = "") -> list[Refusal]:
        """Recorded noes, the newest first."""
        return list(self._refusals.newest(limit=limit, code=code, stream=stream, actor=actor))

    def refusal_counts(self) -> list[tuple[str, str, int]]:
        """(code, type, how often), the most common first."""
        return [(code, type_, count) for (code, type_), count in self._refusals.counts().most_common()]

    def verify(self, *, progress: Callable[[int], None] = lambda position: None) -> Report:
        return verify(self.store, progress=progress)

    def close(self) -> None:
        """Finish what was submitted, let followers go, close the store."""
        self._committer.close()
        self._waiters.close()
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ---- inside

    def _upcast(self, recorded: Recorded) -> Recorded:
        event = self.catalog.upcast(recorded.event)
        return recorded if event is recorded.event else msgspec.structs.replace(recorded, event=event)

    def request_of(
        self,
        drafts: Sequence[Draft],
        *,
        key: str = "",
        operation: str = "batch",
        request: Any = None,
        response: Any = None,
        dry_run: bool = False,
    ) -> Work[Receipt]:
        """The request, prepared: everything that needs no look at the log is done, the rest is a function of it."""
        if not drafts:
            raise InvalidField("the batch is empty", why="there is nothing to record", hint="give at least one event")
        prepared = prepare(drafts, self.catalog, actor=self.actor, limits=self._limits)
        claim = None
        if key:
            require_text("idempotency key", key)
            require_text("operation", operation)
            claim = idempotency.key_of(prepared, key, operation, request)
            if response is not None:
                canonical(response)  # what has no single JSON form could not be answered again as it is
        given_ids = [item for item in prepared if item.id is not None]
        origin = self.store.identity.origin
        demands = has_demands(prepared, self.catalog)

        def work(writer: Writer) -> Receipt:
            if claim is not None:
                record = idempotency.find(writer, claim)
                if record is not None:
                    return self._replay(writer, record)
            if given_ids:
                found = self._retry(writer, prepared)
                if found is not None:
                    return found
            if demands:
                require_demands(writer, prepared, self.catalog)
            now_us = writer.now_us
            sealed = stamp(
                prepared,
                writer,
                self._ids,
                origin=origin,
                now=_moment(now_us),
                idempotency_key=key,
            )
            records = tuple(writer.append(sealed, fresh=not given_ids))
            if claim is not None:
                ids = [recorded.event.id for recorded in records]
                idempotency.claim(writer, claim, ids, response, expires_us=now_us + self._keys_kept_us)
            if dry_run:
                raise _DryRun(Receipt(records, response=response, dry_run=True))
            return Receipt(records, response=response)

        return work

    def _replay(self, writer: Writer, record: idempotency.Record) -> Receipt:
        records = []
        for event_id in record.ids:
            found = writer.get(parse_id(event_id))
            if found is None:
                raise AlreadyPurged(
                    f"the event {event_id} that this request made was purged since",
                    why="the request was carried out before, and what it recorded is gone for good",
                    hint="use a new idempotency key if it should happen again",
                    id=event_id,
                )
            records.append(self._upcast(found))
        return Receipt(tuple(records), replayed=True, response=record.response)

    def _retry(self, writer: Writer, prepared: Sequence[Prepared]) -> Receipt | None:
        """A draft that brings its own id is a retry if that id is here with the same content (G5)."""
        now_ms = self._now_us() // 1000
        found = []
        for item in prepared:
            if item.id is None:
                continue
            refuse_future_id(item.id, now_ms=now_ms)
            there = writer.get(item.id)
            if there is not None and not _says_the_same(there.event, item):
                raise IdConflict(
                    f"the id {item.id} is taken by an event with other content",
                    why="an id names one event for ever",
                    hint=f"everlog show {item.id}; leave the id out to get a new one",
                    id=item.id,
                )
            if there is not None:
                found.append(self._upcast(there))
        if not found:
            return None
        if len(found) != len(prepared):
            raise IdConflict(
                "some events of the batch are here already and others are not",
                why="a batch is recorded as a whole, so a retry brings the same events",
                hint="repeat the batch as it was, or give the new events a batch of their own",
            )
        return Receipt(tuple(found), replayed=True)


@lru_cache(maxsize=2)
def _moment(us: int) -> datetime:
    """A time of arrival as a moment. Everybody in a group has the same."""
    return datetime.fromtimestamp(us / 1_000_000, UTC)


def _facts(drafts: Sequence[Draft], actor: str) -> dict[str, str]:
    """What a refusal remembers of the request. The fields may be the very thing that was wrong, of any type."""
    if not drafts:
        return {"stream": "", "type": "", "actor": actor}
    first = drafts[0]
    return {"stream": str(first.stream), "type": str(first.type), "actor": str(first.actor or actor)}


def _says_the_same(event: Event, item: Prepared) -> bool:
    draft = item.draft
    return (
        event.type == draft.type
        and event.version == item.version
        and event.stream == draft.stream
        and event.actor == item.actor
        and event.scope == draft.scope
        and event.causation_id == draft.causation_id
        and event.correlation_id == draft.correlation_id
        and dict(event.tags) == dict(draft.tags)
        and canonical(event.payload) == item.body  # Python holds True, 1 and 1.0 for equal, JSON does not
    )

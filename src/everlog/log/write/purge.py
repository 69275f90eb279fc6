"""A purge: it removes a stream's events permanently, and what is stored about them beside the events.

What views derived from them is removed after the commit. If that fails, the purge is not affected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from everlog.core.event import Event, Purge, Purged, Recorded
from everlog.core.fields import require_shape, require_text
from everlog.core.ids import EventId
from everlog.core.query import Query
from everlog.errors import Conflict, NotFound
from everlog.log.dead_letters import forget_letters
from everlog.log.derived import ViewsOfLog
from everlog.log.records import FORGETS, PURGED, PURGES, StreamPurged, events_listed, listed, purged_in
from everlog.log.secrets.find import refuse_secrets
from everlog.log.write.draft import Draft
from everlog.log.write.idempotency import claim_name, forget_responses
from everlog.log.write.refusals import forget_refusals
from everlog.log.write.requests import Request
from everlog.log.write.writer import Writer
from everlog.stores.contract import Stored
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import RowReader
from everlog.trust.keys import is_key
from everlog.trust.stubs import keep_proofs
from everlog.trust.succession import SUCCEEDED
from everlog.trust.verdicts import verdicts_in

_RECORDS = (PURGES, FORGETS)
"""Streams that are never purged: without their events, nothing shows that a removal was allowed."""

_logger = logging.getLogger("everlog")


def purge_stream(
    writer: Writer,
    views: Callable[[], ViewsOfLog] | None,
    stream: str,
    *,
    actor: str,
    reason: str,
    record: Sequence[Draft],
    key: str,
    operation: str,
    request: Any,
    key_scope: str | None = None,
) -> tuple[Purge, tuple[Recorded, ...]]:
    """Purge a stream and record `record`, which stays known of it; return the purge and the records.

    A key makes a retry safe: it gets the same purge. It names one request in `key_scope`; without that, in the scope
    of the first draft.
    """
    require_shape("stream", stream)
    require_shape("actor", actor)
    require_text("reason", reason)
    refuse_secrets("the purge's reason", {"reason": reason})
    left = writer.request(record, key, operation, request, key_scope=key_scope, decided=True) if record else None
    if left is not None:
        writer.prepare([left])
        if left.error is not None:
            raise left.error
    if views is not None:
        # Before anything is removed: it may load code of the user, and that may end the program.
        with suppress(Exception):  # raised again when the views are needed
            views()
    name = claim_name(key_scope or "", actor, operation, key) if key and left is None else b""

    def purge(write: OpenWrite) -> tuple[Purge, tuple[Recorded, ...]]:
        if name and (before := _found(writer, write, write.purges(), name, key, request)) is not None:
            return before, ()  # somebody with the same key was faster
        found = _purge(writer, write, stream, left, actor=actor, reason=reason)
        if name:
            writer.replays.remember_response(write, name, request, found[0].reserved)
        return found

    done = writer.write(purge, exclusive=True)
    if views is not None:
        _forget_derived(views, stream)
    return done


def earlier_purge(
    writer: Writer, stored: Stored, key: str, request: Any, *, actor: str, scope: str = "", operation: str = "purge"
) -> Purge | None:
    """Return the purge that an earlier request under this key made, or None if the key is free."""
    require_text("idempotency key", key)
    name = claim_name(scope, actor, operation, key)
    return _found(writer, writer.small_state, stored.purges(), name, key, request)


def _found(
    writer: Writer, state: RowReader, purges: Sequence[Purge], name: bytes, key: str, request: Any
) -> Purge | None:
    reserved = writer.replays.earlier_response(state, name, key, request)
    return next((one for one in purges if one.reserved == reserved), None)


def follow_purge(writer: Writer, views: Callable[[], ViewsOfLog] | None, record: Event) -> Purge | None:
    """Remove the events that a record of another node lists and that are here. Others of the stream stay.

    For the events that this log made, it signs another record: `verify` asks for one.
    """
    stated, listed_there = purged_in(record), set(events_listed(record))
    stream, reason = stated.stream, stated.reason
    if not listed_there:
        return None

    def is_listed(gone: Purged) -> bool:
        return (gone.origin, gone.origin_seq, gone.hash) in listed_there

    def follow(write: OpenWrite) -> Purge | None:
        if stream in _RECORDS or _decides(writer, write, stream) or not writer.may_remove(write, record):
            return None
        try:
            done = write.purge(stream, actor=record.actor, reason=reason, only=is_listed)
        except NotFound:  # it is gone already, or was never here
            return None
        _, stubs = write.staged_purges[-1]
        keep_proofs(write, stubs)
        _forget(write, stream, {stub.id for stub in stubs})
        if any(write.identity.made(stub.origin) for stub in stubs) and is_key(write.own_origin()):
            _record(writer, write, stubs, stream, actor=record.actor, reason=reason)
        return done

    done = writer.write(follow, exclusive=True)
    if done is not None and views is not None:
        _forget_derived(views, stream)
    return done


def _forget(write: OpenWrite, stream: str, gone: set[EventId]) -> None:
    forget_refusals(write, (stream,))
    forget_letters(write, stream)
    forget_responses(write, gone)


def _purge(
    writer: Writer, write: OpenWrite, stream: str, left: Request | None, *, actor: str, reason: str
) -> tuple[Purge, tuple[Recorded, ...]]:
    if stream in _RECORDS:
        raise Conflict(
            f"{stream} is not purged: its events show what was removed, and that it was allowed",
            why="without them, verify would report every removal, and other nodes could not follow one",
            hint="purge other streams",
            stream=stream,
        )
    if _decides(writer, write, stream):
        raise Conflict(
            f"{stream} is not purged: its events decide whose events count",
            why="without them, nodes would judge the other events in different ways",
            hint="purge other streams",
            stream=stream,
        )
    gone = {recorded.event.id for recorded in write.read(Query(stream=stream))}
    records: tuple[Recorded, ...] = ()
    if left is not None:
        # First, because its expectations concern the history that the purge removes.
        receipt = left.do(write)
        records = tuple(receipt.records)
        if receipt.replayed:  # somebody with the same key was faster
            return next(done for done in reversed(write.purges()) if done.stream == stream), records
    lost = _lost(writer, write, stream) if is_key(write.own_origin()) else []
    try:
        done = write.purge(stream, actor=actor, reason=reason)
        keep_proofs(write, write.staged_purges[-1][1])
        stubs = write.staged_purges[-1][1]
    except NotFound:
        if not lost:
            raise
        done, stubs = next(one for one in reversed(write.purges()) if one.stream == stream), []
    if is_key(write.own_origin()):
        _record(writer, write, [*lost, *stubs], stream, actor=actor, reason=reason)
    _forget(write, stream, gone)
    return done, records


def _lost(writer: Writer, write: OpenWrite, stream: str) -> list[Purged]:
    """Return what is gone of a stream with records that do not count: their author lost the right to them later.

    Others may have it still, or lack even the stub. A purge with a record that counts makes all nodes equal again.
    """
    verdicts = verdicts_in(write)
    removed = [one.event for one in write.read(Query(types=frozenset((PURGED,))))]
    mine = [record for record in removed if purged_in(record).stream == stream]
    counting = [record for record in mine if verdicts.counts(record) and writer.may_remove(write, record)]
    if len(counting) == len(mine):
        return []
    reserved = {one.reserved for one in write.purges() if one.stream == stream}
    listed_there = {place for record in counting for place in events_listed(record)}
    gone = (slot for slot in write.stored.slots() if isinstance(slot, Purged) and slot.reserved in reserved)
    return [one for one in gone if (one.origin, one.origin_seq, one.hash) not in listed_there]


def _decides(writer: Writer, write: OpenWrite, stream: str) -> bool:
    """Return whether rights follow from a stream."""
    types = frozenset((SUCCEEDED, *writer.deciding))
    return next(write.read(Query(stream=stream, types=types), limit=1), None) is not None


def _record(
    writer: Writer, write: OpenWrite, stubs: Iterable[Purged], stream: str, *, actor: str, reason: str
) -> None:
    """Record a purge in a signed log, so that other nodes can follow it: a position means nothing to them."""
    drafts = [
        Draft(PURGED, PURGES, StreamPurged(stream, reason, removed), actor)
        for removed in listed((stub.origin, stub.origin_seq, stub.hash) for stub in stubs)
    ]
    request = writer.request(drafts, "", "purge", decided=True)
    writer.prepare([request])
    if request.error is not None:
        raise request.error
    request.do(write)


def _forget_derived(views: Callable[[], ViewsOfLog], stream: str) -> None:
    """Remove a purged stream from what views keep. A failure is logged, and does not affect the purge."""
    try:
        views().forget_purged(stream)
    except BaseException as error:
        _logger.warning(
            "the purge of %s is done, but the states of views may still contain words of it: %s; after a repair,"
            " type: everlog views run --to-end",
            stream,
            str(error) or type(error).__name__,
        )
        if not isinstance(error, Exception):  # an interrupt is still one
            raise

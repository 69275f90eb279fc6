"""Safe retries: `(scope, actor, operation, key)` names a request, which is claimed in the transaction of its append
(F82). The same request again returns the first outcome; another request under the same key is refused.

A claim has only the positions of the events that the request made. Whether a retry is the same request is decided by
these events, when there is a retry: hashing every request in advance would cost each what almost none needs.
"""

from __future__ import annotations

import hashlib
from binascii import b2a_base64
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.core.canonical import canonical
from everlog.core.event import Event, Position
from everlog.core.fields import require_text
from everlog.core.ids import EventId, refuse_future_id
from everlog.errors import AlreadyPurged, IdConflict, KeyReuse
from everlog.log.read.upcast import upcast
from everlog.log.write.draft import PreparedDraft, Receipt
from everlog.stores.contract import CLAIM_BYTES, CLAIMS_KEPT_US_MIN, Claim, Reader
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import NOTES, RowReader, read_note, read_notes

TRACE_TAG = "traceparent"
"""The tag with the W3C trace context of the request that recorded an event."""

_PREFIX = "key/"
_encode = msgspec.json.Encoder(order="deterministic").encode
_sha256 = hashlib.sha256


def claim_name(scope: str, actor: str, operation: str, key: str) -> bytes:
    """Return the name of a request. The parts are printable, so that none can contain the separator.

    A key is looked up before the scope and the actor are checked. If they hold half of a character, nothing is found,
    and the request is refused when it is prepared.
    """
    name = f"{scope}\0{actor}\0{operation}\0{key}".encode(errors="surrogatepass")
    return _sha256(name).digest()[:CLAIM_BYTES]


class Extra(msgspec.Struct, frozen=True, array_like=True):
    """What is kept of a request beside its events, if there is anything: a hash of the request, and its response."""

    request: str  # a hash of it, empty if there is none
    ids: list[str]
    response: Any


def remember_extra(
    writer: OpenWrite, name: bytes, request: Any, ids: Sequence[str], response: Any, *, expires_us: int
) -> None:
    extra = Extra(_fingerprint(request), list(ids), response)
    writer.put(NOTES, {_note_of(name): _encode(extra)}, expires_us=expires_us)


class Replays:
    """Finds what earlier requests of one log recorded."""

    def __init__(self, catalog: Catalog, *, actor: str, keys_kept_us: int, now_us: Callable[[], int]) -> None:
        self._catalog = catalog
        self._actor = actor
        self._keys_kept_us = keys_kept_us
        self._now_us = now_us

    def of_request(
        self, writer: OpenWrite, name: bytes, key: str, prepared: Collection[PreparedDraft], request: Any
    ) -> Receipt | None:
        """Return the outcome of an earlier, equal request, or None if the key is free."""
        claim = writer.claims((name,)).get(name)
        if claim is None:
            # Only a request with a `request` value can have been recorded as one that changed nothing.
            nothing = request is not None and was_nothing(writer, name, key, request)
            return Receipt((), replayed=True) if nothing else None
        return self._found(writer, writer, claim, name, key, prepared, request, now_us=writer.now_us)

    def earlier_outcome(
        self,
        reader: Reader,
        state: RowReader,
        *,
        scope: str,
        actor: str,
        operation: str,
        key: str,
        request: Any,
    ) -> Receipt | None:
        """Return the outcome of an earlier request under this key, or None if it is free."""
        require_text("idempotency key", key)
        name = claim_name(scope, actor or self._actor, operation, key)
        claim = state.claims((name,)).get(name)
        if claim is None:
            return Receipt((), replayed=True) if was_nothing(state, name, key, request) else None
        return self._found(reader, state, claim, name, key, (), request, now_us=self._now_us())

    def record_unchanged(
        self, writer: OpenWrite, *, scope: str, actor: str, operation: str, key: str, request: Any
    ) -> Receipt | None:
        """Remember that a request changed nothing: a retry must not find something to do later.

        If the key is taken by now, return the outcome of the earlier request: perhaps there is nothing left to record
        because that request has recorded it.
        """
        found = self.earlier_outcome(
            writer, writer, scope=scope, actor=actor, operation=operation, key=key, request=request
        )
        if found is None:
            name = claim_name(scope, actor or self._actor, operation, key)
            expires_us = writer.now_us + self._keys_kept_us
            remember_extra(writer, name, request, (), None, expires_us=expires_us)
        return found

    def earlier_response(self, state: RowReader, name: bytes, key: str, request: Any) -> Any:
        """Return the response of an earlier, equal request that recorded no event; None if the key is free."""
        noted = read_note(state, _note_of(name)) if was_nothing(state, name, key, request) else None
        return None if noted is None else msgspec.json.decode(noted, type=Extra).response

    def remember_response(self, writer: OpenWrite, name: bytes, request: Any, response: Any) -> None:
        """Remember the response of a request that records no event, in the write that carries it out."""
        remember_extra(writer, name, request, (), response, expires_us=writer.now_us + self._keys_kept_us)

    def with_same_ids(self, writer: OpenWrite, prepared: Collection[PreparedDraft]) -> Receipt | None:
        """Return what is here under the ids that drafts bring: with the same content, they are a retry (G5)."""
        now_ms = self._now_us() // 1000
        found = []
        for item in prepared:
            if item.id is None:
                continue
            refuse_future_id(item.id, now_ms=now_ms)
            there = writer.get(item.id)
            if there is not None and item.stored is not None:
                there = upcast(self._catalog, there)
            if there is not None and not _is_retry_of(there.event, item):
                raise IdConflict(
                    f"the id {item.id} is taken by an event with other content",
                    why="an id names one event for ever",
                    hint=f"everlog show {item.id}; leave the id out to get a new one",
                    id=item.id,
                )
            if there is not None:
                found.append(upcast(self._catalog, there))
        if not found:
            return None
        if len(found) != len(prepared):
            raise IdConflict(
                "some events of the batch are here already and others are not",
                why="a batch is recorded as a whole, so a retry brings the same events",
                hint="repeat the batch as it was, or append the new events in another batch",
            )
        return Receipt(tuple(found), replayed=True)

    def _found(
        self,
        reader: Reader,
        state: RowReader,
        claim: Claim,
        name: bytes,
        key: str,
        prepared: Collection[PreparedDraft],
        request: Any,
        *,
        now_us: int,
    ) -> Receipt | None:
        """Return what the claimed request recorded, and its response; None if that was too long ago.

        A request with other content is refused.
        """
        last = Position(claim.first + claim.count - 1)
        records = tuple(reader.read(after=Position(claim.first - 1), upto=last))
        if records and records[0].received_us + self._keys_kept_us <= now_us:
            return None
        if len(records) < claim.count:
            raise AlreadyPurged(
                f"what the request under the key {key!r} made was purged since, in part or whole",
                why="the request was carried out before, and what it recorded is gone for good",
                hint="use a new idempotency key if it should happen again",
                key=key,
            )
        records = tuple(upcast(self._catalog, recorded) for recorded in records)
        noted = read_note(state, _note_of(name))
        extra = Extra("", [], None) if noted is None else msgspec.json.decode(noted, type=Extra)
        # If the caller gives the request, it decides: ids and times in the events may be new at every attempt.
        same = extra.request == _fingerprint(request) and (
            request is not None
            or (
                len(records) == len(prepared)
                and all(
                    has_same_content(recorded.event, item) for recorded, item in zip(records, prepared, strict=True)
                )
            )
        )
        if not same:
            first = records[0].event
            raise KeyReuse(
                f"the idempotency key {key!r} was used for another request",
                why=f"a key names one request of {first.actor}; this one differs from what it recorded",
                hint="use a new key for a new request, or repeat the first one exactly",
                key=key,
                id=first.id,
            )
        return Receipt(records, replayed=True, response=extra.response)


def was_nothing(state: RowReader, name: bytes, key: str, request: Any) -> bool:
    """Return True if this request was decided before and changed nothing; another request is refused."""
    noted = read_note(state, _note_of(name))
    if noted is None:
        return False
    extra = msgspec.json.decode(noted, type=Extra)
    if extra.ids:
        return False  # left over from a claim that is not remembered any more
    if extra.request != _fingerprint(request):
        raise KeyReuse(
            f"the idempotency key {key!r} was used for another request",
            why="a key names one request; for that one there was nothing to record",
            hint="use a new key for a new request, or repeat the first one exactly",
            key=key,
        )
    return True


def forget_responses(writer: OpenWrite, event_ids: set[EventId]) -> None:
    """Empty the stored responses of requests whose events are being purged; the keys stay claimed."""
    for name, text in read_notes(writer, _PREFIX).items():
        extra = msgspec.json.decode(text, type=Extra)
        if extra.response is not None and event_ids.intersection(extra.ids):
            emptied = Extra(extra.request, extra.ids, None)
            writer.put(NOTES, {name: _encode(emptied)}, expires_us=writer.now_us + CLAIMS_KEPT_US_MIN)


def _note_of(name: bytes) -> str:
    return _PREFIX + b2a_base64(name, newline=False).decode().rstrip("=")


def _fingerprint(request: Any) -> str:
    return "" if request is None else b2a_base64(_sha256(canonical(request)).digest()[:16], newline=False).decode()


def has_same_content(event: Event, item: PreparedDraft) -> bool:
    """Return True if the draft would record this event again. Its time and its links to other events may differ: a
    retry is another attempt."""
    draft = item.draft
    return (
        event.type == draft.type
        and event.version == item.version
        and event.stream == draft.stream
        and event.actor == item.actor
        and event.scope == draft.scope
        and _compared(event.tags) == _compared(draft.tags)
        # True, 1 and 1.0 are equal in Python, not in JSON. A sealed field has another envelope at every attempt.
        and canonical(event.payload) == (item.body if item.stored is None else canonical(item.payload))
    )


def _compared(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags without the trace of the attempt: a retry has another one."""
    return {name: text for name, text in tags.items() if name != TRACE_TAG}


def _is_retry_of(event: Event, item: PreparedDraft) -> bool:
    draft = item.draft
    return (
        has_same_content(event, item)
        and event.causation_id == draft.causation_id
        and event.correlation_id == draft.correlation_id
    )

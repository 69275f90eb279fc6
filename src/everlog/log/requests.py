"""From what a caller asks to what is recorded: made ready before the write, carried out inside it.

A payload model may run a user's code, so making such a request ready is its caller's, and holds nobody else up. A
small one that runs none is left to whoever commits, when its caller must wait for another's flush anyway: all who
wait are made ready in one go, while a thread of each, woken by turns, would take several times as long. Requests that
demand nothing of the log are carried out together with their neighbours: one walk stamps and stages the events of all
of them, which costs half of walking for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.core.canonical import canonical
from everlog.core.event import Event, Recorded
from everlog.core.fields import TEXT_CHARS_MAX, require_text
from everlog.core.ids import IdSource, refuse_future_id
from everlog.errors import EverlogError, IdConflict, InvalidField
from everlog.log import idempotency
from everlog.log.committer import Item
from everlog.log.demands import has_demands, require_demands
from everlog.log.drafts import Draft, Limits, Prepared, is_quick, prepare
from everlog.log.secrets import refuse_secrets, suspicious
from everlog.log.stamp import stamp
from everlog.stores.contract import Reader, Writer

_QUICK_DRAFTS_MAX = 4


class Receipt(msgspec.Struct, frozen=True):
    """What became of a request. `replayed` means that an earlier, equal request had made these records."""

    records: tuple[Recorded, ...]
    replayed: bool = False
    response: Any = None
    dry_run: bool = False


class DryRun(Exception):
    """Carries the answer out of a write that must leave nothing behind."""

    def __init__(self, receipt: Receipt) -> None:
        self.receipt = receipt


class Recorder:
    """Knows how this log prepares and records requests."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        origin: Callable[[], str],
        actor: str,
        limits: Limits,
        keys_kept_us: int,
        now_us: Callable[[], int],
    ) -> None:
        self._catalog = catalog
        self._origin = origin
        self._actor = actor
        self._limits = limits
        self._keys_kept_us = keys_kept_us
        self._now_us = now_us
        self._ids = IdSource(now_ms=lambda: now_us() // 1000)

    def make_ready(self, requests: Sequence[Request]) -> None:
        """Do everything that needs no look at the log, for all at once; who is refused is refused alone."""
        try:
            self._prepare(requests)
            return
        except Exception as refusal:
            if len(requests) == 1:
                requests[0].error = refusal
                return
        # Not within the `except`: each refusal would carry the first one, which is another caller's.
        for request in requests:
            self.make_ready([request])

    def leave_to_others(self, request: Request) -> bool:
        """Have a request made ready by whoever commits it, if that takes next to no time and runs nobody's code."""
        if len(request.drafts) > _QUICK_DRAFTS_MAX or request.request is not None or request.response is not None:
            return False
        if not all(is_quick(draft, self._catalog.quick) for draft in request.drafts):
            return False
        # As they are now: its caller may be interrupted, and go on with his own.
        request.drafts = tuple(
            msgspec.structs.replace(draft, payload=dict(draft.payload)) for draft in request.drafts
        )
        request.ready = False
        return True

    def _prepare(self, requests: Sequence[Request]) -> None:
        drafts: Sequence[Draft] = requests[0].drafts
        if len(requests) > 1:
            drafts = [draft for request in requests for draft in request.drafts]
        for draft in drafts:  # not all() of a generator, which would double the cost
            if not isinstance(draft, Draft):
                raise InvalidField(
                    "the batch holds something that is no draft",
                    why="a batch is made of everlog.Draft(type=…, stream=…, payload=…)",
                    hint="give drafts, or append one event with append(type, stream=…, payload=…)",
                    field="drafts",
                )
        keys = [request.key for request in requests if request.key != ""]
        for key in keys:
            if type(key) is not str or len(key) > TEXT_CHARS_MAX or not key.isprintable():
                require_text("idempotency key", key)
        prepared = prepare(drafts, self._catalog, actor=self._actor, limits=self._limits, keys=keys)
        start = 0
        for request in requests:
            end = start + len(request.drafts)
            self._complete(request, prepared if len(requests) == 1 else prepared[start:end])
            start = end

    def _complete(self, request: Request, prepared: list[Prepared]) -> None:
        if not prepared:
            raise InvalidField("the batch is empty", why="there is nothing to record", hint="give at least one event")
        request.prepared = prepared
        first = prepared[0]
        if request.key != "":
            operation = request.operation
            if operation != first.draft.type:  # which is known to be short and plain
                require_text("operation", operation)
            scope = first.draft.scope if request.key_scope is None else request.key_scope
            request.claim = idempotency.claim_name(scope, first.actor, operation, request.key)
            if request.request is not None or request.response is not None:
                # What has no single JSON form could neither be compared nor be answered again as it is.
                canonical(request.request)
                if suspicious(b'{"response":%b}' % canonical(request.response)):
                    refuse_secrets("the response", {"response": request.response})
        if len(prepared) == 1:
            request.given_ids = first.id is not None
        else:
            request.given_ids = bool([True for item in prepared if item.id is not None])
        request.may_share = not (request.given_ids or request.dry_run or has_demands(prepared, self._catalog))

    def record(self, request: Request, writer: Writer) -> Receipt:
        """Carry out one request inside a write."""
        prepared = request.prepared
        if request.claim:
            found = self._replay(request, writer)
            if found is not None:
                return found
        if request.given_ids:
            found = self._retry(writer, prepared)
            if found is not None:
                return found
        if not request.may_share:
            require_demands(writer, prepared, self._catalog)
        (receipt,) = self._append([request], writer)
        if request.dry_run:
            raise DryRun(msgspec.structs.replace(receipt, dry_run=True))
        return receipt

    def record_together(self, requests: Sequence[Request], writer: Writer) -> list[Receipt | Exception]:
        """Carry out requests that demand nothing: a receipt or a refusal for each, in their order."""
        claims = [request.claim for request in requests if request.claim]
        if len(set(claims)) == len(claims) and not writer.claimed_among(claims):
            return list(self._append(requests, writer))  # as nearly always: nothing but new requests
        outcomes: dict[int, Receipt | Exception] = {}
        new: list[int] = []
        again: list[int] = []  # the same key twice in one group: the second is a retry of the first
        claimed: set[bytes] = set()
        for index, request in enumerate(requests):
            if request.claim in claimed:
                again.append(index)
                continue
            try:
                replayed = self._replay(request, writer) if request.claim else None
            except EverlogError as refusal:
                outcomes[index] = refusal
                continue
            if replayed is not None:
                outcomes[index] = replayed
                continue
            if request.claim:
                claimed.add(request.claim)
            new.append(index)
        if new:
            outcomes.update(zip(new, self._append([requests[index] for index in new], writer), strict=True))
        for index in again:
            try:
                outcomes[index] = self.record(requests[index], writer)
            except EverlogError as refusal:
                outcomes[index] = refusal
        return [outcomes[index] for index in range(len(requests))]

    def _append(self, requests: Sequence[Request], writer: Writer) -> list[Receipt]:
        """Stamp and stage the events of all the requests in one walk, and claim their keys."""
        if len(requests) == 1:
            prepared: Sequence[Prepared] = requests[0].prepared
            keys = [requests[0].key] * len(prepared)
        else:
            prepared = [item for request in requests for item in request.prepared]
            keys = [request.key for request in requests for _ in request.prepared]
        now_us = writer.now_us
        sealed = stamp(prepared, keys, writer, self._ids, origin=self._origin(), now=_moment(now_us))
        records = writer.append(sealed, fresh=not requests[0].given_ids)
        receipts, start = [], 0
        for request in requests:
            end = start + len(request.prepared)
            own = tuple(records[start:end])
            start = end
            if request.claim:
                writer.claim(request.claim, own[0].position, len(own))
                if request.request is not None or request.response is not None:
                    ids = [recorded.event.id for recorded in own]
                    expires_us = now_us + self._keys_kept_us
                    idempotency.remember_extra(
                        writer, request.claim, request.request, ids, request.response, expires_us=expires_us
                    )
            receipts.append(Receipt(own, False, request.response))
        return receipts

    def _replay(self, request: Request, writer: Writer) -> Receipt | None:
        """What an earlier, equal request made; None when its key is free."""
        claim = writer.claimed(request.claim)
        if claim is None:
            asked = request.request  # only who says what was asked can have been answered with nothing
            nothing = asked is not None and idempotency.was_nothing(writer, request.claim, request.key, asked)
            return Receipt((), replayed=True) if nothing else None
        found = idempotency.find(
            writer,
            claim,
            request.claim,
            request.key,
            request.prepared,
            request.request,
            catalog=self._catalog,
            now_us=writer.now_us,
            kept_us=self._keys_kept_us,
        )
        return None if found is None else Receipt(found[0], replayed=True, response=found[1])

    def answered(
        self, reader: Reader, *, scope: str, actor: str, operation: str, key: str, request: Any
    ) -> Receipt | None:
        """What an earlier request under this key made, asked before anything is decided; None when it is free."""
        require_text("idempotency key", key)
        name = idempotency.claim_name(scope, actor or self._actor, operation, key)
        claim = reader.claimed(name)
        if claim is None:
            return Receipt((), replayed=True) if idempotency.was_nothing(reader, name, key, request) else None
        found = idempotency.find(
            reader,
            claim,
            name,
            key,
            (),
            request,
            catalog=self._catalog,
            now_us=self._now_us(),
            kept_us=self._keys_kept_us,
        )
        return None if found is None else Receipt(found[0], replayed=True, response=found[1])

    def answer_nothing(
        self, writer: Writer, *, scope: str, actor: str, operation: str, key: str, request: Any
    ) -> Receipt | None:
        """Remember that there was nothing to record for a request: a retry must not find something to do later.

        If the key is taken by now, the answer is what the earlier request made: perhaps there is nothing left to
        record because that request has recorded it.
        """
        found = self.answered(writer, scope=scope, actor=actor, operation=operation, key=key, request=request)
        if found is None:
            name = idempotency.claim_name(scope, actor or self._actor, operation, key)
            expires_us = writer.now_us + self._keys_kept_us
            idempotency.remember_extra(writer, name, request, (), None, expires_us=expires_us)
        return found

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
                found.append(idempotency.upcast(self._catalog, there))
        if not found:
            return None
        if len(found) != len(prepared):
            raise IdConflict(
                "some events of the batch are here already and others are not",
                why="a batch is recorded as a whole, so a retry brings the same events",
                hint="repeat the batch as it was, or give the new events a batch of their own",
            )
        return Receipt(tuple(found), replayed=True)


class Request(Item):
    """One call of `commit` on its way: made ready outside the write, carried out inside it."""

    claim = b""
    given_ids = False
    prepared: Sequence[Prepared] = ()

    def __init__(
        self,
        recorder: Recorder,
        drafts: tuple[Draft, ...],  # the caller's list may change before they are looked at
        key: str,
        operation: str,
        request: Any = None,
        response: Any = None,
        dry_run: bool = False,
        key_scope: str | None = None,
    ) -> None:
        self._recorder = recorder
        self.drafts = drafts
        self.key = key
        self.operation = operation
        self.request = request
        self.response = response
        self.dry_run = dry_run
        self.key_scope = key_scope

    def make_ready(self, items: Sequence[Any]) -> None:
        self._recorder.make_ready(items)

    def do(self, writer: Writer) -> Receipt:
        return self._recorder.record(self, writer)

    def do_together(self, items: Sequence[Any], writer: Writer) -> list[Any]:
        return self._recorder.record_together(items, writer)


@lru_cache(maxsize=2)
def _moment(us: int) -> datetime:
    """A time of arrival as a moment. Everybody in a group has the same."""
    return datetime.fromtimestamp(us / 1_000_000, UTC)


def _says_the_same(event: Event, item: Prepared) -> bool:
    draft = item.draft
    return (
        idempotency.says_the_same(event, item)
        and event.causation_id == draft.causation_id
        and event.correlation_id == draft.correlation_id
    )

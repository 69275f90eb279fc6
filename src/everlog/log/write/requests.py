"""Requests: prepared before the write opens, carried out inside it.

A payload model may run code of the user, so such a request is prepared in the thread of its caller, where it delays
nobody else. A small request that runs no such code is left to the leader, if its caller must wait for another flush
anyway: the leader prepares all waiting requests at once, which costs a fraction of waking each thread. Requests
without expectations are carried out together with their neighbours: one loop stamps and stages the events of all of
them, which halves the cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.core.canonical import canonical
from everlog.core.fields import TEXT_CHARS_MAX, require_text
from everlog.errors import EverlogError, InvalidField
from everlog.log.read.upcast import upcast
from everlog.log.secrets.find import refuse_secrets
from everlog.log.secrets.first_look import suspicious
from everlog.log.write import idempotency
from everlog.log.write.draft import EMPTY, Draft, Limits, Prepared, Receipt, joined
from everlog.log.write.expect import has_expectations, require_expectations
from everlog.log.write.group import Item
from everlog.log.write.guard import Judge, Judged, Overtaken
from everlog.log.write.prepare import is_quick, prepare
from everlog.log.write.stamp import Ids, stamp
from everlog.stores.contract import Claim
from everlog.stores.open_write import OpenWrite
from everlog.stores.own_events import OwnRecords
from everlog.trust.sealing import Sealing
from everlog.trust.signer import Signer

_QUICK_DRAFTS_MAX = 4
_DRAFTS = {Draft}


class DryRun(Exception):
    """Carries the receipt out of a write that must leave nothing behind."""

    def __init__(self, receipt: Receipt) -> None:
        self.receipt = receipt


class Recorder:
    """Prepares and records the requests of one log."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        actor: str,
        limits: Limits,
        keys_kept_us: int,
        now_us: Callable[[], int],
        judge: Judge | None = None,
        sealing: Sealing | None = None,
        signer: Signer | None = None,
        origin: Callable[[], str] = lambda: "",
    ) -> None:
        self.judge = judge
        self._sealing = sealing
        self._signer = signer
        self._origin = origin
        self._catalog = catalog
        self._actor = actor
        self._limits = limits
        self._keys_kept_us = keys_kept_us
        self._now_us = now_us
        self.replays = idempotency.Replays(catalog, actor=actor, keys_kept_us=keys_kept_us, now_us=now_us)
        self._ids = Ids(signer)

    def prepare(self, requests: Sequence[Request]) -> None:
        """Validate requests and apply their guards, all at once. A request that is refused gets an `error`."""
        try:
            self.require_valid(requests)
            return
        except Exception as refusal:
            if len(requests) == 1:
                requests[0].error = refusal
                return
        # Not within the `except`: each refusal would have the first one, of another caller, as its context.
        for request in requests:
            self.prepare([request])

    def leave_to_others(self, request: Request) -> bool:
        """Leave the preparation of a request to the leader, if it is short and runs no code of a user."""
        if len(request.drafts) > _QUICK_DRAFTS_MAX or request.request is not None or request.response is not None:
            return False
        if not all(is_quick(draft, self._catalog.quick) for draft in request.drafts):
            return False
        if request.guarded:
            return False
        # A copy: the caller may be interrupted, and change its own payload.
        request.drafts = tuple(
            msgspec.structs.replace(draft, payload=dict(draft.payload)) for draft in request.drafts
        )
        request.ready = False
        return True

    def require_valid(self, requests: Sequence[Request]) -> None:
        """Prepare requests, all at once, or raise the first refusal: then none of them is ready."""
        drafts: Sequence[Draft] = requests[0].drafts
        if len(requests) > 1:
            drafts = [draft for request in requests for draft in request.drafts]
        if set(map(type, drafts)) != _DRAFTS and not all(isinstance(draft, Draft) for draft in drafts):
            raise InvalidField(
                "the batch contains something that is not a draft",
                why="a batch is made of everlog.Draft(type=…, stream=…, payload=…)",
                hint="give drafts, or append one event with append(type, stream=…, payload=…)",
                field="drafts",
            )
        keys = []
        for request in requests:
            key = request.key
            if key == "":
                continue
            keys.append(key)
            if type(key) is not str or len(key) > TEXT_CHARS_MAX or not key.isprintable():
                require_text("idempotency key", key)
        if not drafts:
            raise InvalidField("the batch is empty", why="there is nothing to record", hint="give at least one event")
        prepared = prepare(
            drafts, self._catalog, actor=self._actor, limits=self._limits, keys=keys, sealing=self._sealing
        )
        if self._signer is not None:
            self._signer.make_ready(self._origin)
            _refuse_ids(prepared)
        judge = self.judge
        guarded = judge is not None and judge.concerns(drafts)
        start = 0
        for request in requests:
            end = start + len(request.drafts)
            self._complete(request, prepared, start, end)
            start = end
            if guarded and judge is not None and not request.decided:
                _take_judgement(request, judge.judge(request.prepared))

    def _complete(self, request: Request, prepared: Prepared, start: int, end: int) -> None:
        if start == end:
            raise InvalidField("the batch is empty", why="there is nothing to record", hint="give at least one event")
        request.prepared_with, request.start = prepared, start
        if request.key != "":
            operation, first = request.operation, prepared.drafts[start]
            if operation != first.type:  # which is known to be short and plain
                require_text("operation", operation)
            scope = first.scope if request.key_scope is None else request.key_scope
            request.claim = idempotency.claim_name(scope, prepared.actors[start], operation, request.key)
            if request.request is not None or request.response is not None:
                # What has no single JSON form could neither be compared nor be answered again as it is.
                canonical(request.request)
                if suspicious(b'{"response":%b}' % canonical(request.response)):
                    refuse_secrets("the response", {"response": request.response})
        request.given_ids = prepared.ids.count(None) < len(prepared.ids) and any(prepared.ids[start:end])
        request.expects = has_expectations(prepared.drafts[start:end], self._catalog)
        sealed = prepared.stored is not None
        request.can_batch = not (request.given_ids or request.dry_run or request.expects or sealed)

    def record(self, request: Request, writer: OpenWrite) -> Receipt:
        """Carry out one request inside a write."""
        if request.claim and (request.request is not None or writer.claims((request.claim,))):
            found = self._replayed(request, writer)
            if found is not None:
                return found
        if request.given_ids:
            found = self.replays.with_same_ids(writer, request.prepared)
            if found is not None:
                return found
        if request.judged is not None:
            request.judged.require(writer)
        if request.prepared_with.stored is not None:
            self._require_keys(request)
        if request.expects:
            require_expectations(writer, request.prepared, self._catalog)
        (receipt,) = self._append([request], writer)
        if request.dry_run:
            raise DryRun(msgspec.structs.replace(receipt, dry_run=True))
        return receipt

    def _require_keys(self, request: Request) -> None:
        """Have a request prepared again if a key was destroyed since: nobody could ever read what it sealed."""
        if self._sealing is not None and self._sealing.ring.count_destroyed() != request.prepared_with.sealed_at:
            raise Overtaken(
                "a key of a person was destroyed while a field was sealed",
                why="somebody was forgotten at the same moment",
                hint="repeat the request",
            )

    def record_together(self, requests: Sequence[Request], writer: OpenWrite) -> list[Receipt | Exception]:
        """Carry out requests without expectations; return a receipt or a refusal for each, in their order."""
        claims = [request.claim for request in requests if request.claim]
        if len(set(claims)) == len(claims) and not writer.claims(claims):
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
                replayed = self._replayed(request, writer) if request.claim else None
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

    def _append(self, requests: Sequence[Request], writer: OpenWrite) -> list[Receipt]:
        """Stamp and stage the events of all the requests in one loop, and claim their keys."""
        prepared = requests[0].prepared_with
        if len(requests) > 1 or len(prepared.drafts) > len(requests[0].drafts):
            prepared = _prepared_of(requests)
        keys: list[str] = []
        for request in requests:
            keys += [request.key] * len(request.drafts)
        now_us = writer.now_us
        if requests[0].given_ids:
            writer.refuse_known([event_id for event_id in prepared.ids if event_id is not None])
        events = stamp(prepared, keys, writer, self._ids, with_news=True)
        read = None if prepared.stored is None else partial(upcast, self._catalog)
        receipts, start = [], len(events.rows) - len(keys)  # after what states the news, which is in no receipt
        claims: dict[bytes, Claim] = {}
        for request in requests:
            end = start + len(request.drafts)
            own = OwnRecords(events, start, end, read)
            if request.claim:
                claims[request.claim] = Claim(events.rows[start][0], end - start)
                if request.request is not None or request.response is not None:
                    ids = [row[3][0] for row in events.rows[start:end]]
                    expires_us = now_us + self._keys_kept_us
                    idempotency.remember_extra(
                        writer, request.claim, request.request, ids, request.response, expires_us=expires_us
                    )
            receipts.append(Receipt(own, False, request.response))
            start = end
        if claims:
            writer.claim(claims)
        return receipts

    def stamp(self, prepared: Prepared, writer: OpenWrite) -> OwnRecords:
        """Stage prepared drafts of the log itself."""
        return OwnRecords(stamp(prepared, [""] * len(prepared), writer, self._ids), 0, len(prepared), None)

    def _replayed(self, request: Request, writer: OpenWrite) -> Receipt | None:
        return self.replays.of_request(writer, request.claim, request.key, request.prepared, request.request)


class Request(Item):
    """One call of `commit`: prepared before the write opens, carried out inside it."""

    claim = b""
    given_ids = False
    expects = False
    prepared_with: Prepared = EMPTY  # its drafts, and perhaps those of others
    start = 0
    judged: Judged | None = None

    def __init__(
        self,
        recorder: Recorder,
        drafts: tuple[Draft, ...],  # a copy: the caller's list may change
        key: str,
        operation: str,
        request: Any = None,
        response: Any = None,
        dry_run: bool = False,
        key_scope: str | None = None,
        decided: bool = False,
    ) -> None:
        self._recorder = recorder
        self.drafts = drafts
        self.key = key
        self.operation = operation
        self.request = request
        self.response = response
        self.dry_run = dry_run
        self.key_scope = key_scope
        self.decided = decided  # its rules were applied when it was decided: no guard judges it again

    @property
    def prepared(self) -> Prepared:
        """Its drafts, prepared; none before that."""
        return self.prepared_with.part(self.start, self.start + len(self.drafts))

    @property
    def guarded(self) -> bool:
        """True if preparing it applies the rules of a program, which read the log."""
        judge = self._recorder.judge
        return judge is not None and not self.decided and judge.concerns(self.drafts)

    def prepare(self, items: Sequence[Any]) -> None:
        self._recorder.prepare(items)

    def do(self, writer: OpenWrite) -> Receipt:
        return self._recorder.record(self, writer)

    def do_together(self, items: Sequence[Any], writer: OpenWrite) -> list[Any]:
        return self._recorder.record_together(items, writer)


def _refuse_ids(prepared: Prepared) -> None:
    given = next(filter(None, prepared.ids), None)
    if given is not None:
        raise InvalidField(
            f"the id {given} was given for a new event of a signed log",
            why="the ids of a signed log encode its origin, so that nobody else can use them",
            hint="leave the id out; an idempotency key makes a retry safe: --key, or key=…",
            field="id",
        )


def _prepared_of(requests: Sequence[Request]) -> Prepared:
    """Return the drafts of requests, in their order. Nearly always all of them were prepared together."""
    prepared, end = requests[0].prepared_with, 0
    for request in requests:
        if request.prepared_with is not prepared or request.start != end:
            return joined([request.prepared for request in requests])
        end += len(request.drafts)
    return prepared if end == len(prepared) else joined([request.prepared for request in requests])


def _take_judgement(request: Request, judged: Judged | None) -> None:
    if judged is None:
        return
    if judged.refusal is not None and not (request.claim or request.given_ids):
        raise judged.refusal  # else only the write can find out whether it is a replay
    request.judged = judged
    request.can_batch = False

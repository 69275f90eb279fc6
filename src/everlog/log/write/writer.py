"""The write side of a log, `log.writer`: what programs, views, consumers and surfaces build on. It may change.

`Log.append` and `Log.append_batch` are short forms of `commit`. A program asks for an `earlier_outcome` before it
decides, and records what it has decided with `commit`. An event loop makes requests, prepares and submits them
(`everlog.aio`). Views and consumers keep rows in `small_state`, run work in a `write`, and are notified by `waiters`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from everlog.core.clock import JUMP_MAX
from everlog.core.event import Event, Recorded
from everlog.errors import Damaged, EverlogError, Unavailable
from everlog.log.admit.events import admit
from everlog.log.admit.outcomes import Outcome, refused
from everlog.log.read.follow import Waiters
from everlog.log.write.committer import Committer
from everlog.log.write.draft import Draft, Prepared, Receipt
from everlog.log.write.group import Waker
from everlog.log.write.guard import ATTEMPTS, Overtaken, pause_s
from everlog.log.write.idempotency import Replays
from everlog.log.write.knows import take_part
from everlog.log.write.refusals import Refusals
from everlog.log.write.requests import DryRun, Recorder, Request
from everlog.log.write.stages import Stage, Stages
from everlog.stores.contract import Encoded, Store
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import StoreState

if TYPE_CHECKING:
    from everlog.log.admit.admission import Gate
    from everlog.trust.forks import ForkProof
    from everlog.trust.group_signature import GroupSignature
    from everlog.trust.standing import Standing
    from everlog.trust.stubs import Stub

T = TypeVar("T")


class Writer:
    def __init__(
        self,
        store: Store,
        recorder: Recorder,
        waiters: Waiters,
        *,
        actor: str,
        now_us: Callable[[], int],
        make_standing: Callable[[], Standing] | None = None,
    ) -> None:
        self._store = store
        self._now_us = now_us
        self._make_standing = make_standing
        self._made_gate: Gate | None = None
        self._recorder = recorder
        self._actor = actor
        self._waiters = waiters
        self._watching = False
        self.first: Callable[[], None] | None = None  # what must be done before the next write, once
        self._stages = Stages()
        if make_standing is not None:
            self._stages.add(_Standing(self))
        self._committer = Committer(store, self._stages, committed=waiters.wake)
        self.refusals = Refusals(store.small_state, self._committer, self._stages, purges=store.purges, now_us=now_us)

    @property
    def small_state(self) -> StoreState:
        """Rows beside the events, by space and key: what views and consumers keep."""
        return self._store.small_state

    @property
    def waiters(self) -> Waiters:
        """What waits for this log to grow, for code that follows it in another way than `Log.subscribe`."""
        if not self._watching and not self._waiters.closed:
            # Once somebody follows the log: be notified, where the store can, of commits of other processes.
            self._watching = True
            self._store.watch(self._waiters.wake)
        return self._waiters

    # ---- recording drafts

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
        """Record drafts.

        `request` identifies the request better than its drafts, which have new ids and times at every attempt: it
        decides whether two requests are the same. `response` is stored, and a replay returns it. `key_scope` is where
        a key names one request, such as an organisation; without it, the scope of the first draft.
        `retried` names errors that the caller handles by trying again: they are not recorded as refusals.
        `decided` is for a caller that has applied the rules of the program already: no guard judges the drafts.
        """
        recorder, attempts = self._recorder, 1
        if self.first is not None and not dry_run:
            self.do_first()
        while True:
            try:
                made = Request(
                    recorder, tuple(drafts), key or "", operation, request, response, dry_run, key_scope, decided
                )
                if not (self._committer.busy and recorder.leave_to_others(made)):
                    recorder.require_valid((made,))
                receipt: Receipt = self._committer.commit(made)
                return receipt
            except DryRun as answer:
                return answer.receipt
            except EverlogError as error:
                if isinstance(error, Overtaken) and attempts < ATTEMPTS:
                    time.sleep(pause_s(attempts))
                    attempts += 1
                    continue
                if not dry_run and not isinstance(error, retried):
                    self.record_refusal(error, drafts, operation)
                raise

    @property
    def replays(self) -> Replays:
        return self._recorder.replays

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
                return self._committer.write(
                    lambda write: self._recorder.replays.earlier_outcome(write, write, **asked)
                )
        return self._recorder.replays.earlier_outcome(self._store, self._store.small_state, **asked)

    def record_unchanged(
        self, operation: str, key: str, request: Any, *, actor: str = "", scope: str = ""
    ) -> Receipt | None:
        """Remember that a request was decided and changed nothing, so that a retry gets the same outcome.

        If an equal request under this key was faster, its outcome is returned, and nothing is changed.
        """
        return self._committer.write(
            lambda write: self._recorder.replays.record_unchanged(
                write, scope=scope, actor=actor, operation=operation, key=key, request=request
            )
        )

    def record_refusal(self, error: EverlogError, drafts: Sequence[Draft], operation: str) -> None:
        """Record the refusal of a request. It is written with the next commit, or at the end."""
        first = drafts[0] if drafts else None
        stream, type_, actor, scope = "", "", self._actor, ""
        if isinstance(first, Draft):  # its fields may be what was wrong, and of any type
            stream, type_, actor = str(first.stream), str(first.type), str(first.actor or actor)
            scope = str(first.scope)
        self.refusals.record(error, operation=operation, stream=stream, type=type_, actor=actor, scope=scope)

    def admit_encoded(self, encoded: Sequence[Encoded], *, jump_max: int = JUMP_MAX) -> list[Recorded]:
        """Record events from elsewhere as `Log.admit` does, if the caller has checked and encoded them."""
        self.do_first()
        events = [item.event for item in encoded]
        return self._committer.write(lambda write: admit(write, events, encoded, jump_max=jump_max))

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
        """Record what another node sent, as `Log.admit_each` does."""
        from everlog.log.admit.intake import take_in  # loaded when something arrives

        self.do_first()
        gate, log_id = self._gate, self._store.identity.log_id
        taken = take_in(events, groups, log_id=log_id, sent_for=sent_for, now_ms=self._now_us() // 1000)
        found = taken.refused
        try:
            found |= self._committer.write(
                lambda write: gate.admit_each(write, taken, forks, stubs), exclusive=bool(stubs)
            )
        except Damaged as error:
            found |= {place: refused(encoded.event.id, error) for place, encoded in taken.accepted.items()}
        for place, outcome in sorted(found.items()):
            if outcome.kind == "refused":
                event = events[place]
                self.refusals.keep(
                    code=outcome.code,
                    reason=outcome.reason,
                    operation="admit",
                    stream=str(event.stream),
                    type=str(event.type),
                    actor=sender or "system",
                    context={"id": outcome.id, "origin": str(event.origin)},
                )
        return [found[place] for place in range(len(events))]

    def stamp(self, prepared: Prepared, write: OpenWrite) -> Sequence[Recorded]:
        """Stage events that the log itself makes, of types that no caller can append."""
        return self._recorder.stamp(prepared, write)

    def settle(self, write: OpenWrite) -> None:
        """Look again at what counts, because this write has something that decides on it."""
        self._gate.settle(write)

    def counts_whole(self, write: OpenWrite, origin: str) -> bool:
        """Return whether the chain of an origin counts up to its end, as the write leaves it."""
        return self._gate.counts_whole(write, origin)

    def may_remove(self, write: OpenWrite, record: Event) -> bool:
        """Return whether a purge that another node recorded is followed here."""
        return self._gate.may_remove(write, record)

    def names(self, write: OpenWrite, origin: str) -> tuple[bool, bool]:
        """Return whether the history names an origin, and whether its chain counts without an end."""
        return self._gate.names(write, origin)

    @property
    def deciding(self) -> Collection[str]:
        """The types of the events that decide on what counts."""
        return self._gate.deciding

    @property
    def _gate(self) -> Gate:
        if self._made_gate is None:
            from everlog.log.admit.admission import Gate

            standing = None if self._make_standing is None else self._make_standing()
            self._made_gate = Gate(standing, recorded=take_part)
        return self._made_gate

    # ---- the steps of `commit`, for an event loop

    def request(
        self,
        drafts: Sequence[Draft],
        key: str,
        operation: str,
        request: Any = None,
        response: Any = None,
        *,
        key_scope: str | None = None,
        decided: bool = False,
    ) -> Request:
        """Return the request that `commit` would make, for `prepare` and `submit`."""
        return Request(
            self._recorder,
            tuple(drafts),
            key or "",
            operation,
            request,
            response,
            key_scope=key_scope,
            decided=decided,
        )

    def prepare(self, requests: Sequence[Request]) -> None:
        """Prepare requests, all at once. One that is refused gets an `error`; the others are ready for `submit`."""
        self._recorder.prepare(requests)

    def submit(self, requests: Sequence[Request], waker: Waker) -> None:
        """Commit requests in another thread, and call the waker when they are done: see `everlog.aio`."""
        self.do_first()
        self._committer.submit(requests, waker)

    # ---- taking part in writes

    def write(self, work: Callable[[OpenWrite], T], *, exclusive: bool = False) -> T:
        """Run a function inside a write, for small state beside the events. When this returns, it is on the disk.

        It may share the write with others unless it is `exclusive`, must be quick, and an exception undoes it alone.
        """
        self.do_first()
        return self._committer.write(work, exclusive=exclusive)

    def do_first(self) -> None:
        """Do what must be done before the next write, if there is something."""
        first, self.first = self.first, None
        if first is not None:
            first()

    def add_stage(self, stage: Stage) -> None:
        """Have a stage take part in every write, at its end and in its transaction: see `log/write/stages.py`."""
        self._stages.add(stage)

    def close(self) -> None:
        """Commit what was submitted, and write the refusals that wait."""
        self.refusals.write()
        self._committer.close()


class _Standing:
    """The stage `standing`: what this log records itself may decide on the chains of others."""

    name = "standing"

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def run(self, write: OpenWrite) -> None:
        own, deciding = write.identity.origin, self._writer.deciding
        made = [one.event for one, _ in write.records if one.event.origin == own]
        if any(event.type in deciding for event in made) or (made and not self._writer.counts_whole(write, own)):
            self._writer.settle(write)

    def committed(self) -> None: ...

    def undone(self) -> None: ...

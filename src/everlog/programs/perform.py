"""Run a command or answer a question: `perform(log, command, by)` and `ask(log, question, within=...)`.

    outcome = perform(log, Approve(id="c1"), By(actor="user:ada"))
    ask(log, List(pending=True), within="acme")

A command reads history, decides what to record, and appends it on condition that nothing was added to what it looked
at; if something was, it decides again. So a decision is never based on an outdated history. It sees the events that
match `looks_at` (a query, or several; of a `Newest` only the newest event, so that a long history costs as little as
a short one), in order, and may read more with `history.also(query)`. A decision that asks a stored view, because that
history is too long to be read each time, names the events behind it with `history.relies_on(query)`.

A refusal is recorded in the error log, and nothing is written; an actor that repeats a mistake is informed of it.
With a key, a retry is answered with what the first attempt recorded, before anything is decided; also if that was
nothing, and by now there would be something to do. If the rule refuses, or has nothing to record, the key is looked
up again, inside a write: an equal request may have been faster, and then its answer is the answer to both. So all
callers that send one request under one key at once get the same answer.

`within` limits the caller: events outside of it are not read, and a subject outside of it does not exist.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import msgspec

from everlog.core.event import Event, Position, Recorded
from everlog.core.query import Looks, Newest, Query, in_scope
from everlog.errors import (
    AlreadyPurged,
    Damaged,
    EverlogError,
    InvalidField,
    KeyReuse,
    NoSuchSubject,
    QueryMatched,
    Unavailable,
)
from everlog.log.log import Log
from everlog.log.write import guard
from everlog.log.write.draft import Draft, Receipt
from everlog.log.write.expect import Expect, Expectation, NoMatch
from everlog.log.write.guard import ATTEMPTS, pause_s
from everlog.programs.command import (
    NOBODY,
    By,
    CarryOut,
    Command,
    Decision,
    On,
    Outcome,
    PerformsElsewhere,
    Question,
)
from everlog.programs.program import Program, program_of
from everlog.views.as_of import head_within

R = TypeVar("R")


REFUSALS_COMPARED = 200
"""Among how many of the newest refusals an equal one is looked for."""


def perform(log: Log | PerformsElsewhere, command: Command[R], by: By = NOBODY) -> Outcome[R]:
    """Run a command and return its outcome, or raise the refusal."""
    if isinstance(log, PerformsElsewhere):
        return log.perform(command, by)
    program = program_of(type(command))
    operation = program.operation(type(command))
    by = msgspec.structs.replace(by, actor=by.actor or log.actor)
    with recording_refusals(log, by, operation, command.subject()):
        command.check()
        plan = command.plan(log, by)
    try:
        decision = decide(
            log,
            program,
            looks_at=plan.looks_at,
            stream=plan.stream,
            by=plan.by,
            operation=operation,
            request=command.fingerprint() if plan.request is None else plan.request,
            rule=plan.decide,
            scope=plan.scope,
            key_scope=plan.key_scope,
            confined=plan.confined,
            carry_out=plan.carry_out,
            guarded=not command.judged,
        )
    except EverlogError as error:
        raise command.refused(log, error) from error.__cause__
    result = plan.result(decision)
    status = "dry_run" if decision.dry_run else "recorded" if decision.records else "unchanged"
    return Outcome(
        result=result,
        status=status,
        records=decision.records,
        next=plan.next(decision),
        replayed=decision.replayed,
    )


def ask(log: Log | PerformsElsewhere, question: Question[R], *, within: str = "") -> R:
    """Answer a question. For this caller, nothing exists outside of the scope `within`."""
    if isinstance(log, PerformsElsewhere):
        return log.ask(question, within=within)
    question.check()
    return question.answer(log, within)


class Batch:
    """Events of one batch, in order: they count as if they were recorded."""

    def __init__(self) -> None:
        self._all: list[Recorded] = []
        self._of_stream: dict[str, list[Recorded]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, recorded: Recorded) -> None:
        self._all.append(recorded)
        self._of_stream.setdefault(recorded.event.stream, []).append(recorded)

    def matching(self, query: Query) -> list[Recorded]:
        some = self._of_stream.get(query.stream, ()) if query.stream else self._all
        return [one for one in some if query.matches(one)]


class History(guard.DecisionHistory):
    """The events that a decision looks at. Whatever else it reads must not have changed either.

    `within` hides the events of others, but never a part of the `own` stream: a subject that the caller may change is
    judged on its whole history, whatever scopes its events have. `earlier` are the events before it in the batch.
    """

    def __init__(
        self,
        log: Log,
        looks: Looks | Sequence[Looks],
        upto: Position,
        *,
        within: str = "",
        own: str = "",
        earlier: Batch | None = None,
        already_read: dict[Looks, list[Recorded]] | None = None,
    ) -> None:
        self.log = log
        self.earlier = Batch() if earlier is None else earlier
        self._within = within
        self._own = own
        super().__init__(log.read, looks, upto, already_read)

    def _matching(self, look: Looks) -> list[Recorded]:
        query = look.query if isinstance(look, Newest) else look
        new = self.earlier.matching(query)
        if isinstance(look, Newest):
            if new:
                return new[-1:]
            if self._within:
                newest = self.log.read(query, upto=self.upto, newest_first=True)
                return list(islice(filter(self._is_visible, newest), 1))
        found = super()._matching(look)
        if self._within:
            found = list(filter(self._is_visible, found))
        return [*found, *new]

    def _is_visible(self, recorded: Recorded) -> bool:
        return recorded.event.stream == self._own or in_scope(recorded.event.scope, self._within)


def decide(
    log: Log,
    program: Program,
    *,
    looks_at: Looks | Sequence[Looks],
    stream: str,
    by: By,
    operation: str,
    request: Any,
    rule: Callable[[History], Iterable[Any]],
    scope: str = "",
    key_scope: str | None = None,
    confined: bool = True,
    carry_out: CarryOut | None = None,
    guarded: bool = False,
) -> Decision:
    """Record what a rule makes of the history that it looks at; nothing, if it makes nothing of it.

    With `confined`, the rule sees only events in the caller's scope. `carry_out` records the drafts, and does what
    must be done in the same write. It gets the key, where that names one request, the operation and
    the request as `commit` does. With `guarded`,
    the program's guard judges what the rule wants to record.
    """
    looks = [looks_at] if isinstance(looks_at, Query | Newest) else list(looks_at)
    try:
        label = _label(log, stream, scope, by.within, confined=confined)
        attempt = _Attempt(
            log=log,
            program=program,
            looks=looks,
            stream=stream,
            by=by,
            operation=operation,
            request=request,
            rule=rule,
            scope=label,
            # Not the label, which follows the newest event of the stream: a retry must find the same key.
            key_scope=(by.within or label) if key_scope is None else key_scope,
            within=by.within if confined else "",
            carry_out=carry_out,
            guarded=guarded,
        )
        before = attempt.earlier(log.writer.earlier_outcome) if by.key else None
        if before is not None:
            return Decision(before.records, replayed=True, dry_run=by.dry_run)
        try:
            return attempt.decided()
        except (_Refused, EverlogError) as refused:
            if not by.key or isinstance(refused, Unavailable | Damaged | KeyReuse | AlreadyPurged):
                raise
            # What refused it may be what an equal request under this key recorded since it was looked up.
            since = attempt.earlier(partial(log.writer.earlier_outcome, in_write=not by.dry_run))
            if since is None:
                raise
            return Decision(since.records, replayed=True, dry_run=by.dry_run)
    except _Refused as refused:
        _count_repeats(log, refused.error, by, operation)
        _record_refusal(log, refused.error, by, operation, stream, scope)
        raise refused.error from refused.error.__cause__


@contextmanager
def recording_refusals(log: Log, by: By, operation: str, stream: str = "") -> Iterator[None]:
    """Record what is refused before there is anything to decide, such as a name that nothing has."""
    try:
        yield
    except EverlogError as error:
        _record_refusal(log, error, by, operation, stream, "")
        raise


def _record_refusal(log: Log, error: EverlogError, by: By, operation: str, stream: str, scope: str) -> None:
    if not by.dry_run:
        log.writer.record_refusal(error, [Draft("", stream, {}, by.actor, by.within or scope)], operation)


class _Refused(Exception):
    """A refusal before the log was asked to record anything; what `commit` refuses, the log records by itself."""

    def __init__(self, error: EverlogError) -> None:
        self.error = error


class _Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One request on its way from a history to its record."""

    log: Log
    program: Program
    looks: Sequence[Looks]
    stream: str
    by: By
    operation: str
    request: Any
    rule: Callable[[History], Iterable[Any]]
    scope: str
    key_scope: str
    within: str
    carry_out: CarryOut | None
    guarded: bool

    def earlier(self, look_up: Callable[..., Receipt | None]) -> Receipt | None:
        """Return what an equal request under the same key recorded; None when the key is free."""
        try:
            return look_up(self.operation, self.by.key, self.request, actor=self.by.actor, scope=self.key_scope)
        except EverlogError as error:  # the key was used for another request, or what it made was purged
            raise _Refused(error) from error

    def decided(self) -> Decision:
        by = self.by
        for attempt in range(1, ATTEMPTS + 1):
            epoch = self.log.identity.epoch  # first: what is read after a checkout must not count as read before it
            history = History(self.log, self.looks, self.log.head(), within=self.within, own=self.stream)
            try:
                if self.within:  # at every attempt: another tenant may have taken the name meanwhile
                    require_stream_within(self.log, self.stream, self.within)
                drafts = self._drafts(history, epoch)
            except EverlogError as error:
                raise _Refused(error) from error
            if not drafts:
                if by.key and not by.dry_run:
                    before = self.earlier(self.log.writer.record_unchanged)
                    if before is not None:
                        return Decision(before.records, replayed=True)
                return Decision((), dry_run=by.dry_run)
            try:
                receipt = self._recorded(drafts, last=attempt == ATTEMPTS)
            except QueryMatched:
                if attempt == ATTEMPTS:
                    raise
                time.sleep(pause_s(attempt))
                continue
            except EverlogError as error:
                if self.carry_out is None or by.dry_run:
                    raise
                raise _Refused(error) from error
            return Decision(receipt.records, replayed=receipt.replayed, dry_run=by.dry_run)
        raise AssertionError("the last attempt returns or raises")

    def _drafts(self, history: History, epoch: str) -> list[Draft]:
        """Return what the rule wants to record, judged and with the condition that nothing has changed."""
        items = list(self.rule(history))
        if not items:
            return []
        drafts = [self._draft(item) for item in items]
        if self.guarded and self.program.rules is not None:
            from everlog.programs.guards import judge_payloads

            payloads = [item.payload if isinstance(item, On) else item for item in items]
            judge_payloads(self.program, history, drafts, payloads, self.by)
        if self.within:
            history.queries.append(Query(stream=self.stream))  # whose first event decides which tenant it has
        return [msgspec.structs.replace(drafts[0], expect=_unchanged(history, epoch)), *drafts[1:]]

    def _recorded(self, drafts: Sequence[Draft], *, last: bool) -> Receipt:
        by = self.by
        if self.carry_out is not None and not by.dry_run:
            return self.carry_out(
                drafts, key=by.key, operation=self.operation, request=self.request, key_scope=self.key_scope
            )
        receipt = self.log.writer.commit(
            drafts,
            key=by.key,
            operation=self.operation,
            request=self.request,
            dry_run=by.dry_run,
            key_scope=self.key_scope,
            retried=() if last else (QueryMatched,),
            decided=True,
        )
        return without_place(self.log, receipt, by.within)

    def _draft(self, item: Any) -> Draft:
        on, payload = (item.stream, item.payload) if isinstance(item, On) else (self.stream, item)
        by = self.by
        if self.within and on != self.stream:
            require_stream_within(self.log, on, self.within)
        return Draft(
            self.program.type_of(payload),
            on,
            msgspec.to_builtins(payload),
            by.actor,
            self.scope,
            Expect.ANY,
            "",
            by.at,
            by.request_id,
            by.causation_id,
            by.correlation_id,
            by.tags,
        )


# ---- what a caller may see


def _label(log: Log, stream: str, scope: str, within: str, *, confined: bool) -> str:
    """Return the scope for the new events. A caller that is limited to a scope records nothing outside of it."""
    if not within:
        return scope
    try:
        # The scope first: whether the stream exists in another scope must make no difference.
        if scope and not in_scope(scope, within):
            raise no_such_scope(scope)
        if confined:
            require_stream_within(log, stream, within)
    except (NoSuchSubject, InvalidField) as error:
        raise _Refused(error) from error
    last = None if scope else next(log.read(Query(stream=stream), limit=1, newest_first=True), None)
    return scope or (last.event.scope if last is not None and in_scope(last.event.scope, within) else within)


def require_stream_within(log: Log, stream: str, within: str) -> None:
    """Refuse a subject of another tenant as one that does not exist. Its first event decides which tenant it has.

    After a purge the name stays taken: the sequence of the stream continues.
    """
    first = next(log.read(Query(stream=stream), limit=1), None)
    if first is None:
        purge = next((one for one in log.stored.purges() if one.stream == stream), None)
        scopes = () if purge is None else purge.scopes or ("",)
    else:
        scopes = (first.event.scope,)
    if not all(in_scope(scope, within) for scope in scopes):
        kind, _, name = stream.partition("/")
        raise NoSuchSubject(f"there is no {kind} {name}", why=f"nothing has this name in {within}")


def without_place(log: Log, receipt: Receipt, within: str) -> Receipt:
    """Return what a dry run would record as if the caller were alone: its place in the log depends on what others
    write."""
    if not within or not receipt.dry_run or receipt.replayed:
        return receipt
    head = head_within(log, within)
    records = [
        msgspec.structs.replace(
            one,
            position=Position(head + n),
            event=msgspec.structs.replace(one.event, lamport=0, origin_seq=0, previous=b""),
        )
        for n, one in enumerate(receipt.records, start=1)
    ]
    return msgspec.structs.replace(receipt, records=records)


def no_such_scope(scope: str) -> NoSuchSubject:
    return NoSuchSubject(f"there is no {scope}", why="it is not in the scope of this caller")


# ---- refusals


def _count_repeats(log: Log, error: EverlogError, by: By, operation: str) -> None:
    """Tell an actor that repeats a mistake how often it was refused lately, and when last."""
    actor, kind = by.actor or log.actor, _kind(error.code, operation, error.details)
    before = [
        refusal
        for refusal in log.refusals(limit=REFUSALS_COMPARED, within=by.within)
        if refusal.actor == actor and _kind(refusal.code, refusal.operation, refusal.context) == kind
    ]
    if before:
        error.details["refused_before"] = len(before)
        error.details["refused_last"] = before[0].refused_at.isoformat(timespec="seconds")


def _kind(code: str, operation: str, details: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what makes two refusals the same mistake, whatever they were about."""
    names = ("rule", "current", "requested", "current_status", "requested_status")
    return (code, operation, *(str(details.get(name, "")) for name in names))


def _unchanged(history: History, epoch: str) -> Expectation:
    if not history.queries:
        return Expect.ANY  # it was decided without looking at anything
    first, *others = dict.fromkeys(history.queries)
    return NoMatch(first, after=history.upto, also=tuple(others), epoch=epoch)


def events_of(records: Iterable[Recorded]) -> list[Event]:
    return [recorded.event for recorded in records]

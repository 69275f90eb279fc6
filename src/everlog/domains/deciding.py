"""How every command of every domain comes to what it records: read, decide, append; and again if somebody was faster.

    done = decide(log, DOMAIN, looks_at=Query(stream="run/7"), stream="run/7", by=by, operation="agent approve",
                  request={"run": "7"}, rule=lambda history: rules.approve(run_of(history)))

The rule sees the events that match `looks_at` (a query, or several of which an event need match only one; of a
`Newest` only the newest, so that a long history costs as little as a short one), in order, and may look further with
`history.also(query)`. What it answers is recorded only if none has been added to all that
since: so a decision is never based on what was not true any more. A rule that asks a kept view, because that history
is too long to be read each time, says so with `history.relies_on(query)`. A refusal is remembered in the error log,
and nothing is written; who repeats a mistake is told so. With a key, a retry is answered with what the first attempt
recorded, before anything is decided; also if that was nothing, and by now there would be something to do. If the rule
refuses, or has nothing to record, the key is looked up again, inside a write: an equal request may have been faster,
and then its answer is the answer to both. So all who send one request under one key at once get the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol

import msgspec

from everlog.core.event import Event, Position, Recorded
from everlog.core.query import Query
from everlog.domains.domain import Domain
from everlog.errors import AlreadyPurged, Damaged, EverlogError, KeyReuse, QueryMatched, Unavailable
from everlog.log.drafts import Draft
from everlog.log.expect import Expect, Expectation, NoMatch
from everlog.log.log import Log
from everlog.log.requests import Receipt

ATTEMPTS = 20
"""How often a decision is made anew when others keep writing to what it looks at."""

REMEMBERED = 200
"""Among how many of the newest refusals one like it is looked for."""


class By(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf a command runs, and what connects it to others. All of it may be left out."""

    actor: str = ""
    scope: str = ""
    key: str = ""  # makes a retry safe
    key_scope: str | None = None  # where a key names one request, if that is not `scope`
    at: datetime | None = None  # when it happened, if not now
    request_id: str = ""
    causation_id: str = ""
    correlation_id: str = ""
    dry_run: bool = False


NOBODY = By()


class On(msgspec.Struct, frozen=True):
    """A payload for another stream than the one that the command is about."""

    stream: str
    payload: Any


class Newest(msgspec.Struct, frozen=True):
    """Of the events that match, only the newest is needed to decide."""

    query: Query


Looks = Query | Newest


class CarryOut(Protocol):
    def __call__(self, drafts: Sequence[Draft], *, key: str, operation: str, request: Any) -> Receipt: ...


class Done(msgspec.Struct, frozen=True):
    """What a command recorded. `replayed`: an earlier attempt under the same key had done it."""

    records: tuple[Recorded, ...]
    replayed: bool = False
    dry_run: bool = False

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(recorded.event for recorded in self.records)


class History(list[Recorded]):
    """The events that a decision looks at. What it looks at further must not have changed either."""

    def __init__(self, log: Log, looks: Sequence[Looks], upto: Position) -> None:
        self._log = log
        self.upto = upto
        self.queries = [look.query if isinstance(look, Newest) else look for look in looks]
        found = {recorded.position: recorded for look in looks for recorded in self._read(look)}
        super().__init__(found[position] for position in sorted(found))

    def also(self, query: Query) -> list[Recorded]:
        """Further events, for a rule that learns only from the first ones which others matter."""
        self.queries.append(query)
        return list(self._read(query))

    def relies_on(self, query: Query) -> None:
        """Events that are not read here, because a kept view has been asked, or will be. None may be added to them.

        What that view saw beyond `upto` leads to a new decision, too: so it may be asked at any time.
        """
        self.queries.append(query)

    def _read(self, look: Looks) -> Iterator[Recorded]:
        if isinstance(look, Newest):
            return self._log.read(look.query, upto=self.upto, limit=1, newest_first=True)
        return self._log.read(look, upto=self.upto)


def decide(
    log: Log,
    domain: Domain,
    *,
    looks_at: Looks | Sequence[Looks],
    stream: str,
    by: By,
    operation: str,
    request: Any,
    rule: Callable[[History], Iterable[Any]],
    carry_out: CarryOut | None = None,
) -> Done:
    """Record what a rule makes of the history that it looks at; nothing, if it makes nothing of it.

    `carry_out` records the drafts, and does what must be done with that in the same write, such as a purge. It gets
    the key, the operation and the request as `commit` does.
    """
    try:
        before = _answered(log.answered, by, operation, request) if by.key else None
        if before is not None:
            return Done(before.records, replayed=True, dry_run=by.dry_run)
        looks = [looks_at] if isinstance(looks_at, Query | Newest) else list(looks_at)
        try:
            return _decided(log, domain, looks, stream, by, operation, request, rule, carry_out)
        except (_Refused, EverlogError) as refused:
            if not by.key or isinstance(refused, Unavailable | Damaged | KeyReuse | AlreadyPurged):
                raise
            # What refused it may be what an equal request under this key recorded since it was looked up.
            look_up = log.answered if by.dry_run else log.answered_by_now
            since = _answered(look_up, by, operation, request)
            if since is None:
                raise
            return Done(since.records, replayed=True, dry_run=by.dry_run)
    except _Refused as refused:
        _say_if_again(log, refused.error, by.actor or log.actor, operation)
        _remember(log, refused.error, by, operation, stream)
        raise refused.error from refused.error.__cause__


@contextmanager
def remembering(log: Log, by: By, operation: str, stream: str = "") -> Iterator[None]:
    """Have remembered what is refused before there is anything to decide, such as a name that nobody has."""
    try:
        yield
    except EverlogError as error:
        _remember(log, error, by, operation, stream)
        raise


def _remember(log: Log, error: EverlogError, by: By, operation: str, stream: str) -> None:
    if not by.dry_run:
        log.remember_refusal(error, [Draft("", stream, {}, by.actor, by.scope)], operation)


class _Refused(Exception):
    """A refusal before the log was asked to record anything; what `commit` refuses it remembers by itself."""

    def __init__(self, error: EverlogError) -> None:
        self.error = error


def _answered(look_up: Callable[..., Receipt | None], by: By, operation: str, request: Any) -> Receipt | None:
    try:
        return look_up(operation, by.key, request, actor=by.actor, scope=_key_scope(by))
    except EverlogError as error:  # the key was used for another request, or what it made was purged
        raise _Refused(error) from error


def _key_scope(by: By) -> str:
    return by.scope if by.key_scope is None else by.key_scope


def _decided(
    log: Log,
    domain: Domain,
    looks: Sequence[Looks],
    stream: str,
    by: By,
    operation: str,
    request: Any,
    rule: Callable[[History], Iterable[Any]],
    carry_out: CarryOut | None,
) -> Done:
    for attempt in range(1, ATTEMPTS + 1):
        history = History(log, looks, log.head())
        try:
            said = list(rule(history))
        except EverlogError as error:
            raise _Refused(error) from error
        if not said:
            if by.key and not by.dry_run:
                before = _answered(log.answer_nothing, by, operation, request)
                if before is not None:
                    return Done(before.records, replayed=True)
            return Done((), dry_run=by.dry_run)
        unchanged = _unchanged(history)
        drafts = [
            _draft(domain, item, stream, by, Expect.ANY if place else unchanged) for place, item in enumerate(said)
        ]
        try:
            if carry_out is not None and not by.dry_run:
                receipt = carry_out(drafts, key=by.key, operation=operation, request=request)
            else:
                receipt = log.commit(
                    drafts,
                    key=by.key,
                    operation=operation,
                    request=request,
                    dry_run=by.dry_run,
                    key_scope=by.key_scope,
                    retried=(QueryMatched,) if attempt < ATTEMPTS else (),
                )
        except QueryMatched:
            if attempt == ATTEMPTS:
                raise
            continue
        except EverlogError as error:
            if carry_out is None or by.dry_run:
                raise
            raise _Refused(error) from error
        return Done(receipt.records, replayed=receipt.replayed, dry_run=by.dry_run)
    raise AssertionError("the last attempt returns or raises")


def _say_if_again(log: Log, error: EverlogError, actor: str, operation: str) -> None:
    """Tell who repeats a mistake that it is one: how often it was refused before, lately, and when last."""
    kind = _kind(error.code, operation, error.details)
    before = [
        refusal
        for refusal in log.refusals(limit=REMEMBERED)
        if refusal.actor == actor and _kind(refusal.code, refusal.operation, refusal.context) == kind
    ]
    if before:
        error.details["refused_before"] = len(before)
        error.details["refused_last"] = before[0].refused_at.isoformat(timespec="seconds")


def _kind(code: str, operation: str, details: Mapping[str, Any]) -> tuple[str, ...]:
    """What makes two refusals the same mistake, whatever they were about."""
    names = ("rule", "current", "requested", "current_status", "requested_status")
    return (code, operation, *(str(details.get(name, "")) for name in names))


def _unchanged(history: History) -> Expectation:
    if not history.queries:
        return Expect.ANY  # it was decided without looking at anything
    first, *others = history.queries
    return NoMatch(first, after=history.upto, also=tuple(others))


def _draft(domain: Domain, said: Any, stream: str, by: By, expect: Expectation) -> Draft:
    on, payload = (said.stream, said.payload) if isinstance(said, On) else (stream, said)
    return Draft(
        domain.type_of(payload),
        on,
        msgspec.to_builtins(payload),
        by.actor,
        by.scope,
        expect,
        "",
        by.at,
        by.request_id,
        by.causation_id,
        by.correlation_id,
    )

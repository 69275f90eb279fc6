"""How every command of every domain comes to what it records: read, decide, append; and again if somebody was faster.

    done = decide(log, DOMAIN, looks_at=Query(stream="run/7"), stream="run/7", by=by, operation="agent approve",
                  request={"run": "7"}, rule=lambda history: rules.approve(run_of(history)))

The rule sees the events that match `looks_at` (a query, or several of which an event need match only one), in order,
and what it answers is recorded only if none has been added to them since: so a decision is never based on what was
not true any more. A refusal is remembered in the error log, and
nothing is written. With a key, a retry is answered with what the first attempt recorded, before anything is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from everlog.core.event import Event, Position, Recorded
from everlog.core.query import Query
from everlog.domains.domain import Domain
from everlog.errors import EverlogError, QueryMatched
from everlog.log.drafts import Draft
from everlog.log.expect import Expect, Expectation, NoMatch
from everlog.log.log import Log
from everlog.log.requests import Receipt

ATTEMPTS = 20
"""How often a decision is made anew when others keep writing to what it looks at."""


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


class Done(msgspec.Struct, frozen=True):
    """What a command recorded. `replayed`: an earlier attempt under the same key had done it."""

    records: tuple[Recorded, ...]
    replayed: bool = False
    dry_run: bool = False

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(recorded.event for recorded in self.records)


def decide(
    log: Log,
    domain: Domain,
    *,
    looks_at: Query | Sequence[Query],
    stream: str,
    by: By,
    operation: str,
    request: Any,
    rule: Callable[[Sequence[Recorded]], Iterable[Any]],
) -> Done:
    """Record what a rule makes of the history that it looks at; nothing, if it makes nothing of it."""
    try:
        before = _answered(log, by, operation, request) if by.key else None
        if before is not None:
            return Done(before.records, replayed=True)
        queries = [looks_at] if isinstance(looks_at, Query) else list(looks_at)
        return _decided(log, domain, queries, stream, by, operation, request, rule)
    except _Refused as refused:
        if not by.dry_run:
            log.remember_refusal(refused.error, [Draft("", stream, {}, by.actor, by.scope)], operation)
        raise refused.error from refused.error.__cause__


class _Refused(Exception):
    """A refusal before the log was asked to record anything; what `commit` refuses it remembers by itself."""

    def __init__(self, error: EverlogError) -> None:
        self.error = error


def _answered(log: Log, by: By, operation: str, request: Any) -> Receipt | None:
    scope = by.scope if by.key_scope is None else by.key_scope
    try:
        return log.answered(operation, by.key, request, actor=by.actor, scope=scope)
    except EverlogError as error:  # the key was used for another request, or what it made was purged
        raise _Refused(error) from error


def _decided(
    log: Log,
    domain: Domain,
    queries: Sequence[Query],
    stream: str,
    by: By,
    operation: str,
    request: Any,
    rule: Callable[[Sequence[Recorded]], Iterable[Any]],
) -> Done:
    for attempt in range(1, ATTEMPTS + 1):
        head = log.head()
        history = _history(log, queries, head)
        try:
            said = list(rule(history))
        except EverlogError as error:
            raise _Refused(error) from error
        if not said:
            return Done((), dry_run=by.dry_run)
        unchanged = NoMatch(queries[0], after=head, also=tuple(queries[1:]))
        drafts = [
            _draft(domain, item, stream, by, Expect.ANY if place else unchanged) for place, item in enumerate(said)
        ]
        try:
            receipt = log.commit(
                drafts,
                key=by.key,
                operation=operation,
                request=request,
                dry_run=by.dry_run,
                key_scope=by.key_scope,
            )
        except QueryMatched:
            if attempt == ATTEMPTS:
                raise
            continue
        return Done(receipt.records, replayed=receipt.replayed, dry_run=receipt.dry_run)
    raise AssertionError("the last attempt returns or raises")


def _history(log: Log, queries: Sequence[Query], head: Position) -> list[Recorded]:
    if len(queries) == 1:
        return list(log.read(queries[0], upto=head))
    found = {recorded.position: recorded for query in queries for recorded in log.read(query, upto=head)}
    return [found[position] for position in sorted(found)]


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

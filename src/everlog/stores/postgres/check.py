"""Find damage of the database itself, for `verify`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import msgspec

from everlog.core.codec import assemble
from everlog.core.event import START, Position
from everlog.core.ids import id_text
from everlog.stores.contract import Problem
from everlog.stores.postgres.queries import PAGE_ROWS, Fetch
from everlog.stores.postgres.statements import migrations, statements

_TRIGGER = re.compile(r"^CREATE TRIGGER (\w+)", re.MULTILINE)
_FUNCTION = re.compile(r"^CREATE (?:OR REPLACE )?FUNCTION (\w+)\(.*?\$\$(.*?)\$\$;", re.MULTILINE | re.DOTALL)
_DROPPED = re.compile(r"^DROP FUNCTION (\w+)\(", re.MULTILINE)


def problems(fetch: Fetch, *, tenant: bool) -> Iterator[Problem]:
    """Return everything that is wrong with the log's tables, read in one snapshot.

    A tenant may not see the ends of chains, and of the rows only its own.
    """
    yield from _schema_problems(fetch)
    if not tenant:
        yield from state_problems(fetch)
    yield from _column_problems(fetch, tenant=tenant)


def _schema_problems(fetch: Fetch) -> Iterator[Problem]:
    """Triggers and functions must be as they were created: a disabled trigger protects nothing."""
    named = statements("check")
    text = "\n".join(text for _, _, text in migrations())
    enabled: dict[str, str] = dict(fetch(named["triggers"], {}))
    for name in _TRIGGER.findall(text):
        if name not in enabled:
            yield Problem(START, "trigger_missing", f"{name}, which belongs to every log, is gone")
        elif enabled[name] != "A":
            yield Problem(START, "schema_changed", f"the trigger {name} was switched off")
    for name in sorted(enabled.keys() - set(_TRIGGER.findall(text))):
        yield Problem(START, "schema_changed", f"the trigger {name} was added")
    sources: dict[str, str] = dict(fetch(named["functions"], {}))
    wanted = dict(_FUNCTION.findall(text))  # a later migration may replace a function, or drop it
    for name in _DROPPED.findall(text):
        del wanted[name]
    for name, source in wanted.items():
        if sources.get(name) != hashlib.md5(source.encode(), usedforsecurity=False).hexdigest():
            yield Problem(START, "schema_changed", f"the function {name} is not as it was made")
    for (name,) in fetch(named["indexes"], {}):
        yield Problem(START, "schema_changed", f"the index {name} is not usable")


def state_problems(fetch: Fetch) -> Iterator[Problem]:
    """The end of every chain must be the event in the state. This is cheap, so it is checked before the first
    write."""
    named = statements("check")
    rows = fetch(named["ends"], {})
    if len(rows) != 1:
        yield Problem(START, "state_disagrees", "the state of the log is gone")
        return
    ((head, _, last, reserved),) = rows
    ends = fetch(named["chain_ends"], {})
    for origin, number, digest, position, found, purged in ends:
        if found is None and purged is None:
            reason = f"event {number} of origin {origin} was recorded here and is not there any more"
            yield Problem(position, "log_cut_off", reason)
        elif digest not in (found, purged):
            yield Problem(position, "state_disagrees", f"this is not event {number} of {origin} as it was recorded")
    there = max(last or 0, reserved or 0)
    if there != head:
        yield Problem(Position(there), "state_disagrees", f"the log remembers {head} as its last position")
    if last is not None and not ends:
        yield Problem(START, "state_disagrees", "there are events, and the end of no chain is remembered")


def _column_problems(fetch: Fetch, *, tenant: bool) -> Iterator[Problem]:
    """Columns that queries use must match the header."""
    named = statements("check")
    rows = fetch(statements("read")["clock"], {})
    if not rows:
        return  # state_problems reports that it is missing
    clock = rows[0][0]
    ends: dict[str, int] = {}
    for row in [] if tenant else fetch(named["chain_ends"], {}):
        ends[row[0]] = max(row[1], ends.get(row[0], 0))
    columns = named["columns_and_headers"].format(events="scoped_events" if tenant else "events")
    after = Position(0)
    while rows := fetch(columns, {"after": after, "limit": PAGE_ROWS}):
        for position, event_id, stream, kind, scope, header in rows:
            try:
                event = assemble(header, "", b"")
            except msgspec.DecodeError:
                continue  # verify itself reports a header that cannot be read
            if id_text(event_id.int) != event.id:
                yield Problem(position, "index_disagrees", f"the row is filed under another id than {event.id}")
            for filed, name in ((stream, event.stream), (kind, event.type), (scope, event.scope)):
                if filed != name:
                    yield Problem(position, "index_disagrees", f"the row is filed under another name than {name!r}")
            if event.lamport > clock:
                yield Problem(position, "state_disagrees", f"its clock value is above {clock}, the clock's own")
            if not tenant and event.origin_seq > ends.get(event.origin, 0):
                reason = f"it comes after the end that is remembered of the chain of {event.origin}"
                yield Problem(position, "state_disagrees", reason)
        after = rows[-1][0]

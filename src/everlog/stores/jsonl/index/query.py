"""Find the rows of a query in the index.

A stream, types and scopes are each searched along their own SQL index; a kind is the streams below it. The order is
always that of positions.
"""

from __future__ import annotations

import json
from typing import Any

from everlog.core.event import microseconds
from everlog.core.query import Query
from everlog.stores.jsonl.index.schema import SCOPE, STREAM, TYPE, Damage, Index

COLUMNS = "position, sequence, received_us, crc, file, at, size"
Row = tuple[int, int, int, int, int, int, int]
_NAMES_AT_ONCE = 64


def damage_among(
    index: Index, rows: list[Row], low: int, high: int, size: int, newest_first: bool = False
) -> Damage | None:
    """Return the first damage in the range of a page, whatever the filter: a lost event might have matched."""
    if len(rows) == size:
        low, high = (rows[-1][0] - 1, high) if newest_first else (low, rows[-1][0])
    return index.damage(low, high, newest_first=newest_first)


def wanted_rows(index: Index, query: Query, low: int, high: int, size: int, newest_first: bool) -> list[Row]:
    plan = _plan(index, query)
    if plan is None:
        return []
    conditions, values, column, ids = plan
    order = "DESC" if newest_first else "ASC"
    shared = f"position > ? AND position <= ?{conditions}"
    tail = f"ORDER BY position {order} LIMIT ?"
    source = f"SELECT {COLUMNS} FROM events WHERE "
    bounds = (low, high, *values)
    if not column:
        return index.fetch(f"{source}{shared} {tail}", (*bounds, size))
    if len(ids) == 1:
        return index.fetch(f"{source}{column} = ? AND {shared} {tail}", (ids[0], *bounds, size))
    if len(ids) > _NAMES_AT_ONCE:
        many = f"+{column} IN (SELECT value FROM json_each(?))"
        return index.fetch(f"{source}{many} AND {shared} {tail}", (json.dumps(ids), *bounds, size))
    # One search of the SQL index per name: each result is in order and no longer than a page.
    parts = [f"SELECT * FROM (SELECT events.* FROM events WHERE {column} = ? AND {shared} {tail})"] * len(ids)
    each: list[Any] = [value for number in ids for value in (number, *bounds, size)]
    united = " UNION ALL ".join(parts)
    return index.fetch(f"SELECT {COLUMNS} FROM ({united}) AS events {tail}", (*each, size))


def wanted_row(index: Index, position: int) -> Row | None:
    """Return the row of one position."""
    found = index.fetch(f"SELECT {COLUMNS} FROM events WHERE position = ?", (position,))
    return found[0] if found else None


def _plan(index: Index, query: Query) -> tuple[str, list[Any], str, list[int]] | None:
    """Return conditions, their values, and the column to search with its numbers; None if nothing can match."""
    conditions, column = "", ""
    values: list[Any] = []
    ids: list[int] = []
    for name, found in (
        ("stream", index.name_ids(STREAM, [query.stream]) if query.stream else None),
        ("type", index.name_ids(TYPE, sorted(query.types)) if query.types else None),
        ("scope", _below(index, SCOPE, query.scope) if query.scope else None),
        ("stream", _below(index, STREAM, query.kind) if query.kind else None),
    ):
        if found is None:
            continue
        if not found:
            return None
        if not column:
            column, ids = name, found
        else:
            conditions += f" AND +{name} IN (SELECT value FROM json_each(?))"
            values.append(json.dumps(found))
    if query.since is not None:
        conditions += " AND received_us >= ?"
        values.append(microseconds(query.since))
    if query.until is not None:
        conditions += " AND received_us < ?"
        values.append(microseconds(query.until))
    return conditions, values, column, ids


def _below(index: Index, family: int, prefix: str) -> list[int]:
    """Return the names that are equal to or below this one. "0" is the character after "/"."""
    rows = index.fetch(
        "SELECT name_id FROM names WHERE family = ? AND (name = ? OR (name >= ? AND name < ?))",
        (family, prefix, prefix + "/", prefix + "0"),
    )
    return [row[0] for row in rows]

"""What each table in SQL reads, and the order in which they are computed. All of it is known before Spark starts.

events, quarantine          as they are called
silver.shop_order_placed    silver/shop.order.placed; silver.`shop.order.placed` is the same
gold.streams, letters.x     of a view
revenue, answers.revenue    another table in SQL, or one that the log fills: refusals, views
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from everlog.core.text import did_you_mean
from everlog.pipeline.lake.lake import ANSWERS, BUCKETS, SILVER
from everlog.pipeline.sql.definition import Definition, statements_of
from everlog.pipeline.sql.statement import Reference, Statement, refused

_PLAIN = re.compile(r"[^a-z0-9_]")


def sql_name(table: str) -> str:
    """Return how SQL names a table of the lake: `silver/shop.order.placed` is `silver.shop_order_placed`."""
    kind, slash, name = table.partition("/")
    if not slash:
        return kind
    return _plain(name) if kind == ANSWERS else f"{kind}.{_plain(name)}"


class Names:
    """The tables that SQL can name."""

    def __init__(self, tables: Iterable[str]) -> None:
        self._tables = {table for table in tables if table != BUCKETS}
        self._by_name: dict[str, list[str]] = {}
        for table in sorted(self._tables):
            self._by_name.setdefault(sql_name(table), []).append(table)

    def find(self, one: Reference, statement: Statement) -> str:
        """Return the table of the lake that a name means."""
        parts = one.parts[1:] if one.parts[0].lower() == ANSWERS and len(one.parts) == 2 else one.parts
        exact = f"{ANSWERS}/{parts[0]}" if len(parts) == 1 else "/".join(parts)
        for table in (exact, "/".join(parts)):
            if table in self._tables:
                return table
        found = self._by_name.get(".".join([*map(str.lower, parts[:-1]), _plain(parts[-1])]), [])
        if len(found) == 1:
            return found[0]
        if found:
            kind, _, name = found[0].partition("/")
            raise statement.refused(
                f"{one.name} names several tables",
                why="these are " + " and ".join(table.partition("/")[2] for table in found),
                hint=f"write {kind}.`{name}`",
                line=one.line,
            )
        raise statement.refused(
            f"there is no table {one.name}",
            why="" if self._tables else "the lake has no tables yet",
            hint=did_you_mean(one.name, self._by_name) or "SQL can read " + ", ".join(sorted(self._by_name)),
            line=one.line,
        )


class Plan:
    """The tables in SQL in the order in which they are computed, and what each of them reads."""

    def __init__(self, definitions: Mapping[str, Definition], tables: Collection[str]) -> None:
        """`tables` are those of the lake that are no tables in SQL; types of events may have none yet."""
        self._names = Names([*tables, *(made.table for made in definitions.values())])
        self.reads = {name: self._reads(made) for name, made in definitions.items()}
        by_table = {made.table: made for made in definitions.values()}
        graph = {
            name: [
                by_table[table].name for table in reads.values() if table in by_table and table != f"{ANSWERS}/{name}"
            ]
            for name, reads in self.reads.items()
        }
        for name, made in definitions.items():
            if any(self.reads[name][one.name] == made.table for one in made.statement.references):
                graph[name].append(name)
        try:
            self.ordered: Sequence[Definition] = [
                definitions[name] for name in TopologicalSorter(graph).static_order()
            ]
        except CycleError as error:
            around: list[str] = list(reversed(error.args[1]))
            made = definitions[around[0]]
            raise refused(
                made.source,
                "it reads itself" if len(around) == 2 else "it reads itself through other tables",
                why=", ".join(f"{one} reads {other}" for one, other in pairwise(around)),
                hint="take one of these names out",
            ) from error

    def _reads(self, made: Definition) -> dict[str, str]:
        """Return the table of the lake for each name in the statements of a definition."""
        found = {}
        for statement in statements_of(made):
            for one in statement.references:
                if made.ours and one.parts[0] == SILVER and len(one.parts) == 2:
                    found[one.name] = self._type_of_ours(one, statement)
                else:
                    found[one.name] = self._names.find(one, statement)
        return found

    def _type_of_ours(self, one: Reference, statement: Statement) -> str:
        """Our own tables read types that a log may not have: then there are no such events."""
        from everlog.errors import SqlRefused

        try:
            return self._names.find(one, statement)
        except SqlRefused:
            return f"{SILVER}/{one.parts[1]}"


def _plain(name: str) -> str:
    return _PLAIN.sub("_", name.lower())

"""One SELECT in the dialect of Spark: read and judged here, so that a mistake costs no start of Spark.

The text that is run is the one that was written: only the names of tables in it are replaced, where they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from everlog.errors import SqlRefused

if TYPE_CHECKING:
    from sqlglot import exp

DIALECT = "spark"
_ROW_FUNCTIONS = frozenset({"explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "range", "stack"})
_REACH_OUTSIDE = frozenset({"reflect", "java_method", "try_reflect"})
_BY_CHANCE = frozenset(
    {
        "rand",
        "randn",
        "random",
        "uuid",
        "shuffle",
        "now",
        "current_timestamp",
        "current_date",
        "current_time",
        "curdate",
    }
    | {"localtimestamp", "unix_timestamp", "monotonically_increasing_id", "current_user", "input_file_name"}
)


class Reference(NamedTuple):
    """A table that a statement names: `events`, or `silver.shop_order_placed`; and where the name stands."""

    parts: tuple[str, ...]
    start: int
    end: int
    line: int
    aliased: bool

    @property
    def name(self) -> str:
        return ".".join(self.parts)


class Statement:
    """A SELECT that was found to be one, from a file or a command line."""

    def __init__(self, text: str, tree: exp.Query, source: str, first_line: int) -> None:
        self.text = text
        self.tree = tree
        self.source = source
        self._first_line = first_line

    @cached_property
    def references(self) -> list[Reference]:
        """The tables of the lake that it names, in the order of the text."""
        from sqlglot import exp

        return sorted(map(self._reference, outside(self.tree.find_all(exp.Table))), key=lambda r: r.start)

    @property
    def columns(self) -> list[str] | None:
        """The names of the result's columns; empty where one has none; None if they depend on the tables (`*`)."""
        found: list[str] = self.tree.named_selects
        return None if self.tree.is_star else found

    def with_names(self, name_of: Callable[[Reference], str]) -> str:
        """Return the text with other names of tables; a column may still name the table by its last part."""
        text = self.text
        for one in reversed(self.references):
            alias = "" if one.aliased else f" AS `{one.parts[-1]}`"
            text = f"{text[: one.start]}{name_of(one)}{alias}{text[one.end :]}"
        return text

    def refused(self, what: str, *, why: str = "", hint: str = "", line: int = 1) -> SqlRefused:
        """Return the error for something in this text; `line` counts in it."""
        return refused(self.source, what, why=why, hint=hint, line=self._first_line + line - 1)

    def _reference(self, table: exp.Table) -> Reference:
        parts = table.parts
        first, last = parts[0].meta, parts[-1].meta
        return Reference(
            tuple(part.name for part in parts), first["start"], last["end"] + 1, first["line"], bool(table.alias)
        )


def refused(source: str, what: str, *, why: str = "", hint: str = "", line: int = 0) -> SqlRefused:
    place = f"{source}, line {line}" if line else source
    return SqlRefused(f"{place}: {what}", why=why, hint=hint, file=source, line=line)


def read_statement(text: str, source: str, *, first_line: int = 1, repeatable: bool = True) -> Statement:
    """Return the SELECT that a text is. With `repeatable`, its rows must follow from the tables alone."""
    import sqlglot
    from sqlglot import exp

    try:
        last = sqlglot.tokenize(text, dialect=DIALECT)[-1:]
        if last and last[0].token_type is sqlglot.TokenType.SEMICOLON:
            text = text[: last[0].start]
        found = [tree for tree in sqlglot.parse(text, dialect=DIALECT) if tree is not None]
    except sqlglot.errors.ParseError as error:
        first = error.errors[0] if error.errors else {}
        near = f"near {first['highlight']!r}" if first.get("highlight") else "at its end"
        line = first_line + (first.get("line") or 1) - 1
        raise refused(
            source, f"this is not a SELECT: {near}", why=str(first.get("description", error)), line=line
        ) from error
    except sqlglot.errors.SqlglotError as error:
        raise refused(source, "this is not a SELECT", why=str(error).partition("\n")[0]) from error
    if not found:
        raise refused(source, "there is no SELECT in it", hint="write one SELECT", line=first_line)
    if len(found) > 1:
        raise refused(
            source,
            "it has more than one statement",
            why=f"{len(found)} are separated by semicolons",
            hint="write one SELECT; several steps are several tables, or a WITH",
            line=first_line + text[: text.index(";")].count("\n"),
        )
    tree = found[0]
    statement = Statement(text, tree, source, first_line)  # type: ignore[arg-type]
    writes = tree.find(exp.DML, exp.Into, exp.Create, exp.Drop, exp.Command)
    if not isinstance(tree, exp.Query) or writes is not None:
        word = (writes or tree).key.upper()
        raise statement.refused(
            f"only a SELECT is allowed, not {word}",
            why="tables of the lake follow from the log, and nothing else may change them",
            hint="write one SELECT; its rows are the table",
        )
    _require_harmless(statement, repeatable)
    return statement


def _require_harmless(statement: Statement, repeatable: bool) -> None:
    from sqlglot import exp

    if statement.tree.find(exp.QueryTransform) is not None:
        raise statement.refused("TRANSFORM runs a program", hint="write it without one")
    for table in statement.tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) and _word(table.this) not in _ROW_FUNCTIONS:
            raise statement.refused(
                f"{_word(table.this)}() cannot be read", why="only tables of the lake can", hint="name one of them"
            )
    for function in statement.tree.find_all(exp.Func):
        word = _word(function)
        if word in _REACH_OUTSIDE:
            raise statement.refused(f"{word}() runs other code", hint="write it without that")
        if repeatable and word in _BY_CHANCE:
            raise statement.refused(
                f"{word}() gives another value each time",
                why="a table follows from the log alone, so that it can be derived again",
                hint="use a column, such as occurred_at",
            )


def _word(node: exp.Expr) -> str:
    from sqlglot import exp

    name = node.name if isinstance(node, exp.Anonymous) else getattr(node, "sql_name", lambda: node.key)()
    return str(name).lower()


def outside(tables: Iterator[exp.Table]) -> Iterator[exp.Table]:
    """Yield those that a WITH around them does not define."""
    from sqlglot import exp

    for table in tables:
        if not isinstance(table.this, exp.Identifier):
            continue
        if len(table.parts) > 1 or not _defined(table):
            yield table


def _defined(table: exp.Table) -> bool:
    from sqlglot import exp

    inside: exp.Expr = table
    while (outer := inside.parent) is not None:
        named = outer.args.get("with_") if not isinstance(outer, exp.With) else None
        others = named.expressions if named is not None and named is not inside else ()
        if any(cte.alias.lower() == table.name.lower() for cte in others):
            return True
        if isinstance(
            outer, exp.With
        ):  # in a definition: those before it are known, and it itself if it is recursive
            for cte in outer.expressions:
                if cte is inside and not outer.recursive:
                    break
                if cte.alias.lower() == table.name.lower():
                    return True
                if cte is inside:
                    break
        inside = outer
    return False

"""What Spark and DuckDB compute alike: the type of every expression for which that is known.

An expression that has no rule here is left to Spark. So the rules are the list of what this process computes itself;
a test computes each of them by both engines.

    bool int bigint double string date timestamp array<string>     types of columns
    null decimal struct                                            only inside expressions
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from everlog.pipeline.engines.needs import NeedsSpark

if TYPE_CHECKING:
    from sqlglot import exp

_WHOLE, _NUMBERS = ("int", "bigint"), ("int", "bigint", "decimal", "double")
_TIMES = ("date", "timestamp")
_INT_MAX = 2**31 - 1
_DATE, _TIME = re.compile(r"\d{4}-\d\d-\d\d"), re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?")
_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_SELECT = frozenset(
    {"with_", "kind", "expressions", "distinct", "from_", "laterals", "joins", "where", "group", "having", "order"}
    | {"limit", "operation_modifiers"}
)

_TABLE = frozenset({"this", "db", "catalog", "alias"})

Columns = Mapping[str, Mapping[str, str]]
"""The types of the columns of each source of a SELECT."""


def kinds_of(tree: exp.Query, tables: Columns) -> list[str]:
    """Return the types of the columns of a query whose names are qualified. `NeedsSpark` if one is not known."""
    from sqlglot import exp
    from sqlglot.optimizer.scope import traverse_scope

    made: dict[int, list[str]] = {}
    for scope in traverse_scope(tree):
        query = scope.expression
        if isinstance(query, exp.Lateral):
            continue
        if isinstance(query, exp.SetOperation):
            sides = [made[id(side)] for side in (_inner(query.left), _inner(query.right))]
            if len(sides[0]) != len(sides[1]):
                raise NeedsSpark("a UNION of different columns")
            made[id(query)] = [_common(pair) for pair in zip(*sides, strict=True)]
            continue
        if not isinstance(query, exp.Select):
            raise _left(query)
        sources: dict[str, Mapping[str, str]] = {}
        for name, source in scope.sources.items():
            if isinstance(source, exp.Table):
                if odd := {part for part, value in source.args.items() if value} - _TABLE:
                    raise NeedsSpark("of a part of it: " + ", ".join(sorted(odd)))
                sources[name] = tables[source.name]
            elif not isinstance(source.expression, exp.Lateral):
                inner: Any = source.expression
                sources[name] = dict(zip(inner.named_selects, made[id(inner)], strict=True))
        made[id(query)] = _Select(query, sources).kinds()
    return made[id(tree)]


def _inner(query: exp.Expr) -> exp.Expr:
    from sqlglot import exp

    while isinstance(query, exp.Subquery):
        query = query.this
    return query


class _Select:
    """One SELECT: the types of its columns, after all of its parts were looked at."""

    def __init__(self, query: exp.Select, sources: dict[str, Mapping[str, str]]) -> None:
        self._query, self._sources = query, sources

    def kinds(self) -> list[str]:
        from sqlglot import exp

        given = {name for name, value in self._query.args.items() if value}
        if given - _SELECT or (self._query.args.get("distinct") and self._query.args["distinct"].args.get("on")):
            raise NeedsSpark("of a part of it: " + ", ".join(sorted(given - _SELECT)))
        for join in self._query.args.get("joins") or ():
            if {name for name, value in join.args.items() if value} - {"this", "on", "side", "kind"}:
                raise _left(join)
            if (join.side or "") not in ("", "LEFT", "RIGHT", "FULL") or (join.kind or "") not in (
                "",
                "INNER",
                "CROSS",
                "OUTER",
            ):
                raise _left(join)
            if join.args.get("on"):
                self.of(join.args["on"])
        for lateral in self._query.args.get("laterals") or ():
            self._lateral(lateral)
        for part in ("where", "having"):
            if self._query.args.get(part):
                self.of(self._query.args[part].this)
        group = self._query.args.get("group")
        if group:
            if {name for name, value in group.args.items() if value} - {"expressions"}:
                raise _left(group)
            for one in group.expressions:
                if self.of(one) == "double":
                    raise NeedsSpark("it groups by numbers that are not whole")
        named = self._query.named_selects
        for one in self._query.args["order"].expressions if self._query.args.get("order") else ():
            if not (isinstance(one.this, exp.Column) and not one.this.table and one.this.name in named):
                self.of(one.this)
        found = [self.of(one) for one in self._query.expressions]
        if odd := [kind for kind in found if kind in ("null", "decimal", "struct", "interval")]:
            raise NeedsSpark(f"a column is of the type {odd[0]}")
        if self._query.args.get("limit") and not isinstance(self._query.args["limit"].expression, exp.Literal):
            raise _left(self._query.args["limit"])
        return found

    def _lateral(self, lateral: exp.Lateral) -> None:
        from sqlglot import exp

        if not isinstance(lateral.this, exp.Explode) or lateral.args.get("outer"):
            raise _left(lateral)
        alias = lateral.args["alias"]
        self._sources[alias.name] = {column.name: self.of(lateral.this) for column in alias.columns}

    def of(self, node: exp.Expr) -> str:
        rule = rules().get(type(node))
        if rule is None:
            raise _left(node)
        kind: str = rule(self, node)
        return kind

    def column(self, node: exp.Column) -> str:
        kind = self._sources.get(node.table, {}).get(node.name, "")
        if not kind:
            raise NeedsSpark(f"the column {node.name} is of another type")
        return kind


def _left(node: exp.Expr) -> NeedsSpark:
    word = node.name if node.key == "anonymous" else node.key
    return NeedsSpark(f"it uses {str(word).upper()}")


def _common(kinds: Sequence[str]) -> str:
    """Return the one type of several values, as Spark widens numbers."""
    found = [kind for kind in dict.fromkeys(kinds) if kind != "null"]
    if len(found) <= 1:
        return found[0] if found else "null"
    if all(kind in _NUMBERS for kind in found) and not ("decimal" in found and "double" not in found):
        return max(found, key=_NUMBERS.index)
    raise NeedsSpark("it mixes values of the types " + " and ".join(found))


def rules() -> Mapping[type, Callable[..., str]]:
    """Return the rule for each kind of expression."""
    global _made
    if not _made:
        _made = _make_rules()
    return _made


_made: Mapping[type, Callable[..., str]] = {}


def _make_rules() -> Mapping[type, Callable[..., str]]:
    from sqlglot import exp

    def literal(select: _Select, node: exp.Literal) -> str:
        if node.is_string:
            return "string"
        if node.is_int:
            return "int" if int(node.name) <= _INT_MAX else "bigint"
        return "double" if "e" in node.name.lower() else "decimal"

    def same(select: _Select, node: exp.Expr) -> str:
        return select.of(node.this)

    def arithmetic(select: _Select, node: exp.Binary) -> str:
        kinds = (select.of(node.left), select.of(node.right))
        if not all(kind in (*_NUMBERS, "null") for kind in kinds):
            raise _left(node)
        return _common(kinds)

    def divided(select: _Select, node: exp.Div) -> str:
        arithmetic(select, node)
        by = node.right.unnest()
        if not (
            (isinstance(by, exp.Literal) and float(by.name))
            or (isinstance(by, exp.Cast) and isinstance(by.this, exp.Literal) and float(by.this.name))
            or isinstance(by, exp.Nullif | exp.Count)
        ):
            raise NeedsSpark("it divides by what may be 0; write NULLIF(…, 0)")
        if "decimal" in (select.of(node.left), select.of(node.right)) and "double" not in (
            select.of(node.left),
            select.of(node.right),
        ):
            raise NeedsSpark("it divides by a decimal number; write it like 1e3")
        return "double"

    def compared(select: _Select, node: exp.Binary) -> str:
        if _common([select.of(node.left), select.of(node.right)]) in ("struct", "array<string>"):
            raise _left(node)
        return "bool"

    def truths(select: _Select, node: exp.Binary) -> str:
        for part in (node.left, node.right):
            if select.of(part) not in ("bool", "null"):
                raise _left(node)
        return "bool"

    def negated(select: _Select, node: exp.Not) -> str:
        if select.of(node.this) not in ("bool", "null"):
            raise _left(node)
        return "bool"

    def is_(select: _Select, node: exp.Is) -> str:
        select.of(node.this)
        if not isinstance(node.expression, exp.Null | exp.Boolean):
            raise _left(node)
        return "bool"

    def within(select: _Select, node: exp.In) -> str:
        if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
            raise _left(node)
        _common([select.of(node.this), *map(select.of, node.expressions)])
        return "bool"

    def between(select: _Select, node: exp.Between) -> str:
        _common([select.of(part) for part in (node.this, node.args["low"], node.args["high"])])
        return "bool"

    def like(select: _Select, node: exp.Like) -> str:
        pattern = node.expression
        if select.of(node.this) != "string" or not isinstance(pattern, exp.Literal) or "\\" in pattern.name:
            raise _left(node)
        return "bool"

    def cases(select: _Select, node: exp.Case) -> str:
        if node.this is not None:
            raise _left(node)
        for one in node.args["ifs"]:
            if select.of(one.this) not in ("bool", "null"):
                raise _left(node)
        rest = node.args.get("default")
        return _common(
            [select.of(one.args["true"]) for one in node.args["ifs"]] + [select.of(rest) if rest else "null"]
        )

    def if_(select: _Select, node: exp.If) -> str:
        if select.of(node.this) not in ("bool", "null"):
            raise _left(node)
        rest = node.args.get("false")
        return _common([select.of(node.args["true"]), select.of(rest) if rest else "null"])

    def any_of(select: _Select, node: exp.Expr) -> str:
        return _common([select.of(one) for one in (node.this, *node.expressions)])

    def nullif(select: _Select, node: exp.Nullif) -> str:
        _common([select.of(node.this), select.of(node.expression)])
        return select.of(node.this)

    def count(select: _Select, node: exp.Count) -> str:
        what = node.this
        if isinstance(what, exp.Distinct):
            if len(what.expressions) != 1:
                raise _left(node)
            what = what.expressions[0]
        if not isinstance(what, exp.Star):
            select.of(what)
        if node.expressions:
            raise _left(node)
        return "bigint"

    def total(select: _Select, node: exp.Sum) -> str:
        kind = select.of(node.this)
        if kind not in _WHOLE:
            raise NeedsSpark(f"it adds up values of the type {kind}")
        return "bigint"

    def extreme(select: _Select, node: exp.Expr) -> str:
        kind = select.of(node.this)
        if kind not in (*_WHOLE, "string", *_TIMES) or node.expressions:
            raise NeedsSpark(f"it takes the {node.key} of the type {kind}")
        return kind

    def chosen(select: _Select, node: exp.Expr) -> str:
        select.of(node.expression)
        if node.args.get("count"):
            raise _left(node)
        return select.of(node.this)

    def percentile(select: _Select, node: exp.Quantile) -> str:
        if select.of(node.this) not in (*_WHOLE, "double") or not isinstance(node.args["quantile"], exp.Literal):
            raise _left(node)
        return "double"

    def struct(select: _Select, node: exp.Struct) -> str:
        for one in node.expressions:
            select.of(one.expression if isinstance(one, exp.PropertyEQ) else one)
        return "struct"

    def filtered(select: _Select, node: exp.Filter) -> str:
        select.of(node.expression.this)
        return select.of(node.this)

    def window(select: _Select, node: exp.Window) -> str:
        frame = node.args.get("spec")
        if frame is not None and (frame.args.get("kind") or "").upper() != "ROWS":
            raise _left(node)
        if node.args.get("alias") or (node.args.get("first") is not None and node.args.get("over") != "OVER"):
            raise _left(node)
        for one in node.args.get("partition_by") or ():
            select.of(one)
        for one in node.args["order"].expressions if node.args.get("order") else ():
            select.of(one.this)
        return select.of(node.this)

    def neighbour(select: _Select, node: exp.Lag | exp.Lead) -> str:
        if node.args.get("default") or not isinstance(node.args.get("offset") or exp.Literal.number(1), exp.Literal):
            raise _left(node)
        return select.of(node.this)

    def rounded(select: _Select, node: exp.Round) -> str:
        places = node.args.get("decimals")
        if select.of(node.this) != "double" or not isinstance(places, exp.Literal) or int(places.name) > 12:
            raise NeedsSpark("it rounds what is not a double, or not to a number of places")
        return "double"

    def a_number(select: _Select, node: exp.Expr) -> str:
        kind = select.of(node.this)
        if kind not in (*_WHOLE, "double"):
            raise _left(node)
        return kind

    def texts(result: str, *parts: str) -> Callable[[_Select, exp.Expr], str]:
        def rule(select: _Select, node: exp.Expr) -> str:
            given = {name for name, value in node.args.items() if isinstance(value, exp.Expr)}
            if given - set(parts):
                raise _left(node)
            for name in given:
                if select.of(node.args[name]) != "string":
                    raise _left(node)
            return result

        return rule

    def joined(select: _Select, node: exp.Expr) -> str:
        parts = node.expressions if isinstance(node, exp.Concat) else [node.left, node.right]  # type: ignore[attr-defined]
        if any(select.of(one) != "string" for one in parts):
            raise _left(node)
        return "string"

    def part(select: _Select, node: exp.Expr) -> str:
        """The first or the last part of a text: `split_part` and `substring_index` differ in the others."""
        index = node.args.get("part_index") or node.args.get("count")
        if select.of(node.this) != "string" or index is None or index.sql() not in ("1", "-1"):
            raise _left(node)
        return "string"

    def day(select: _Select, node: exp.Expr) -> str:
        if select.of(node.this) not in _TIMES or node.args.get("format"):
            raise _left(node)
        return "date"

    def truncated(select: _Select, node: exp.Expr) -> str:
        unit = node.args.get("unit")
        if select.of(node.this) != "timestamp" or unit is None or unit.name.upper() not in _UNITS:
            raise _left(node)
        return "timestamp"

    def part_of_time(select: _Select, node: exp.Expr) -> str:
        if select.of(node.this) not in _TIMES:
            raise _left(node)
        return "int"

    def micros(select: _Select, node: exp.UnixMicros) -> str:
        if select.of(node.this) != "timestamp":
            raise _left(node)
        return "bigint"

    def days_between(select: _Select, node: exp.DateDiff) -> str:
        if node.args.get("unit") is not None and node.args["unit"].name.upper() != "DAY":
            raise _left(node)
        if select.of(node.this) != "date" or select.of(node.expression) != "date":
            raise _left(node)
        return "int"

    def converted(select: _Select, node: exp.Cast) -> str:
        to: str = node.args["to"].sql("spark").lower()
        given = node.this
        kind = select.of(given)
        if isinstance(given, exp.Literal):
            if given.is_string and to == "date" and _DATE.fullmatch(given.name):
                return "date"
            if given.is_string and to == "timestamp" and _TIME.fullmatch(given.name):
                return "timestamp"
            if not given.is_string and to == "double":
                return "double"
        if kind == to or (kind, to) in (
            ("int", "bigint"),
            ("int", "double"),
            ("bigint", "double"),
            ("int", "string"),
            ("bigint", "string"),
            ("timestamp", "date"),
        ):
            return to
        raise NeedsSpark(f"it casts a value of the type {kind} to {to}")

    def days(select: _Select, node: exp.Explode) -> str:
        between = node.this
        if (
            not isinstance(between, exp.GenerateSeries)
            or between.args.get("step")
            or [select.of(between.args[end]) for end in ("start", "end")] != ["date", "date"]
        ):
            raise _left(node)
        return "date"

    def has(select: _Select, node: exp.ArrayContains) -> str:
        if select.of(node.this) != "array<string>" or select.of(node.expression) != "string":
            raise _left(node)
        return "bool"

    def size(select: _Select, node: exp.ArraySize) -> str:
        if select.of(node.this) != "array<string>":
            raise _left(node)
        return "int"

    def named(select: _Select, node: exp.Anonymous) -> str:
        if node.name.lower() != "octet_length" or select.of(node.expressions[0]) != "string":
            raise _left(node)
        return "int"

    def fixed(kind: str) -> Callable[[_Select, exp.Expr], str]:
        return lambda select, node: kind

    return {
        exp.Literal: literal,
        exp.Boolean: fixed("bool"),
        exp.Null: fixed("null"),
        exp.Column: lambda select, node: select.column(node),
        **dict.fromkeys((exp.Alias, exp.Paren), same),
        exp.Neg: a_number,
        exp.Abs: a_number,
        **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), arithmetic),
        exp.Div: divided,
        **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ), compared),
        **dict.fromkeys((exp.And, exp.Or), truths),
        exp.Not: negated,
        exp.Is: is_,
        exp.In: within,
        exp.Between: between,
        exp.Like: like,
        exp.Case: cases,
        exp.If: if_,
        **dict.fromkeys((exp.Coalesce, exp.Greatest, exp.Least), any_of),
        exp.Nullif: nullif,
        exp.Count: count,
        exp.CountIf: lambda select, node: "bigint" if select.of(node.this) == "bool" else _common(["bool", "date"]),
        exp.Sum: total,
        **dict.fromkeys((exp.Max, exp.Min), extreme),
        **dict.fromkeys((exp.ArgMax, exp.ArgMin), chosen),
        exp.Quantile: percentile,
        exp.Struct: struct,
        exp.Filter: filtered,
        exp.Window: window,
        **dict.fromkeys((exp.RowNumber, exp.Rank, exp.DenseRank), fixed("int")),
        **dict.fromkeys((exp.Lag, exp.Lead), neighbour),
        exp.Round: rounded,
        exp.StartsWith: texts("bool", "this", "expression"),
        exp.EndsWith: texts("bool", "this", "expression"),
        exp.StrPosition: texts("int", "this", "substr"),
        exp.Length: texts("int", "this"),
        **dict.fromkeys((exp.Concat, exp.DPipe), joined),
        **dict.fromkeys((exp.SplitPart, exp.SubstringIndex), part),
        exp.TsOrDsToDate: day,
        exp.TimestampTrunc: truncated,
        **dict.fromkeys((exp.Year, exp.Month, exp.Quarter), part_of_time),
        exp.UnixMicros: micros,
        exp.DateDiff: days_between,
        **dict.fromkeys((exp.Cast, exp.TryCast), converted),
        exp.Explode: days,
        exp.Anonymous: named,
        exp.ArrayContains: has,
        exp.ArraySize: size,
    }

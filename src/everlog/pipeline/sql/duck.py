"""A query computed by this process, with DuckDB: only what has the same result there as in Spark (`kinds`).

Times have no zone inside: they are UTC, and DuckDB knows nothing of zones without an extension.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from everlog.core.text import did_you_mean
from everlog.pipeline.engines.needs import NeedsSpark
from everlog.pipeline.lake.data_file import opened
from everlog.pipeline.sql.kinds import kinds_of
from everlog.pipeline.sql.query import Input, Query
from everlog.pipeline.sql.statement import DIALECT, Statement, outside

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType
    from sqlglot import exp

_INSTANT, _MOMENT = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_ARROW = {
    "bool": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": _INSTANT,
    "array<string>": pa.list_(pa.string()),
}
_SPARK = {
    "boolean": "bool",
    "integer": "int",
    "long": "bigint",
    "double": "double",
    "string": "string",
    "date": "date",
    "timestamp": "timestamp",
}


_UNRESOLVED = re.compile(r"Column '([^']+)' could not be resolved\. Line: (\d+)")
NOTHING: Mapping[str, pa.Table] = MappingProxyType({})


class Plan:
    """A statement that was found to have the same result here. `columns` are those that it reads of each table."""

    def __init__(self, statement: Statement, schemas: Mapping[str, StructType]) -> None:
        from sqlglot import exp
        from sqlglot.errors import SqlglotError
        from sqlglot.optimizer.qualify import qualify

        tree = statement.tree.copy()
        names = {name: f"t{number}" for number, name in enumerate(schemas)}
        for table, one in zip(_tables(tree), statement.references, strict=True):
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(one.parts[-1])))
            table.set("this", exp.to_identifier(names[one.name]))
            table.set("db", None)
            table.set("catalog", None)
        known = {
            names[name]: {field.name.lower(): _kind(field.dataType) for field in schema}
            for name, schema in schemas.items()
        }
        typed = {
            table: {name: kind or "binary" for name, kind in columns.items()} for table, columns in known.items()
        }
        wanted = statement.columns
        try:
            tree = qualify(tree, schema=typed, dialect=DIALECT)  # type: ignore[arg-type]
        except SqlglotError as error:
            _require_column(statement, str(error), {name for columns in known.values() for name in columns})
            raise NeedsSpark(str(error).partition("\n")[0]) from error
        self.kinds = kinds_of(tree, known)
        spelled = {field.name.lower(): field.name for schema in schemas.values() for field in schema}
        self.names = wanted or [spelled.get(name, name) for name in tree.named_selects]
        self.columns = {
            name: [field.name for field in schemas[name] if field.name.lower() in _read(tree, table)]
            or schemas[name].names[:1]  # for their number
            for name, table in names.items()
        }
        self._tables = names
        for node in reversed(list(tree.walk(bfs=False))):  # what is inside comes first
            node.replace(_for_duckdb(node))
        self.text = tree.sql("duckdb")

    def run(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Compute the rows from those of the tables, which have the columns that it reads."""
        import duckdb

        with duckdb.connect(config={"enable_external_access": "false", "threads": "2"}) as connection:
            for name, rows in tables.items():
                connection.register(self._tables[name], _without_zones(rows))
            try:
                found = connection.sql(self.text).to_arrow_table()
            except duckdb.Error as error:
                raise NeedsSpark(f"DuckDB does not compute it: {str(error).partition(chr(10))[0]}") from error
        columns = [
            column.cast(_MOMENT).cast(_INSTANT) if kind == "timestamp" else column.cast(_ARROW[kind])
            for column, kind in zip(found.columns, self.kinds, strict=True)
        ]
        return pa.table(columns, names=self.names)


def look(query: Query, *, bytes_max: int, held: Mapping[str, pa.Table] = NOTHING) -> pa.Table:
    """Compute a query. `held` are the rows of tables that the caller has in memory."""
    plan = Plan(query.statement, {name: given.schema for name, given in query.inputs.items()})
    return plan.run(
        {
            name: held[name].select(columns)
            if name in held
            else read(query.inputs[name], columns, bytes_max=bytes_max)
            for name, columns in plan.columns.items()
        }
    )


def read(given: Input, columns: Sequence[str], *, bytes_max: int) -> pa.Table:
    """Return some columns of the rows of an input. `NeedsSpark` if they do not fit into so much memory."""
    schema = to_arrow_schema(given.schema, timezone="UTC")
    wanted = pa.schema([schema.field(name) for name in columns])
    needed = [*columns, *(["position"] if given.after and "position" not in columns else [])]
    batches, held_bytes = [wanted.empty_table()], 0
    for file in given.files:
        for batch in opened(given.table.path / file.path, table=given.table.name).iter_batches(columns=needed):
            rows = pa.Table.from_batches([batch])
            if given.after:
                rows = rows.filter(pc.greater(rows.column("position"), given.after))
            batches.append(rows.select(columns).cast(wanted))
            held_bytes += rows.nbytes
            if held_bytes > bytes_max:
                raise NeedsSpark(f"the rows of {given.table.name} take more than {bytes_max // 1024**2} MB of memory")
    return pa.concat_tables(batches)


def _require_column(statement: Statement, message: str, known: Collection[str]) -> None:
    """Refuse a column that is in no table and that the statement does not name itself."""
    from sqlglot import exp

    found = _UNRESOLVED.match(message)
    own = {
        one.name.lower() for one in statement.tree.find_all(exp.Identifier) if not isinstance(one.parent, exp.Column)
    }
    if found is not None and found[1].lower() not in {*known, *own}:
        raise statement.refused(
            f"there is no column {found[1]}",
            hint=did_you_mean(found[1], known) or "the tables have " + ", ".join(sorted(known)),
            line=int(found[2]),
        )


def _tables(tree: exp.Query) -> list[exp.Table]:
    """Return the tables of the lake in a tree, in the order of the references to them."""
    from sqlglot import exp

    return sorted(outside(tree.find_all(exp.Table)), key=lambda table: table.parts[0].meta["start"])


def _read(tree: exp.Query, table: str) -> set[str]:
    """Return the columns that a tree reads of one table."""
    from sqlglot import exp
    from sqlglot.optimizer.scope import traverse_scope

    found: set[str] = set()
    for scope in traverse_scope(tree):
        names = {
            name for name, source in scope.sources.items() if isinstance(source, exp.Table) and source.name == table
        }
        found |= {column.name for column in scope.columns if column.table in names}
    return found


def _kind(given: DataType) -> str:
    name = given.typeName()
    if name == "array":
        return "array<string>" if given.elementType.typeName() == "string" else ""  # type: ignore[attr-defined]
    return _SPARK.get(name, "")


def _without_zones(rows: pa.Table) -> pa.Table:
    fields = [field.with_type(_MOMENT) if field.type == _INSTANT else field for field in rows.schema]
    return rows.cast(pa.schema(fields))


def _for_duckdb(node: exp.Expr) -> exp.Expr:
    """Write what DuckDB computes differently under the same name in another way."""
    from sqlglot import exp

    if isinstance(node, exp.Round):
        # Spark rounds the number as it is written; DuckDB its binary value, in which 0.285 is less than that.
        text = f"CAST(CAST(x AS TEXT) AS DECIMAL(38, 20)), {node.args['decimals'].name}"
        return _put(f"COALESCE(TRY_CAST(ROUND(TRY_{text}) AS DOUBLE), x)", node.this)
    if isinstance(node, exp.SubstringIndex):
        return _cut(node)
    if isinstance(node, exp.ArgMax | exp.ArgMin):
        name = "ARG_MAX_NULL" if isinstance(node, exp.ArgMax) else "ARG_MIN_NULL"
        return exp.Anonymous(this=name, expressions=[node.this, node.expression])
    if isinstance(node, exp.CountIf):  # DuckDB's has no value where Spark's is 0
        return _put("COUNT(CASE WHEN x THEN 1 END)", node.this)
    if isinstance(node, exp.Quantile):
        return exp.Anonymous(this="QUANTILE_CONT", expressions=[node.this, node.args["quantile"]])
    if isinstance(node, exp.Anonymous) and node.name.lower() == "octet_length":
        return exp.Anonymous(this="STRLEN", expressions=node.expressions)
    if isinstance(node, exp.GenerateSeries):
        return _put("CAST(GENERATE_SERIES(x, y, INTERVAL 1 DAY) AS DATE[])", node.args["start"], node.args["end"])
    if isinstance(node, exp.DataType) and node.this is exp.DataType.Type.TIMESTAMPTZ:
        return exp.DataType.build("TIMESTAMP", dialect="duckdb")
    return node


def _cut(node: exp.SubstringIndex) -> exp.Expr:
    return _put("SPLIT_PART(x, y, z)", node.this, node.args["delimiter"], node.args["count"])


def _put(text: str, *parts: exp.Expr) -> exp.Expr:
    """Return an expression of DuckDB with others in the place of x, y and z."""
    import sqlglot
    from sqlglot import exp

    made = sqlglot.parse_one(text, dialect="duckdb")
    given = dict(zip("xyz", parts, strict=False))
    for column in list(made.find_all(exp.Column)):
        column.replace(given[column.name].copy())
    return made

"""The tables in SQL among those that a run keeps.

Each is computed when what it reads has changed, checked before its commit, and replaced in one commit. A table whose
rows break its grain or a check keeps its last good version; so do those that read it. The run makes all others, and
then fails.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from everlog.catalog.catalog import Catalog
from everlog.core.query import Cursor
from everlog.core.text import counted
from everlog.errors import CheckFailed, SqlRefused
from everlog.log.log import Log
from everlog.pipeline.engines.engine import Engine, NeedsSpark
from everlog.pipeline.lake.arrow_files import spark_schema
from everlog.pipeline.lake.data_file import DataFile, opened
from everlog.pipeline.lake.lake import ANSWERS, EVENTS, GOLD, LETTERS, QUARANTINE, SILVER, Lake
from everlog.pipeline.lake.table import Table
from everlog.pipeline.source.rows import ARROW_SCHEMA
from everlog.pipeline.sql.definition import Definition
from everlog.pipeline.sql.plan import Plan, sql_name
from everlog.pipeline.sql.query import Input, Query
from everlog.pipeline.sql.statement import Statement, read_statement
from everlog.pipeline.tables.gold import AS_IT_WAS, CAUGHT_UP, KEPT, LEFT, REBUILT, ComputedWhole, Done
from everlog.pipeline.tables.log_facts import CHECKSUM
from everlog.pipeline.tables.readings import ENVELOPE, Readings
from everlog.pipeline.tables.silver import READING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

CODE, INPUTS, INPUT_CODE = "code", "inputs", "input_code"
_OF_INPUTS = (CODE, INPUTS, READING, "stopped_at", CHECKSUM)
ROWS_SHOWN_MAX = 5
DAYS_MAX = 400
"""If more days were touched, all of them are computed."""


def tables_in_sql(log: Log, lake: Lake, definitions: Mapping[str, Definition]) -> list[SqlTable]:
    """Return the tables of these definitions in the order of their computation. A name that they cannot mean is
    refused."""
    there = {table.name for table in lake.tables() if not table.name.startswith(f"{ANSWERS}/")}
    views = {f"{kind}/{view.name}" for view in log.views.known() for kind in (GOLD, LETTERS)}
    types = {f"{SILVER}/{one.type}" for one in log.catalog.types(lent=True)}
    answers = {f"{ANSWERS}/{name}" for name in ("refusals", "views")}
    known = {EVENTS, QUARANTINE, *answers, *there, *views, *types}
    try:
        plan = Plan(definitions, known)
    except SqlRefused:
        # It may mean a type that nobody declared, of events that are not in the lake yet.
        held = lake.events.cursor(log.identity.epoch)
        new = {f"{SILVER}/{one.event.type}" for one in log.read(after=0 if held is None else held.position)}
        if new <= known:
            raise
        plan = Plan(definitions, known | new)
    shared = _Shared(plan, log.catalog.without_keys(), answers)
    return [SqlTable(made, shared) for made in plan.ordered]


class _Shared:
    """What the tables of one run know of each other."""

    def __init__(self, plan: Plan, catalog: Catalog, others: Collection[str]) -> None:
        self.plan = plan
        self._known = {*others, *(made.table for made in plan.ordered)}
        self.readings = Readings(catalog, {})
        self.done: dict[str, str] = {}  # by table: what the run did with it

    def drop_others(self, lake: Lake) -> None:
        """Drop the answers that nothing defines any more, once."""
        for table in lake.tables(ANSWERS) if self._known else ():
            if table.name not in self._known:
                lake.drop(table)
        self._known = set()


class SqlTable(ComputedWhole):
    """One table of `answers/`, from the definition in a file."""

    def __init__(self, made: Definition, shared: _Shared) -> None:
        self._made, self._shared = made, shared
        self._reads = shared.plan.reads[made.name]

    @property
    def name(self) -> str:
        return self._made.table

    def bring_up_to_date(self, engine: Engine, lake: Lake, *, upto: Cursor) -> Done:
        try:
            done = self._brought(engine, lake, upto)
        except NeedsSpark:
            self._shared.done[self.name] = LEFT
            raise
        except (SqlRefused, CheckFailed) as error:
            problem = f"{error} ({error.hint})" if error.hint else str(error)
            done = self._kept(lake, problem, error.details.get("rows", ()))
        self._shared.done[self.name] = done.what
        return done

    def _brought(self, engine: Engine, lake: Lake, upto: Cursor) -> Done:
        self._shared.drop_others(lake)
        before = [self._shared.done.get(table) for table in self._inputs()]
        if LEFT in before:
            raise NeedsSpark(f"{self.name} reads a table that Spark derives")
        if KEPT in before:
            why = ", ".join(sql_name(table) for table in self._inputs() if self._shared.done.get(table) == KEPT)
            return self._kept(lake, f"it reads {why}, which was not computed")
        table = lake.table(self.name)
        code, inputs = self._state(lake, upto)
        held, marks = table.state(upto.epoch, (CODE, INPUTS, INPUT_CODE))
        if held is not None and marks == {CODE: self._code, INPUTS: inputs, INPUT_CODE: code}:
            return Done(table=self.name, what=AS_IT_WAS, rows=table.rows(), position=held.position)
        same_code = marks[CODE] == self._code and marks[INPUT_CODE] == code
        days = self._touched(engine, lake, held, upto) if self._made.by and held is not None and same_code else None
        if days is None:
            gone: Sequence[DataFile] = ()
            files, schema = engine.select(lake, self._query(lake, self._made.statement), table, cursor=upto)
        else:
            gone = [file for file in table.files() if _has_days(table, file, self._made.by, days)]
            files, schema = self._days(engine, lake, table, days, gone, upto)
        try:
            new = Input(table, [*(table.files() if days is not None else ()), *files], schema)
            new = new._replace(files=[file for file in new.files if file not in gone])
            self._check(engine, lake, new)
        except BaseException:
            table.remove(files)
            raise
        table.commit(
            files,
            remove=gone,
            cursor=upto,
            marks={CODE: self._code, INPUTS: inputs, INPUT_CODE: code},
            schema=schema,
            mode="overwrite" if days is None else "append",
        )
        rows = sum(file.rows for file in new.files)
        return Done(table=self.name, what=REBUILT if days is None else CAUGHT_UP, rows=rows, position=upto.position)

    def _kept(self, lake: Lake, problem: str, rows: Sequence[dict[str, Any]] = ()) -> Done:
        table = lake.table(self.name)
        return Done(table=self.name, what=KEPT, rows=table.rows(), problem=problem, violating=tuple(rows))

    @property
    def _code(self) -> int:
        return self._made.code

    # ---- what it reads

    def _inputs(self) -> list[str]:
        return sorted({table for table in self._reads.values() if table != self.name})

    def _state(self, lake: Lake, upto: Cursor) -> tuple[int, int]:
        """Return a number for how the tables that it reads are derived, and one for how far they are."""
        how, far = [], []
        for name in self._inputs():
            held, marks = lake.table(name).state(upto.epoch, _OF_INPUTS)
            if (
                name.startswith(f"{GOLD}/")
                and (held is None or held.position < upto.position)
                and not marks["stopped_at"]
            ):
                raise NeedsSpark(f"{self.name} reads {name}, which is derived by Spark")
            how.append((name, marks[CODE], marks[READING]))
            far.append((str(held), marks[INPUTS], marks[CHECKSUM], marks["stopped_at"]))
        return zlib.crc32(repr(how).encode()), zlib.crc32(repr(far).encode())

    def _input(self, lake: Lake, name: str) -> Input:
        table = lake.table(name)
        if table.exists():
            return Input.of(table)
        return Input(table, (), spark_schema(self._schema(name)))

    def _schema(self, name: str) -> pa.Schema:
        """Return the columns of a table that has no rows yet."""
        reading = self._shared.readings.of(name.partition("/")[2]) if name.startswith(f"{SILVER}/") else None
        if reading is not None:
            return reading.schema
        known = [ARROW_SCHEMA.field(column) for column in ENVELOPE]
        others = sorted(_columns_in(self._made.statement) - {field.name for field in known})
        return pa.schema([*known, *((column, pa.string()) for column in others)])

    def _query(self, lake: Lake, statement: Statement, own: Input | None = None, *, above: int = 0) -> Query:
        inputs = {}
        for one in statement.references:
            table = self._reads.get(one.name, self.name)
            given = own if own is not None and table == self.name else self._input(lake, table)
            inputs[one.name] = given.above(above) if above else given
        return Query(statement, inputs)

    # ---- day by day

    def _touched(self, engine: Engine, lake: Lake, held: Cursor, upto: Cursor) -> list[object] | None:
        """Return the days of the events that are new since a cursor; None if they cannot be found, or are many."""
        if held.knows != upto.knows and upto.knows > held.position:
            return None
        text = f"SELECT DISTINCT `{self._made.by}` AS day FROM (\n{self._made.statement.text}\n) AS made"
        found = engine.look(lake, self._query(lake, self._read(text), above=held.position))
        days: list[object] = found.column("day").to_pylist()
        return days if len(days) <= DAYS_MAX and pa.types.is_date(found.schema.field("day").type) else None

    def _days(
        self, engine: Engine, lake: Lake, table: Table, days: Sequence[object], gone: Sequence[DataFile], upto: Cursor
    ) -> tuple[list[DataFile], StructType]:
        """Compute the rows of some days, and add the other rows of the files that these replace."""
        by = f"`{self._made.by}`"
        among = ", ".join(f"DATE '{day}'" for day in days if day is not None)
        chosen = f"COALESCE({by} IN ({among}), FALSE)" if among else "FALSE"
        if None in days:
            chosen = f"({chosen} OR {by} IS NULL)"
        text = (
            f"SELECT * FROM (\n{self._made.statement.text}\n) AS made WHERE {chosen}"
            f" UNION ALL SELECT * FROM {self._made.name} WHERE NOT {chosen}"
        )
        own = Input(table, gone, table.schema())
        return engine.select(lake, self._query(lake, self._read(text), own), table, cursor=upto)

    def _read(self, text: str) -> Statement:
        return read_statement(text, self._made.source)

    # ---- checks

    def _check(self, engine: Engine, lake: Lake, new: Input) -> None:
        if self._made.grain:
            columns = ", ".join(f"`{column}`" for column in self._made.grain)
            text = (
                f"SELECT {columns}, count(*) AS `rows` FROM {self._made.name} GROUP BY {columns} HAVING count(*) > 1"
            )
            self._require_none(
                engine,
                Query(self._read(text), {self._made.name: new}),
                lake,
                f"its grain is {', '.join(self._made.grain)}",
            )
        for check in self._made.checks:
            self._require_none(engine, self._query(lake, check, new), lake, f"check: {check.text}")

    def _require_none(self, engine: Engine, query: Query, lake: Lake, promise: str) -> None:
        found = engine.look(lake, query)
        if found.num_rows:
            rows = [
                {name: _shown(value) for name, value in row.items()}
                for row in found.slice(0, ROWS_SHOWN_MAX).to_pylist()
            ]
            raise CheckFailed(
                f"{self._made.source}: {promise}",
                why=f"{counted(found.num_rows, 'row')} should not be there: " + "; ".join(map(_row, rows)),
                rows=rows,
                table=self.name,
            )


def _row(row: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.items())


def _shown(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _columns_in(statement: Statement) -> set[str]:
    from sqlglot import exp

    return {column.name for column in statement.tree.find_all(exp.Column)}


def _has_days(table: Table, file: DataFile, by: str, days: Collection[object]) -> bool:
    """Return True if a file may hold rows of some days."""
    footer = opened(table.path / file.path, table=table.name).metadata
    place = [name.lower() for name in footer.schema.names].index(by.lower())
    for group in range(footer.num_row_groups):
        statistics = footer.row_group(group).column(place).statistics
        if statistics is None or not statistics.has_min_max or statistics.null_count:
            return True
        if any(day is not None and statistics.min <= day <= statistics.max for day in days):
            return True
    return False


def require_made(done: Iterable[Done]) -> None:
    """Fail for the tables that kept their last good version, if there are some."""
    kept = [one for one in done if one.what == KEPT]
    if not kept:
        return
    first = kept[0]
    raise CheckFailed(
        f"{', '.join(one.table for one in kept)} {'was' if len(kept) == 1 else 'were'} not computed",
        why=first.problem,
        hint="the last good version is still there, and all other tables are up to date; correct it and run again",
        tables={one.table: {"problem": one.problem, "rows": list(one.violating)} for one in kept},
    )

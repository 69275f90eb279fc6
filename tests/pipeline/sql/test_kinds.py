"""What this process computes itself has the same rows and the same types as Spark's."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from everlog.core.event import Position
from everlog.core.query import Cursor
from everlog.pipeline.engines.needs import NeedsSpark
from everlog.pipeline.lake import arrow_files
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.sql import duck, kinds
from everlog.pipeline.sql.on_spark import selected
from everlog.pipeline.sql.query import Input, Query
from everlog.pipeline.sql.statement import read_statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2025, 12, 28, 23, 59, 59, 999_999, tzinfo=UTC)
NUMBERS = (0.0, 0.285, 1.005, 2.675, -0.285, -1.5, 1e-7, 36.125, 1e15 + 0.3, 1e300, 0.1 + 0.2, None)
TEXTS = ("", "a", "a/b/c", "/", "ü☃𝄞", "control.deploy.x", "control", "%", "a_b", "Z", None)

ALIKE = (
    "SELECT to_date(t) AS Day, count(*) AS n, sum(n) AS s, count(DISTINCT a) AS d, min(a) AS lo,"
    " max(t) AS hi FROM events GROUP BY to_date(t)",
    "SELECT k, round(x, 2) AS r2, round(x, 4) AS r4, round(x, 0) AS r0, abs(x) AS ab, -x AS neg, -n AS nn"
    " FROM events",
    "SELECT k, n + 1 AS a, n - b AS s, n * b AS m, n / 3 AS d, b / NULLIF(n, 0) AS q, (x * 2e0) / 7D AS f"
    " FROM events",
    "SELECT k, a = 'a' AS eq, a <> 'a' AS ne, a <=> c AS nse, n > b AS gt, n >= 1 AS ge, b < 2 AS lt, x <= 0e0 AS le"
    " FROM events",
    "SELECT k FROM events WHERE (a IS NULL OR NOT a LIKE 'control.%') AND n BETWEEN 0 AND 4 AND p IS NOT TRUE"
    " AND k IN (1, 2, 3, 5, 8, 13, 21)",
    "SELECT k, CASE WHEN n > 2 THEN 'many' WHEN n IS NULL THEN NULL ELSE a END AS w, if(n > 2, n, b) AS i,"
    " coalesce(n, b, 0) AS co, greatest(n, b) AS g, least(n, 2) AS l, nullif(a, 'a') AS nu FROM events",
    "SELECT a, count(n) AS c, count_if(n > 1) AS ci, max_by(c, struct(b, k)) AS mb, min_by(n, k) AS nb,"
    " count(*) FILTER (WHERE p) AS f, sum(octet_length(a)) AS o FROM events GROUP BY a",
    "SELECT count_if(n > 1) AS ci, count(n) AS c, sum(n) AS s, max_by(a, n) AS mb FROM events WHERE n IS NULL",
    "SELECT round(percentile(x, 0.5), 8) AS p50, round(percentile(n, 0.85), 8) AS p85 FROM events WHERE x < 100",
    "SELECT k, row_number() OVER (ORDER BY k DESC) AS rn, rank() OVER (ORDER BY a) AS ra,"
    " dense_rank() OVER (ORDER BY a DESC) AS dr, lag(a) OVER (PARTITION BY n ORDER BY b, k) AS la,"
    " lead(t, 2) OVER (ORDER BY k) AS le, sum(n) OVER (PARTITION BY a ORDER BY k"
    " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS total FROM events",
    "SELECT k, startswith(a, 'a') AS st, endswith(a, 'c') AS en, instr(a, '/') AS ii, length(a) AS ln,"
    " concat(a, '-', c) AS ct, a || c AS dp, split_part(a, '/', 1) AS s1, split_part(a, '/', -1) AS s9,"
    " substring_index(a, '/', 1) AS i1, substring_index(a, '.', -1) AS i9, octet_length(a) AS ol FROM events",
    "SELECT k, to_date(t) AS d, date_trunc('week', t) AS w, date_trunc('MONTH', t) AS m,"
    " date_trunc('hour', t) AS h,"
    " year(t) AS y, month(t) AS mo, quarter(t) AS q, unix_micros(t) AS us,"
    " datediff(t, TIMESTAMP '2026-01-01 00:00:00')"
    " AS dd, CAST(t AS DATE) AS c, t > TIMESTAMP '2026-01-01 12:00:00.5' AS late, date(t) AS dt FROM events",
    "SELECT k, CAST(n AS BIGINT) AS b, CAST(n AS DOUBLE) AS d, CAST(b AS STRING) AS s, TRUE AS tr, 1 AS one,"
    " 5000000000 AS big, 'x\\'y' AS tx, DATE '2026-01-01' AS da FROM events",
    "WITH span AS (SELECT min(to_date(t)) AS a, max(to_date(t)) AS b FROM events)"
    " SELECT explode(sequence(a, b)) AS day FROM span",
    "WITH span AS (SELECT min(to_date(t)) AS a, max(to_date(t)) AS b FROM events)"
    " SELECT day FROM span LATERAL VIEW explode(sequence(a, b)) days AS day",
    "SELECT k, size(after) AS sz, array_contains(after, 'x') AS has FROM events",
    "SELECT DISTINCT a, p FROM events WHERE a >= c OR p ORDER BY a, p",
    "SELECT a.k, b.k AS other FROM events a LEFT JOIN events b ON a.a = b.c AND b.n > 1",
    "SELECT k, n FROM events WHERE n > 2 UNION ALL SELECT k, b FROM events EXCEPT SELECT k, 1 FROM events",
    "SELECT q.a, q.total FROM (SELECT a, sum(b) AS total FROM events GROUP BY a HAVING sum(b) > 3) AS q"
    " WHERE q.total < 99",
    "SELECT a, n FROM events ORDER BY k LIMIT 3",
)  # fmt: skip
LEFT = (
    "SELECT sum(x) AS s FROM events",
    "SELECT avg(n) AS s FROM events",
    "SELECT n / b AS q FROM events",
    "SELECT 1.5 AS d FROM events",
    "SELECT upper(a) AS u FROM events",
    "SELECT substring_index(a, '/', 2) AS u FROM events",
    "SELECT round(x, n) AS r FROM events",
    "SELECT a = n AS b FROM events",
    "SELECT a LIKE 'x\\\\%' AS b FROM events",
    "SELECT CAST(x AS STRING) AS s FROM events",
    "SELECT * FROM events TABLESAMPLE (10 PERCENT)",
    "SELECT after FROM events WHERE after = after",
    "SELECT get_json_object(a, '$.x') AS j FROM events",
    "SELECT sum(n) OVER (ORDER BY b RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM events",
    "SELECT a, count(*) AS n FROM events GROUP BY ROLLUP (a)",
    "SELECT k FROM events WHERE k IN (SELECT n FROM events)",
)


def rows_by_chance(seed: int) -> pa.Table:
    chance = random.Random(seed)
    count = (0, 1, 40)[min(seed, 2)]
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "k": (pa.int64(), list(range(count))),
        "n": (pa.int32(), [chance.choice((None, 0, 1, 2, 3, 4)) for _ in range(count)]),
        "b": (pa.int64(), [chance.choice((None, -1, 0, 2, 7)) for _ in range(count)]),
        "x": (pa.float64(), [chance.choice(NUMBERS) for _ in range(count)]),
        "a": (pa.string(), [chance.choice(TEXTS) for _ in range(count)]),
        "c": (pa.string(), [chance.choice(TEXTS) for _ in range(count)]),
        "p": (pa.bool_(), [chance.choice((None, True, False)) for _ in range(count)]),
        "t": (
            pa.timestamp("us", tz="UTC"),
            [
                chance.choice(
                    (None, START + timedelta(hours=chance.randint(0, 200), microseconds=chance.randint(0, 2)))
                )
                for _ in range(count)
            ],
        ),
        "after": (pa.list_(pa.string()), [chance.choice((None, [], ["x"], ["y", "x"])) for _ in range(count)]),
    }
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})


def given(folder: Path, rows: pa.Table) -> Input:
    table = Lake.open(folder / "lake", log_id="log", create=True).events
    cursor = Cursor(Position(1), epoch="e")
    schema = arrow_files.spark_schema(rows.schema)
    files = arrow_files.write(table, rows, cursor=cursor)
    table.commit(files, cursor=cursor, schema=schema)
    return Input.of(table)


@pytest.mark.parametrize("seed", range(3))
def test_both_engines_compute_the_same(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rows = rows_by_chance(seed)
    table = given(tmp_path, rows)
    for text in ALIKE:
        statement = read_statement(text, "it")
        here = duck.Plan(statement, {"events": table.schema})
        found = here.run({"events": duck.read(table, here.columns["events"], bytes_max=2**30)})
        with selected(spark, Query(statement, {"events": table})) as frame:
            there = frame.toArrow()
        assert arrow_files.spark_schema(found.schema).simpleString() == frame.schema.simpleString(), text
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, there.to_pylist())), text


def test_every_rule_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = set[type]()

    class Recorded(dict[type, Any]):
        def get(self, kind: type, default: Any = None) -> Any:
            tried.add(kind)
            return super().get(kind, default)

    monkeypatch.setattr(kinds, "_made", Recorded(kinds.rules()))
    schema = arrow_files.spark_schema(rows_by_chance(0).schema)
    for text in ALIKE:
        duck.Plan(read_statement(text, "it"), {"events": schema})
    assert sorted(kind.__name__ for kind in kinds.rules() if kind not in tried) == []


@pytest.mark.parametrize("text", LEFT)
def test_what_may_differ_is_left_to_spark(text: str) -> None:
    schema = arrow_files.spark_schema(rows_by_chance(0).schema)
    with pytest.raises(NeedsSpark):
        duck.Plan(read_statement(text, "it"), {"events": schema})

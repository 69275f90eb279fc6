"""Types that nobody declared get tables: from their payloads, by their contract, on either engine."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import CATALOG
from tests.transfer.test_exporting import source
from tests.transfer.test_spec_kitty import moved

import everlog
from everlog.catalog.catalog import Catalog
from everlog.catalog.declared import read_types
from everlog.catalog.seen import COLUMNS_MAX, FIELDS_MAX, shape_of, united
from everlog.errors import InvalidSettings
from everlog.pipeline.engines.engine import Engine
from everlog.pipeline.engines.local import LocalEngine
from everlog.pipeline.engines.spark import SparkEngine
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.run import RunOutcome, run
from everlog.pipeline.tables.readings import INFERRED_FILE, Readings, ranked, shapes_task
from everlog.pipeline.tables.silver import INFERRED
from everlog.transfer.importing import import_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VISITED = "shop.visited"
PAYLOADS: list[dict[str, Any]] = [
    {"n": 1, "at": "2026-11-01T10:00:00Z", "tags": ["a"], "by": {"name": "ada", "age": 3}, "odd": 1},
    {"n": 2.5, "at": "2026-11-01T11:00:00+01:00", "tags": [], "by": {"name": None}, "odd": {"b": 1, "a": [2]}},
]
WIDE = dict.fromkeys((f"f{n}" for n in range(FIELDS_MAX + 1)), 1)
DEEP = {f"g{n}": dict.fromkeys((f"f{n}" for n in range(FIELDS_MAX)), 1) for n in range(COLUMNS_MAX // FIELDS_MAX + 1)}


class Visits:
    """A log with imported events of a type that no catalog has, and its lake."""

    def __init__(self, place: Path) -> None:
        self.url = f"sqlite:{place / 'log.db'}"
        self.count = 0
        with everlog.open(self.url, catalog=CATALOG) as log:
            self.lake = Lake.open(place / "lake", log_id=log.identity.log_id, create=True)
            self.other = Lake.open(place / "other", log_id=log.identity.log_id, create=True)

    def visit(self, *payloads: dict[str, Any], shop: str = "1") -> None:
        with everlog.open(self.url, catalog=CATALOG) as log:
            import_files(log, [source(b"".join(self._line(payload, shop) for payload in payloads))])

    def _line(self, payload: dict[str, Any], shop: str) -> bytes:
        self.count += 1
        where = {"aggregate_type": "shop", "aggregate_id": shop, "aggregate_seq": self.count, "event_type": VISITED}
        who = {"actor_type": "user", "actor_id": "ada", "occurred_at": "2026-11-01T10:00:00Z"}
        return json.dumps({**where, **who, "payload": payload}).encode() + b"\n"

    def run(self, contract: str = "", engine: Engine | None = None, lake: Lake | None = None) -> RunOutcome:
        catalog = Catalog()
        catalog.include(CATALOG)
        if contract:
            catalog.contracts[VISITED] = contract
        with everlog.open(self.url, catalog=catalog) as log:
            outcome = run(engine or LocalEngine(), log, self.url, lake or self.lake)
        assert not outcome.left
        return outcome

    def rows(self, table: str = f"silver/{VISITED}", *, lake: Lake | None = None, fields: str = "") -> list[Any]:
        found = (lake or self.lake).table(table)
        rows = [row for path in (found.paths() if found.exists() else ()) for row in pq.read_table(path).to_pylist()]
        rows.sort(key=lambda row: row["position"])
        return [[row[name] for name in fields.split()] for row in rows] if fields else rows


@pytest.fixture
def visits(tmp_path: Path) -> Visits:
    return Visits(tmp_path)


def test_every_row_is_in_its_table_at_once_and_typed_by_what_was_seen(visits: Visits) -> None:
    visits.visit(*PAYLOADS)
    outcome = visits.run()
    assert (outcome.typed, outcome.set_aside, outcome.types_rebuilt) == (2, 0, ())
    ten = datetime(2026, 11, 1, 10, tzinfo=UTC)
    assert visits.rows(fields="n at tags_ by odd") == [
        [1.0, ten, ["a"], {"name": "ada", "age": 3}, "1"],
        [2.5, ten, [], {"name": None, "age": None}, '{"a":[2],"b":1}'],
    ]
    assert visits.lake.silver(VISITED).mark(INFERRED) == 1
    assert visits.rows("quarantine") == []
    assert visits.run().changed is False


def test_what_an_import_kept_beside_the_fields_of_a_declared_type_is_no_reason_to_set_it_aside(
    tmp_path: Path,
) -> None:
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url) as log:
        actor = {"tool": "user", "role": "reviewer"}
        move = moved(1, "WP01", "done", "2026-02-01T09:00:00Z", actor=actor)
        import_files(log, [source(json.dumps(move).encode())])
        lake = Lake.open(tmp_path / "lake", log_id=log.identity.log_id, create=True)
        outcome = run(LocalEngine(), log, url, lake)
    assert (outcome.typed, outcome.set_aside) == (1, 0)


def test_a_new_field_is_a_new_column_and_what_fits_is_appended(visits: Visits) -> None:
    visits.visit({"n": 1})
    visits.run()
    files = visits.lake.silver(VISITED).files()
    visits.visit({"n": 2})
    assert visits.run().types_rebuilt == ()
    assert visits.lake.silver(VISITED).files()[: len(files)] == files, "the table was not written again"
    visits.visit({"n": 3, "new": "x"})
    outcome = visits.run()
    assert (outcome.typed, outcome.set_aside, outcome.types_rebuilt) == (1, 0, (VISITED,))
    assert visits.rows(fields="n new") == [[1, None], [2, None], [3, "x"]]
    visits.visit({"n": "three"})
    visits.run()
    assert visits.rows(fields="n") == [["1"], ["2"], ["3"], ['"three"']], "what conflicts is canonical JSON"


def test_a_frozen_type_sets_a_new_shape_aside_until_the_contract_changes(visits: Visits) -> None:
    visits.visit({"n": 1})
    visits.run("freeze")
    visits.visit({"n": 2}, {"n": 3, "new": {"x": 1}})
    outcome = visits.run("freeze")
    assert (outcome.typed, outcome.set_aside) == (1, 1)
    ((position, code, reason),) = visits.rows("quarantine", fields="position code reason")
    assert (position, code, reason.partition(" ")[0]) == (3, "new_shape", "$.new")
    assert visits.run("freeze").changed is False
    visits.run("evolve")
    assert visits.rows("quarantine") == []
    assert visits.rows(fields="n new") == [[1, None], [2, None], [3, {"x": 1}]]


def test_a_frozen_shape_does_not_grow_when_it_is_computed_again(visits: Visits) -> None:
    visits.visit({"n": 1}, {"gone": 2})
    visits.run("freeze")
    visits.visit({"n": 2}, {"n": 3, "new": 1})
    visits.run("freeze")
    before = visits.rows("quarantine", fields="position code")
    assert before == [[4, "new_shape"]]
    for found in ({"knows": -1}, {"knows": 0, "epoch": "another"}):  # as after a purge, and after a restore
        seen = json.loads((visits.lake.path / INFERRED_FILE).read_bytes())
        (visits.lake.path / INFERRED_FILE).write_text(json.dumps({**seen, **found}))
        visits.run("freeze")
        assert visits.rows("quarantine", fields="position code") == before
        assert visits.rows(fields="n gone") == [[1, None], [None, 2], [2, None]]


@pytest.mark.parametrize("wide", [WIDE, DEEP])
def test_an_event_with_too_many_fields_is_set_aside_alone(visits: Visits, wide: dict[str, Any]) -> None:
    visits.visit(wide)
    visits.run()
    assert visits.rows("quarantine", fields="position code") == [[1, "too_many_fields"]]
    visits.visit({"n": 1}, wide, {"n": 2})
    visits.run()
    visits.visit(wide)
    visits.run()
    visits.visit({"n": 3, "new": "x"})
    visits.run()
    assert visits.rows(fields="n new") == [[1, None], [2, None], [3, "x"]]
    aside = visits.rows("quarantine", fields="position code reason")
    assert [row[:2] for row in aside] == [[at, "too_many_fields"] for at in (1, 3, 5)]
    assert "freeze" not in aside[0][2]
    assert visits.run().changed is False


def test_of_more_shapes_than_a_task_holds_the_common_ones_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everlog.pipeline.tables.readings.SHAPES_MAX", 4)
    payloads = [{"n": 1}] * 3 + [{"n": n, f"odd{n}": 1} for n in range(20)] + [{"m": 1}]
    batch = pa.RecordBatch.from_pydict(
        {"type": [VISITED] * len(payloads), "payload": list(map(json.dumps, payloads))}
    )
    (found,) = shapes_task({})([batch])
    shapes = ranked(row.values() for row in found.to_pylist())[VISITED]
    assert len(shapes) <= 4
    assert shapes[0] == shape_of({"n": 1})
    assert united(shapes) == united(map(shape_of, payloads)), "nothing is lost as long as all of it fits"


@pytest.mark.parametrize("contract", ["evolve", "freeze", "ask"])
def test_a_worker_reads_a_type_by_the_contract_of_the_run(contract: str) -> None:
    catalog = Catalog()
    catalog.contracts[VISITED] = contract
    readings = Readings(catalog, {VISITED: shape_of({"n": 1})})
    there = pickle.loads(pickle.dumps(readings))
    assert there.catalog.contract(VISITED) == contract
    here, read = readings.of(VISITED), there.of(VISITED)
    assert (read and read.number) == (here and here.number)


def test_a_text_that_only_looks_like_a_time_is_text(visits: Visits) -> None:
    visits.visit({"at": "2026-11-01T10:00:00Z"}, {"at": "2026-02-30T10:00:00Z"}, {"at": "2026-11-01T10:00:00+99:99"})
    visits.run()
    assert visits.rows("quarantine") == []
    assert [at[:10] for (at,) in visits.rows(fields="at")] == ["2026-11-01", "2026-02-30", "2026-11-01"]


def test_a_type_that_is_asked_about_is_set_aside_and_a_declared_one_takes_precedence(visits: Visits) -> None:
    visits.visit({"n": 1})
    visits.run()
    visits.run("ask")
    assert visits.rows() == []
    assert visits.rows("quarantine", fields="code") == [["unknown_type"]]
    visits.run()
    declared = Catalog()
    declared.include(CATALOG)
    declared.include(read_types(f'[types."{VISITED}"]\nfields = {{ n = "int", more = "str = \'\'" }}'))
    with everlog.open(visits.url, catalog=declared) as log:
        assert run(LocalEngine(), log, visits.url, visits.lake).types_rebuilt == (VISITED,)
    assert visits.lake.silver(VISITED).mark(INFERRED) == 0
    assert visits.rows(fields="n more") == [[1, ""]]


def test_a_run_that_is_killed_after_it_has_learned_is_finished_by_the_next(
    visits: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits.visit({"n": 1})
    visits.run()
    visits.visit({"n": 2, "new": 1})
    with monkeypatch.context() as patch:
        patch.setattr("everlog.pipeline.tables.silver._rebuild", lambda *args, **more: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            visits.run()
    visits.run()
    assert visits.rows(fields="n new") == [[1, None], [2, 1]]
    assert visits.rows("quarantine") == []


def test_both_engines_make_the_same_table_and_a_purge_takes_the_names_of_fields_too(
    visits: Visits, spark: SparkSession
) -> None:
    visits.visit({"n": 1})
    visits.visit({"n": 2, "sentinel_f81c": 1}, shop="2")
    for lake, engine in ((visits.lake, LocalEngine()), (visits.other, SparkEngine(spark))):
        visits.run(lake=lake, engine=engine)
    visits.visit(*PAYLOADS)
    for lake, engine in ((visits.lake, SparkEngine(spark)), (visits.other, LocalEngine())):
        visits.run(lake=lake, engine=engine)
    assert visits.rows() == visits.rows(lake=visits.other)
    visits.visit({"n": 3, "late": 1})
    visits.run("freeze", lake=visits.other)
    with everlog.open(visits.url, catalog=CATALOG) as log:
        log.purge("shop/2", reason="erasure request 17")
    visits.run(engine=SparkEngine(spark))
    visits.run("freeze", engine=SparkEngine(spark), lake=visits.other)
    rows: list[list[Any]] = [[1.0, None], [1.0, "1"], [2.5, '{"a":[2],"b":1}']]
    assert visits.rows(fields="n odd late") == [[*row, None] for row in rows] + [[3.0, None, 1]]
    assert visits.rows(fields="n odd", lake=visits.other) == rows
    assert visits.rows("quarantine", fields="code", lake=visits.other) == [["new_shape"]], "it is frozen as before"
    for lake in (visits.lake, visits.other):
        files = [path for path in lake.path.rglob("*") if path.is_file()]
        assert [path for path in files if b"sentinel_f81c" in path.read_bytes()] == []


def test_a_run_without_one_of_the_programs_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    visits = Visits(tmp_path)
    visits.visit({"n": 1})
    declared = Catalog()
    declared.include(CATALOG)
    declared.include(read_types(f'[types."{VISITED}"]\nfields = {{ n = "float" }}'))
    with everlog.open(visits.url, catalog=declared) as log:
        run(LocalEngine(), log, visits.url, visits.lake)
    before = visits.rows()
    with everlog.open(visits.url, catalog=CATALOG) as log:
        log.catalog.left_out["shed"] = InvalidSettings("the program 'shed' cannot be loaded", hint="install it")
        with pytest.raises(InvalidSettings, match="'shed' cannot be loaded"):
            run(LocalEngine(), log, visits.url, visits.lake, rebuild=["all"])
    assert visits.rows() == before

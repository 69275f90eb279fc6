"""Tables that a user defines in SQL, as a run makes and keeps them. Without Spark, except where a test says so."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.shop import SHOP

import everlog
from everlog.errors import CheckFailed, SqlRefused
from everlog.pipeline.engines.engine import Engine
from everlog.pipeline.engines.local import LocalEngine
from everlog.pipeline.engines.spark import SparkEngine
from everlog.pipeline.lake.data_file import opened
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.run import RunOutcome, run
from everlog.pipeline.sql.definition import read_definitions
from everlog.pipeline.tables.answers import answers_of
from everlog.pipeline.tables.gold import AS_IT_WAS, CAUGHT_UP, REBUILT, gold_of
from everlog.settings import Settings
from everlog.testing.builders import event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAILY = """\
-- Notes of each day.
-- grain: day
-- by: day
SELECT to_date(occurred_at) AS day, count(*) AS notes, max(text) AS last
FROM silver.note_added
GROUP BY to_date(occurred_at)
"""


class Shop:
    """A log, its lake, and a folder of tables."""

    def __init__(self, place: Path) -> None:
        self.tables = place / "tables"
        self.tables.mkdir()
        self.url = f"sqlite:{place / 'log.db'}"
        self.log = everlog.open(self.url, catalog=SHOP, actor="user:ada")
        self.lake = Lake.open(place / "lake", log_id=self.log.identity.log_id, create=True)

    def define(self, name: str, text: str) -> None:
        (self.tables / f"{name}.sql").write_text(text)

    def say(self, text: str, day: int, stream: str = "note/1") -> None:
        at = datetime(2026, 11, day, 12, tzinfo=UTC)
        self.log.append("note.added", stream=stream, payload={"text": text}, occurred_at=at)

    def run(self, engine: Engine | None = None) -> RunOutcome:
        more = answers_of(self.log, self.lake, read_definitions(self.tables))
        gold = gold_of(self.lake, self.log.views.known(), self.log.catalog, more=more)
        return run(engine or LocalEngine(), self.log, self.url, self.lake, gold=gold)

    def done(self) -> dict[str, str]:
        outcome = self.run()
        assert not outcome.left, outcome.left
        return {one.table.removeprefix("answers/"): one.what for one in outcome.views}

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of the published version."""
        table = self.lake.table(f"answers/{name}")
        version = self.lake.published().tables[table.name]
        found = [row for path in table.paths(version=version) for row in opened(path).read().to_pylist()]
        return sorted(found, key=repr)

    def files(self, name: str) -> set[str]:
        return {file.path for file in self.lake.table(f"answers/{name}").files()}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.log.close()


def test_tables_are_computed_in_the_order_of_their_names_and_again_only_if_what_they_read_changes(shop: Shop) -> None:
    shop.define("busiest", "SELECT max(notes) AS notes FROM daily")
    shop.define("daily", DAILY)
    shop.define("who", "SELECT actor, count(*) AS n FROM events GROUP BY actor")
    shop.define("keys", "SELECT count(*) AS n FROM gold.streams s JOIN letters.streams l ON s.key = l.key")
    shop.say("milk", 1)
    shop.say("bread", 1)
    assert {name: shop.done()[name] for name in ("daily",)} == {"daily": REBUILT}
    assert [(row["notes"], row["last"]) for row in shop.rows("daily")] == [(2, "milk")]
    assert (shop.rows("busiest"), shop.rows("keys")) == ([{"notes": 2}], [{"n": 0}])
    before = {path: path.stat().st_mtime_ns for path in shop.lake.path.rglob("*") if path.is_file()}
    assert {name for name, what in shop.done().items() if what != AS_IT_WAS} == set()
    assert {path: path.stat().st_mtime_ns for path in shop.lake.path.rglob("*") if path.is_file()} == before

    shop.log.append("deploy.done", stream="deploy/1", payload={"outcome": "ok"})
    done = shop.done()
    assert (done["who"], done["daily"], done["busiest"]) == (REBUILT, AS_IT_WAS, AS_IT_WAS)
    shop.define("busiest", "SELECT min(notes) AS notes FROM daily")
    done = shop.done()
    assert (done["busiest"], done["daily"]) == (REBUILT, AS_IT_WAS)


def test_only_the_days_that_new_events_touch_are_computed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.define("daily", DAILY)
    for day in (1, 2, 3):
        shop.say(f"on {day}", day)
    shop.done()
    computed = list[str]()
    look = LocalEngine.look

    def looked(self: LocalEngine, lake: Lake, query: Any) -> Any:
        found = look(self, lake, query)
        computed.extend(str(row["day"]) for row in found.to_pylist() if "notes" in row)
        return found

    monkeypatch.setattr(LocalEngine, "look", looked)
    shop.say("late", 2)  # an event of a day that is over
    shop.say("new", 5)
    before = shop.files("daily")
    assert shop.done()["daily"] == CAUGHT_UP
    assert [(str(row["day"])[-1], row["notes"]) for row in shop.rows("daily")] == [
        ("1", 1),
        ("2", 2),
        ("3", 1),
        ("5", 1),
    ]
    assert sorted(computed) == ["2026-11-01", "2026-11-02", "2026-11-03", "2026-11-05"], (
        "the file had the days 1 to 3"
    )
    computed.clear()
    shop.say("newest", 5)
    kept = shop.files("daily")
    assert not kept & before
    assert shop.done()["daily"] == CAUGHT_UP
    shop.say("day 9", 9)
    last = shop.files("daily")
    computed.clear()
    assert shop.done()["daily"] == CAUGHT_UP
    assert last < shop.files("daily"), "no file of other days was replaced"
    assert computed == ["2026-11-09"]


def test_a_check_that_fails_keeps_the_last_good_version_and_names_the_rows(shop: Shop) -> None:
    shop.define("daily", DAILY + "\n")
    shop.define("checked", "-- check: SELECT * FROM checked WHERE last = 'bad'\nSELECT * FROM daily")
    shop.define("after", "SELECT count(DISTINCT d.day) AS n FROM daily d LEFT JOIN checked c ON c.day = d.day")
    shop.define("beside", "SELECT count(*) AS n FROM daily")
    shop.say("good", 1)
    shop.done()
    shop.say("bad", 2)
    for _ in range(2):  # as long as it fails, every run fails
        with pytest.raises(CheckFailed) as failed:
            shop.run()
        assert failed.value.exit_code == 3
        assert "tables/checked.sql" in failed.value.why
        assert "last=bad" in failed.value.why
        assert failed.value.details["tables"]["answers/checked"]["rows"] == [
            {"day": "2026-11-02", "notes": 1, "last": "bad"}
        ]
    assert [row["last"] for row in shop.rows("checked")] == ["good"]
    assert shop.rows("after") == [{"n": 1}], "nor is a table made that reads it"
    assert shop.rows("beside") == [{"n": 2}], "all others are made and published"
    assert shop.lake.published().cursor.startswith(str(shop.log.head()))
    shop.define("checked", "SELECT * FROM daily")
    assert shop.done()["after"] == REBUILT
    assert shop.rows("after") == [{"n": 2}]


def test_a_grain_that_is_broken_keeps_the_last_good_version(shop: Shop) -> None:
    shop.define("texts", "-- grain: text\nSELECT text, position FROM silver.note_added")
    shop.say("milk", 1)
    shop.done()
    shop.say("milk", 1)
    with pytest.raises(CheckFailed) as failed:
        shop.run()
    assert "its grain is text" in failed.value.why
    assert "text=milk, rows=2" in failed.value.why
    assert len(shop.rows("texts")) == 1
    unnamed = shop.lake.table("answers/texts").unnamed()
    assert unnamed == [], "what was computed in vain is removed"


def test_a_file_that_is_gone_takes_its_table_with_it(shop: Shop) -> None:
    shop.define("daily", DAILY)
    shop.define("other", "SELECT count(*) AS n FROM events")
    shop.say("milk", 1)
    shop.done()
    (shop.tables / "daily.sql").unlink()
    shop.done()
    assert "answers/daily" not in shop.lake.published().tables
    assert not shop.lake.table("answers/daily").path.exists()


def test_a_type_that_nobody_declared_can_be_read_in_its_first_run(shop: Shop) -> None:
    shop.define("visits", "SELECT page, count(*) AS n FROM silver.shop_page_visited GROUP BY page")
    with pytest.raises(SqlRefused):
        shop.run()
    shop.log.admit([event("shop.page.visited", stream="page/1", payload={"page": "/a"})])
    shop.done()
    assert shop.rows("visits") == [{"page": "/a", "n": 1}]


def test_what_this_process_does_not_compute_is_left_to_spark(shop: Shop) -> None:
    shop.define("loud", "SELECT upper(text) AS text FROM silver.note_added")
    shop.define("after", "SELECT count(*) AS n FROM loud")
    shop.say("milk", 1)
    assert shop.run().left == "answers/loud, answers/after have to be derived by Spark"


def test_both_engines_keep_the_same_tables(shop: Shop, spark: SparkSession) -> None:
    """With Spark: what it computes alone, days, a check that fails, and a purge."""
    shop.define("daily", DAILY)
    shop.define(
        "loud", "-- check: SELECT * FROM loud WHERE text = 'BAD'\nSELECT upper(text) AS text FROM silver.note_added"
    )
    shop.define("texts", "SELECT text, stream FROM silver.note_added")
    engine = SparkEngine(spark)
    shop.say("milk", 1)
    shop.say("bread", 2)
    assert not shop.run(engine).left
    assert [row["text"] for row in shop.rows("loud")] == ["BREAD", "MILK"]
    shop.say("late", 1, stream="note/2")
    shop.say("bad", 4, stream="note/2")
    with pytest.raises(CheckFailed):
        shop.run(engine)
    assert len(shop.rows("loud")) == 2
    assert [(str(row["day"])[-1], row["notes"]) for row in shop.rows("daily")] == [("1", 2), ("2", 1), ("4", 1)]
    shop.log.purge("note/2", reason="a request")
    outcome = shop.run(engine)
    assert {one.what for one in outcome.views if one.table.startswith("answers/")} <= {REBUILT, AS_IT_WAS}
    assert [row["text"] for row in shop.rows("texts")] == ["bread", "milk"]
    assert [(str(row["day"])[-1], row["notes"]) for row in shop.rows("daily")] == [("1", 1), ("2", 1)]
    shop.define("typo", "SELECT txt\nFROM silver.note_added WHERE upper(text) = 'X'")
    with pytest.raises(CheckFailed, match="txt"):
        shop.run(engine)


WRONG: dict[str, tuple[str, str]] = {
    "SELECT * FROM silver.note_addd": ("there is no table silver.note_addd", "did you mean silver.note_added?"),
    "-- it\nSELECT *\nFROM evnts": ("line 3: there is no table evnts", "did you mean events?"),
    "DROP TABLE events": ("only a SELECT is allowed, not DROP", "write one SELECT"),
    "INSERT INTO events SELECT * FROM events": ("not INSERT", "write one SELECT"),
    "SELECT 1 AS a;\nDELETE FROM events": ("more than one statement", "write one SELECT"),
    "SELECT a\nFROM events WHERE": ("line 2: this is not a SELECT", ""),
    "-- nothing": ("there is no SELECT in it", ""),
    "SELECT * FROM parquet.`/etc/passwd`": ("there is no table parquet./etc/passwd", ""),
    "SELECT * FROM it": ("it reads itself", "take one of these names out"),
    "SELECT rand() AS a FROM events": ("rand() gives another value each time", "use a column"),
    "SELECT reflect('a', 'b') AS a FROM events": ("runs other code", ""),
    "SELECT count(*) FROM events": ("column 1 has no name", "add AS"),
    "SELECT actor AS a, scope AS A FROM events": ("two columns are called", "add AS"),
    "-- grain: dya\nSELECT actor AS day FROM events": ("grain names dya", "did you mean day?"),
    "-- grian: day\nSELECT actor AS day FROM events": ("line 1: grian is not known here", "did you mean grain?"),
    "-- by: day\nSELECT 1 AS day FROM events JOIN quarantine": ("by: day is not possible", "leave out the line"),
    "-- by: day\nSELECT max(to_date(occurred_at)) AS day FROM events": ("by: day is not possible", ""),
    "-- check: DELETE FROM it\nSELECT actor FROM events": ("line 1: only a SELECT is allowed", ""),
    "SELECT actr FROM events": ("there is no column actr", "did you mean actor?"),
    "SELECT {flow_lan} AS a FROM events": ("there is no setting flow_lan", "did you mean flow_lane?"),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_is_refused_before_anything_is_made(shop: Shop, text: str) -> None:
    what, hint = WRONG[text]
    shop.say("milk", 1)
    shop.define("it", text)
    with pytest.raises((SqlRefused, CheckFailed)) as wrong:
        shop.run()
    assert what in str(wrong.value)
    assert "tables/it.sql" in str(wrong.value)
    assert hint in (wrong.value.hint + wrong.value.why)
    if isinstance(wrong.value, SqlRefused):
        assert shop.lake.tables() == [], "nothing was computed"


def test_tables_that_read_each_other_in_a_circle_are_named(shop: Shop) -> None:
    shop.define("a", "SELECT * FROM b")
    shop.define("b", "SELECT * FROM a")
    with pytest.raises(SqlRefused, match=r"reads itself through other tables: \w reads \w, \w reads \w"):
        shop.run()


@pytest.mark.parametrize("name", ["events", "Daily", "2day", "refusals"])
def test_a_name_that_a_table_cannot_have_is_refused(shop: Shop, name: str) -> None:
    shop.define(name, "SELECT 1 AS a FROM events")
    with pytest.raises(SqlRefused, match="a table cannot be called"):
        read_definitions(shop.tables)


def test_settings_are_texts_and_between_backticks_names(shop: Shop) -> None:
    shop.define("it", "SELECT `{flow_lane}` AS a FROM events WHERE actor IN ({talk})")
    made = read_definitions(shop.tables, Settings(flow_lane="stream", talk="user:ada, user:bob"))["it"]
    assert made.statement.text == "SELECT `stream` AS a FROM events WHERE actor IN ('user:ada', 'user:bob')"
    for people in ("x'y", "x`y", "x\\y"):
        with pytest.raises(SqlRefused, match="a character that is not allowed"):
            read_definitions(shop.tables, Settings(talk=people))

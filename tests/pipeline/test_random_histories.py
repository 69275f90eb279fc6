"""Any history: every built-in view has the same digest in process and on Spark, however the events are dealt out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest
from tests.conftest import CATALOG
from tests.views.conftest import ByActor, Causal

from everlog.core.event import Event
from everlog.core.query import Query
from everlog.log.log import Log
from everlog.pipeline.fold.fold import fold_view
from everlog.pipeline.fold.sorted_fold import LETTER, ROW, STOP
from everlog.pipeline.source.rows import batch_of
from everlog.testing.builders import event
from everlog.views.builtin import BUILT_IN
from everlog.views.declared import Count, DeclaredView, Distinct, First, Last, Max, Mean, Min, Reduction, Sum, Top
from everlog.views.view import CAUSAL, View, digest_of_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**53 - 1, -(2**53) + 1, 0.1 + 0.2, 1e-320, -0.0, 1e15, 123456789.123456789),
    *("", " ", "ü", "\u2028", "𝄞", "a\u0000b", '"', "null", "9007199254740993", "2026-11-15T12:00:00+05:30"),
    *([], {}, [None, [None, {}]], {"": None, "ß": [1.5, {"a": {"b": "c"}}], "sz": 2.5}, "poison"),
)
ZONES = ("UTC", "Asia/Kathmandu", "America/St_Johns", "Pacific/Apia")
STREAMS = [f"thing/{number}" for number in range(5)] + ["thing/a.b-c", "workpackage/WP1"]
ACTORS = ["user:ada", "user:zoe", "agent:builder", "system", "user:nobody"]


class Everywhere(ByActor):
    """Fed by many streams, with states that hold what was said, and poison now and then."""

    name = "everywhere"


class Amounts(DeclaredView):
    """Numbers of any size: of what is no number, the first stops its key."""

    name = "amounts"
    by = "actor"
    fields: ClassVar[Mapping[str, Reduction]] = {
        "total": Sum("payload.value"),
        "mean": Mean("payload.value"),
        "least": Min("payload.value"),
        "most": Top("payload.value", 3),
        "latest": Max("occurred_at"),
        "last": Last("payload.value"),
    }
    columns: ClassVar[Mapping[str, Any]] = {"least": int, "most": list[float], "last": str}


class ByValue(DeclaredView):
    """One row per value of a payload; some values are objects."""

    name = "by-value"
    by = "payload.value"
    order = CAUSAL
    fields: ClassVar[Mapping[str, Reduction]] = {
        "times": Count(),
        "who": Distinct("actor"),
        "inside": First("payload.value.sz"),
        "first_at": First("occurred_at"),
    }


VIEWS: tuple[type[View], ...] = (*BUILT_IN, Everywhere, Causal, Amounts, ByValue)


def fill(log: Log, chance: random.Random) -> None:
    """A history as they come: own events and those of peers, old versions, purges, clocks anywhere."""
    peers = ["01PEER" + event().id[6:] for _ in range(3)]
    for _ in range(chance.randint(0, 80)):
        what = chance.random()
        stream, actor = chance.choice(STREAMS[:-1]), chance.choice(ACTORS)
        if what < 0.6:
            log.append(
                "thing.said",
                stream=stream,
                actor=actor,
                payload={"value": chance.choice(VALUES)},
                scope=chance.choice(["", "acme", "acme/shop"]),
                occurred_at=_moment(chance),
            )
        elif what < 0.85:
            log.admit([_of_a_peer(chance, chance.choice(peers), stream, actor)])
        elif what < 0.93 and next(log._store.read(Query(stream=stream)), None) is not None:
            log.purge(stream, reason="a request")
        else:
            log.admit([_old(chance, actor)])


def _moment(chance: random.Random) -> datetime:
    zone = timezone(timedelta(minutes=chance.choice([-720, -210, 0, 345, 840])))
    moments = (datetime(1, 1, 2, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC))
    late = datetime(2026, 10, 25, 2, 30, 0, chance.randint(0, 999_999), tzinfo=zone)  # clocks were put back then
    return chance.choice([*moments, late, late, late])


def _of_a_peer(chance: random.Random, origin: str, stream: str, actor: str) -> Event:
    lamport, value = chance.randint(1, 40), chance.choice(VALUES)
    return event(
        "thing.said", stream=stream, actor=actor, payload={"value": value}, lamport=lamport, origin=_new(origin)
    )


def _old(chance: random.Random, actor: str) -> Event:
    """Of a version that is upcast, and now and then of a shape that cannot be."""
    payload = {"new_status": "doing"} if chance.random() < 0.8 else {"nothing": "of that kind"}
    return event("workpackage.moved", stream="workpackage/WP1", actor=actor, payload=payload, origin=_new("01PEER"))


def _new(origin: str) -> str:
    return origin[:10] + event().id[10:]


def require_the_same(spark: SparkSession, log: Log, chance: random.Random) -> None:
    records = list(log._store.read())
    chance.shuffle(records)
    doubled = [*records, *chance.sample(records, min(3, len(records)))]
    parts = chance.randint(1, 4)
    frame = spark.createDataFrame(pa.Table.from_batches([batch_of(doubled)])).repartition(parts)
    for view in chance.sample(VIEWS, len(VIEWS)):
        handle = log.view(view)
        handle.catch_up()
        build = handle.build()
        assert build is not None
        states, letters, stops = folded(frame, view(), log, chance)
        if stops:
            states, letters, again = folded(frame.where(f"position < {stops[0]}"), view(), log, chance)
            assert again == []
            letters.append((stops[0], ""))
        assert build.stopped_at == (stops[0] if stops else 0), view.name
        assert digest_of_bytes(sorted(states.items())) == handle.digest(), view.name
        assert letters == [(letter.position, letter.key) for letter in handle.dead_letters()], view.name


def folded(
    frame: DataFrame, view: View, log: Log, chance: random.Random
) -> tuple[dict[str, bytes], list[tuple[int, str]], list[int]]:
    """The states, the letters and the positions that stop a view."""
    rows = fold_view(frame, view, log.catalog, partitions=chance.randint(1, 3)).collect()
    states = {row["key"]: row["state"].encode() for row in rows if row["what"] == ROW}
    letters = sorted((row["position"], row["key"]) for row in rows if row["what"] == LETTER)
    return states, letters, sorted(row["position"] for row in rows if row["what"] == STOP)


@pytest.fixture
def any_zone(spark: SparkSession) -> Iterator[Callable[[str], None]]:
    before = spark.conf.get("spark.sql.session.timeZone")
    yield lambda zone: spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.session.timeZone", str(before))


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] if seed >= 4 else []) for seed in range(50)]
)
def test_every_view_has_one_digest(
    spark: SparkSession, make_log: Callable[..., Log], any_zone: Callable[[str], None], seed: int
) -> None:
    chance = random.Random(seed)
    any_zone(chance.choice(ZONES))
    with make_log("memory", catalog=CATALOG) as log:
        fill(log, chance)
        require_the_same(spark, log, chance)

"""A view rebuilt on Spark and handed over: on every store, it is what the live runner would have derived."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.pipeline.logs import add, open_log, url_in
from tests.views.conftest import ALL, ByActor, Causal, Picky, Said, Total

from everlog import Draft, Log
from everlog.core.event import Event, Position
from everlog.errors import Busy, Damaged, InvalidField, InvalidSettings, SparkFailed
from everlog.log.derived import ViewOfLog
from everlog.pipeline.engines.spark import derive_on
from everlog.testing.builders import event
from everlog.views.builds.build import builds_of
from everlog.views.builds.content import applied_blocks, scan_kept
from everlog.views.builtin import BUILT_IN
from everlog.views.rebuild.blue_green import Rebuilt
from everlog.views.rebuild.elsewhere import FILLING, Part
from everlog.views.registry import live_view
from everlog.views.view import Text, View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(url_in(tmp_path, "sqlite")) as opened:
        yield opened


def url_of(tmp_path: Path) -> str:
    return url_in(tmp_path, "sqlite")


def say(log: Log, *values: Any, stream: str = "thing/x", actor: str = "user:ada") -> None:
    log.append_batch([Draft("thing.said", stream, {"value": value}, actor=actor) for value in values])


CHECKSUM_BYTES = 5  # a MessagePack integer of 32 bits


def rebuilt_on(spark: SparkSession, log: Log, url: str, view: View, **options: Any) -> Rebuilt:
    return live_view(log, view).rebuild(derive=derive_on(spark, url, view, log.catalog), **options)


def kept(log: Log, handle: ViewOfLog) -> dict[str, Any]:
    """Everything that the small state holds of the active build, but for times."""
    build = handle.build()
    assert build is not None
    small_state = log.views.small_state
    letters = [msgspec.to_builtins(msgspec.structs.replace(one, at_us=0, trace="")) for one in handle.dead_letters()]
    return {
        # The checksum at the end covers the number of the build, so it differs between two builds of one state.
        "rows": {key: data[:-CHECKSUM_BYTES] for key, data in scan_kept(small_state, build)},
        "places": dict(applied_blocks(small_state, build)),
        "letters": letters,
        "position": build.position,
        "stopped_at": build.stopped_at,
        "applied": build.applied,
    }


# ---- the same as here


def test_every_view_is_what_the_runner_keeps(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    require_the_same(spark, log, url_of(tmp_path), (*ALL, *BUILT_IN))


@pytest.mark.parametrize("kind", ["jsonl", "segments", "postgres"])
def test_on_every_store_it_is_what_the_runner_keeps(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    url = str(request.getfixturevalue("postgres_url")) if kind == "postgres" else url_in(tmp_path, kind)
    with open_log(url) as log:
        require_the_same(spark, log, url, (ByActor,))


def require_the_same(spark: SparkSession, log: Log, url: str, views: Iterable[type[View]]) -> None:
    add(log, 300)
    say(log, 1, "poison", 2, stream="thing/bad", actor="user:eve")
    log.purge("thing/2", reason="a request")
    say(log, 3)
    for view in views:
        handle = log.view(view)
        handle.catch_up()
        live = kept(log, handle)
        done = rebuilt_on(spark, log, url, view())
        assert (done.same, done.switched, done.handed_over) == (True, True, log.head()), view
        assert done.checked > 0 or view is Total, view  # whose only key waits behind the poison
        assert kept(log, handle) == live, view
        assert handle.audit().ok, view


def test_a_view_that_was_never_run_answers_and_goes_on(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    say(log, *range(50))
    done = rebuilt_on(spark, log, url_of(tmp_path), Said())
    assert (done.same, done.handed_over, done.applied, done.keys) == (None, 50, 50, 1)
    say(log, "after")
    answer = log.view(Said).get("thing/x")
    assert (answer.state["count"], answer.position) == (51, 51)
    assert log.view(Said).audit().ok


def test_what_comes_in_while_spark_works_is_taken_by_the_runner(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    say(log, *range(20))
    derive = derive_on(spark, url_of(tmp_path), Causal(), log.catalog)

    def meanwhile(upto: Position) -> Iterator[Part]:
        parts = iter(derive(upto))
        first = next(parts)
        say(log, "meanwhile", "and more", actor="user:bob")
        log.admit([event("thing.said", payload={"value": "late"}, lamport=3, origin=_peer())])
        yield first
        yield from parts

    done = log.view(Causal).rebuild(derive=meanwhile)
    assert (done.handed_over, done.position) == (20, 23)
    digest = log.view(Causal).digest()
    assert log.view(Causal).rebuild().digest == digest


class Findable(Said):
    """Its rows are found by what was said last."""

    name = "findable"

    def text(self, state: dict[str, Any]) -> Text:
        return Text(title=str(state["values"][-1]))


def test_rows_from_spark_are_found_by_their_words(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    say(log, "one", "a red balloon")
    say(log, "a blue balloon", stream="thing/y")
    rebuilt_on(spark, log, url_of(tmp_path), Findable())
    assert [key for key, _ in log.view(Findable).search("red balloon")] == ["thing/x"]


# ---- what cannot be applied


def test_a_view_is_stopped_by_the_same_event(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    say(log, {"key": "a"}, {"key": "b"}, "no key", {"key": "a"}, "nor here")
    handle = log.view(Picky)
    handle.catch_up()
    live = kept(log, handle)
    assert live["stopped_at"] == 3
    assert rebuilt_on(spark, log, url_of(tmp_path), Picky()).same
    assert kept(log, handle) == live
    handle.skip(3, reason="a test")
    handle.skip(5, reason="a test")
    assert handle.get("a").state == {"count": 2}


# ---- when something happens on the way


def test_a_purge_while_spark_works_makes_it_begin_again(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    say(log, *range(10))
    say(log, "SENTINEL", stream="thing/gone")
    derive = derive_on(spark, url_of(tmp_path), Said(), log.catalog)
    times: list[int] = []

    def meanwhile(upto: Position) -> Iterator[Part]:
        for part in derive(upto):
            if not times:
                log.purge("thing/gone", reason="a request")
            times.append(upto)
            yield part

    done = log.view(Said).rebuild(derive=meanwhile)
    assert sorted(set(times)) == [11, 12]
    assert done.keys == 1
    everything = [
        data
        for build in builds_of(log.views.small_state, "said")
        for _, data in log.views.small_state.scan(build.rows)
    ]
    assert not any(b"SENTINEL" in data for data in everything)


def test_history_that_never_rests_is_reported(log: Log) -> None:
    say(log, 1)

    def never(upto: Position) -> Iterator[Part]:
        say(log, 1, stream="thing/gone")
        log.purge("thing/gone", reason="a request")
        yield Part(rows={"thing/x": b""})

    with pytest.raises(Busy, match="could not be derived"):
        log.view(Said).rebuild(derive=never)
    assert builds_of(log.views.small_state, "said") == []


@pytest.mark.parametrize("killed_after", [0, 1, 2])
def test_a_fold_that_fails_leaves_the_old_build_and_nothing_else(
    log: Log, monkeypatch: pytest.MonkeyPatch, killed_after: int
) -> None:
    say(log, 1)
    handle = log.view(Said)
    before = handle.digest()

    def breaks(upto: Position) -> Iterator[Part]:
        for number in range(killed_after):
            yield Part(rows={f"thing/{number}": b"not a row"})
        raise SparkFailed("the cluster went away")

    with pytest.raises(SparkFailed):
        handle.rebuild(derive=breaks)
    assert [build.number for build in builds_of(log.views.small_state, "said")] == [1]
    assert handle.digest() == before


def test_half_a_build_of_a_killed_process_is_never_taken_up(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    say(log, 1, 2)
    handle = log.view(Said)
    handle.catch_up()

    def killed(upto: Position) -> Iterator[Part]:
        yield Part(rows={"thing/other": b"not a row"})
        monkeypatch.setattr(
            "everlog.views.rebuild.elsewhere._drop", lambda small_state, build: None
        )  # as after kill -9
        raise SparkFailed("killed")

    with pytest.raises(SparkFailed):
        handle.rebuild(derive=killed)
    assert [build.version for build in builds_of(log.views.small_state, "said")] == [1, FILLING]
    done = handle.rebuild()
    assert (done.resumed_at, done.keys, done.same) == (0, 1, True)
    assert FILLING not in [build.version for build in builds_of(log.views.small_state, "said")]


def test_a_build_that_says_something_else_does_not_answer(log: Log, spark: SparkSession, tmp_path: Path) -> None:
    say(log, 1, 2, 3)
    derive = derive_on(spark, url_of(tmp_path), Said(), log.catalog)

    def lies(upto: Position) -> Iterator[Part]:
        for part in derive(upto):
            part.rows = {key: data.replace(b'"count":3', b'"count":4') for key, data in part.rows.items()}
            yield part

    for _ in ("nothing to compare with", "a build to compare with"):
        with pytest.raises(Damaged, match="with other states than here"):
            log.view(Said).rebuild(derive=lies)
        assert log.view(Said).get("thing/x").state["count"] == 3


def test_a_wrong_build_before_it_is_replaced(log: Log, spark: SparkSession, tmp_path: Path) -> None:
    say(log, 1, 2, 3)
    handle = log.view(Said)
    handle.catch_up()
    build = handle.build()
    assert build is not None
    with log.views.small_state.change() as change:
        rows = dict(log.views.small_state.scan(build.rows))
        change.put(build.rows, {key: data.replace(b'"count":3', b'"count":4') for key, data in rows.items()})
    done = rebuilt_on(spark, log, url_of(tmp_path), Said())
    assert (done.same, done.differing, done.switched) == (False, ("thing/x",), True)
    assert log.view(Said).get("thing/x").state["count"] == 3


# ---- how a view gets to the workers


def test_a_view_of_a_function_is_sent_as_its_code(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    limit = 2

    class Local(View):
        name = "local"

        def apply(self, state: Any, event: Event) -> Any:
            return {"last": [*state.get("last", []), event.payload["value"]][-limit:]}

    say(log, 1, 2, 3)
    rebuilt_on(spark, log, url_of(tmp_path), Local())
    assert log.view(Local).get("thing/x").state == {"last": [2, 3]}


def test_a_view_that_cannot_be_sent_says_why(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    import threading

    class Locked(Said):
        name = "locked"

        def __init__(self) -> None:
            self.lock = threading.Lock()

    say(log, 1)
    with pytest.raises(InvalidField, match="cannot be sent to Spark's workers"):
        rebuilt_on(spark, log, url_of(tmp_path), Locked())


def test_a_view_that_breaks_in_the_worker_names_itself(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    import os

    class Fickle(Said):
        name = "fickle"

        def key(self, event: Event) -> str:
            return os.urandom(8).hex()

    say(log, 1)
    with pytest.raises(InvalidField, match="the view fickle gave one event the keys"):
        rebuilt_on(spark, log, url_of(tmp_path), Fickle())


def test_a_log_in_memory_is_refused(spark: SparkSession, make_log: Callable[..., Log]) -> None:
    with make_log("memory") as log:
        say(log, 1)
        with pytest.raises(InvalidSettings, match="memory: cannot be read by Spark"):
            rebuilt_on(spark, log, "memory:", Said())


def _peer() -> str:
    return "01PEER" + event().id[6:]

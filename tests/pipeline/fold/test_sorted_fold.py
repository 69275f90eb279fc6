"""The fold of sorted batches gives what the live runner keeps: rows, dead letters and places, in whatever batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.pipeline.conftest import sorted_batches
from tests.views.conftest import ALL, ByActor, Causal, Picky, Said, Total
from tests.views.test_histories import HISTORIES, History, poison, say

from everlog.core.event import Event
from everlog.errors import InvalidField
from everlog.log.log import Log
from everlog.pipeline.fold import sorted_fold
from everlog.pipeline.fold.sorted_fold import APPLIED, FOLDED_SCHEMA, LATE, LETTER, ROW, STOP, SortedFold, with_keys
from everlog.pipeline.source.rows import batch_of
from everlog.stores.small_state import MemoryState
from everlog.views.builds.build import begin_build
from everlog.views.builds.content import applied_blocks
from everlog.views.builds.open_build import OpenBuild
from everlog.views.builds.rows import kept_parts
from everlog.views.builtin import Streams
from everlog.views.view import View

SIZES = (1, 3, 10_000)


class Kept:
    """What the live runner has on its small state after the whole log."""

    def __init__(self, log: Log, view: View) -> None:
        small_state = MemoryState()
        with small_state.change() as change:
            build = begin_build(change, view)
        builder = OpenBuild(log, small_state, view, build, live=False)
        builder.catch_up(limit=5)
        build = builder.build
        self.rows = {key: kept_parts(data) for key, data in small_state.scan(build.rows)}
        self.letters = [_plain(msgspec.to_builtins(letter)) for letter in builder.dead_letters()]
        self.places = dict(applied_blocks(small_state, build))
        self.stopped_at = build.stopped_at


def _plain(letter: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in letter.items() if name not in ("at_us", "trace")}


class Result:
    """What a fold of batches came to."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        found = pa.Table.from_batches(list(batches), schema=FOLDED_SCHEMA).to_pylist()
        self.rows: dict[str, tuple[Any, ...]] = {}
        self.last: dict[str, int] = {}
        self.letters: list[dict[str, Any]] = []
        self.places: dict[int, int] = {}
        self.late = sorted(row["key"] for row in found if row["what"] == LATE)
        self.stops = sorted(row["position"] for row in found if row["what"] == STOP)
        for row in found:
            if row["what"] == ROW:
                assert row["key"] not in self.rows, "a key was handed on twice"
                sources = None if row["sources"] is None else msgspec.json.decode(row["sources"])
                state = row["state"].encode()
                self.rows[row["key"]] = (row["count"], row["lamport"], row["id"], sources, state)
                self.last[row["key"]] = row["position"]
            elif row["what"] in (LETTER, STOP):
                self.letters.append(_plain(msgspec.json.decode(row["letter"])))
            elif row["what"] == APPLIED:
                before = self.places.get(row["position"], 0)
                self.places[row["position"]] = before | int.from_bytes(row["bits"])
        self.letters.sort(key=lambda letter: letter["position"])


def folded(log: Log, view: View, *, size: int, upto: int | None = None, **options: Any) -> Result:
    batches = sorted_batches(log, view, size=size, upto=upto)
    return Result(SortedFold(view, log.catalog, **options).run(batches))


def require_same(log: Log, view: View, size: int) -> None:
    kept, found = Kept(log, view), folded(log, view, size=size)
    if found.stops:
        # Everything before the first such event counts, and nothing else: who drives the fold repeats it so.
        stop = found.stops[0]
        letter = next(letter for letter in found.letters if letter["position"] == stop)
        found = folded(log, view, size=size, upto=stop - 1)
        assert not found.stops
        assert kept.stopped_at == stop
        found.letters.append(letter)
    else:
        assert kept.stopped_at == 0
    assert found.rows == kept.rows
    assert found.letters == kept.letters
    assert found.places == kept.places
    assert not found.late


@pytest.mark.parametrize("size", SIZES)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=HISTORIES)
def test_any_history_gives_what_the_runner_keeps(
    make_log: Callable[..., Log], size: int, history: list[tuple[Any, ...]]
) -> None:
    with make_log("memory") as log:
        run = History(log)
        for step in history:
            run.do(*step)
        for view in ALL:
            require_same(log, view(), size)


@pytest.mark.parametrize("size", SIZES)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(st.one_of(say, say, poison), max_size=30))
def test_poison_leaves_the_same_dead_letters(
    make_log: Callable[..., Log], size: int, history: list[tuple[Any, ...]]
) -> None:
    with make_log("memory") as log:
        for what, stream, actor, value in history:
            History(log).do(what, stream, actor, value)
        for view in ALL:
            require_same(log, view(), size)


class Unsayable(Said):
    """Says, for one value, what JSON cannot."""

    name = "unsayable"

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return {"said": {1, 2}} if event.payload["value"] == "a set" else super().apply(state, event)


@pytest.mark.parametrize("size", SIZES)
def test_a_state_that_json_cannot_say_is_the_letter_of_its_event(make_log: Callable[..., Log], size: int) -> None:
    with make_log("memory") as log:
        _say(log, ["x", 1], ["y", 1], ["x", "a set"], ["x", 2], ["y", 2])
        require_same(log, Unsayable(), size)
        assert [letter["what"] for letter in folded(log, Unsayable(), size=size).letters] == ["failed", "waiting"]


@pytest.mark.parametrize("size", SIZES)
def test_an_event_without_a_computable_key_stops_the_view_there(make_log: Callable[..., Log], size: int) -> None:
    with make_log("memory") as log:
        _say(log, ["x", {"key": "a"}], ["x", {"key": "b"}], ["y", "no key"], ["y", {"key": "a"}], ["z", "none"])
        assert folded(log, Picky(), size=size).stops == [3, 5]
        require_same(log, Picky(), size)


class NoText(Said):
    name = "no-text"

    def key(self, event: Event) -> str | None:
        return 7 if event.payload["value"] == 7 else "all"  # type: ignore[return-value]


def test_a_key_that_is_no_text_stops_the_view(make_log: Callable[..., Log]) -> None:
    with make_log("memory") as log:
        _say(log, ["x", 1], ["x", 7], ["x", 2])
        require_same(log, NoText(), 2)


def test_old_events_are_brought_up_to_date_and_one_that_cannot_be_is_a_letter(make_log: Callable[..., Log]) -> None:
    class Lanes(View):
        name = "lanes"

        def apply(self, state: Any, event: Event) -> Any:
            return {"lane": event.payload["went_to"], "version": event.version}

    from everlog.testing.builders import event

    with make_log("memory") as log:
        for number, payload in enumerate([{"new_status": "doing"}, {"nothing": "of that kind"}], start=1):
            log.admit([event("workpackage.moved", stream=f"workpackage/{number}", payload=payload, origin=_peer())])
        require_same(log, Lanes(), 10)
        found = folded(log, Lanes(), size=10)
        assert found.rows["workpackage/1"][4] == b'{"lane":"doing","version":2}'
        assert [letter["key"] for letter in found.letters] == ["workpackage/2"]


def test_events_that_come_twice_count_once(make_log: Callable[..., Log]) -> None:
    with make_log("memory") as log:
        _say(log, *(["x", number] for number in range(10)))
        for view in (Said(), Causal()):
            twice = sorted_batches(log, view, size=100)
            doubled = pa.Table.from_batches(twice * 2).sort_by([("key", "ascending"), ("position", "ascending")])
            for size in (1, 2, 7):
                found = Result(SortedFold(view, log.catalog).run(doubled.to_batches(max_chunksize=size)))
                assert found.rows == folded(log, view, size=100).rows


# ---- going on from stored rows


def test_stored_rows_and_what_came_after_give_the_whole(make_log: Callable[..., Log]) -> None:
    with make_log("memory") as log:
        _say(log, *([f"s{number % 3}", number] for number in range(20)))
        for view in (Said(), ByActor(), Total(), Causal(), Streams()):
            for upto in (1, 7, 19):
                before = folded(log, view, size=4, upto=upto)
                batches = sorted_batches(log, view, size=3, after=upto, stored=before)
                after = Result(SortedFold(view, log.catalog).run(batches))
                whole = folded(log, view, size=50)
                assert after.rows == whole.rows
                assert after.last == whole.last


def test_a_late_event_asks_for_its_key_to_be_folded_again(make_log: Callable[..., Log]) -> None:
    from everlog.testing.builders import event

    with make_log("memory") as log:
        _say(log, *(["x", number] for number in range(5)))
        before = folded(log, Causal(), size=4)
        log.admit([event("thing.said", payload={"value": "late"}, lamport=2, origin=_peer(), actor="user:ada")])
        log.admit([event("thing.said", payload={"value": "on time"}, lamport=99, origin=_peer(), actor="user:bob")])
        log.admit([event("thing.said", payload={"value": "on time"}, lamport=100, origin=_peer(), actor="user:ada")])
        for size in (1, 10):
            batches = sorted_batches(log, Causal(), size=size, after=5, stored=before)
            found = Result(SortedFold(Causal(), log.catalog).run(batches))
            assert found.late == ["user:ada"]
            assert list(found.rows) == ["user:bob"], "the row of a late key is worth nothing"


def test_events_of_a_parked_key_wait(make_log: Callable[..., Log]) -> None:
    with make_log("memory") as log:
        _say(log, ["x", 0], ["x", "poison"], ["y", 2])
        before = folded(log, Said(), size=10)
        _say(log, ["x", 3], ["y", 4])
        batches = sorted_batches(log, Said(), size=1, after=3, stored=before)
        found = Result(SortedFold(Said(), log.catalog, parked={"thing/x": (2, "")}).run(batches))
        assert [(letter["position"], letter["what"]) for letter in found.letters] == [(4, "waiting")]
        assert found.rows["thing/x"] == before.rows["thing/x"]
        assert found.rows["thing/y"] != before.rows["thing/y"]


# ---- what is not pure, and what takes no memory


class Fickle(Said):
    name = "fickle"
    calls: ClassVar[int] = 0

    def key(self, event: Event) -> str:
        Fickle.calls += 1
        return f"key {Fickle.calls}"


def test_a_view_whose_keys_change_is_refused(make_log: Callable[..., Log]) -> None:
    with make_log("memory") as log:
        _say(log, ["x", 1])
        with pytest.raises(InvalidField, match="one event the keys 'key 1' and 'key 2'"):
            folded(log, Fickle(), size=10)


def test_applied_positions_are_passed_on_in_parts(
    monkeypatch: pytest.MonkeyPatch, make_log: Callable[..., Log]
) -> None:
    monkeypatch.setattr(sorted_fold, "HELD_MAX", 4)
    with make_log("memory") as log:
        _say(log, *([f"s{number % 5}", number] for number in range(30)))
        require_same(log, Said(), 2)
        assert folded(log, Said(), size=2, with_applied=False).places == {}


def test_one_long_stream_holds_one_row(make_log: Callable[..., Log]) -> None:
    with make_log("memory") as log:
        _say(log, *(["x", number] for number in range(40)))
        task = SortedFold(Said(), log.catalog)
        for _ in task.run(sorted_batches(log, Said(), size=5)):
            assert len(task._rows) <= 1
            assert len(task._kept) <= 1


def test_an_event_left_out_keeps_only_its_position(make_log: Callable[..., Log]) -> None:
    with make_log("memory") as log:
        log.append("thing.said", stream="thing/x", payload={"value": 1}, actor="user:nobody")
        (batch,) = with_keys(ByActor(), log.catalog, [batch_of(log._store.read())])
        (row,) = batch.to_pylist()
        assert row.pop("position") == 1
        assert set(row.values()) == {None}


def _say(log: Log, *said: Sequence[Any]) -> None:
    for stream, value in said:
        log.append("thing.said", stream=f"thing/{stream}", payload={"value": value}, actor="user:ada")


def _peer() -> str:
    from everlog.testing.builders import event

    return "01PEER" + event().id[6:]

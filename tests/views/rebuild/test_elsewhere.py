"""A build whose beginning was derived elsewhere: filled in parts, continued here, checked, dropped if it is wrong.

Elsewhere is this process here; `tests/pipeline/engines` has it on Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.views.conftest import ByActor, Causal, Picky, Said
from tests.views.said import from_nothing, say

from everlog.core.event import Position
from everlog.errors import Busy, Damaged
from everlog.log.dead_letters import STOPPED
from everlog.log.log import Log
from everlog.views.builds.build import builds_of, drop_build
from everlog.views.builds.content import BLOCK
from everlog.views.builds.rows import Row
from everlog.views.dead_letters import ViewLetter
from everlog.views.fold import fold, in_causal_order, kept_rows, nothing_kept
from everlog.views.rebuild import elsewhere
from everlog.views.rebuild.elsewhere import Derive, Part
from everlog.views.registry import live_view
from everlog.views.view import Order, View


@pytest.fixture(params=["memory", "sqlite"])
def log(make_log: Callable[..., Log], request: pytest.FixtureRequest) -> Log:
    return make_log(str(request.param))


def derived(log: Log, view: View, *, asked: list[int] | None = None) -> Derive:
    """Return what derives a view in one part for every key, as a cluster might."""

    def derive(upto: Position) -> Iterator[Part]:
        if asked is not None:
            asked.append(upto)
        records = list(log.stored.read(view.query, upto=upto))
        records = in_causal_order(records) if view.order is Order.CAUSAL else records
        rows: dict[str, Row] = {}
        done = fold(view, rows, records, upcast=log.catalog.upcast)
        stops = [] if done.stopped is None else [_letter(done.stopped.recorded, done.stopped.reason)]
        for key, kept in kept_rows(view, rows, done, nothing_kept).items():
            yield Part(rows={key: kept})
        for position in done.applied:
            yield Part(places={position // BLOCK: 1 << position % BLOCK})
        for stop in stops:
            yield Part(stops=[stop])

    return derive


def _letter(recorded: Any, reason: str) -> ViewLetter:
    event = recorded.event
    return ViewLetter(recorded.position, event.id, event.type, event.stream, STOPPED, "", reason)


@pytest.mark.parametrize("view", [Said, ByActor, Causal])
def test_it_is_what_it_would_be_here_and_goes_on(log: Log, view: type[View], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "_ROWS_AT_ONCE", 2)
    for number in range(12):
        say(log, number, stream=f"thing/{number % 5}", actor=f"user:u{number % 3}")
    handle = live_view(log, view)
    plain = handle.rebuild()
    assert (plain.handed_over, plain.checked, plain.replaced) == (0, 0, 0)
    done = handle.rebuild(derive=derived(log, view()))
    assert (done.handed_over, done.position, done.applied, done.keys) == (12, 12, 12, plain.keys)
    assert (done.same, done.digest, done.checked, done.replaced) == (True, plain.digest, plain.keys, plain.build)
    say(log, "later")
    assert handle.digest() == from_nothing(log, view)
    assert handle.audit().ok
    assert handle.rebuild(derive=derived(log, view()), switch=False).same


def test_a_sample_of_the_keys_is_folded_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        say(log, number, stream=f"thing/{number % 25:02}")
    assert live_view(log, Said).rebuild(derive=derived(log, Said())).checked == elsewhere.KEYS == 20
    monkeypatch.setattr(elsewhere, "KEYS", 5)
    assert live_view(log, Said).rebuild(derive=derived(log, Said())).checked == 5
    monkeypatch.setattr(elsewhere, "EVENTS_MAX", 2)
    assert live_view(log, Said).rebuild(derive=derived(log, Said())).checked == 5
    monkeypatch.setattr(elsewhere, "EVENTS_MAX", 1)
    assert live_view(log, Said).rebuild(derive=derived(log, Said())).checked == 0


def test_other_states_than_here_are_refused_and_what_answered_answers(log: Log) -> None:
    class Wrong(Said):
        def initial(self) -> dict[str, Any]:
            return {"values": ["wrong"], "count": 0}

    say(log, 1)
    say(log, 2, stream="thing/2")
    handle = live_view(log, Said)
    with pytest.raises(Damaged, match="other states than here") as caught:
        handle.rebuild(derive=derived(log, Wrong()))
    assert sorted(caught.value.details["keys"]) == ["thing/1", "thing/2"]
    assert builds_of(log.views.small_state, "said") == []
    digest = handle.digest()
    with pytest.raises(Damaged, match="2 keys folded again, 2 differ"):
        handle.rebuild(derive=derived(log, Wrong()))
    assert (handle.digest(), len(builds_of(log.views.small_state, "said"))) == (digest, 1)


def test_a_purge_meanwhile_begins_it_again(log: Log) -> None:
    for number in range(4):
        say(log, number, stream=f"thing/{number}")
    asked: list[int] = []
    whole = derived(log, Said(), asked=asked)

    def derive(upto: Position) -> Iterator[Part]:
        parts = list(whole(upto))
        if len(asked) == 1:
            log.purge("thing/2", reason="asked to")
        yield from parts

    done = live_view(log, Said).rebuild(derive=derive)
    assert asked == [4, 5]
    assert (done.keys, done.handed_over) == (3, 5)
    assert live_view(log, Said).audit().ok
    assert [build.number for build in builds_of(log.views.small_state, "said")] == [done.build]


def test_a_build_that_another_process_removes_meanwhile_is_begun_again_so_often(log: Log) -> None:
    say(log, 1)
    asked: list[int] = []
    whole = derived(log, Said(), asked=asked)

    def derive(upto: Position) -> Iterator[Part]:
        if len(asked) < 2:
            _remove(log)
        yield from whole(upto)

    assert live_view(log, Said).rebuild(derive=derive).keys == 1
    assert len(asked) == 3
    asked.clear()

    def always(upto: Position) -> Iterator[Part]:
        _remove(log)
        yield from whole(upto)

    with pytest.raises(Busy, match="could not be derived") as caught:
        live_view(log, Said).rebuild(derive=always)
    assert "3 times" in caught.value.why
    assert len(asked) == 3


def _remove(log: Log) -> None:
    """Remove the builds that are being filled."""
    small_state = log.views.small_state
    with small_state.change() as change:
        for build in builds_of(small_state, "said"):
            if build.version == elsewhere.FILLING:
                drop_build(change, build)


def test_a_failure_elsewhere_leaves_nothing(log: Log) -> None:
    say(log, 1)
    whole = derived(log, Said())

    def derive(upto: Position) -> Iterator[Part]:
        yield from whole(upto)
        (build,) = builds_of(log.views.small_state, "said")
        assert (build.version, build.complete) == (elsewhere.FILLING, False)
        raise ValueError("the cluster is gone")

    with pytest.raises(ValueError, match="the cluster is gone"):
        live_view(log, Said).rebuild(derive=derive)
    assert builds_of(log.views.small_state, "said") == []


def test_an_event_without_a_key_stops_it_there(log: Log) -> None:
    for value in ({"key": "a"}, {"key": "b"}, "no key", {"key": "c"}):
        say(log, value)
    asked: list[int] = []
    handle = live_view(log, Picky)
    done = handle.rebuild(derive=derived(log, Picky(), asked=asked))
    assert asked == [4, 2]
    assert (done.handed_over, done.keys) == (2, 2)
    build = handle.build()
    assert build is not None
    assert (build.stopped_at, build.version) == (3, 1)
    assert [(letter.position, letter.what) for letter in handle.dead_letters()] == [(3, STOPPED)]


def test_the_first_event_without_a_key_counts_and_a_key_that_changes_is_refused(log: Log) -> None:
    for number in range(5):
        say(log, {"key": f"{number}"})
    records = list(log.stored.read())
    asked: list[int] = []

    def derive(upto: Position) -> Iterator[Part]:
        asked.append(upto)
        yield Part(stops=[_letter(records[place], "boom") for place in (3, 1, 2) if len(asked) == 1])

    handle = live_view(log, Picky)
    handle.rebuild(derive=derive)
    assert asked == [5, 1]

    def never_the_same(upto: Position) -> Iterator[Part]:
        yield Part(stops=[_letter(records[0], "boom")])

    with pytest.raises(Damaged, match="a key the first time, and none the second time"):
        handle.rebuild(derive=never_the_same)

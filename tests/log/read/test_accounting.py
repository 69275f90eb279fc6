"""A position that nothing accounts for ends every read with Damaged, whatever the store noticed of it (G10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from everlog import aio
from everlog.core.event import Position, Recorded
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged, ReadOnly
from everlog.log.log import Log
from everlog.log.read.accounting import accounted_slots
from everlog.log.write.draft import Draft
from everlog.stores.past_damage import StorePastDamage

EVENTS = 12
LOST = (4, 5, 9)


@pytest.fixture
def lossy(make_log: Callable[..., Log]) -> Log:
    """A log whose store has lost some positions and does not notice."""
    log = make_log("memory")
    _fill(log)
    places = log._store._slots  # type: ignore[attr-defined]
    places[:] = [place for place in places if place.position not in LOST]
    return log


@pytest.fixture
def noticing(make_log: Callable[..., Log]) -> Log:
    """A log whose store has lost some positions and raises, as every store that keeps files does."""
    log = make_log("memory")
    _fill(log)
    log._store.read = _noticing(log._store.read)  # type: ignore[method-assign]
    return log


def _fill(log: Log) -> None:
    drafts = [
        Draft(type="thing.said", stream=f"thing/{number % 2}", payload={"value": number})
        for number in range(1, EVENTS + 1)
    ]
    log.append_batch(drafts)


def _noticing(whole: Callable[..., Any]) -> Callable[..., Any]:
    def read(
        query: Query = EVERYTHING,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: Any = None,
        newest_first: Any = 0,
    ) -> Any:
        last = EVENTS if upto is None else upto
        runs = [(4, 5), (9, 9)]
        hit = [(low, high) for low, high in runs if high > after and low <= last]
        for recorded in whole(after=after, upto=upto, newest_first=newest_first):
            gone = next(
                (
                    run
                    for run in hit
                    if (recorded.position <= run[1] if newest_first else recorded.position >= run[0])
                ),
                None,
            )
            if gone is not None:
                raise Damaged("lost", position=gone[0], after=gone[1])
            if query.matches(recorded):
                yield recorded
                if limit is not None:
                    limit -= 1
                    if not limit:
                        return

    return read


def _read(records: Any) -> tuple[list[int], Damaged]:
    found: list[int] = []
    with pytest.raises(Damaged) as raised:
        found.extend(recorded.position for recorded in records)
    return found, raised.value


@pytest.mark.parametrize("kind", ["lossy", "noticing"])
def test_a_read_stops_at_the_first_lost_position_and_says_where_to_go_on(
    kind: str, request: pytest.FixtureRequest
) -> None:
    log: Log = request.getfixturevalue(kind)
    found, error = _read(log.read())
    assert found == [1, 2, 3]
    assert (error.details["position"], error.details["after"]) == (4, 5)
    found, error = _read(log.read(after=error.details["after"]))
    assert found == [6, 7, 8]
    assert [recorded.position for recorded in log.read(after=error.details["after"])] == [10, 11, 12]


def test_a_position_that_a_purge_reserved_divides_what_is_lost(make_log: Callable[..., Log]) -> None:
    """The first part is reported first: a reader that goes on after the second one would pass the first unnoticed."""
    log = make_log("memory")
    for stream in ("thing/1", "thing/1", "thing/1", "thing/2"):
        log.append("thing.said", stream=stream, payload={"value": 0})
    log.purge("thing/2", reason="asked to")
    for _ in range(3):
        log.append("thing.said", stream="thing/1", payload={"value": 0})
    assert [purge.reserved for purge in log.stored.purges()] == [5]
    places = log._store._slots  # type: ignore[attr-defined]
    places[:] = [place for place in places if place.position not in (3, 4, 6, 7)]

    found, error = _read(log.read())
    assert (found, error.details["position"], error.details["after"]) == ([1, 2], 3, 4)
    found, error = _read(log.read(after=error.details["after"]))
    assert (found, error.details["position"], error.details["after"]) == ([], 6, 7)
    assert [recorded.position for recorded in log.read(after=error.details["after"])] == [8]


@pytest.mark.parametrize("kind", ["lossy", "noticing"])
@pytest.mark.parametrize("limit", [1, 2, 500])
def test_a_page_ends_before_the_damage_and_the_next_one_raises(
    kind: str, limit: int, request: pytest.FixtureRequest
) -> None:
    log: Log = request.getfixturevalue(kind)
    cursor: Any = 0
    seen: list[int] = []
    with pytest.raises(Damaged) as raised:
        while True:
            page = log.page_after(cursor, limit=limit)
            assert not page.at_head
            seen += [recorded.position for recorded in page.events]
            cursor = page.next_cursor
    assert seen == [1, 2, 3]
    assert raised.value.details["position"] == 4
    page = log.page_after(raised.value.details["after"], limit=limit)
    assert page.events[0].position == 6


def test_a_page_without_a_match_before_the_damage_does_not_pass_it(noticing: Log) -> None:
    page = noticing.page_after(0, Query(stream="thing/none"))
    assert page.events == ()
    assert page.next_cursor.position == 3
    with pytest.raises(Damaged):
        noticing.page_after(page.next_cursor, Query(stream="thing/none"))


@pytest.mark.parametrize("kind", ["lossy", "noticing"])
def test_whoever_follows_gets_what_comes_before_and_then_the_error(kind: str, request: pytest.FixtureRequest) -> None:
    log: Log = request.getfixturevalue(kind)
    found, error = _read(log.subscribe(0, to_end=True))
    assert found == [1, 2, 3]
    assert error.details["after"] == 5

    async def follow() -> list[int]:
        seen: list[int] = []
        with pytest.raises(Damaged):
            async for item in aio.subscribe(log, 0, to_end=True):
                assert isinstance(item, Recorded)
                seen.append(item.position)
        return seen

    assert asyncio.run(follow()) == [1, 2, 3]


def test_lost_events_at_the_end_are_noticed(make_log: Callable[..., Log]) -> None:
    log = make_log("memory")
    _fill(log)
    del log._store._slots[10:]  # type: ignore[attr-defined]
    page = log.page_after(0)
    assert page.next_cursor.position == 10
    with pytest.raises(Damaged) as raised:
        log.page_after(page.next_cursor)
    assert (raised.value.details["position"], raised.value.details["after"]) == (11, 12)


def test_purged_positions_are_no_damage_and_do_not_hide_any(make_log: Callable[..., Log]) -> None:
    log = make_log("memory")
    _fill(log)
    log.purge("thing/0", reason="test")
    log.append("thing.said", stream="thing/1", payload={"value": 0})
    assert [recorded.position for recorded in log.read()] == [1, 3, 5, 7, 9, 11, 14]
    assert log.page_after(0).at_head
    log._store._slots[:] = [  # type: ignore[attr-defined]
        place
        for place in log._store._slots  # type: ignore[attr-defined]
        if place.position not in (1, 3, 5, 7, 9, 11)
    ]
    with pytest.raises(Damaged) as raised:
        list(log.read())
    assert raised.value.details["position"] == 1


def test_a_purge_before_the_cursor_explains_nothing_after_it(make_log: Callable[..., Log]) -> None:
    log = make_log("memory")
    _fill(log)
    purge = log.purge("thing/0", reason="test")
    for number in range(3):
        log.append("thing.said", stream="thing/1", payload={"value": number})
    lost = purge.reserved + 2
    places = log._store._slots  # type: ignore[attr-defined]
    places[:] = [place for place in places if place.position != lost]

    found, error = _read(log.read(after=purge.reserved))

    assert (found, error.details["position"]) == ([lost - 1], lost)


@pytest.mark.parametrize("newest_first", [False, True])
def test_past_damage_gives_the_rest_and_reports_what_is_left_out(noticing: Log, newest_first: bool) -> None:
    reported: list[tuple[int, int]] = []

    def report(error: Damaged) -> None:
        reported.append((error.details["position"], error.details["after"]))

    found = [recorded.position for recorded in noticing.read(newest_first=newest_first, past_damage=report)]
    assert sorted(found) == [1, 2, 3, 6, 7, 8, 10, 11, 12]
    assert found == sorted(found, reverse=newest_first)
    assert sorted(reported) == [(4, 5), (9, 9)]


def test_past_damage_keeps_to_the_limit(noticing: Log) -> None:
    found = noticing.read(limit=5, past_damage=lambda error: None)
    assert [recorded.position for recorded in found] == [1, 2, 3, 6, 7]


def test_damage_whose_place_is_not_known_is_never_passed(make_log: Callable[..., Log]) -> None:
    log = make_log("memory")

    def read(*_: Any, **__: Any) -> Any:
        raise Damaged("all of it")

    log._store.read = read  # type: ignore[method-assign]
    with pytest.raises(Damaged):
        list(log.read(past_damage=lambda error: None))


def test_a_log_that_is_read_past_its_damage_takes_no_writes(noticing: Log) -> None:
    with pytest.raises(ReadOnly):
        StorePastDamage(noticing._store, lambda error: None).open_write()
    assert noticing.head() == Position(EVENTS)


@pytest.mark.parametrize("lost", [(4,), (11, 12)], ids=["between", "at the end"])
def test_places_end_with_damaged_where_a_position_is_lost(
    make_log: Callable[..., Log], lost: tuple[int, ...]
) -> None:
    log = make_log("memory")
    _fill(log)
    places = log._store._slots  # type: ignore[attr-defined]
    head = log.head()
    places[:] = [place for place in places if place.position not in lost]
    log._store.head = lambda: head  # type: ignore[method-assign]
    taken: list[int] = []
    with pytest.raises(Damaged) as caught:
        taken.extend(place.position for place in accounted_slots(log.stored))
    assert taken == list(range(1, lost[0]))
    assert (caught.value.details["position"], caught.value.details["after"]) == (lost[0], lost[-1])

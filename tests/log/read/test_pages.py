"""Reading by cursor: pages that keep order and move on, and one reset when history changed underneath (G6, G8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlog.core.event import Position, Purge, Recorded
from everlog.core.query import EVERYTHING, Cursor, Query, Reset
from everlog.errors import InvalidField, SchemaBroken
from everlog.log.log import Log
from everlog.log.read import pages, resets
from everlog.log.write.draft import Draft
from everlog.stores.contract import Identity
from everlog.testing.builders import event


def fill(log: Log, count: int, *, rare_at: int = 0) -> None:
    drafts = [
        Draft(
            type="note.added" if number == rare_at else "thing.said",
            stream=f"thing/{number % 3}",
            payload={"text": "rare"} if number == rare_at else {"value": number},
            scope=f"acme/{number % 2}",
        )
        for number in range(1, count + 1)
    ]
    log.append_batch(drafts)


def all_pages(log: Log, query: Query = EVERYTHING, *, limit: int, after: Any = 0) -> list[Recorded]:
    found: list[Recorded] = []
    cursor = Cursor.of(after)
    while True:
        page = log.page_after(cursor, query, limit=limit)
        assert page.reset is None
        assert page.next_cursor.position >= cursor.position
        assert len(page.events) <= limit
        found += page.events
        cursor = Cursor.of(str(page.next_cursor))  # the text is all that a client keeps
        if page.at_head:
            return found


@pytest.mark.parametrize("limit", [1, 2, 7, 10, 11, 500])
@pytest.mark.parametrize(
    "query",
    [
        EVERYTHING,
        Query(stream="thing/1"),
        Query(types=frozenset(["thing.said"])),
        Query(scope="acme/1"),
        Query(kind="x"),
    ],
)
def test_pages_of_any_size_hold_what_one_read_holds(log: Log, query: Query, limit: int) -> None:
    """G6: a filter keeps positions and order."""
    fill(log, 10, rare_at=4)
    found = all_pages(log, query, limit=limit)
    assert found == [recorded for recorded in log.read() if query.matches(recorded)]
    assert [recorded.position for recorded in found] == sorted({recorded.position for recorded in found})


def test_a_page_without_matches_moves_to_the_head(log: Log) -> None:
    """F27: a reader with rare matches is not stuck behind what it does not want."""
    fill(log, 1000, rare_at=400)
    query = Query(types=frozenset(["note.added"]))
    page = log.page_after(0, query, limit=10)
    assert [recorded.position for recorded in page.events] == [400]
    assert page.next_cursor.position == page.head == 1000
    assert page.at_head
    again = log.page_after(page.next_cursor, query)
    assert (again.events, again.next_cursor.position) == ((), 1000)


def test_a_full_page_stops_at_its_last_event(log: Log) -> None:
    fill(log, 10)
    page = log.page_after(0, limit=4)
    assert (page.next_cursor.position, page.head, page.at_head) == (4, 10, False)


def test_a_limit_is_at_least_one(log: Log) -> None:
    for limit in (0, -1):
        with pytest.raises(InvalidField):
            log.page_after(0, limit=limit)


def test_an_empty_log_has_an_empty_page(log: Log) -> None:
    page = log.page_after(0)
    assert (page.events, page.next_cursor.position, page.reset) == ((), 0, None)
    assert page.at_head


# ---- resets


def test_a_replay_of_a_purged_log_sees_all_that_is_left_and_no_reset(log: Log) -> None:
    """Old purges are no news to a reader that begins now."""
    fill(log, 30)
    log.purge("thing/0", reason="test")
    fill(log, 5)
    log.purge("thing/1", reason="test")
    fill(log, 5)
    assert all_pages(log, limit=3) == list(log.read())


def test_a_cursor_from_before_gets_one_reset_however_many_purges(log: Log) -> None:
    """F31, F32."""
    fill(log, 9)
    old = log.page_after(0, limit=3).next_cursor
    for stream in ("thing/0", "thing/1", "thing/2"):
        greatest = log.purge(stream, reason="test").reserved
    fill(log, 3)
    for cursor in (old, "3", 3, str(old)):
        page = log.page_after(cursor)
        assert page.events == ()
        assert page.reset is not None
        assert (page.reset.cursor.position, page.reset.reason) == (greatest, "purged")
        assert page.next_cursor == page.reset.cursor
    after = log.page_after(page.next_cursor)
    assert after.reset is None
    assert [recorded.position for recorded in after.events] == [greatest + 1, greatest + 2, greatest + 3]


def test_a_reader_in_the_middle_of_a_purged_log_is_told_of_later_purges_only(log: Log) -> None:
    fill(log, 9)
    old = log.purge("thing/0", reason="test").reserved
    middle = log.page_after(0, limit=2).next_cursor
    assert middle.position < old
    assert middle.knows == old
    assert log.page_after(middle, limit=2).reset is None
    newer = log.purge("thing/1", reason="test").reserved
    told = log.page_after(middle, limit=2)
    assert told.reset is not None
    assert told.reset.cursor.position == newer


def test_a_reader_past_the_purge_hears_nothing(log: Log) -> None:
    fill(log, 9)
    reserved = log.purge("thing/0", reason="test").reserved
    assert log.page_after(reserved).reset is None
    assert log.page_after(int(reserved) - 1).reset is not None


@pytest.mark.parametrize(
    ("query", "touched"),
    [
        (EVERYTHING, True),
        (Query(stream="thing/0"), True),
        (Query(stream="thing/1"), False),
        (Query(kind="thing"), True),
        (Query(kind="note"), False),
        (Query(kind="thin"), False),
        (Query(scope="acme"), True),
        (Query(scope="acme/0"), True),
        (Query(scope="acme/0/deeper"), True),
        (Query(scope="other"), False),
        (Query(scope="acm"), False),
        (Query(stream="thing/0", scope="other"), False),
        (Query(types=frozenset(["note.added"])), True),  # a purge record does not tell types
    ],
)
def test_a_purge_elsewhere_is_no_reset(log: Log, query: Query, touched: bool) -> None:
    """F32: per scope, stream and kind only."""
    fill(log, 9)
    log.purge("thing/0", reason="test")
    assert (log.page_after(1, query).reset is not None) == touched


def test_a_cursor_ahead_of_the_log_is_reset_and_not_left_in_silence(log: Log) -> None:
    """F30."""
    fill(log, 3)
    page = log.page_after(99)
    assert page.reset == Reset(Cursor(epoch=log.identity.epoch), "restored")
    assert log.page_after(page.next_cursor).reset is None


def test_a_cursor_of_another_copy_is_reset(log: Log) -> None:
    fill(log, 3)
    page = log.page_after("2@another1")
    assert page.reset == Reset(Cursor(epoch=log.identity.epoch), "restored")
    assert log.page_after(f"2@{log.identity.epoch}").reset is None


def test_a_purge_between_the_steps_of_a_page_is_met_by_the_next_one(make_log: Callable[..., Log]) -> None:
    """F31: the head is taken first; whatever commits after that has a position above the page."""
    for begin in (0, 1):
        for step in ("head", "purges", "read"):
            log = make_log("memory")
            fill(log, 9)
            store = PurgesBefore(log, step)
            page = pages.page_after(store, Cursor(Position(begin)), limit=500)  # type: ignore[arg-type]
            assert store.purged
            following = page if page.reset is not None else log.page_after(page.next_cursor)
            seen = {recorded.event.stream for recorded in page.events}
            if begin:  # this reader holds state from before the purge, so it must be told
                assert following.reset is not None
            assert following.reset is not None or "thing/0" not in seen


class PurgesBefore:
    """A store under whose reader a stream is purged, just before one of its questions is answered."""

    def __init__(self, log: Log, step: str) -> None:
        self._log, self._step = log, step
        self.purged = False

    @property
    def identity(self) -> Identity:
        return self._log.identity

    def head(self) -> Position:
        self._purge("head")
        return self._log.head()

    def purges(self, **options: Any) -> Any:
        self._purge("purges")
        return self._log._store.purges(**options)

    def read(self, *arguments: Any, **options: Any) -> Any:
        self._purge("read")
        return self._log._store.read(*arguments, **options)

    def slots(self, **options: Any) -> Any:
        return self._log._store.slots(**options)

    def _purge(self, step: str) -> None:
        if step == self._step and not self.purged:
            self.purged = True
            self._log.purge("thing/0", reason="test")


# ---- poll parity: whatever happens in between, a reader that polls ends with the state of a fresh fold

STREAMS = ["thing/0", "thing/1", "other/2"]
QUERIES = [EVERYTHING, Query(stream="thing/0"), Query(kind="thing"), Query(scope="acme"), Query(scope="acme/x")]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(STREAMS), st.sampled_from(["", "acme", "acme/x", "other"])),
        st.tuples(st.just("purge"), st.sampled_from(STREAMS), st.just("")),
        st.tuples(st.just("poll"), st.integers(1, 4), st.sampled_from(range(len(QUERIES)))),
    ),
    max_size=40,
)


class PollingReader:
    """Applies events to its state; on a reset it drops the state and fetches it anew, up to the reset's cursor."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.cursor = "0"
        self.state: dict[str, list[str]] = {}
        self.resets_in_a_row = 0

    def poll(self, log: Log, limit: int) -> bool:
        page = log.page_after(self.cursor, self.query, limit=limit)
        if page.reset is not None:
            self.resets_in_a_row += 1
            assert self.resets_in_a_row == 1, "a reset that leads to a reset is more than one signal"
            self.state = fold(log.read(self.query, upto=page.reset.cursor.position))
        else:
            self.resets_in_a_row = 0
            for stream, ids in fold(page.events).items():
                self.state.setdefault(stream, []).extend(ids)
        self.cursor = str(page.next_cursor)
        return page.at_head and page.reset is None


def fold(records: Any) -> dict[str, list[str]]:
    state: dict[str, list[str]] = {}
    for recorded in records:
        state.setdefault(recorded.event.stream, []).append(recorded.event.id)
    return state


@given(STEPS)
def test_a_polling_reader_ends_with_the_state_of_a_fresh_fold(make_log: Callable[..., Log], steps: list[Any]) -> None:
    """G8 and poll parity: random appends, purges, page sizes and filters."""
    log = make_log("memory")
    readers = [PollingReader(query) for query in QUERIES]
    for step, one, other in steps:
        if step == "append":
            log.append("thing.said", stream=one, scope=other)
        elif step == "purge":
            if any(log.read(stream=one, limit=1)):
                log.purge(one, reason="test")
                for reader in readers:
                    reader.resets_in_a_row = 0
        else:
            readers[other].poll(log, one)
    for reader in readers:
        for _ in range(100):
            if reader.poll(log, 2):
                break
        assert reader.state == fold(log.read(reader.query))


def test_an_event_that_cannot_be_brought_up_to_date_hides_no_other(log: Log) -> None:
    log.append("thing.said", stream="thing/1", payload={"value": 1})
    log.admit([event("workpackage.moved", stream="workpackage/9", payload={"unheard": "of"})])
    log.append("thing.said", stream="thing/1", payload={"value": 3})

    first = log.page_after(0)
    assert [recorded.position for recorded in first.events] == [1]
    assert not first.at_head
    with pytest.raises(SchemaBroken) as caught:
        log.page_after(first.next_cursor)
    assert caught.value.details["position"] == 2
    assert [recorded.position for recorded in log.page_after(caught.value.details["position"]).events] == [3]

    read = log.read()
    assert next(read).position == 1
    with pytest.raises(SchemaBroken):
        next(read)
    assert [recorded.position for recorded in log.read(after=2)] == [3]


@pytest.mark.parametrize(
    ("cursor", "reason"),
    [
        (Cursor(Position(10), epoch="e"), ""),  # at the head
        (Cursor(Position(11), epoch="e"), "restored"),
        (Cursor(Position(7), epoch="e"), ""),  # at the place of the purge itself
        (Cursor(Position(6), epoch="e"), "purged"),
        (Cursor(Position(3), Position(7), "e"), ""),  # that knows of the purge
        (Cursor(Position(3), Position(6), "e"), "purged"),
        (Cursor(Position(0), epoch="e"), ""),  # from the beginning
        (Cursor(Position(10), epoch="another"), "restored"),
        (Cursor(Position(10)), ""),
    ],
)
def test_a_cursor_is_reset_exactly_where_history_changed_under_it(cursor: Cursor, reason: str) -> None:
    class Store:
        identity = Identity("log", "origin", "e", 0)

        def read(self, query: Query, **range: Any) -> Iterator[Recorded]:
            return iter(())

        def purges(self, *, after: Position) -> list[Purge]:
            return []

        def slots(self, *, after: Position) -> Iterator[Any]:
            return iter(())

    found = resets.find_reset(Store(), cursor, Position(10), Position(7))  # type: ignore[arg-type]
    assert ("" if found is None else found.reason) == reason


def test_a_cursor_remembers_a_purge_only_while_it_lies_ahead(log: Log) -> None:
    fill(log, 4)
    log.purge("thing/1", reason="asked for")
    cursor, seen = Cursor(), []
    while (page := log.page_after(cursor, limit=1)).events:
        cursor = page.next_cursor
        seen.append((cursor.position, cursor.knows))
    assert seen == [(2, 5), (3, 5), (page.head, 0)][: len(seen)]
    assert seen

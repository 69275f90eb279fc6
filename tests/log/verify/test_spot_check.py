"""A look at some few places: what was changed among them is found, and nothing else is called wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.log.verify.test_verify import edit, say

from everlog.core.codec import Packed, unpack
from everlog.core.event import START, Position
from everlog.core.query import EVERYTHING, Query
from everlog.log.log import Log
from everlog.log.verify.spot_check import spot_check, spot_check_at
from everlog.stores.contract import encode_event
from everlog.stores.memory import MemoryStore
from everlog.testing.builders import Chain

# 1 2 3 4   own events on thing/0 and thing/1, in turn
# 5 6       a peer's events 1 and 2
# 7         own, thing/0
# 8         reserved: thing/1 was purged (2 and 4)
# 9         own, thing/0


@pytest.fixture
def path(make_log: Callable[..., Log], tmp_path: Path) -> Path:
    peer = Chain("01TESTPEER0000000000000000")
    with make_log("sqlite", tmp_path / "log.db") as log:
        for number in range(4):
            say(log, f"thing/{number % 2}", number)
        log.admit([peer.next(type="peer.spoke", stream="peer/1").event for _ in range(2)])
        say(log, "thing/0", 7)
        log.purge("thing/1", reason="test")
        say(log, "thing/0", 9)
        assert log.head() == 9
    return tmp_path / "log.db"


def found(log: Log, query: Query = EVERYTHING, *, after: int = START, upto: int = 9) -> list[tuple[int, str]]:
    problems = spot_check(log._store, query, after=Position(after), upto=Position(upto))
    return [(problem.position, problem.code) for problem in problems]


def found_at(log: Log, position: int) -> list[str]:
    return [problem.code for problem in spot_check_at(log._store, Position(position))]


@pytest.mark.parametrize("store", ["memory", "sqlite", "jsonl", "segments"])
def test_nothing_is_wrong_with_any_stretch_of_a_whole_log(
    make_log: Callable[..., Log], tmp_path: Path, store: str
) -> None:
    peer = Chain("01TESTPEER0000000000000000")
    with make_log(store, tmp_path / "log") as log:
        for number in range(3):
            say(log, f"thing/{number % 2}", number)
        second = [peer.next(type="peer.spoke", stream="peer/1").event for _ in range(2)][::-1]
        log.admit(second)  # in another order than they were made
        log.purge("thing/0", reason="test")
        say(log, "thing/0", 7)
        head = log.head()
        for after in range(head):
            for upto in range(after, head + 1):
                assert found(log, after=after, upto=upto) == []
        assert found(log, Query(stream="thing/0"), upto=head) == []
        assert [found_at(log, position) for position in range(1, head + 2)] == [[]] * (head + 1)


def test_a_changed_payload_is_found_with_and_without_a_filter(make_log: Callable[..., Log], path: Path) -> None:
    edit(path, """UPDATE events SET payload = '{"value":99}' WHERE position = 3""")
    with make_log("sqlite", path) as log:
        assert found(log) == [(3, "group_changed"), (4, "chain_broken")]
        assert found(log, after=3) == []
        assert found(log, Query(stream="thing/0")) == [(3, "group_changed")]
        assert found(log, Query(stream="peer/1")) == []
        assert [found_at(log, position) for position in (1, 3, 5)] == [[], ["group_changed"], []]


def test_a_changed_header_is_known_by_the_hash_of_its_group_and_of_the_next_event(
    make_log: Callable[..., Log], path: Path
) -> None:
    edit(path, "UPDATE events SET header = replace(header, 'acme', 'ACME') WHERE position = 7")
    with make_log("sqlite", path) as log:
        assert found(log) == [(7, "group_changed"), (9, "chain_broken")]
        assert found(log, after=7) == []  # the event before is not looked at
        assert found_at(log, 9) == []
    edit(path, "UPDATE events SET header = replace(header, 'peer.spoke', 'peer.lied!') WHERE position = 5")
    with make_log("sqlite", path) as log:
        # Both events of the peer were stored together.
        assert found(log, upto=6) == [(5, "group_changed")]
        assert (found_at(log, 5), found_at(log, 6)) == (["group_changed"], ["group_changed"])


def test_a_changed_header_is_known_by_the_next_event_where_groups_are_not_stored(
    make_log: Callable[..., Log],
) -> None:
    log = make_log("memory")
    for number in range(3):
        say(log, "thing/1", number)
    store = log._store
    assert isinstance(store, MemoryStore)
    slot = store._slots[1]
    assert isinstance(slot, Packed)
    store._slots[1] = replace(slot, header=encode_event(replace(unpack(slot).event, actor="user:eve")).header)
    assert [found_at(log, position) for position in (1, 2, 3)] == [[], ["header_changed"], []]
    assert found(log, upto=3) == [(3, "chain_broken")]


def test_a_missing_position_is_told_once_and_a_purged_one_is_not(make_log: Callable[..., Log], path: Path) -> None:
    edit(path, "DELETE FROM events WHERE position IN (3, 9)")
    with make_log("sqlite", path) as log:
        assert found(log) == [(3, "position_missing"), (9, "position_missing")]
        assert found_at(log, 3) == []  # nothing is there to look at


def test_what_cannot_be_read_is_told_and_the_rest_looked_at(make_log: Callable[..., Log], path: Path) -> None:
    edit(
        path, "UPDATE events SET payload = '{}' WHERE position = 7; UPDATE events SET header = '[' WHERE position = 3"
    )
    with make_log("sqlite", path) as log:
        assert found(log) == [(3, "position_missing"), (7, "group_changed"), (9, "chain_broken")]
        assert found_at(log, 3) == []  # nothing is there to look at

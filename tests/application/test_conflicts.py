"""Conflicts between nodes: the same list everywhere, each recorded once by the origin that lost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import combinations
from pathlib import Path

import msgspec
import pytest
from tests.support import nodes as support

from everlog.application.conflicts import conflicts, record_detected, resolve
from everlog.catalog.builtin import DETECTED, KNOWS, NO_CHANGES, NODE, RESOLVED
from everlog.catalog.catalog import Catalog
from everlog.core.event import Event
from everlog.errors import InvalidField, NotFound
from everlog.log.log import Log
from everlog.stores.sqlite.store import SqliteStore
from everlog.sync.exchange import Node
from everlog.testing.signing import key
from everlog.transfer.copy import Target, copy_log
from everlog.views.conflicts import Conflicts
from everlog.views.registry import Views

CATALOG = Catalog()
CATALOG.include(support.CATALOG)
CATALOG.include(NODE)


@CATALOG.event("tag.added", merge="union")
class TagAdded(msgspec.Struct):
    tag: str


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def open_node(store: str, folder: Path, log_id: str, name: str, **more: object) -> Node:
    return support.open_node(store, folder, log_id, name, catalog=CATALOG, make_views=Views, **more)  # type: ignore[arg-type]


def some_nodes(store: str, folder: Path, count: int) -> list[Node]:
    log_id = support.new_log_id()
    return [open_node(store, folder, log_id, f"n{number}") for number in range(count)]


@pytest.fixture(params=support.STORES)
def pair(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[Node, Node]]:
    ada, ben = some_nodes(request.param, folder, 2)
    yield ada, ben
    support.close([ada, ben])


def types(node: Node) -> list[str]:
    return [recorded.event.type for recorded in node.log.read()]


def test_changes_that_knew_nothing_of_each_other_are_a_conflict_and_the_greater_wins(
    pair: tuple[Node, Node],
) -> None:
    ada, ben = pair
    support.write(ada, "begin")
    ada.sync_with(ben.answer)
    first, second = support.write(ada, "a"), support.write(ben, "b")
    ada.sync_with(ben.answer)
    (found,) = conflicts(ada.log)
    assert conflicts(ben.log) == [found]
    assert (found.stream, {found.winner, found.loser}) == ("note/1", {first, second})
    # Ben stated first what had arrived, so his clock is ahead.
    assert (found.winner, found.winner_origin, found.loser_origin) == (
        second,
        ben.log.identity.origin,
        ada.log.identity.origin,
    )
    assert not found.detected
    assert not found.resolved


def test_a_change_that_knew_the_other_is_none(pair: tuple[Node, Node]) -> None:
    ada, ben = pair
    for round in range(3):
        support.write(ada, f"a{round}")
        ada.sync_with(ben.answer)
        support.write(ben, f"b{round}")
        ben.sync_with(ada.answer)
    assert conflicts(ada.log) == conflicts(ben.log) == []


def test_a_day_of_work_on_two_nodes_is_one_conflict_per_stream(pair: tuple[Node, Node]) -> None:
    ada, ben = pair
    for number in range(3):
        last_of_ada = support.write(ada, f"a{number}")
        last_of_ben = support.write(ben, f"b{number}")
        support.write(ben, "alone", stream="note/2")
    ada.sync_with(ben.answer)
    (found,) = conflicts(ada.log)
    assert {found.winner, found.loser} == {last_of_ada, last_of_ben}
    support.write(ada, "knows both")
    ada.sync_with(ben.answer)
    assert conflicts(ben.log) == [found]


def test_a_type_that_declares_how_it_merges_is_in_no_conflict(pair: tuple[Node, Node]) -> None:
    ada, ben = pair
    for node, tag in ((ada, "red"), (ben, "blue")):
        node.log.append(TagAdded(tag), stream="note/1")
    ada.sync_with(ben.answer)
    assert conflicts(ada.log) == []
    support.write(ada, "a")
    assert conflicts(ada.log) == []


def test_the_loser_records_it_once_and_a_decision_is_seen_everywhere(pair: tuple[Node, Node]) -> None:
    ada, ben = pair
    first, second = support.write(ada, "a"), support.write(ben, "b")
    ada.sync_with(ben.answer)
    (found,) = conflicts(ada.log)
    loses, wins = (ada, ben) if found.loser == first else (ben, ada)
    assert record_detected(wins.log) == []
    assert [one.event.type for one in record_detected(loses.log)] == [DETECTED]
    for _ in range(2):
        assert record_detected(loses.log) == record_detected(wins.log) == []
        ada.sync_with(ben.answer)
    assert [one.detected for one in (*conflicts(ada.log), *conflicts(ben.log))] == [True, True]
    assert types(ada).count(DETECTED) == types(ben).count(DETECTED) == 1

    done = resolve(wins.log, found.conflict, reason="the first was right", actor="user:eve")
    assert (done.event.type, done.event.actor) == (RESOLVED, "user:eve")
    ada.sync_with(ben.answer)
    for node in pair:
        (now,) = conflicts(node.log)
        assert (now.winner, now.loser, now.resolved) == (found.loser, found.winner, True)
        assert (now.winner_origin, now.loser_origin) == (found.loser_origin, found.winner_origin)
    heads = [node.log.head() for node in pair]
    for node in pair:  # typed twice, or by two: it is decided once
        assert resolve(node.log, found.conflict).event.id == done.event.id
        assert resolve(node.log, found.conflict, winner=found.loser).event.id == done.event.id
    assert [node.log.head() for node in pair] == heads
    resolve(ada.log, found.conflict, winner=found.winner)
    (now,) = conflicts(ada.log)
    assert (now.winner, now.resolved) == (found.winner, True)
    assert {first, second} == {found.winner, found.loser}


def test_a_conflict_that_was_resolved_first_is_not_recorded_as_detected(pair: tuple[Node, Node]) -> None:
    ada, ben = pair
    support.write(ada, "a")
    support.write(ben, "b")
    ada.sync_with(ben.answer)
    (found,) = conflicts(ada.log)
    resolve(ada.log, found.conflict)
    ada.sync_with(ben.answer)
    assert record_detected(ada.log) == record_detected(ben.log) == []


def test_what_cannot_be_resolved_is_refused(pair: tuple[Node, Node]) -> None:
    ada, ben = pair
    support.write(ada, "a")
    support.write(ben, "b")
    ada.sync_with(ben.answer)
    (found,) = conflicts(ada.log)
    other = support.write(ada, "another")
    with pytest.raises(InvalidField, match="not part of the conflict"):
        resolve(ada.log, found.conflict, winner=other)
    with pytest.raises(NotFound, match="there is no conflict"):
        resolve(ada.log, f"{other}-{other}")


def test_only_the_named_streams_are_looked_at(pair: tuple[Node, Node]) -> None:
    ada, ben = pair
    for stream in ("note/1", "note/2"):
        support.write(ada, "a", stream=stream)
        support.write(ben, "b", stream=stream)
    ada.sync_with(ben.answer)
    assert [one.stream for one in conflicts(ada.log)] == ["note/1", "note/2"]
    assert [one.stream for one in conflicts(ada.log, ["note/2", "note/3"])] == ["note/2"]


def test_a_purged_stream_has_no_conflict_and_the_others_stay(pair: tuple[Node, Node]) -> None:
    ada, ben = pair
    for stream in ("note/1", "note/2"):
        support.write(ada, "a", stream=stream)
        support.write(ben, "b", stream=stream)
    ada.sync_with(ben.answer)
    before = conflicts(ada.log)
    ada.log.purge("note/1", reason="a test")
    assert conflicts(ada.log) == before[1:]


def test_nobody_speaks_for_another_origin(pair: tuple[Node, Node]) -> None:
    """What a node states wrongly concerns its own changes at most."""
    ada, ben = pair
    ada.log.append(KNOWS, stream=f"origin/{ben.log.identity.origin}", payload={"ends": {ada.log.identity.origin: 99}})
    ada.log.append(KNOWS, stream="note/1", payload={"ends": {ben.log.identity.origin: 99}})
    support.write(ada, "a")
    support.write(ben, "b")
    ada.sync_with(ben.answer)
    assert len(conflicts(ada.log)) == 1


# ---- any history, in any order of arrival


def reference(events: list[Event]) -> set[frozenset[str]]:
    """Return the pairs that the words of docs/how-to/nodes/conflicts.md name, compared one by one."""
    stated = [event for event in events if event.type == KNOWS]
    changes = [event for event in events if event.type not in NO_CHANGES]

    def knew(event: Event, other: Event) -> bool:
        return other.origin == event.origin or any(
            one.payload["ends"].get(other.origin, 0) >= other.origin_seq
            for one in stated
            if one.origin == event.origin and one.origin_seq <= event.origin_seq
        )

    def concurrent(one: Event, other: Event) -> bool:
        return one.stream == other.stream and not knew(one, other) and not knew(other, one)

    pairs = [two for two in combinations(changes, 2) if concurrent(*two)]

    def later(event: Event, other: Event) -> bool:
        """Whether the origin of an event made a later change that is concurrent with the other one too."""
        return any(
            after.origin == event.origin and after.origin_seq > event.origin_seq and concurrent(after, other)
            for after in changes
        )

    return {frozenset((one.id, two.id)) for one, two in pairs if not later(one, two) and not later(two, one)}


@pytest.mark.parametrize("store", support.STORES)
@pytest.mark.parametrize("seed", range(3))
def test_every_node_lists_the_same_conflicts_in_whatever_order_events_arrive(
    store: str, seed: int, folder: Path
) -> None:
    chance = random.Random(seed)
    log_id = support.new_log_id()
    three = [open_node(store, folder, log_id, f"n{number}") for number in range(3)]
    for _ in range(60):
        one, other = chance.sample(three, 2)
        if chance.random() < 0.2:
            one.sync_with(other.answer)
        else:
            support.write(one, "x", stream=f"note/{chance.randrange(3)}")
        if chance.random() < 0.1:
            conflicts(one.log)  # the view is stored, and goes on with late events
    for one, other in [*combinations(three, 2)] * 2:
        one.sync_with(other.answer)
    found = [conflicts(node.log) for node in three]
    assert found[0] == found[1] == found[2]
    events = [recorded.event for recorded in three[0].log.read()]
    assert {frozenset((one.winner, one.loser)) for one in found[0]} == reference(events)
    order = {str(event.id): event.causal_order for event in events}
    assert all(order[one.winner] > order[one.loser] for one in found[0])
    digests = {node.log.view(Conflicts).digest() for node in three}

    for number in range(3):  # a fourth node, which gets them in any order
        chance.shuffle(events)
        late = open_node(store, folder, log_id, f"late{number}")
        for start in range(0, len(events), 17):
            late.log.admit_each(events[start : start + 17])
            assert isinstance(conflicts(late.log), list)
        assert conflicts(late.log) == found[0]
        digests.add(late.log.view(Conflicts).digest())
        late.log.close()
    assert len(digests) == 1
    support.close(three)


def test_a_copy_that_joins_in_later_knows_what_it_was_made_of(folder: Path) -> None:
    ada = open_node("sqlite", folder, support.new_log_id(), "ada")
    support.write(ada, "a")
    support.write(ada, "a", stream="note/2")
    path = folder / "ben"
    target = Target(
        name="ben", draft="ben", open=lambda identity: SqliteStore(path, identity=identity), swap=lambda: None
    )
    with closing(SqliteStore(folder / "ada")) as source:
        copy_log(source, target)
    ben = Node(Log(SqliteStore(path), CATALOG, actor="user:ben", make_views=Views))
    support.write(ben, "b")
    support.write(ada, "late", stream="note/2")
    support.write(ben, "b", stream="note/2")
    ada.sync_with(ben.answer)
    support.write(ben, "states it")
    ada.sync_with(ben.answer)
    assert [one.stream for one in conflicts(ada.log)] == ["note/2"]
    assert conflicts(ben.log) == conflicts(ada.log)
    support.close([ada, ben])


@pytest.mark.parametrize("store", ["sqlite", "jsonl"])
def test_two_handles_record_a_conflict_once(store: str, folder: Path) -> None:
    log_id = support.new_log_id()
    ada, ben = (open_node(store, folder, log_id, name) for name in ("ada", "ben"))
    again = open_node(store, folder, log_id, "ada")
    support.write(ada, "a")
    support.write(ben, "b")
    support.write(ben, "b")
    ada.sync_with(ben.answer)
    assert conflicts(again.log) == conflicts(ada.log)
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda node: record_detected(node.log), (ada, again)))
    assert sum(map(len, found)) == 1
    assert types(ada).count(DETECTED) == types(ada).count(KNOWS) == 1
    support.close([ada, ben, again])


@pytest.mark.parametrize("store", ["sqlite", "jsonl", "segments"])
def test_conflicts_stay_after_a_restart_and_a_purge_of_another_stream(store: str, folder: Path) -> None:
    log_id = support.new_log_id()
    ada, ben = (open_node(store, folder, log_id, name) for name in ("ada", "ben"))
    support.write(ada, "gone", stream="note/2")
    support.write(ada, "a")
    support.write(ben, "b")
    ada.sync_with(ben.answer)
    before = conflicts(ada.log)
    ada.log.purge("note/2", reason="a test")
    ada.log.close()
    ada = open_node(store, folder, log_id, "ada")
    assert conflicts(ada.log) == before
    ada.log.view(Conflicts).rebuild()
    assert conflicts(ada.log) == before == conflicts(ben.log)
    support.write(ada, "knows both")
    ada.sync_with(ben.answer)
    assert conflicts(ada.log) == before == conflicts(ben.log)
    support.close([ada, ben])


def test_signed_nodes_list_the_same_conflicts(folder: Path) -> None:
    log_id, chance = support.new_log_id(), random.Random(5)
    three = [open_node("sqlite", folder, log_id, f"s{number}", keys=[key(number)]) for number in (1, 2, 3)]
    for _ in range(40):
        one, other = chance.sample(three, 2)
        if chance.random() < 0.25:
            one.sync_with(other.answer)
        else:
            support.write(one, "x", stream=f"note/{chance.randrange(2)}")
    for one, other in [*combinations(three, 2)] * 2:
        one.sync_with(other.answer)
    found = conflicts(three[0].log)
    assert found == conflicts(three[1].log) == conflicts(three[2].log)
    events = [recorded.event for recorded in three[0].log.read()]
    assert {frozenset((one.winner, one.loser)) for one in found} == reference(events)
    assert found
    for node in three:
        record_detected(node.log)
    for one, other in [*combinations(three, 2)] * 2:
        one.sync_with(other.answer)
    assert all(one.detected for one in conflicts(three[0].log))
    assert types(three[0]).count(DETECTED) == len(found)
    support.close(three)

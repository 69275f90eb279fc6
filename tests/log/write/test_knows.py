"""`origin.knows`: the first own write after events of others arrived begins with what the log knows of them now."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.nodes import STORES, close, new_log_id, open_node, write

from everlog import aio
from everlog.catalog.builtin import KNOWS, NODE
from everlog.core.event import Recorded
from everlog.core.query import EVERYTHING, Query
from everlog.errors import QueryMatched, WrongSequence
from everlog.log.write import stamp as stamping
from everlog.log.write.draft import Draft
from everlog.log.write.expect import Expect, NoMatch
from everlog.log.write.knows import Known
from everlog.stores.open_write import OpenWrite
from everlog.sync.exchange import Node
from everlog.testing.signing import key

OpenNode = Callable[[str], Node]
SHARED = ("sqlite", "jsonl")  # with segments, one process writes at a time


@pytest.fixture(params=[*STORES, "postgres"])
def open_one(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenNode]:
    """Opens nodes of one log by name. `ada` is in the store of the test, all others are in memory."""
    log_id, opened = new_log_id(), list[Node]()

    def open_it(name: str) -> Node:
        store, url = (request.param if name == "ada" else "memory"), ""
        if store == "postgres":
            url = request.getfixturevalue("postgres_url")
        opened.append(open_node(store, tmp_path, log_id, name, url=url))
        return opened[-1]

    yield open_it
    close(opened)


@pytest.fixture
def ada(open_one: OpenNode) -> Node:
    return open_one("ada")


@pytest.fixture
def ben(open_one: OpenNode) -> Node:
    return open_one("ben")


def stated(node: Node) -> list[dict[str, int]]:
    """Return what a node stated in its own chain, in order."""
    own = node.log.identity.origin
    return [one.event.payload["ends"] for one in node.log.read(Query(types={KNOWS})) if one.event.origin == own]  # type: ignore[arg-type]


def origin(node: Node) -> str:
    return node.log.identity.origin


def test_a_log_that_nothing_arrived_in_never_states_anything(ada: Node) -> None:
    for number in range(3):
        write(ada, number)
    ada.log.purge("note/1", reason="a test")
    write(ada, "after")
    assert [one.event.type for one in ada.log.read()] == ["note.written"]
    assert ada.log.head() == 5


def test_one_event_per_sync_with_the_ends_that_grew(ada: Node, ben: Node, open_one: OpenNode) -> None:
    eve = open_one("eve")
    write(ben, 1)
    write(eve, 1)
    for other in (ben, eve, ben):
        ada.sync_with(other.answer)
    assert stated(ada) == []
    write(ada, 1)
    write(ada, 2)
    assert stated(ada) == [{origin(ben): 1, origin(eve): 1}]
    ada.sync_with(eve.answer)  # nothing of others comes back
    write(ada, 3)
    write(eve, 2)
    assert stated(eve) == [{origin(ada): 3, origin(ben): 1}]
    ada.sync_with(eve.answer)
    write(ada, 4)
    assert stated(ada) == [{origin(ben): 1, origin(eve): 1}, {origin(eve): 3}]
    assert ada.log.verify().ok


def test_the_receipt_has_the_own_events_alone(ada: Node, ben: Node) -> None:
    write(ben, 1)
    ada.sync_with(ben.answer)
    drafts = [Draft("note.written", "note/1", {"text": 2}, expect=1), Draft("note.written", "note/2", {"text": 3})]
    done = ada.log.append_batch(drafts, key="k")
    assert [(one.position, one.sequence, one.event.payload["text"]) for one in done] == [(3, 2, 2), (4, 1, 3)]
    assert list(ada.log.append_batch(drafts, key="k")) == list(done)
    (first,) = [one for one in ada.log.read() if one.event.type == KNOWS]
    assert (first.position, first.sequence, first.event.stream) == (2, 1, f"origin/{origin(ada)}")
    assert (first.event.actor, first.event.idempotency_key) == ("system", "")
    assert ada.log.head() == 4


def test_expectations_concern_what_the_caller_read(ada: Node, ben: Node) -> None:
    write(ben, 1)
    ada.sync_with(ben.answer)
    head = ada.log.head()
    nothing_since = NoMatch(EVERYTHING, after=head)
    ada.log.append("note.written", stream="note/2", payload={"text": 1}, expect=nothing_since)
    with pytest.raises(QueryMatched):
        ada.log.append("note.written", stream="note/2", payload={"text": 2}, expect=nothing_since)
    write(ben, 2)
    ada.sync_with(ben.answer)
    ada.log.append("note.written", stream="note/3", payload={"text": 3}, expect=Expect.NONE)
    assert len(stated(ada)) == 2


def test_a_write_that_is_undone_states_nothing_and_the_next_one_does(ada: Node, ben: Node) -> None:
    write(ben, 1)
    ada.sync_with(ben.answer)
    with pytest.raises(WrongSequence):
        ada.log.append("note.written", stream="note/1", payload={"text": 2}, expect=7)
    rehearsed = ada.log.append("note.written", stream="note/1", payload={"text": 2}, dry_run=True)
    assert rehearsed.position == 3

    def refused_later(staged: OpenWrite) -> None:
        request = ada.log.writer.request([Draft("note.written", "note/1", {"text": 2})], "", "batch")
        ada.log.writer.prepare([request])
        request.do(staged)
        raise WrongSequence("note/1", expected="another", actual=2)

    with pytest.raises(WrongSequence):
        ada.log.writer.write(refused_later)
    assert (stated(ada), ada.log.head()) == ([], 1)
    write(ada, 2)
    assert stated(ada) == [{origin(ben): 1}]


def test_tasks_that_share_a_write_share_the_statement(ada: Node, ben: Node) -> None:
    write(ben, 1)
    ada.sync_with(ben.answer)

    async def many() -> list[Recorded]:
        return await asyncio.gather(
            *(
                aio.append(ada.log, "note.written", stream="note/1", payload={"text": n}, key=f"k{n}")
                for n in range(20)
            )
        )

    done = asyncio.run(many())
    assert sorted(one.position for one in done) == list(range(3, 23))
    assert sorted(one.sequence for one in done) == list(range(2, 22))
    assert sorted(one.event.payload["text"] for one in done) == list(range(20))
    assert stated(ada) == [{origin(ben): 1}]


def test_it_is_stated_after_a_restart_and_once(ada: Node, ben: Node, open_one: OpenNode) -> None:
    if "Memory" in type(ada.log.stored).__name__:
        pytest.skip("a log in memory is gone then")
    write(ben, 1)
    ada.sync_with(ben.answer)
    ada.log.close()
    ada = open_one("ada")
    write(ada, 2)
    assert stated(ada) == [{origin(ben): 1}]
    ada.log.close()
    ada = open_one("ada")
    write(ada, 3)
    write(ben, 2)
    ada.sync_with(ben.answer)
    write(ada, 4)
    assert stated(ada) == [{origin(ben): 1}, {origin(ben): 2}]


def test_a_purge_changes_nothing_unless_it_takes_the_statements(ada: Node, ben: Node) -> None:
    write(ben, 1)
    ada.sync_with(ben.answer)
    ada.log.purge("note/1", reason="a test")
    write(ada, 2)
    assert stated(ada) == [{origin(ben): 1}]
    ada.log.purge("note/1", reason="a test")
    write(ada, 3)
    assert stated(ada) == [{origin(ben): 1}]
    ada.log.purge(f"origin/{origin(ada)}", reason="a test")
    write(ada, 4)
    assert stated(ada) == [{origin(ben): 1}]
    assert ada.log.verify().ok


def test_an_append_asks_for_nothing_more_when_nothing_arrived(
    ada: Node, ben: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(ben, 1)
    ada.sync_with(ben.answer)
    write(ada, 1)
    asked: list[str] = []

    def nothing(staged: OpenWrite, own: str) -> list[Known]:
        asked.append(own)
        return []

    monkeypatch.setattr(stamping, "news", nothing)
    write(ada, 2)
    ada.log.append_batch([Draft("note.written", "note/1", {"text": 1})] * 3)
    assert asked == []
    write(ben, 2)
    ada.sync_with(ben.answer)
    write(ada, 3)
    assert asked == [origin(ada)]


def test_very_many_origins_take_several_events(ada: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everlog.log.write.knows._ENDS_MAX", 2)
    others = [open_node("memory", Path(), ada.log_id, f"n{number}") for number in range(3)]
    for other in others:
        write(other, 1)
        ada.sync_with(other.answer)
    done = ada.log.append("note.written", stream="note/1", payload={"text": 1})
    assert (done.position, [len(each) for each in stated(ada)]) == (6, [2, 1])
    write(ada, 2)
    assert len(stated(ada)) == 2
    close(others)


def test_a_hole_is_not_known(ada: Node, ben: Node) -> None:
    for number in range(3):
        write(ben, number)
    first, _, third = [one.event for one in ben.log.read()]
    ada.log.admit_each([third])
    write(ada, 1)
    assert stated(ada) == []
    ada.log.admit_each([first])
    write(ada, 2)
    assert stated(ada) == [{origin(ben): 1}]


@pytest.mark.parametrize("store", STORES)
def test_a_signed_log_states_it_in_the_group_of_its_next_event(store: str, tmp_path: Path) -> None:
    log_id = new_log_id()
    ada, ben = (open_node(store, tmp_path, log_id, f"s{number}", keys=[key(number)]) for number in (1, 2))
    write(ben, 1)
    ada.sync_with(ben.answer)
    done = ada.log.append("note.written", stream="note/1", payload={"text": 1})
    assert stated(ada) == [{origin(ben): 1}]
    assert done.event.group is not None
    assert (done.event.group.facts.first_seq, done.event.group.facts.count) == (1, 2)
    assert ada.log.verify().ok
    assert ben.sync_with(ada.answer).equal
    close([ada, ben])


_APPEND = """
import sys
from pathlib import Path
from tests.support.nodes import open_node, write
store, folder, log_id, name = sys.argv[1:]
node = open_node(store, Path(folder), log_id, name)
write(node, "begin", stream="note/2")
print("ready", flush=True)
sys.stdin.readline()
print(node.log.append("note.written", stream="note/2", payload={"text": "next"}).position, flush=True)
node.log.close()
"""


@pytest.mark.parametrize("store", SHARED)
def test_another_process_states_what_this_one_admitted(store: str, tmp_path: Path) -> None:
    log_id = new_log_id()
    ada, ben = open_node(store, tmp_path, log_id, "ada"), open_node("memory", tmp_path, log_id, "ben")
    write(ada, 1)
    command = [sys.executable, "-c", _APPEND, store, str(tmp_path), log_id, "ada"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "ready\n"
        write(ben, 1)
        ada.sync_with(ben.answer)
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "5\n"
    types = [one.event.type for one in ada.log.read()]
    assert types == ["note.written", "note.written", "note.written", KNOWS, "note.written"]
    write(ada, 2)
    assert stated(ada) == [{origin(ben): 1}]
    assert ada.log.verify().ok
    close([ada, ben])


def test_the_types_of_a_node_are_sound() -> None:
    assert NODE.check() == []


def test_a_log_that_only_imports_takes_no_part_and_once_it_does_everything_counts(
    ada: Node, ben: Node, open_one: OpenNode
) -> None:
    eve = open_one("eve")
    write(ben, 1)
    write(eve, 1)
    write(ada, 0)
    ada.log.admit([one.event for one in ben.log.read()])
    write(ada, 1)
    assert stated(ada) == []
    ada.sync_with(eve.answer)
    write(ada, 2)
    assert stated(ada) == [{origin(ben): 1}, {origin(eve): 1}]
    first, second = (one.event.payload["since"] for one in ada.log.read(stream=f"origin/{origin(ada)}"))
    assert (first, second) == (2, 0)  # its second event was made with the one of Ben
    write(ben, 2)
    ada.log.admit([one.event for one in ben.log.read()])
    write(ada, 3)
    assert stated(ada)[2:] == [{origin(ben): 2}]

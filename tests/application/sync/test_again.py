"""Events that peers refuse for their time are recorded once more, if the clock of this machine agrees."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.http_nodes import reachable, sync
from tests.support.nodes import CATALOG, STORES, close, new_log_id, open_node, texts, write

from everlog.application.sync.again import Again, record_again
from everlog.catalog.builtin import KNOWS, NODE
from everlog.catalog.catalog import Catalog
from everlog.core.ids import EventId
from everlog.core.query import Query
from everlog.errors import Conflict
from everlog.log.forget import Concerned, record_forgotten
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.log.write.guard import Guard
from everlog.sync.carriers.http_client import HttpPeer
from everlog.sync.carriers.http_server import Asker, Listener
from everlog.sync.exchange import EVENTS, Node
from everlog.sync.wire import Events, Received, Rejected, claimed_id, decode, encode
from everlog.testing.signing import key
from everlog.trust.signer import KeysInMemory

HOURS_US = 3_600_000_000


class Laptop:
    """A node whose clock can be wrong. It is opened again to correct the clock, as a program would be."""

    def __init__(self, store: str, folder: Path, log_id: str, **log: Any) -> None:
        self._kept = KeysInMemory([key(1)])
        self._where = (store, folder, log_id, "laptop")
        self._log = log
        self._open(ahead_hours=30)

    def _open(self, ahead_hours: int) -> None:
        def clock() -> int:
            return time.time_ns() // 1000 + ahead_hours * HOURS_US

        self.node = open_node(*self._where, keys=[key(1)], kept=self._kept, now_us=clock, **self._log)
        self.node.log.stored._now_us = clock  # type: ignore[attr-defined]

    def correct_clock(self) -> None:
        self.node.log.close()
        self._open(ahead_hours=0)


DURABLE = [store for store in STORES if store != "memory"]


@pytest.mark.parametrize("store", DURABLE)
def test_refused_events_are_recorded_again_once_the_clock_is_right(store: str, tmp_path: Path) -> None:
    log_id = new_log_id()
    laptop = Laptop(store, tmp_path, log_id)
    other = open_node(store, tmp_path, log_id, "other", keys=[key(2)])
    write(laptop.node, "ahead")
    write(laptop.node, "after")
    before = laptop.node.log.identity.origin
    with reachable(other) as (url,):
        done = sync(laptop.node, url)
        assert {one.reason for one in done.rejected} == {"clock_too_far"}
        laptop.correct_clock()
        done = sync(laptop.node, url)
        assert record_again(laptop.node.log, done.rejected) == Again(2, 0)
        sync(laptop.node, url)
        assert texts(other) == ["ahead", "after"]
    assert laptop.node.log.identity.origin != before
    assert [one.event.origin == before for one in laptop.node.log.read()] == [True, True, False, False]
    assert laptop.node.log.verify().ok
    close([laptop.node, other])


def only_once(type: str) -> Guard | None:
    """The rule of a program: a stream has one note."""

    def judge(history: Any, earlier: Any, draft: Draft) -> None:
        if list(history):
            raise Conflict(f"{draft.stream} is written already", why="the rule", hint="another stream")

    return Guard(lambda draft: Query(stream=draft.stream), judge) if type == "note.written" else None


@pytest.fixture(params=DURABLE)
def late(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Laptop, Node, list[Rejected]]]:
    """A laptop that knew another node, erased a payload and wrote what a rule refuses twice, all with a wrong clock;
    and what the other node refuses of it."""
    catalog, log_id = Catalog(), new_log_id()
    for one in (CATALOG, NODE):
        catalog.include(one)
    laptop = Laptop(request.param, tmp_path, log_id, catalog=catalog, guards=only_once)
    other = open_node(request.param, tmp_path, log_id, "other", keys=[key(2)])
    write(other, "from there", "note/2")
    laptop.node.sync_with(other.answer)
    erased = write(laptop.node, "erased", "note/3")
    write(laptop.node, "ahead", "note/4")
    concerned = Concerned(subject="", open=[EventId(erased)])
    record_forgotten(laptop.node.log, concerned, actor="user:laptop", request="once")
    rejected = laptop.node.sync_with(other.answer).rejected
    laptop.correct_clock()
    yield laptop, other, rejected
    close([laptop.node, other])


def own_types(log: Log) -> list[str]:
    return [one.event.type for one in log.read() if one.event.origin == log.identity.origin]


def test_what_means_something_under_another_origin_is_recorded_again_past_the_rules(
    late: tuple[Laptop, Node, list[Rejected]],
) -> None:
    laptop, other, rejected = late
    log = laptop.node.log
    assert own_types(log) == [KNOWS, "note.written", "note.written", "subject.forgotten"]
    assert record_again(log, rejected) == Again(2, 0)
    assert own_types(log) == [KNOWS, "note.written", "subject.forgotten"]
    laptop.node.sync_with(other.answer)
    assert [text for text in texts(other) if text] == ["from there", "ahead"]
    assert log.verify().ok


def test_an_event_is_recorded_again_once_though_others_are_refused_still(
    late: tuple[Laptop, Node, list[Rejected]],
) -> None:
    laptop, _, rejected = late
    log = laptop.node.log
    assert record_again(log, rejected).recorded == 2
    assert record_again(log, rejected[1:]) == Again(0, 0)
    assert own_types(log) == [KNOWS, "note.written", "subject.forgotten"]


class Liar:
    """A peer that refuses everything as too far ahead, and takes nothing."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.listener = Listener("127.0.0.1", 0, self._answer)

    def _answer(self, request: str, body: bytes, asker: Asker) -> bytes:
        if request != EVENTS:
            return self._node.answer(request, body)
        sent = decode(body, Events).events
        refused = [Rejected(claimed_id(text), "clock_too_far") for text in sent]
        return encode(Received(accepted=0, rejected=len(refused), rejected_reasons=refused, new_head=0))


@pytest.mark.parametrize("store", STORES)
def test_a_peer_that_lies_about_the_time_has_nothing_recorded_again(store: str, tmp_path: Path) -> None:
    log_id = new_log_id()
    node = open_node(store, tmp_path, log_id, "one", keys=[key(1)], kept=KeysInMemory([key(1)]))
    other = open_node(store, tmp_path, log_id, "other", keys=[key(2)])
    write(node, "in time")
    liar, before = Liar(other), node.log.identity.origin
    peer = HttpPeer(liar.listener.url, key=key(1))
    try:
        done = node.sync_with(peer)
    finally:
        peer.close()
        liar.listener.close()
    assert [one.reason for one in done.rejected] == ["clock_too_far"]
    assert record_again(node.log, done.rejected) == Again(0, 1)
    assert (node.log.identity.origin, texts(node)) == (before, ["in time"])
    close([node, other])


def test_a_clock_that_is_ahead_is_noticed_at_the_handshake(tmp_path: Path) -> None:
    one, other = (open_node("memory", tmp_path, "01K9ZZZZZZZZZZZZZZZZZZZZZZ", name) for name in "ab")

    def behind(request: str, body: bytes) -> bytes:
        reply = other.answer(request, body)
        heads = msgspec.json.decode(reply)
        heads["time_ms"] -= 30 * 3_600_000
        return msgspec.json.encode(heads)

    assert one.sync_with(behind).clock_ahead_ms // 3_600_000 in (29, 30)
    assert one.sync_with(other.answer).clock_ahead_ms < 60_000

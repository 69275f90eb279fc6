"""Streams of Server-Sent Events, over a real server and bare sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.server.event_source import EventSource, Refused, close_all, next_of, until_true
from tests.server.serving import Serving

import everlog
from everlog.application.events.reading import Read, Reading
from everlog.core.event import Position, whole
from everlog.core.query import Cursor
from everlog.errors import Damaged
from everlog.log.log import Log
from everlog.log.records import FORGOTTEN
from everlog.server.events import hub, sending
from everlog.server.events.clients import Client
from everlog.server.events.frames import frames_of
from everlog.server.events.sending import Chunk


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    close_all()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with everlog.open(f"sqlite:{tmp_path}/log.db", actor="user:host") as opened:
        yield opened


@pytest.fixture
def serving(log: Log) -> Iterator[Serving]:
    with Serving(log) as started:
        yield started


@pytest.fixture
def token(serving: Serving) -> str:
    return serving.token("reader", role="read")


def say(log: Log, count: int, stream: str = "note/1", scope: str = "", size: int = 10) -> None:
    for _ in range(count):
        log.append("note.added", stream=stream, payload={"text": "x" * size}, scope=scope)


def test_a_stream_in_bare_bytes(log: Log, serving: Serving, token: str) -> None:
    say(log, 1)
    with socket.create_connection(("127.0.0.1", serving.port), timeout=10) as made:
        made.sendall(
            f"GET /v1/events/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )
        data = b""
        while data.count(b"\n\n") < 2:
            data += made.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"content-type: text/event-stream; charset=utf-8" in head
    assert b"cache-control: no-store" in head
    cursor = log.page_after(0).next_cursor
    assert f"\nid: {cursor}\ndata: {{".encode() in body
    record = json.loads(body.rpartition(b"data: ")[2].partition(b"\n")[0])
    assert (record["position"], record["payload"]["text"]) == (1, "x" * 10)


def test_a_browser_reconnects_with_the_last_id_and_misses_nothing(log: Log, serving: Serving, token: str) -> None:
    say(log, 3)
    source = EventSource(serving.port, "/v1/events/stream", token)
    source.open()
    assert [one.json["position"] for one in next_of(source.events(), 2)] == [1, 2]
    source.close()
    say(log, 2)
    source.open()
    events = source.events()
    assert [one.json["position"] for one in next_of(events, 3)] == [3, 4, 5]
    say(log, 1)
    (last,) = next_of(events, 1)
    assert last.id == str(log.page_after(0).next_cursor)


def test_last_event_id_together_with_after_is_refused(serving: Serving, token: str) -> None:
    source = EventSource(serving.port, "/v1/events/stream?after=0", token, last_id="1")
    with pytest.raises(Refused) as refused:
        source.open()
    assert refused.value.status == 400
    assert json.loads(refused.value.body)["code"] == "cursor_conflict"
    other = EventSource(serving.port, "/v1/events/stream", token, last_id="no cursor")
    with pytest.raises(Refused):
        other.open()


def test_a_filter_shares_a_chunk_with_nobody_else(log: Log, serving: Serving, token: str) -> None:
    notes = EventSource(serving.port, "/v1/events/stream?kind=note", token)
    things = EventSource(serving.port, "/v1/events/stream?kind=thing", token)
    for one in (notes, things):
        one.open()
    until_true(lambda: serving.hub.clients == 2)
    for number in range(6):
        say(log, 1, f"{'note' if number % 2 else 'thing'}/1")
    assert [one.json["position"] for one in next_of(notes.events(), 3)] == [2, 4, 6]
    assert [one.json["position"] for one in next_of(things.events(), 3)] == [1, 3, 5]
    notes.close()
    things.close()
    until_true(lambda: serving.hub.clients == 0, what="the end of both clients")


def test_a_purge_is_a_reset_in_the_middle_of_a_stream(log: Log, serving: Serving, token: str) -> None:
    source = EventSource(serving.port, "/v1/events/stream", token)
    source.open()
    events = source.events()
    say(log, 2)
    next_of(events, 2)
    log.purge("note/1", reason="asked to")
    say(log, 1, "note/2")
    reset, following = next_of(events, 2)
    assert (reset.type, reset.json["reason"]) == ("reset", "purged")
    assert reset.id == reset.json["next"]
    assert Cursor.of(reset.id).position == 3
    assert following.json["position"] == log.head()
    assert serving.hub.resets_sent == 1


def test_a_purge_elsewhere_is_no_reset(log: Log, serving: Serving, token: str) -> None:
    source = EventSource(serving.port, "/v1/events/stream?kind=note", token)
    source.open()
    events = source.events()
    say(log, 1)
    say(log, 1, "thing/1")
    next_of(events, 1)
    log.purge("thing/1", reason="asked to")
    say(log, 1)
    (following,) = next_of(events, 1)
    assert (following.type, following.json["position"]) == ("message", log.head())


def test_a_heartbeat_moves_no_cursor(log: Log, serving: Serving, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "HEARTBEAT_S", 0.3)
    monkeypatch.setattr(hub, "SWEEP_S", 0.1)
    say(log, 1)
    source = EventSource(serving.port, "/v1/events/stream", token)
    source.open()
    events = source.events()
    next_of(events, 1)
    before = source.last_id
    time.sleep(1.0)
    say(log, 1)
    next_of(events, 1)
    beats = [comment for comment in source.comments if comment == ": heartbeat"]
    assert 2 <= len(beats) <= 4
    assert before != source.last_id


def test_a_server_that_stops_says_bye_with_the_cursor_to_continue_from(log: Log, tmp_path: Path) -> None:
    with Serving(log) as first:
        token = first.token("reader", role="read")
        sources = [EventSource(first.port, f"/v1/events/stream{query}", token) for query in ("", "?kind=thing")]
        for source in sources:
            source.open()
        until_true(lambda: first.hub.clients == 2)
        say(log, 3)
        until_true(lambda: first.hub.published == 3)
        first.hub.close("shutdown")
        until_true(lambda: first.hub._task is not None and first.hub._task.done(), what="the end of the tail reader")
    seen = []
    for source in sources:
        *notes, bye = list(source.events())
        assert (bye.type, bye.json["reason"], bye.json["next"]) == ("bye", "shutdown", bye.id)
        assert Cursor.of(bye.id).position == 3
        seen.append([one.json["position"] for one in notes])
    assert seen == [[1, 2, 3], []]
    say(log, 1)
    with Serving(log) as second:
        sources[0].open(port=second.port)
        (following,) = next_of(sources[0].events(), 1)
        assert following.json["position"] == 4
        sources[0].close()


def test_a_revoked_token_ends_its_streams_within_five_seconds(log: Log, serving: Serving, token: str) -> None:
    say(log, 1)
    source = EventSource(serving.port, "/v1/events/stream", token)
    other = EventSource(serving.port, "/v1/events/stream", serving.token("other", role="read"))
    for one in (source, other):
        one.open()
    events = source.events()
    next_of(events, 1)
    began = time.monotonic()
    serving.app.services["log"].tokens.revoke("reader")
    (bye,) = next_of(events, 1)
    assert time.monotonic() - began < 5
    assert (bye.type, bye.json["reason"], Cursor.of(bye.id).position) == ("bye", "revoked", 1)
    assert list(events) == []
    with pytest.raises(Refused):
        source.open()
    say(log, 1)
    assert next_of(other.events(), 2)[1].json["position"] == 2


def test_a_slow_client_gets_bye_and_continues_without_gap_or_repeat(
    log: Log, serving: Serving, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "QUEUE_BYTES_MAX", 50_000)
    quick = EventSource(serving.port, "/v1/events/stream", token)
    slow = EventSource(serving.port, "/v1/events/stream", token, receive_bytes=4096)
    for one in (quick, slow):
        one.open()
    until_true(lambda: serving.hub.clients == 2)
    events, seen = quick.events(), []
    while not serving.hub.drops:  # the slow one reads nothing meanwhile
        say(log, 5, size=9_000)
        seen += [one.json["position"] for one in next_of(events, 5)]
        assert len(seen) < 2_000
    assert seen == list(range(1, len(seen) + 1))
    *first, bye = list(slow.events())
    assert (bye.type, bye.json["reason"]) == ("bye", "too_slow")
    slow.open()
    rest = next_of(slow.events(), len(seen) - len(first))
    assert [one.json["position"] for one in (*first, *rest)] == seen
    assert serving.hub.queued_bytes <= 50_000


def test_a_stalled_client_is_disconnected_and_holds_up_nobody(
    log: Log, serving: Serving, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "QUEUE_BYTES_MAX", 50_000)
    monkeypatch.setattr(sending, "WRITE_S", 1.0)
    quick = EventSource(serving.port, "/v1/events/stream", token)
    stalled = EventSource(serving.port, "/v1/events/stream", token, receive_bytes=4096)
    for one in (quick, stalled):
        one.open()
    until_true(lambda: serving.hub.clients == 2)
    events = quick.events()
    while serving.hub.clients == 2:
        say(log, 5, size=9_000)
        next_of(events, 5)
        assert log.head() < 3_000
    assert serving.hub.clients == 1
    assert stalled.socket is not None
    stalled.socket.settimeout(5)
    with pytest.raises(ConnectionError):
        while stalled.socket.recv(1_000_000):
            pass


def test_one_chunk_is_made_for_all_clients_of_a_class(
    log: Log, serving: Serving, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered = []

    def counted(*given: object) -> Iterator[object]:
        for frame in frames_of(*given):  # type: ignore[arg-type]
            rendered.append(frame.recorded.position)
            yield frame

    monkeypatch.setattr(hub, "frames_of", counted)
    sources = [EventSource(serving.port, "/v1/events/stream", token) for _ in range(20)]
    for source in sources:
        source.open()
    until_true(lambda: serving.hub.clients == 20)
    say(log, 10)
    for source in sources:
        assert [one.json["position"] for one in next_of(source.events(), 10)] == list(range(1, 11))
        source.close()
    assert rendered == list(range(1, 11))


def test_events_of_another_handle_arrive(log: Log, serving: Serving, token: str, tmp_path: Path) -> None:
    source = EventSource(serving.port, "/v1/events/stream", token)
    source.open()
    with everlog.open(f"sqlite:{tmp_path}/log.db", actor="user:other") as other:
        say(other, 2)
        assert [one.json["position"] for one in next_of(source.events(), 2)] == [1, 2]


def test_a_limited_stream_has_only_its_own_events_and_cursors(log: Log, serving: Serving) -> None:
    acme = serving.token("acme", role="read", within="acme")
    say(log, 1, "note/1", "acme/shop")
    say(log, 5, "note/2", "acmecorp")
    source = EventSource(serving.port, "/v1/events/stream", acme)
    source.open()
    events = source.events()
    (first,) = next_of(events, 1)
    assert (first.json["position"], Cursor.of(first.id).position) == (1, 1)
    until_true(lambda: serving.hub._classes, what="the join")
    log.purge("note/2", reason="of others")
    say(log, 5, "note/3", "other")
    say(log, 1, "note/4", "acme")
    (second,) = next_of(events, 1)
    assert (second.type, second.json["position"]) == ("message", log.head())
    say(log, 4, "note/5", "other")
    serving.hub.close("shutdown")
    (bye,) = next_of(events, 1)
    assert Cursor.of(bye.id).position == second.json["position"], "the end of the log is not shown"


def test_a_forgotten_payload_does_not_stay_in_the_ring(log: Log, serving: Serving, token: str) -> None:
    source = EventSource(serving.port, "/v1/events/stream", token)
    source.open()

    def something_is_in_the_ring() -> bool:
        say(log, 1)  # the first ones may come as a page, before the stream has joined the hub
        return bool(serving.hub._ring)

    until_true(something_is_in_the_ring)
    until_true(lambda: serving.hub._ring[-1].recorded.position == log.head())
    frame = serving.hub._ring[-1]
    event = msgspec.structs.replace(whole(frame.recorded.event), type=FORGOTTEN)
    marked = msgspec.structs.replace(frame.recorded, event=event)
    serving.hub._publish([frame._replace(recorded=marked)], frame.cursor, frame.recorded.position)
    assert not serving.hub._ring


def test_damage_ends_a_stream_with_the_problem(
    log: Log, serving: Serving, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = Reading.after

    def fail_at_three(*given: Any, **named: Any) -> Read:
        found = after(*given, **named)
        if found.page.head >= 3:
            raise Damaged("position 3 is lost", position=3, after=3)
        return found

    monkeypatch.setattr(Reading, "after", fail_at_three)
    say(log, 2)
    source = EventSource(serving.port, "/v1/events/stream", token)
    source.open()
    events = source.events()
    next_of(events, 2)
    say(log, 1)
    (bye,) = next_of(events, 1)
    assert (bye.type, bye.json["reason"], bye.json["problem"]["code"]) == ("bye", "failed", "damaged")
    assert Cursor.of(bye.id).position == 2
    with pytest.raises(Refused) as refused:
        source.open()
    assert refused.value.status == 503


def test_a_chunk_is_sent_at_once_only_to_a_client_that_waits_for_one() -> None:
    """Its task may be about to send what it took from the queue: a chunk that is sent then would overtake it."""

    async def run() -> None:
        sent: list[Chunk] = []
        client = Client(cast("Any", None), cast("Any", None))
        client.send_at_once = lambda chunk: not sent.append(chunk)  # type: ignore[func-returns-value]
        first, second, third, fourth = (Chunk(b"%d" % n) for n in range(4))
        client.give(first, Cursor(Position(1)))
        assert (sent, client.take(), client.cursor.position) == ([], [first], 1)
        client.give(second, Cursor(Position(2)))  # the task has not come back for more
        assert (sent, client.take()) == ([], [second])
        await client.wait()
        waiting = asyncio.create_task(client.wait())
        await asyncio.sleep(0)
        client.give(third, Cursor(Position(3)))
        assert (sent, client.queued_bytes, client.cursor.position, waiting.done()) == ([third], 0, 3, False)
        client.wake()  # it will run, and has not yet
        client.give(fourth, Cursor(Position(4)))
        await waiting
        assert (sent, client.take(), client.cursor.position) == ([third], [fourth], 4)

    asyncio.run(run())

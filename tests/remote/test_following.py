"""Streams that are cut anywhere, sent twice, or end early."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everlog
from everlog.core.query import Cursor
from everlog.errors import Damaged, EverlogError, Forbidden, PeerUnavailable
from everlog.remote.following import Following
from everlog.remote.reading import Reading
from everlog.remote.retry import ATTEMPTS_AT_FIRST
from everlog.remote.server_sent import Parser, ServerSent
from everlog.wire import problems
from everlog.wire.messages import record_bytes

TEXT = (
    ": welcome\n\n"
    "id: 1@E.aa\ndata: {}\n\n"
    ": heartbeat\n\n"
    'event: reset\r\nid: 2\r\ndata: {"reason":"purged"}\r\n\r\n'
    "data: a\rdata: ü\r\r"
    "event: bye\nid: 3\ndata:x\n\n"
).encode()
EVENTS = [
    ServerSent("message", "1@E.aa", "{}"),
    ServerSent("reset", "2", '{"reason":"purged"}'),
    ServerSent("message", "2", "a\nü"),
    ServerSent("bye", "3", "x"),
]


@given(st.lists(st.integers(0, len(TEXT)), max_size=20))
def test_a_stream_may_be_cut_anywhere(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(TEXT)]
    parser = Parser()
    found = [one for start, end in pairwise(places) for one in parser.feed(TEXT[start:end])]
    assert found == EVENTS


def _frame(recorded: everlog.Recorded) -> bytes:
    return f"id: {recorded.position}@E\ndata: ".encode() + record_bytes(recorded) + b"\n\n"


@pytest.fixture
def records() -> list[everlog.Recorded]:
    with everlog.open("memory:", actor="user:ada") as log:
        return [log.append("note.added", stream="note/1", payload={"text": "x"}) for _ in range(4)]


def test_what_is_sent_again_is_given_out_once(records: list[everlog.Recorded]) -> None:
    following = Following(Cursor.of(0))
    following.begin_stream()
    assert following.take_piece(b"".join(map(_frame, records[:3]))) == records[:3]
    following.begin_stream()
    assert following.take_piece(b"".join(map(_frame, records))) == records[3:]
    assert str(following.cursor) == "4@E"


def test_half_an_event_of_a_lost_connection_is_forgotten(records: list[everlog.Recorded]) -> None:
    following = Following(Cursor.of(0))
    following.begin_stream()
    assert following.take_piece(_frame(records[0])[:-20]) == []
    following.begin_stream()
    assert following.take_piece(_frame(records[0])) == records[:1]


def test_a_reset_moves_the_cursor_back_and_events_come_again(records: list[everlog.Recorded]) -> None:
    following = Following(Cursor.of("4@E"))
    following.begin_stream()
    found = following.take_piece(
        b'event: reset\nid: 0@F\ndata: {"reason":"restored","next":"0@F"}\n\n' + _frame(records[0])
    )
    assert found == [everlog.Reset(Cursor.of("0@F"), "restored"), records[0]]


def test_a_page_that_does_not_move_is_the_end_although_the_head_is_further() -> None:
    """A caller that is limited to a scope, with a filter, stays at its last match."""
    following, cursor = Following(Cursor.of("4@E")), Cursor.of("4@E")
    assert following.take_page(everlog.Page((), cursor, everlog.Position(9))) == []
    assert following.at_end
    reading = Reading(everlog.Query(kind="note"), after=4, upto=None, limit=None)
    assert reading.take(everlog.Page((), cursor, everlog.Position(9))) == []
    assert reading.next_call() is None


def test_the_end_of_a_stream_that_the_server_announces() -> None:
    following = Following(Cursor.of(0))
    following.begin_stream()
    assert following.take_piece(b'event: bye\nid: 7@E\ndata: {"reason":"shutdown","next":"7@E"}\n\n') == []
    assert following.ended
    assert str(following.cursor) == "7@E"
    assert following.pause_after(None) == 0.0


def test_a_stream_that_fails_for_good_raises_its_error() -> None:
    problem = msgspec.json.encode(problems.problem_of(Damaged("the log is damaged at #3", position=3)))
    following = Following(Cursor.of(0))
    following.begin_stream()
    following.take_piece(b'event: bye\nid: 2\ndata: {"reason":"failed","next":"2","problem":' + problem + b"}\n\n")
    with pytest.raises(Damaged) as caught:
        following.pause_after(None)
    assert caught.value.details == {"position": 3}


def test_a_subscription_that_worked_waits_for_its_server_and_one_that_never_did_fails() -> None:
    gone: EverlogError = PeerUnavailable("gone")
    fresh, worked = Following(Cursor.of(0)), Following(Cursor.of(0))
    worked.begin_stream()
    pauses = [worked.pause_after(gone) for _ in range(50)]
    assert max(pauses) <= 5.0
    for _ in range(ATTEMPTS_AT_FIRST - 1):
        fresh.pause_after(gone)
    with pytest.raises(PeerUnavailable):
        fresh.pause_after(gone)
    with pytest.raises(Forbidden):
        worked.pause_after(Forbidden("no"))


def test_a_stream_that_ends_at_once_again_and_again_is_asked_more_and_more_slowly() -> None:
    following = Following(Cursor.of(0))
    pauses = []
    for _ in range(8):
        following.begin_stream()
        pauses.append(following.pause_after(None))
    assert pauses[0] == 0.0
    assert pauses[-1] > 1.0

"""Requests whose answers are lost: recorded once, or not sent again."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.remote.serving import Served

import everlog
from everlog.errors import Busy, EverlogError, PeerUnavailable, StorageFull, TooManyRequests, ViewBehind
from everlog.remote import calls
from everlog.remote.retry import NotSent, pause_before_next


def _request(caller: socket.socket) -> bytes:
    """Return a whole request."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += caller.recv(1 << 16)
    head, _, body = found.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += caller.recv(1 << 16)
    return head + b"\r\n\r\n" + body


@contextmanager
def between(url: str, lose: Callable[[int], bool]) -> Iterator[str]:
    """A relay in front of a server. It passes requests on, and loses the answers to those that `lose` names."""
    host, port = url.removeprefix("http://").split(":")
    listening = socket.create_server(("127.0.0.1", 0))
    count = 0
    ending = threading.Event()

    def relay() -> None:
        nonlocal count
        while not ending.is_set():
            try:
                caller, _ = listening.accept()
            except OSError:
                return
            with caller, socket.create_connection((host, int(port))) as server:
                request = _request(caller)
                server.sendall(request.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1))
                answer = b"".join(iter(lambda: server.recv(1 << 16), b""))
                count += 1
                if not lose(count):
                    caller.sendall(answer)

    thread = threading.Thread(target=relay, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        ending.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)


def test_an_append_whose_answer_is_lost_is_recorded_once(behind: Served) -> None:
    with (
        between(behind.url, lambda count: count <= 2) as url,
        everlog.connect(url, token=behind.token()) as log,
    ):
        made = log.append("note.added", stream="note/1", payload={"text": "x"})
        batch = log.append_batch([everlog.Draft("note.added", "note/1", {"text": "y"})] * 2)
    assert [one.position for one in (made, *batch)] == [1, 2, 3]
    assert behind.log.head() == 3


def test_a_purge_whose_answer_is_lost_is_done_once(behind: Served) -> None:
    for _ in range(2):
        behind.log.append("note.added", stream="note/1", payload={"text": "x"})
    with (
        between(behind.url, lambda count: count <= 2) as url,
        everlog.connect(url, token=behind.token(role="admin")) as log,
    ):
        done = log.purge("note/1", reason="test")
    assert (done.count, done.reserved) == (2, 3)
    assert [one.reserved for one in behind.log.stored.purges()] == [3]


def test_which_failures_are_tried_again() -> None:
    read, once = calls.get(1), calls.do_named("group.ack", {}, dict)
    lost, unsent = PeerUnavailable("lost"), NotSent("not sent")
    assert pause_before_next(read, lost, 1) is not None
    assert pause_before_next(read, Busy("busy"), 1) is not None
    assert pause_before_next(once, lost, 1) is None
    assert pause_before_next(once, unsent, 1) is not None
    assert pause_before_next(read, lost, 6) is None
    assert pause_before_next(read, unsent, 3) is not None
    assert pause_before_next(read, unsent, 3, answered=False) is None
    refused: list[EverlogError] = [ViewBehind("behind"), StorageFull("full"), everlog.errors.NotFound("none")]
    assert [pause_before_next(read, error, 1) for error in refused] == [None, None, None]


def test_a_server_says_how_long_to_wait() -> None:
    wait = pause_before_next(calls.get(1), TooManyRequests("slower", retry_after_s=3), 1)
    assert wait is not None
    assert wait >= 3
    assert pause_before_next(calls.get(1), TooManyRequests("slower", retry_after_s=3600), 1) is None


def test_every_append_and_command_has_a_key_and_a_dry_run_has_none(behind: Served) -> None:
    catalog = behind.log.catalog
    draft = everlog.Draft("note.added", "note/1", {"text": "x"})
    assert calls.append(catalog, draft).key != calls.append(catalog, draft).key
    assert calls.append(catalog, draft, key="mine").key == "mine"
    assert calls.append(catalog, draft, dry_run=True).key == ""
    with pytest.raises(EverlogError, match="cannot be sent"):
        calls.append(catalog, draft, key="a\r\nb")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n",
    ],
)
def test_something_else_that_answers_is_not_taken_for_a_server(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def reply() -> None:
            caller, _ = listening.accept()
            with caller:
                caller.recv(1 << 16)
                caller.sendall(answer)

        thread = threading.Thread(target=reply, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with everlog.connect(url, token="evl_x") as log, pytest.raises(EverlogError) as caught:
            log.head()
        thread.join(5)
    assert caught.value.code == "rejected_message"

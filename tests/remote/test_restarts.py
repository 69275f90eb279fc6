"""A server that is killed and started again: its clients notice nothing but a pause."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from tests.remote.serving import Process

import everlog
from everlog import Recorded, Reset
from everlog.server.callers.tokens import Tokens


@pytest.fixture
def token(process: Process) -> str:
    with everlog.open(f"sqlite:{process.folder / 'log.db'}", actor="user:host") as log:
        return Tokens(log).new("ada", actor="user:ada", role="admin")


@pytest.fixture
def log(process: Process, token: str) -> Iterator[everlog.RemoteLog]:
    process.start()
    with everlog.connect(process.url, token=token) as found:
        yield found


def test_a_subscription_continues_after_its_server_was_killed(process: Process, log: everlog.RemoteLog) -> None:
    seen: list[Recorded | Reset] = []
    three, five, six = threading.Event(), threading.Event(), threading.Event()

    def follow() -> None:
        for item in log.subscribe(stop=six.is_set):
            seen.append(item)
            for count, event in ((3, three), (5, five), (7, six)):
                if len(seen) == count:
                    event.set()

    def note(number: int) -> None:
        log.append("note.added", stream=f"note/{number}", payload={"text": "x"})

    for number in (1, 2):
        note(number)
    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    note(3)
    assert three.wait(20)
    process.kill()
    process.start()
    note(4)
    note(5)
    assert five.wait(30)
    process.kill()
    with everlog.open(f"sqlite:{process.folder / 'log.db'}", actor="user:host") as here:
        here.purge("note/1", reason="while nobody served it")
        here.append("note.added", stream="note/6", payload={"text": "x"})
    process.start()
    assert six.wait(30)
    follower.join(10)
    assert [one.position if isinstance(one, Recorded) else one.reason for one in seen] == [1, 2, 3, 4, 5, "purged", 7]


def test_an_append_waits_for_a_server_that_starts_again(process: Process, log: everlog.RemoteLog) -> None:
    assert log.head() == 0
    process.kill()
    starter = threading.Timer(0.3, process.start)
    starter.start()
    made = log.append("note.added", stream="note/1", payload={"text": "x"})
    starter.join()
    assert made.position == 1
    assert log.head() == 1


def test_a_client_of_a_server_that_never_answered_says_so_soon(process: Process, log: everlog.RemoteLog) -> None:
    process.kill()
    started = time.monotonic()
    with pytest.raises(everlog.errors.PeerUnavailable, match="does not answer"):
        log.append("note.added", stream="note/1", payload={"text": "x"})
    with pytest.raises(everlog.errors.PeerUnavailable, match="does not answer"):
        next(log.subscribe())
    assert time.monotonic() - started < 5

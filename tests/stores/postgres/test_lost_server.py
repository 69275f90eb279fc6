"""A server that goes away, restarts or crashes, and connections that are lost: nothing acknowledged is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from everlog.catalog.catalog import Catalog
from everlog.demo.postgres_server import PostgresServer
from everlog.errors import (
    Busy,
    LogClosed,
    Unavailable,
)
from everlog.log.log import Log
from everlog.stores.postgres import connection, insert
from everlog.stores.postgres.store import PostgresStore
from everlog.testing.builders import Chain
from everlog.testing.filling import append, positions


def test_a_read_and_a_write_go_on_after_the_server_came_back(own_server: PostgresServer) -> None:
    store = PostgresStore(own_server.url)
    chain = Chain()
    append(store, chain.next())
    assert store.head() == 1
    own_server.crash()
    with pytest.raises(Unavailable):
        store.head()
    with pytest.raises(Unavailable):
        append(store, chain.next())
    own_server.start()
    assert store.head() == 1
    append(store, Chain("01TESTFREE0000000000000001").next())
    assert positions(store.read()) == [1, 2]
    store.close()


def test_a_write_that_meets_a_restarted_server_does_not_notice(own_server: PostgresServer) -> None:
    store = PostgresStore(own_server.url)
    append(store, Chain().next())
    own_server.stop()
    own_server.start()
    append(store, Chain("01TESTFREE0000000000000001").next())
    assert store.head() == 2
    store.close()


def test_a_server_that_crashes_loses_nothing_acknowledged(own_server: PostgresServer, catalog: Catalog) -> None:
    """G1: killed without a word while eight threads append; every acknowledged event is there, and none twice."""
    log = Log(PostgresStore(own_server.url), catalog)
    acknowledged: list[str] = []
    stop = threading.Event()

    def write(number: int) -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            try:
                record = log.append(
                    "thing.said", stream=f"thing/{number}", payload={"value": turn}, key=f"{number}-{turn}"
                )
                acknowledged.append(record.event.id)
            except Unavailable:
                time.sleep(0.05)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        time.sleep(0.5)
        own_server.crash()
        own_server.start()
    time.sleep(0.3)
    stop.set()
    for thread in threads:
        thread.join()
    there = [record.event.id for record in log.read()]
    assert len(acknowledged) > 50
    assert set(acknowledged) <= set(there)
    assert len(there) == len(set(there))
    assert log.verify().ok
    log.close()


@pytest.mark.parametrize("committed", [True, False])
def test_a_connection_lost_in_a_commit_is_looked_into(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """What the server did is found out: an event that stands is acknowledged, one that does not is refused."""
    whole = insert.Inserter.insert

    def cut_off(self: insert.Inserter, writer: Any, wire: Any, staged: Any) -> None:
        if committed:
            whole(self, writer, wire, staged)
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    chain = Chain()
    append(store, chain.next())
    monkeypatch.setattr(insert.Inserter, "insert", cut_off)
    if committed:
        append(store, chain.next())
    else:
        with pytest.raises(Unavailable) as refusal:
            append(store, chain.next())
        assert "nothing of this write was kept" in refusal.value.why
    monkeypatch.undo()
    assert store.head() == (2 if committed else 1)
    append(store, Chain("01TESTFREE0000000000000001").next())
    assert list(store.check()) == []


def test_an_unknown_outcome_is_told_as_such(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a server to ask, nobody is told that it was kept, nor that it was not."""
    from everlog.stores.postgres import store as module

    def cut_off(self: insert.Inserter, writer: Any, wire: Any, staged: Any) -> None:
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    def unreachable(address: Any) -> Any:
        raise psycopg.OperationalError("connection refused")

    append(store, Chain().next())
    monkeypatch.setattr(insert.Inserter, "insert", cut_off)
    monkeypatch.setattr(module, "connect", unreachable)
    monkeypatch.setattr(module, "_RESOLVE_S", 0)
    with pytest.raises(Unavailable) as refusal:
        append(store, Chain("01TESTFREE0000000000000001").next())
    assert "unknown" in refusal.value.what
    assert "idempotency key" in refusal.value.hint


def test_a_writer_that_is_killed_lets_go_of_the_log(postgres_url: str, tmp_path: Path) -> None:
    """G1, G13: kill -9 of a client in the middle of its writes; what it had said is there, and others go on."""
    store = PostgresStore(postgres_url)
    code = (
        "import sys, everlog\n"
        "log = everlog.open(sys.argv[1])\n"
        "for n in range(100000):\n"
        "    print(log.append('note.added', stream='note/1', payload={'text': str(n)}).event.id, flush=True)\n"
    )
    for _ in range(3):
        client = subprocess.Popen([sys.executable, "-c", code, postgres_url], stdout=subprocess.PIPE, text=True)
        assert client.stdout is not None
        said = [client.stdout.readline().strip() for _ in range(15)]
        client.send_signal(signal.SIGKILL)
        said += client.stdout.read().split()
        client.wait()
        client.stdout.close()
        append(store, Chain("01TESTFREE" + os.urandom(8).hex().upper()).next())
        there = {record.event.id for record in store.read()}
        whole = [event_id for event_id in said if len(event_id) == 26]
        assert set(whole) <= there
    assert list(store.check()) == []
    store.close()


def test_who_waits_too_long_for_the_log_is_told(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LOCK_TIMEOUT_MS", 100)
    other = PostgresStore(postgres_url)
    with store.open_write(), pytest.raises(Busy), other.open_write():
        pass
    append(other, Chain().next())
    other.close()


def test_a_fork_does_not_share_connections(store: PostgresStore) -> None:
    """The child is refused, and its end does not end the parent's sessions."""
    append(store, Chain().next())
    assert store.head() == 1
    child = os.fork()
    if child == 0:
        try:
            store.head()
        except LogClosed:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    append(store, Chain("01TESTFREE0000000000000001").next())
    assert store.head() == 2

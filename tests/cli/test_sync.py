"""`everlog sync`, `peers` and `join`, with separate processes and real HTTP."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from everlog.application.sync.peers import Peer
from everlog.application.sync.watch import EMERGENCY_S, INTERVAL_S, Watch, pause_s
from everlog.errors import PeerUnavailable
from everlog.sync.exchange import Synced

DONE = Synced(sent_count=0, received_count=0, duration_ms=0, round_trips=1, equal=True)


def everlog(folder: Path, *arguments: str, code: int = 0) -> Any:
    """Run a command in a process of its own; return its data, or its error."""
    command = [sys.executable, "-m", "everlog", "-C", str(folder), *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)["data"] if code == 0 else json.loads(done.stderr)["error"]


@contextmanager
def listening(folder: Path, *arguments: str) -> Iterator[str]:
    """Run a node that listens; give its URL."""
    command = [sys.executable, "-m", "everlog", "-C", str(folder), "sync", "--listen", "127.0.0.1:0", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        found = re.search(r"listening at (\S+)", process.stderr.readline())
        assert found is not None
        yield found[1]
    finally:
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=20) == 130
        process.stderr.close()


def add(folder: Path, text: str) -> None:
    everlog(folder, "append", "note.added", "-s", "note/1", f"text={text}")


def said(folder: Path) -> set[str]:
    return {one["payload"]["text"] for one in everlog(folder, "log", "--type", "note.added")}


def test_a_node_joins_once_the_peer_knows_its_key_and_both_stay_in_sync(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    everlog(tmp_path, "init", "one", "--signed")
    add(one, "first")
    with listening(one) as url:
        refused = everlog(tmp_path, "join", url, "other", code=7)
        assert refused["code"] == "not_authorized"
        key = re.search(r"peers add (z6Mk\w+)", refused["hint"])
        assert key is not None
        everlog(one, "peers", "add", key[1])
        joined = everlog(tmp_path, "join", url, "other")
        assert (joined["received"], joined["equal"], joined["origin"]) == (1, True, key[1])
        add(other, "second")
        add(one, "third")
        (done,) = everlog(other, "sync")
        assert (done["sent"], done["received"], done["equal"], done["place"]) == (2, 1, True, url)
        (peer,) = everlog(other, "peers", "list")
        assert (peer["url"], peer["last"]) == (url, "equal")
        assert peer["key"]
    assert said(one) == said(other) == {"first", "second", "third"}
    assert everlog(one, "verify")["ok"]
    failed = everlog(other, "sync", code=7)
    assert failed["code"] == "peer_unavailable"
    assert everlog(other, "peers", "list")[0]["last"] == "peer_unavailable"


def test_a_log_without_a_key_listens_only_if_it_answers_everybody(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    everlog(tmp_path, "init", "one")
    add(one, "first")
    assert everlog(one, "sync", "--listen", "127.0.0.1:0", code=7)["code"] == "no_key"
    with listening(one, "--open") as url:
        assert everlog(tmp_path, "join", url, "other")["received"] == 1
        add(other, "second")
        assert everlog(other, "sync", url)[0]["equal"]
    assert said(one) == {"first", "second"}
    assert not (other / ".everlog" / "keys").exists()


def test_events_travel_by_a_file_a_folder_and_the_folder_of_a_copy(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    everlog(tmp_path, "init", "one")
    add(one, "first")
    (other / ".everlog").mkdir(parents=True)
    everlog(one, "copy", "sqlite:.everlog/log.db", f"sqlite:{other / '.everlog' / 'log.db'}")
    everlog(tmp_path, "init", "other")
    add(one, "second")
    add(other, "third")
    stick = tmp_path / "stick.sync"
    for folder in (one, other, one):
        everlog(folder, "sync", str(stick))
    assert said(one) == said(other) == {"first", "second", "third"}
    add(one, "fourth")
    shared = tmp_path / "shared"
    shared.mkdir()
    for folder in (one, other, one, other):
        (done,) = everlog(folder, "sync", str(shared))
    assert done["equal"]
    assert "fourth" in said(other)
    add(other, "fifth")
    assert everlog(one, "sync", str(other))[0]["equal"]
    assert said(one) == said(other)


def test_peers_are_added_once_and_removed(tmp_path: Path) -> None:
    everlog(tmp_path, "init")
    everlog(tmp_path, "peers", "add", "http://127.0.0.1:7474/")
    everlog(tmp_path, "peers", "add", "http://127.0.0.1:7474")
    assert [peer["url"] for peer in everlog(tmp_path, "peers", "list")] == ["http://127.0.0.1:7474"]
    for wrong in ("ftp://x", "http://", "http://user:secret@host", "z6Mk", "http://host:0"):
        assert everlog(tmp_path, "peers", "add", wrong, code=3)["code"] == "invalid_field"
    everlog(tmp_path, "peers", "remove", "http://127.0.0.1:7474")
    assert everlog(tmp_path, "peers", "list") == []
    assert everlog(tmp_path, "sync", code=4)["code"] == "not_found"


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:1", True),
        ("http://192.168.3.4:1", True),
        ("http://[fe80::1]:1", True),
        ("http://laptop:1", True),
        ("http://laptop.local", True),
        ("http://8.8.8.8", False),
        ("https://example.org", False),
    ],
)
def test_a_peer_in_this_network_is_local(url: str, local: bool) -> None:
    assert Peer(url=url).is_local is local


def test_pauses_grow_after_failures_and_vary() -> None:
    assert pause_s(0, emergency=False, jitter=lambda: 0.5) == INTERVAL_S == 300
    assert pause_s(0, emergency=True, jitter=lambda: 0.5) == EMERGENCY_S == 30
    pauses = [pause_s(failures, emergency=False, jitter=lambda: 0.5) for failures in range(1, 10)]
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert len({pause_s(1, emergency=False) for _ in range(10)}) > 1


def test_a_peer_that_does_not_answer_delays_no_other_and_distant_ones_wait_in_an_emergency() -> None:
    import threading

    asked: list[str] = []
    enough, emergency = threading.Event(), [False]
    stuck = threading.Event()
    peers = [Peer(url=url) for url in ("http://10.0.0.1", "http://10.0.0.2", "http://8.8.8.8")]

    def sync(url: str) -> Synced:
        if url.endswith(".1"):
            stuck.wait(20)
        if url == "http://8.8.8.8":
            raise PeerUnavailable("it is far away")
        return DONE

    def report(url: str, done: object) -> None:
        asked.append(url)
        if len(asked) == 2:
            enough.set()

    watch = Watch(lambda: peers, sync, report, lambda: emergency[0])
    thread = threading.Thread(target=watch.run, daemon=True)
    thread.start()
    assert enough.wait(10)
    assert set(asked) == {"http://10.0.0.2", "http://8.8.8.8"}
    emergency[0] = True
    assert set(watch._wanted()) == {"http://10.0.0.1", "http://10.0.0.2"}
    stuck.set()
    watch.stop()
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_two_nodes_exchange_keys_of_persons_and_follow_the_forgets_of_each_other(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    everlog(tmp_path, "init", "one", "--signed")
    everlog(one, "schema", "add", "customer.registered", "customer:str", "email:str personal of customer")
    for number in (1, 2):
        fields = (f"customer=c/{number}", f"email=somebody{number}@example.org")
        everlog(one, "append", "customer.registered", "-s", f"customer/{number}", *fields)

    def emails(folder: Path) -> list[str]:
        found = everlog(folder, "log", "--type", "customer.registered")
        return sorted(event["payload"]["email"] for event in found)

    with listening(one) as url:
        refused = everlog(tmp_path, "join", url, "other", code=7)
        key = re.search(r"peers add (z6Mk\w+)", refused["hint"])
        assert key is not None
        everlog(one, "peers", "add", key[1])
        everlog(tmp_path, "join", url, "other")
        shutil.copy(one / ".everlog" / "types.toml", other / ".everlog" / "types.toml")
        assert emails(other) == ["[sealed]", "[sealed]"]
        everlog(other, "sync")
        assert emails(other) == ["somebody1@example.org", "somebody2@example.org"]
        everlog(one, "forget", "c/1", "--confirm", "forget c/1")  # beside the process that listens
        everlog(other, "sync")
        assert emails(other) == ["[sealed]", "somebody2@example.org"]
        everlog(other, "forget", "c/2", "--confirm", "forget c/2")
        everlog(other, "sync")
        until = time.monotonic() + 60
        while emails(one) != ["[sealed]", "[sealed]"] and time.monotonic() < until:
            time.sleep(0.5)  # the node that listens follows in its own thread
        everlog(other, "sync")
    for folder in (one, other):
        assert emails(folder) == ["[sealed]", "[sealed]"]
        assert [len(asked["nodes"]) for asked in everlog(folder, "forget", "--status")] == [2, 2]
        assert everlog(folder, "verify")["ok"]

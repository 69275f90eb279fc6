"""Forgetting, and what is outside one process and one log: other processes, rings, backups, git, the lake, nodes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.application.trust.forgetting import (
    BEFORE,
    CATALOG,
    OPEN,
    SEALED,
    STAYS,
    STORES,
    SUBJECT,
    Emails,
    files_with,
    fill,
    open_shop,
    owned,
    register,
)
from tests.support.nodes import close, new_log_id, open_node
from tests.support.postgres_schemas import Schemas

import everlog
from everlog.application.trust.forget import follow, forget, pending, status
from everlog.application.trust.owned_bytes import Owned, Searched, search
from everlog.core.query import Query
from everlog.log.log import Log
from everlog.log.write import prepare
from everlog.sync.exchange import Node
from everlog.sync.wire import Span
from everlog.testing.signing import key
from everlog.trust.ring import KeyRing
from everlog.trust.sealing import Sealing, key_id_of
from everlog.views.registry import Views

ROOT = Path(__file__).parents[3]
ENV = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin"}


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    fill(request.param, signed=True)
    return str(request.param)


def emails(log: Log) -> list[str]:
    return [str(one.event.payload.get("email", "erased")) for one in log.read() if one.event.kind == "customer"]


GONE = ["erased", STAYS, "[sealed]", STAYS, "[sealed]"]


def test_an_older_copy_of_the_ring_does_not_bring_a_key_back(url: str, tmp_path: Path) -> None:
    ring = next(tmp_path.glob("*.keys")) / "ring"
    shutil.copytree(ring, tmp_path / "old")
    with open_shop(url) as log:
        (receipt,) = forget(log, SUBJECT, owned=owned(tmp_path))
    shutil.rmtree(ring)
    shutil.copytree(tmp_path / "old", ring)
    (destroyed,) = receipt.forget.keys
    assert f'["{destroyed}",' in (ring / "keys").read_text()

    with open_shop(url) as log:
        assert emails(log) == GONE
    assert f'["{destroyed}",' not in (ring / "keys").read_text()
    with open_shop(url) as log:
        assert emails(log) == GONE


def test_a_backup_of_the_log_does_not_bring_sealed_values_back(url: str, tmp_path: Path) -> None:
    name = url.partition(":")[2]
    saved = tmp_path / "backup"
    saved.mkdir()
    for path in tmp_path.glob(f"{name}*"):
        if not path.name.endswith(".keys"):
            (shutil.copytree if path.is_dir() else shutil.copy)(path, saved / path.name)
    with open_shop(url) as log:
        forget(log, SUBJECT, owned=Owned([tmp_path / name], None, None))
    for path in tmp_path.glob(f"{name}*"):
        if not path.name.endswith(".keys"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in saved.iterdir():
        (shutil.copytree if path.is_dir() else shutil.copy)(path, tmp_path / path.name)

    with open_shop(url) as log:
        assert emails(log) == [OPEN, STAYS, "[sealed]", STAYS, "[sealed]"]
        register(log, SUBJECT, "again@example.org")  # under a new key
        assert emails(log)[2:] == ["[sealed]", STAYS, "[sealed]", "again@example.org"]
        assert log.verify().ok


READER = """
import sys, time
from tests.application.trust.forgetting import *
with open_shop(sys.argv[1]) as log:
    register(log, "c/2", STAYS)
    print(log.view(Emails).get("customer/1").state["email"], flush=True)
    deadline = time.monotonic() + 60
    while log.view(Emails).get("customer/1").state["email"] != "[sealed]" and time.monotonic() < deadline:
        register(log, "c/2", STAYS)
    values = {one.event.payload.get("email") for one in log.read(stream="customer/1")}
    print(sorted(map(str, values)), log.verify().ok, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("name", ["sqlite:log.db", "jsonl:log"])
def test_another_process_stops_using_the_key_and_derives_its_views_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes and reads all the time. (A segments log has one writer.)"""
    monkeypatch.chdir(tmp_path)
    fill(name)
    command = [sys.executable, "-c", READER, name]
    with subprocess.Popen(
        command, cwd=tmp_path, env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline().strip() == SEALED
        with open_shop(name) as log:
            (receipt,) = forget(log, SUBJECT, owned=owned(tmp_path))
            assert other.stdout.readline().strip() == "['None', '[sealed]'] True"
        other.stdin.write("end\n")
    assert receipt.searched.found == []
    assert files_with(tmp_path, OPEN, SEALED) == []


HOLDER = """
import sqlite3, sys
reader = sqlite3.connect("file:log.db?mode=ro", uri=True, isolation_level=None)
reader.execute("BEGIN")
reader.execute("SELECT count(*) FROM state").fetchall()
print("holds", flush=True)
sys.stdin.readline()
reader.execute("COMMIT")
sys.stdin.readline()
"""


@pytest.mark.parametrize("lets_go", [True, False])
def test_a_reader_in_another_process_keeps_the_journal_in_use(
    lets_go: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forget waits for it. If it does not end, the receipt names the files that still have a value."""
    monkeypatch.chdir(tmp_path)
    fill("sqlite:log.db")
    monkeypatch.setattr("everlog.application.trust.forget._SEARCH_WAIT_S", 60.0 if lets_go else 0.5)
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline().strip() == "holds"
        searches: list[Searched] = []

        def search_it(*asked: Any) -> Searched:
            if lets_go and len(searches) == 1:
                print("go", file=other.stdin, flush=True)
            searches.append(search(*asked))
            return searches[-1]

        monkeypatch.setattr("everlog.application.trust.forget.search", search_it)
        with open_shop("sqlite:log.db") as log:
            (receipt,) = forget(log, SUBJECT, owned=owned(tmp_path))
            assert searches[0].found == [str(tmp_path / "log.db")]
            assert receipt.is_clean == lets_go
            assert (files_with(tmp_path, OPEN, SEALED) == []) == lets_go
            print("go\ngo", file=other.stdin, flush=True)
            other.wait()
    assert files_with(tmp_path, OPEN, SEALED) == []


def test_nothing_is_left_in_the_tables_of_postgres(
    postgres_url: str, postgres_schemas: Schemas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERLOG_KEYS_FOLDER", str(tmp_path / "keys"))
    fill(postgres_url, signed=True)
    with open_shop(postgres_url) as log:
        log.view(Emails).catch_up()
        assert OPEN in str(postgres_schemas.rows(postgres_url))
        (receipt,) = forget(log, SUBJECT, owned=Owned())
        assert (receipt.forget.erased, receipt.searched.found) == (1, [])
        assert receipt.searched.bytes > 0
        assert emails(log) == GONE
        assert log.verify().ok
    rows = str(postgres_schemas.rows(postgres_url))
    assert not any(form in rows for value in (OPEN, SEALED) for form in (value, value.encode().hex()))
    assert STAYS in rows


def test_a_lake_that_may_have_a_value_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fill("sqlite:log.db")
    (tmp_path / "lake" / "events").mkdir(parents=True)
    (tmp_path / "lake" / "lake.json").write_text("{}")
    pq.write_table(pa.table({"payload": [OPEN] * 100}), tmp_path / "lake" / "events" / "1.parquet")
    with open_shop("sqlite:log.db") as log:
        assert search(owned(tmp_path), log, [OPEN.encode()]).found == [
            str(tmp_path / "lake" / "events" / "1.parquet"),
            str(tmp_path / "log.db"),
        ]
        (receipt,) = forget(log, SUBJECT, owned=owned(tmp_path))
    assert receipt.lake
    assert {path.name for path in (tmp_path / "lake").iterdir()} <= {"lock", "lock.queue"}


def test_what_git_holds_is_named_in_the_receipt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fill("jsonl:log")
    git = ["git", "-c", "user.name=ada", "-c", "user.email=ada@localhost"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "events"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True, capture_output=True)
    with open_shop("jsonl:log") as log:
        (receipt,) = forget(log, SUBJECT, owned=Owned([tmp_path / "log"], None, None))
    assert receipt.git
    assert "git holds earlier states" in receipt.note.text
    assert files_with(tmp_path / "log", OPEN, SEALED) == []


def test_a_value_that_another_event_has_too_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fill("sqlite:log.db")
    with open_shop("sqlite:log.db") as log:
        log.append("note.added", stream="note/1", payload={"text": f"{OPEN} called"})
        (receipt,) = forget(log, SUBJECT, owned=owned(tmp_path))
    assert any(name.startswith(str(tmp_path / "log.db")) for name in receipt.searched.found)
    assert "found 0" not in receipt.note.text


def test_a_log_that_was_put_back_opens_the_ring_that_a_later_key_wraps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log does not know that key any more, and the ring is not part of its backup."""
    monkeypatch.chdir(tmp_path)
    with open_shop("segments:log", signed=True) as log:
        register(log, "c/1", SEALED)
    shutil.copytree(tmp_path / "log", tmp_path / "backup")
    with open_shop("segments:log") as log:
        log.rotate_key()
    with open_shop("segments:log") as log:
        register(log, "c/2", STAYS)
    shutil.rmtree(tmp_path / "log")
    (tmp_path / "backup").rename(tmp_path / "log")
    with open_shop("segments:log") as log:
        assert emails(log) == [SEALED]
        register(log, "c/2", STAYS)
        assert emails(log) == [SEALED, STAYS]


# ---- nodes


class Shop:
    """Two nodes of one log, each with its own key and ring."""

    def __init__(self, folder: Path) -> None:
        log_id = new_log_id()
        self.nodes = [self._open(folder, log_id, number) for number in (1, 2)]

    def _open(self, folder: Path, log_id: str, number: int) -> Node:
        catalog = everlog.Catalog()  # each log opens sealed fields with its own ring
        catalog.include(CATALOG)
        own = key(number)
        sealing = Sealing(partial(KeyRing, folder / f"ring{number}", node_keys=[own]))
        name = f"s{number}"
        return open_node(
            "sqlite", folder, log_id, name, keys=[own], catalog=catalog, sealing=sealing, make_views=Views
        )

    @property
    def logs(self) -> list[Log]:
        return [node.log for node in self.nodes]

    def sync(self) -> None:
        one, other = self.nodes
        assert one.sync_with(lambda request, body: other.answer(request, body)).equal

    def ring(self, number: int) -> KeyRing:
        sealing = self.logs[number].sealing
        assert sealing is not None
        return sealing.ring


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(tmp_path)
    yield opened
    close(opened.nodes)


def test_a_node_that_follows_records_its_own_receipt(shop: Shop) -> None:
    here, there = shop.logs
    register(here, "c/1", SEALED)
    register(here, "c/2", STAYS)
    shop.sync()
    assert emails(there) == ["[sealed]", "[sealed]"]
    box = shop.ring(0).sealed_for(key(2).public, shop.ring(0).ids_of("c/1"))
    assert len(shop.ring(1).take_in(box)) == 1
    assert emails(there) == [SEALED, "[sealed]"]

    (receipt,) = forget(here, "c/1", owned=Owned())
    (record,) = receipt.forget.records
    shop.sync()
    assert emails(there) == [SEALED, "[sealed]"]  # until it follows
    (asked,) = pending(there)
    assert (asked.record, asked.nodes) == (record, [here.identity.origin])

    (done,) = follow(there, record, owned=Owned())
    assert emails(there) == ["[sealed]", "[sealed]"]
    assert done.note.signatures[0].name == there.identity.origin
    assert shop.ring(1).take_in(box) == []
    assert emails(there) == ["[sealed]", "[sealed]"]
    assert follow(there, record, owned=Owned()) == []
    shop.sync()
    for log in shop.logs:
        (asked,) = status(log)
        assert asked.nodes == [here.identity.origin, there.identity.origin]
        assert (asked.here, log.verify().ok, pending(log)) == (True, True, [])


def test_a_node_that_comes_later_gets_what_is_left(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = shop.logs
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "_seal", lambda *given: None)  # as before the field was declared personal
        register(here, "c/1", OPEN)
    register(here, "c/1", SEALED)
    forget(here, "c/1", owned=Owned())
    shop.sync()
    first, second, record = there.stored.read()
    assert (first.event.payload, first.event.erased_by) == ({}, record.event.id)
    assert key_id_of(second.event.payload["email"])
    report = there.verify()
    assert (report.ok, report.erased, report.faults) == (True, 1, ())


def test_what_was_forgotten_does_not_come_back_from_a_node_that_has_not_followed(shop: Shop, tmp_path: Path) -> None:
    """The value comes after this node has followed: it never had the event before."""
    one, other = shop.nodes
    author = open_node("sqlite", tmp_path, one.log_id, "s9", keys=[key(9)], catalog=BEFORE)
    try:
        register(author.log, SUBJECT, OPEN)
        one.sync_with(author.answer)
        nothing = Owned([], None, None)
        (receipt,) = forget(one.log, SUBJECT, owned=nothing)
        assert receipt.forget.erased == 1
        for message in one.batches([Span(one.log.identity.origin, 1, 9)]):
            other.take(message, peer="peer:one")
        (asked,) = pending(other.log)
        follow(other.log, asked.record, owned=nothing)
        assert other.sync_with(author.answer).equal
        (left,) = other.log.stored.read(Query(types=frozenset(("customer.registered",))))
        assert (left.event.payload, left.event.erased_by) == ({}, asked.record)
        assert other.log.verify().ok
        assert not pending(other.log)
    finally:
        author.log.close()

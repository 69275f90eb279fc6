"""What reads a log beside pages, while branches of git come and go: consumers, live views, snapshots, subscribers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CATALOG
from tests.transfer.git.conftest import Clone
from tests.transfer.git.histories import Said
from tests.views.snapshots.logs import QuietFiles

from everlog.consumers import Group
from everlog.core.event import Recorded
from everlog.core.query import Cursor, Query
from everlog.errors import HistoryChanged
from everlog.log.log import Log
from everlog.log.read.pages import OpenPage
from everlog.stores.jsonl import columns
from everlog.stores.jsonl.index import read
from everlog.stores.jsonl.store import JsonlStore
from everlog.views.live import Mode
from everlog.views.registry import Views
from everlog.views.snapshots.snapshots import Snapshots


@pytest.fixture
def log(first: Clone, tmp_path: Path) -> Iterator[Log]:
    """On `main`: base and one; on `feat`: base and two. Main is checked out."""
    first.git("checkout", "-q", "-b", "feat")
    first.say_and_commit("two")
    first.git("checkout", "-q", "main")
    first.say_and_commit("one")

    def make_views(log: Log) -> Views:
        def make_snapshots(log: Log, small_state: Any) -> Snapshots:
            return Snapshots(log, small_state, tmp_path / "snapshots", files=QuietFiles())

        return Views(log, (Said,), make_snapshots=make_snapshots)

    store = JsonlStore(first.folder, now_us=first.clock)
    with Log(store, CATALOG, actor="user:ada", now_us=first.clock, make_views=make_views) as log:
        yield log


def say(log: Log, value: str) -> None:
    log.append("thing.said", stream="thing/1", payload={"value": value})


def test_a_consumer_handles_every_event_of_the_branch(first: Clone, log: Log) -> None:
    """It is told once, and begins again: effects bear repetition, and nothing is skipped."""
    handled: list[object] = []
    resets: list[str] = []
    group = Group(log, "mailer", Query(kind="thing"), key="stream", partitions=2)

    def told(reset: Any) -> None:
        resets.append(reset.reason)

    with group.member("one", on_reset=told) as member:

        def work() -> list[object]:
            handled.clear()
            for delivery in member.deliveries(to_end=True):
                handled.append(delivery.event.payload["value"])
                delivery.ack()
            return list(handled)

        assert (work(), resets) == (["base", "one"], [])
        first.git("checkout", "-q", "feat")
        assert (work(), resets) == (["base", "two"], ["restored"])
        say(log, "three")
        assert (work(), resets) == (["three"], ["restored"])
        first.commit()
        first.git("checkout", "-q", "main")
        assert (work(), resets) == (["base", "one"], ["restored", "restored"])


@pytest.mark.parametrize("mode", [Mode.ON_DEMAND, Mode.INLINE])
def test_a_view_is_that_of_the_branch(first: Clone, log: Log, mode: Mode) -> None:
    view = log.views.register(Said, mode=mode)

    def said() -> list[str]:
        found: list[str] = view.get("thing/1").state
        with first.open() as other:
            assert sorted(str(each.event.payload["value"]) for each in other.read()) == found
        return found

    assert said() == ["base", "one"]
    first.git("checkout", "-q", "feat")
    assert said() == ["base", "two"]
    say(log, "three")
    assert said() == ["base", "three", "two"]
    first.commit()
    first.git("checkout", "-q", "main")
    say(log, "four")  # a write before anybody looks
    assert said() == ["base", "four", "one"]
    first.commit()
    first.git("merge", "-q", "--no-edit", "feat")
    assert said() == ["base", "four", "one", "three", "two"]


def test_a_snapshot_of_another_branch_is_not_used(first: Clone, log: Log) -> None:
    view = log.view(Said)
    assert view.get("thing/1").state == ["base", "one"]
    entry = view.snapshot()
    assert entry.header is not None
    assert log.views.snapshots.stale(entry.header, view.view) == ""
    first.git("checkout", "-q", "feat")
    assert log.views.snapshots.stale(entry.header, view.view) == "it is from another copy of the log"
    assert view.get("thing/1").state == ["base", "two"]
    assert view.get("thing/1", as_of=2).state == ["base", "two"]
    first.git("checkout", "-q", "main")
    assert log.views.snapshots.stale(entry.header, view.view) == ""  # positions mean again what they meant
    assert view.get("thing/1", as_of=2).state == ["base", "one"]


@pytest.mark.parametrize("how", ["read", "newest first", "scan", "packed"])
def test_a_read_never_mixes_two_branches(first: Clone, log: Log, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "PAGE_ROWS", 1)
    monkeypatch.setattr(columns, "SLAB_ROWS", 1)
    store = log._store
    assert isinstance(store, JsonlStore)
    going = {
        "read": store.read(limit=5),
        "newest first": store.read(newest_first=True, limit=5),
        "scan": store.blocks(),
        "packed": store.slots(),
    }[how]
    if how in ("read", "newest first"):
        say(log, "more")
        for number in range(64):  # a first page is not smaller
            say(log, f"{number}")
        first.commit()
        going = store.read(newest_first=how != "read")
    assert next(going) is not None
    first.git("checkout", "-q", "feat")
    store.head()
    with pytest.raises(HistoryChanged):
        list(going)


def test_a_page_ends_where_another_branch_is_checked_out(first: Clone, log: Log) -> None:
    for number in range(200):
        say(log, f"{number}")
    first.commit()
    page = OpenPage(log._store, Cursor(), limit=1000)
    pieces = iter(page)
    page.found = _one_by_one(log._store.read())
    assert next(pieces)
    first.git("checkout", "-q", "feat")
    log.head()
    seen = sum(len(piece) for piece in pieces)
    assert seen < 199
    assert log.page_after(page.next_cursor).reset is not None


def _one_by_one(records: Iterator[Recorded]) -> Iterator[list[Recorded]]:
    for recorded in records:
        yield [recorded]


def test_a_key_of_another_branch_is_free(first: Clone, log: Log) -> None:
    """What was requested there did not happen here."""

    def ask() -> object:
        log.append("thing.said", stream="thing/2", payload={"value": "asked"}, key="key-1")
        return [each.event.payload["value"] for each in log.read(stream="thing/2")]

    assert ask() == ask() == ["asked"]
    first.commit()
    first.git("checkout", "-q", "feat")
    assert list(log.read(stream="thing/2")) == []
    assert ask() == ask() == ["asked"]
    first.commit()
    first.git("checkout", "-q", "main")
    assert ask() == ["asked"]


def test_a_purge_belongs_to_the_branch_until_it_is_merged(first: Clone, log: Log) -> None:
    say(log, "before")
    log.append("thing.said", stream="thing/secret", payload={"value": "secret"})
    first.commit()
    first.git("checkout", "-q", "-b", "purged")
    log.purge("thing/secret", actor="user:ada", reason="asked to")
    first.commit()
    assert list(log.read(stream="thing/secret")) == []
    assert log.verify().ok
    first.git("checkout", "-q", "main")
    assert [each.event.payload["value"] for each in log.read(stream="thing/secret")] == ["secret"]
    say(log, "on main")
    assert log.verify().ok
    first.commit()
    first.git("merge", "-q", "--no-edit", "purged")
    assert list(log.read(stream="thing/secret")) == []
    say(log, "after")
    assert log.verify().ok
